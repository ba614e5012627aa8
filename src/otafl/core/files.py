"""Reading files that users wrote: TOML into a pydantic model, every mistake one line with file, key, value and rule."""

import dataclasses
import json
import math
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

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
from otafl.core.errors import InputError, OtaflError


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
        return _in_symbols(told, getattr(self, "written", {}))

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


def _in_symbols(told: str, written: dict[str, str]) -> str:
    """A key that may be a word of the language is a name where the text begins, before a value or an index, in quotes.

    >>> _in_symbols("rounds=0 must be a whole number: no rounds, no clip_norm", {"rounds": "T", "clip_norm": "G"})
    'T=0 must be a whole number: no rounds, no G'
    """
    plain = {key: re.escape(key) for key in written}
    names = [rf"^{key}\b|\b{key}(?=[=['])" if word.islower() and word.isalpha() else rf"\b{key}\b"
             for word, key in plain.items()]  # fmt: skip
    return re.sub("|".join(names), lambda found: written[found.group()], told) if names else told


def _refuse_guess(key: str, given: Any, read: Any) -> None:
    """pydantic takes "5" and true for numbers; a file that says so is mistaken."""
    if isinstance(given, list) and isinstance(read, list | tuple):
        for n, (one, other) in enumerate(zip(given, read)):
            _refuse_guess(f"{key}[{n}]", one, other)
    elif isinstance(given, str | bool) and isinstance(read, int | float) and type(given) is not type(read):
        kind = "true or false" if isinstance(read, bool) else "a number"
        raise InputError(f"{key} must be {kind}, not {json.dumps(given)[:80]}")


def _refuse_extremes(value: Any, key: str = "") -> None:
    """TOML's whole numbers have 64 bits; Python's do not end, and NumPy's do. Others have the ranges of `validate`."""
    if isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_extremes(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{_quoted(key)}={validate.shown(value)} must fit into 64 bits")
    elif isinstance(value, int | float):
        validate.in_range(_quoted(key), value)


M = TypeVar("M", bound=BaseModel)


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
    except (ValueError, RecursionError) as error:  # bad syntax, endless digits, endless nesting
        raise InputError(f"{path}: not valid TOML: {error}") from None


def parse(model: type[M], data: dict[str, Any], source: str | Path) -> M:
    """Validate `data` against `model`; the first mistake becomes a one-line InputError."""
    try:
        _refuse_extremes(data)
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error, model, _written(model, data))}") from None
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


def _explain(error: ValidationError, model: type[BaseModel], written: dict[str, str]) -> str:
    vague = ("_type", "_parsing", "literal_error")  # every member of a union complains: the closest one is shown
    problem = min(error.errors(), key=lambda one: (one["type"].endswith(vague), -len(one["loc"])))
    unknown = problem["type"] in ("extra_forbidden", "unexpected_keyword_argument")
    location, tables = _locate(model, problem["loc"], unknown)
    key = ".".join(location) or "file"
    symbol = next((one for one in written if f"{key}.".startswith(f"{one}.")), "")
    key = written.get(symbol, "") + key.removeprefix(symbol)
    context = problem.get("ctx", {})
    if isinstance(inner := context.get("error"), OtaflError | ValueError):  # one of our own checks inside a validator
        return f"{key}: {inner}" if location else _in_symbols(str(inner), written)
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = context["discriminator"].strip("'")
        if "expected_tags" not in context:
            return f"{key}.{tag} is required"
        allowed = context["expected_tags"].replace("'", "")
        near = validate.meant(str(context["tag"]), allowed.split(", "))
        return f"{key}.{tag}={validate.shown(context['tag'])} must be one of {allowed}{near}"
    if unknown:
        known = [name for table in tables for name in (*_fields(table), *getattr(table, "SYMBOLS", {}))]
        return f"{_quoted(key)}: unknown key{validate.meant(location[-1], known)}"
    if problem["type"] == "missing":
        return f"{key}: missing, this key is required"
    places = {tuple(_locate(model, one["loc"], False)[0]) for one in error.errors()}
    more = sum(list(place) != location[: len(place)] for place in places)  # not other members of the same union
    also = f" (and {more} more)" if more else ""
    found = "" if isinstance(problem["input"], dict | list) else f"={validate.shown(problem['input'])}"
    if problem["type"] == "literal_error":
        allowed = context["expected"].replace("'", "").replace(" or ", ", ")
        near = validate.meant(str(problem["input"]), allowed.split(", "))
        return f"{key}{found} must be one of {allowed}{near}{also}"
    if rule := RULES.get(problem["type"].removesuffix("_parsing").removesuffix("_type")):
        return f"{key}{found} must {rule.format(**context)}{also}"
    return f"{key}{found}: {problem['msg'][0].lower() + problem['msg'][1:]}{also}"


RULES = {  # what pydantic says in the words of Python, by its kinds of errors
    "greater_than": "be > {gt:.12g}", "greater_than_equal": "be >= {ge:.12g}", "less_than": "be < {lt:.12g}",
    "less_than_equal": "be <= {le:.12g}", "finite_number": "be a finite number", "int": "be a whole number",
    "int_from_float": "be a whole number", "float": "be a number", "bool": "be true or false", "string": "be text",
    "list": "be a list", "tuple": "be a list", "dict": "be a table", "model": "be a table",
    "model_attributes": "be a table", "dataclass": "be a table", "too_short": "list at least {min_length}",
    "too_long": "list at most {max_length}", "path": "be a path",
}  # fmt: skip


def _quoted(key: str) -> str:
    """A key as it stands in the file; escaped or cut where it has line breaks or thousands of letters."""
    return key if key.isprintable() and len(key) <= 200 else validate.shown(key)


def _tables_in(annotation: Any) -> list[type]:
    """Models and dataclasses anywhere inside an annotation."""
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables_in(part)]


def _fields(table: type) -> dict[str, Any]:
    if issubclass(table, BaseModel):
        return {name: field.annotation for name, field in table.model_fields.items()}
    hints = get_type_hints(table)
    return {field.name: hints[field.name] for field in dataclasses.fields(table)}  # type: ignore[arg-type]


def _locate(model: type[BaseModel], location: tuple[int | str, ...], unknown: bool) -> tuple[list[str], list[type]]:
    """A place in the file, and the tables that may stand there.

    pydantic's locations also name the members of unions that it tried, by class, type or tag. They are no part of the
    file; only walking along the model tells them from keys.
    """
    keys: list[str] = []
    tables: list[type] = [model]
    for n, part in enumerate(location):
        found = [annotation for table in tables if (annotation := _fields(table).get(str(part))) is not None]
        if found:
            tables = [table for annotation in found for table in _tables_in(annotation)]
        elif members := [table for table in tables if part in (table.__name__, *_tags(table))]:
            tables = members
            continue
        elif not isinstance(part, int) and not (unknown and n == len(location) - 1):
            continue
        keys.append(str(part))
    return keys, tables


def _tags(table: type) -> list[Any]:
    """Values of the literals in a table: what a discriminated union calls its members."""
    literals = [annotation for annotation in _fields(table).values() if get_origin(annotation) is Literal]
    return [value for literal in literals for value in get_args(literal)]


def plain(value: Any) -> Any:
    """Make a result fit strict JSON: arrays become lists, NaN becomes null, infinities the strings "inf" and "-inf"."""
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


PART = ".part"  # a file that is being written; one that stays belonged to a process that was killed


def write_atomic(path: Path, content: bytes | str | Sequence[Any]) -> None:
    """Write so that a reader, or a kill at any moment, sees the old file or the new one, never a part.

    `content` may be pieces of a file, bytes or buffers: what is large need not be copied to be joined.
    """
    path = Path(path)
    whole = content.encode(errors="surrogateescape") if isinstance(content, str) else content  # paths are bytes
    pieces: Sequence[Any] = [whole] if isinstance(whole, bytes) else whole
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as problem:
        Path(temporary).unlink(missing_ok=True)
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
