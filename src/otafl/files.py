"""Reading files that users wrote: TOML into a pydantic model, every mistake one line with file, key, value and rule."""

import difflib
import json
import math
import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from otafl.errors import InputError, OtaflError


class FileModel(BaseModel):
    """Base of everything that is read from a file: unknown keys are refused, values are not coerced from strings."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


M = TypeVar("M", bound=BaseModel)

# What pydantic puts into a location besides keys, to say which member of a union it tried.
UNION_MEMBER = re.compile(r"str|int|float|bool|dict|[A-Z]\w*|(list|dict|tuple|literal|constrained|function|nullable)[-\[].*")


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
    location = [str(part) for part in problem["loc"] if not UNION_MEMBER.fullmatch(str(part))]
    key = ".".join(location) or "file"
    value = problem["input"]
    shown = value if not isinstance(value, dict | list) else type(value).__name__
    if isinstance(inner, OtaflError | ValueError):  # one of our own checks inside a validator
        return f"{key}: {inner}" if location else str(inner)
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(location[-1], _keys_at(model, location[:-1]), n=1, cutoff=0.5)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        return f"{key}: unknown key{hint}"
    if problem["type"] == "missing":
        return f"{key}: missing, this key is required"
    more = error.error_count() - 1
    also = f" (and {more} more)" if more else ""
    return f"{key}={shown!r}: {problem['msg'][0].lower() + problem['msg'][1:]}{also}"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _keys_at(model: type[BaseModel], location: list[str]) -> list[str]:
    """The keys that are known where an unknown one was found."""
    models: list[type[BaseModel]] = [model]
    for part in location:
        inner = [m for outer in models if part in outer.model_fields for m in _models_in(outer.model_fields[part].annotation)]
        models = inner or models  # list indices and union tags do not descend
    return [field for m in models for field in m.model_fields]


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
