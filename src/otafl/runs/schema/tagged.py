"""File models from the frozen dataclasses that schemes, clients, partitions and models declare in their own modules."""

import dataclasses
from typing import Annotated, Any, Literal, Union, get_type_hints

from pydantic import Field, PydanticUserError, create_model

from otafl.core.errors import InputError, first_line
from otafl.core.files import FileModel


def tagged(name: str, tag: str, options: type, **common: Any) -> type[FileModel]:
    """A file model with the fields of a dataclass, its tag, and fields common to all of its kind."""
    hints = get_type_hints(options, include_extras=True)
    fields: dict[str, Any] = {tag: (Literal[name], name), **common}
    for f in dataclasses.fields(options):
        if f.name in fields:
            raise InputError(f"{name}: its setting {f.name!r} has a name that every {tag} has; choose another")
        if f.default is not dataclasses.MISSING:
            default: Any = f.default
        else:
            default = ... if f.default_factory is dataclasses.MISSING else Field(default_factory=f.default_factory)
        fields[f.name] = (hints[f.name], default)
    title = "".join(part.capitalize() for part in name.replace("_", "-").split("-"))
    try:
        return create_model(title, __base__=FileModel, **fields)
    except PydanticUserError as problem:
        raise InputError(f"{name}: its settings cannot stand in a file ({first_line(problem)})") from None


def options_of(model: FileModel, options: type) -> Any:
    """The dataclass that a tagged model was made from, with the file's values."""
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(options)}
    return options(**values)


def union(kinds: dict[str, type], tag: str, **common: Any) -> Any:
    made = tuple(tagged(name, tag, options, **common) for name, options in kinds.items())
    return Annotated[Union[made], Field(discriminator=tag)] if len(made) > 1 else made[0]  # noqa: UP007
