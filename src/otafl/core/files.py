"""Reading files that users wrote: TOML into a pydantic model, every mistake one line with file, key, value and rule."""

import csv
import io
import json
import math
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.mistakes import explain, in_symbols, quoted


class FileModel(BaseModel):
    """Base of everything that is read from a file: unknown keys are refused, text and booleans are no numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)
    SYMBOLS: ClassVar[dict[str, str]] = {}  # a paper's symbol -> the key it stands for; a file may use either
    MOVED: ClassVar[dict[str, str]] = {}  # the same for keys inside a table, into which the model moves them itself
    __slots__ = ("written",)  # key -> the symbol that this file has for it; no part of what it says

    @model_validator(mode="wrap")
    @classmethod
    def _no_guessing(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        written = _written(cls, data)
        data = _keys(data, cls.SYMBOLS)
        model = read(data)
        for key, value in data.items() if isinstance(data, dict) else ():
            _refuse_guess(key, value, getattr(model, key, value))
        object.__setattr__(model, "written", written)
        return model

    def in_its_words(self, told: str) -> str:
        """A refusal that names keys, with the names that the file has for them."""
        return in_symbols(told, getattr(self, "written", {}))

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        keys = schema.get("properties", {})
        for symbol, key in cls.SYMBOLS.items():
            keys[symbol] = {name: part for name, part in keys[key].items() if name != "title"}
            keys[symbol]["description"] = f"another name of {key}"
        if "required" in schema:  # a key with another name may be missing under its own
            schema["required"] = [key for key in schema["required"] if key not in cls.SYMBOLS.values()]
        return schema


def _keys(data: Any, symbols: dict[str, str]) -> Any:
    """A table with symbols replaced by the keys they stand for."""
    if not isinstance(data, dict):
        return data
    names: dict[str, str] = {}
    for name in map(str, data):
        key = symbols.get(name, name)
        if key in names:
            first, second = sorted((name, names[key]), key=lambda one: one not in symbols)
            raise InputError(f"{first} and {second} are two names of one thing; give one of them")
        names[key] = name
    return {symbols.get(key, key): value for key, value in data.items()}


def _written(model: type[BaseModel], data: Any) -> dict[str, str]:
    """Keys of a model that a table states by a symbol, and that symbol."""
    symbols = getattr(model, "SYMBOLS", {}) | getattr(model, "MOVED", {})
    stated = data if isinstance(data, dict) else {}
    used = {key: symbol for symbol, key in symbols.items() if symbol in stated}
    return {key: symbol for key, symbol in used.items() if key.partition(".")[0] not in stated}


def _refuse_guess(key: str, given: Any, read: Any) -> None:
    """pydantic takes "5" and true for numbers; a file that says so is mistaken."""
    if isinstance(given, list) and isinstance(read, list | tuple):
        for n, (one, other) in enumerate(zip(given, read)):
            _refuse_guess(f"{key}[{n}]", one, other)
    elif isinstance(given, str | bool) and isinstance(read, int | float) and type(given) is not type(read):
        kind = "true or false" if isinstance(read, bool) else "a number"
        raise InputError(f"{key} must be {kind}, not {json.dumps(given)[:80]}")


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """What stands in tables and lists, each with its key.

    >>> list(leaves({"a": {"b": [1, 2]}, "c": "d"}))
    [('a.b.0', 1), ('a.b.1', 2), ('c', 'd')]
    """
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(name, str):
                raise InputError(f"{key}: the key {validate.shown(name)} must be text".removeprefix(": "))
            yield from leaves(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _refuse_extremes(data: Any) -> None:
    """TOML's whole numbers have 64 bits; Python's do not end, and NumPy's do. Others have the ranges of `validate`.

    Text is for people or names files: a zero byte is for neither.
    """
    for key, value in leaves(data):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"{quoted(key)}={validate.shown(value)} must fit into 64 bits")
        if isinstance(value, str) and "\0" in value:  # it would end the name of a file, which the system refuses
            raise InputError(f"{quoted(key)}={validate.shown(value)} must have no zero byte")
        if isinstance(value, int | float):
            validate.in_range(quoted(key), value)


M = TypeVar("M", bound=BaseModel)
LARGEST_TEXT = 2**30


def read_text(path: Path) -> str:
    """A file of text as `Path.read_text` gives it, but one without end ends; InputError if it is none."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise InputError(f"{path}: has more than {LARGEST_TEXT >> 30} GiB, which is no file of text")
    try:
        text = content.decode("utf-8-sig")  # Windows' editors put a mark in front
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; InputError names the file and the line."""
    try:
        return tomllib.loads(read_text(path))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, expected a TOML file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # bad syntax, endless digits, endless nesting
        raise InputError(f"{path}: not valid TOML: {error}") from None


def parse(model: type[M], data: dict[str, Any], source: str | Path) -> M:
    """Validate `data` against `model`; the first mistake becomes a one-line InputError."""
    try:
        _refuse_extremes(data)
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error, model, _written(model, data))}") from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except RecursionError:
        raise InputError(f"{source}: tables stand in tables a thousand deep, which no key asks for") from None


def read(model: type[M], path: Path) -> M:
    """Read a TOML file into `model`."""
    return parse(model, read_toml(path), path)


@contextmanager
def naming(file: Path, in_its_words: Callable[[str], str] = str) -> Iterator[None]:
    """Whatever is refused inside as bad input names a file: this one, unless the refusal begins with another's path."""
    try:
        yield
    except InputError as error:
        told = str(error).partition(":")[0]
        if told == str(file) or os.path.exists(told) or os.path.isdir(os.path.dirname(told)):
            raise
        raise type(error)(f"{file}: {in_its_words(str(error))}") from None


def plain(value: Any) -> Any:
    """Make a result fit strict JSON: arrays become lists, NaN becomes null, infinities the strings "inf" and "-inf"."""
    if type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)):  # most of what there is
        return value
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, np.ndarray):
        ready = value.dtype.kind in "iub" or (value.dtype.kind == "f" and bool(np.isfinite(value).all()))
        return value.tolist() if ready else plain(value.tolist())
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


def as_toml(value: Any) -> str:
    """A value as it stands on the right of `key=` in an override.

    >>> as_toml({"name": "mnist", "size": [1, 2]})
    '{ name = "mnist", size = [1, 2] }'
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {as_toml(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(map(as_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def as_csv(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as comma-separated lines, the same bytes on every machine.

    >>> as_csv(["name", "gain"], [["a, b", 0.5], ["c", None]])
    'name,gain\\n"a, b",0.5\\nc,\\n'
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


PART = ".part"  # a file that is being written; one that stays belonged to a process that was killed


def write_atomic(path: Path, content: bytes | str | Sequence[Any]) -> None:
    """Write so that a reader, or a kill at any moment, sees the old file or the new one, never a part.

    `content` may be pieces of a file, bytes or buffers: what is large need not be copied to be joined.
    """
    path = Path(path)
    whole = content.encode(errors="surrogateescape") if isinstance(content, str) else content  # paths are bytes
    pieces: Sequence[Any] = [whole] if isinstance(whole, bytes) else whole
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}{PART}"
    try:  # for those to read whom the umask lets
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError):
            problem.filename = str(path)  # a full disk does not say which file
        raise


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder."""
    for left in Path(folder).glob(f".*{PART}"):
        left.unlink(missing_ok=True)


def slug(label: str) -> str:
    """A label as a folder name.

    >>> slug("CARES static (η=0.40)")
    'cares-static-0.40'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "scheme"
