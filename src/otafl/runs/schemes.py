"""A scheme as a value: one function per entry of the registry, with the signature and the defaults of its `Config`.

`otafl.constant(rx_scale=0.3)` is `Chosen("constant", Config(rx_scale=0.3))`. What a function checks is what an
experiment file is checked for.
"""

import dataclasses
import inspect
import io
import tokenize
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, get_type_hints

from otafl import systems
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.runs.schema import options_of, tagged
from otafl.systems.system import LoadedScheme

Factory = Callable[..., "Chosen"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A scheme and its settings, ready to be planned at a site."""

    name: str
    config: Any

    def __repr__(self) -> str:
        own = (
            f"{field.name}={value!r}"
            for field in dataclasses.fields(self.config)
            if (value := getattr(self.config, field.name)) != field.default
        )
        return f"otafl.{self.name.replace('-', '_')}({', '.join(own)})"


def chosen(scheme: Any) -> Chosen:
    """A scheme given by name or as a value."""
    if isinstance(scheme, Chosen):
        return scheme
    if callable(scheme):
        name = getattr(scheme, "__name__", "it")
        raise InputError(f"scheme={name} is a function that makes a scheme, not one; call it: {name}()")
    if not isinstance(scheme, str):
        rule = "must be a name or a scheme value such as otafl.constant(rx_scale=0.3)"
        raise InputError(f"scheme={validate.shown(scheme)} {rule}")
    return choose(scheme, {})


def choose(name: str, settings: dict[str, Any]) -> Chosen:
    """Settings checked as an experiment file's are; the first mistake is one line."""
    config = systems.scheme(name).config
    found = parse(_model(name, config), dict(settings), f"otafl.{name.replace('-', '_')}")
    return Chosen(name, options_of(found, config))


@cache
def _model(name: str, config: type) -> Any:
    return tagged(name, "name", config)


# --- the functions of the front door -----------------------------------------------------------------------------


def factory_names() -> list[str]:
    return [name.replace("-", "_") for name in systems.SCHEMES]


def factory_named(attribute: str, others: Collection[str] = ()) -> Factory:
    """The function behind `otafl.<attribute>`; AttributeError as Python wants it if there is no such scheme.

    others: further names that may have been meant.
    """
    names = {name.replace("-", "_"): name for name in systems.SCHEMES}
    if attribute not in names:
        near = validate.meant(attribute, [*names, *others])
        raise AttributeError(f"module 'otafl' has no attribute {attribute!r}{near}")
    return _factory(names[attribute], systems.scheme(names[attribute]))


@cache
def _factory(name: str, scheme: LoadedScheme) -> Factory:
    attribute, hints = name.replace("-", "_"), get_type_hints(scheme.config)
    parameters = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=_default(f), annotation=hints[f.name])
        for f in dataclasses.fields(scheme.config)
    ]

    def make(**settings: Any) -> Chosen:
        return choose(name, settings)

    make.__name__ = make.__qualname__ = attribute
    make.__module__ = "otafl"
    make.__doc__ = _described(attribute, scheme, parameters)
    make.__signature__ = inspect.Signature(parameters, return_annotation=Chosen)  # type: ignore[attr-defined]
    return make


def _default(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return inspect.Parameter.empty if field.default_factory is dataclasses.MISSING else field.default_factory()


def _described(attribute: str, scheme: LoadedScheme, parameters: list[inspect.Parameter]) -> str:
    """Summary, what the Config says, every setting with its meaning, and an example that runs."""
    said, notes = inspect.getdoc(scheme.config) or "", _comments(scheme.config)
    plain = said.startswith(f"{scheme.config.__name__}(")  # what dataclass writes where nobody did
    lines = [f"{scheme.summary[:1].upper()}{scheme.summary[1:]}.", "", *([] if plain else [said, ""])]
    lines += ["Parameters", "----------"] if parameters else []
    for one in parameters:
        needed = one.default is inspect.Parameter.empty
        kind = inspect.formatannotation(one.annotation)
        lines.append(f"{one.name} : {kind}" + ("" if needed else f", default {one.default!r}"))
        lines += [f"    {notes[one.name]}"] if one.name in notes else []
    lines += ["", "Returns", "-------", "Chosen", "    the scheme so set, for `otafl.run` and `otafl.Air`", ""]
    call = f"otafl.{attribute}({', '.join(_sample(one) for one in parameters if one.default is one.empty)})"
    return "\n".join([*lines, "Examples", "--------", ">>> import otafl", f">>> {call}", call, ""])


def _sample(parameter: inspect.Parameter) -> str:
    """A value for a setting that has no default."""
    samples = {float: "0.1", int: "1", str: "''", bool: "True"}
    return f"{parameter.name}={samples.get(parameter.annotation, '0.1')}"


def _comments(config: type) -> dict[str, str]:
    """What stands behind each field in the source: the settings are described where they are declared."""
    found: dict[str, str] = {}
    for one in reversed(config.__mro__):
        if not dataclasses.is_dataclass(one):
            continue
        try:
            source = inspect.getsource(one)
        except (OSError, TypeError):  # made in a notebook or by a program
            continue
        lines = source.splitlines()
        for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
            if token.type == tokenize.COMMENT:
                name = lines[token.start[0] - 1].strip().partition(":")[0]
                found[name] = token.string.removeprefix("#").strip()
    return found
