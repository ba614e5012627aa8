"""Reading files that users wrote: TOML into a pydantic model, every mistake one line with file, key, value and rule."""

import dataclasses
import difflib
import json
import math
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from otafl.errors import InputError, OtaflError


class FileModel(BaseModel):
    """Base of everything that is read from a file: unknown keys are refused, values are not coerced from strings."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


M = TypeVar("M", bound=BaseModel)

# What pydantic puts into a location besides keys, to say which member of a union it tried.
UNION_MEMBER = re.compile(r"str|int|float|bool|dict|[A-Z][a-z]{2,}\w*|(list|dict|tuple|literal|constrained|function|nullable)[-\[].*")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; InputError names the file and the line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, expected a TOML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def parse(model: type[M], data: dict[str, Any], source: str | Path) -> M:
    """Validate `data` against `model`; the first mistake becomes a one-line InputError."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error, model)}") from None


def read(model: type[M], path: Path) -> M:
    """Read a TOML file into `model`."""
    return parse(model, read_toml(path), path)


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    problem = error.errors()[0]
    inner = problem.get("ctx", {}).get("error")
    location = [str(part) for n, part in enumerate(problem["loc"]) if n == 0 or not UNION_MEMBER.fullmatch(str(part))]
    key = ".".join(location) or "file"
    value = problem["input"]
    shown = value if not isinstance(value, dict | list) else type(value).__name__
    if isinstance(inner, OtaflError | ValueError):  # one of our own checks inside a validator
        return f"{key}: {inner}" if location else str(inner)
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        context = problem.get("ctx", {})
        tag = context.get("discriminator", "").strip("'")
        said = f"={context['tag']!r}" if "tag" in context else ""
        expected = f" must be one of {context['expected_tags']}".replace("'", "") if "expected_tags" in context else " is required"
        return f"{key}.{tag}{said}{expected}"
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        near = difflib.get_close_matches(location[-1], _keys_at(model, location[:-1]), n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return f"{key}: unknown key{hint}"
    if problem["type"] == "missing":
        return f"{key}: missing, this key is required"
    more = error.error_count() - 1
    also = f" (and {more} more)" if more else ""
    return f"{key}={shown!r}: {problem['msg'][0].lower() + problem['msg'][1:]}{also}"


def _tables_in(annotation: Any) -> list[type]:
    """Models and dataclasses anywhere inside an annotation."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables_in(part)]


def _fields(table: type) -> dict[str, Any]:
    if issubclass(table, BaseModel):
        return {name: field.annotation for name, field in table.model_fields.items()}
    return get_type_hints(table)


def _keys_at(model: type[BaseModel], location: list[str]) -> list[str]:
    """The keys that are known where an unknown one was found."""
    tables: list[type] = [model]
    for part in location:
        inner = [t for outer in tables if part in _fields(outer) for t in _tables_in(_fields(outer)[part])]
        tables = inner or tables  # list indices and union tags do not descend
    return [field for table in tables for field in _fields(table)]


def plain(value: Any) -> Any:
    """Make a result fit strict JSON: arrays become lists, NaN becomes null, infinities the strings "inf" and "-inf"."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, complex):
        return {"re": plain(value.real), "im": plain(value.imag)}
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Path):
        return str(value)
    return value


def to_json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write so that a reader, or a kill at any moment, sees the old file or the new one, never a part."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
