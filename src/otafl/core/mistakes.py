"""A mistake in a file as one line: pydantic's report in the words of the file, with key, value and rule."""

import dataclasses
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from otafl.core import validate
from otafl.core.errors import OtaflError


def explain(error: ValidationError, model: type[BaseModel], written: dict[str, str]) -> str:
    """The first mistake that pydantic found in a table; `written` are keys that it states by a symbol."""
    vague = ("_type", "_parsing", "literal_error")  # every member of a union complains: the closest one is shown
    problem = min(error.errors(), key=lambda one: (one["type"].endswith(vague), -len(one["loc"])))
    unknown = problem["type"] in ("extra_forbidden", "unexpected_keyword_argument")
    location, tables = _locate(model, problem["loc"], unknown)
    key = ".".join(location) or "file"
    symbol = next((one for one in written if f"{key}.".startswith(f"{one}.")), "")
    key = written.get(symbol, "") + key.removeprefix(symbol)
    context = problem.get("ctx", {})
    if isinstance(inner := context.get("error"), OtaflError | ValueError):  # one of our own checks inside a validator
        return f"{key}: {inner}" if location else in_symbols(str(inner), written)
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = context["discriminator"].strip("'")
        if "expected_tags" not in context:
            kinds = [kind for table in tables for kind in get_args(_fields(table).get(tag))]
            return f"{key}.{tag} is required: one of {validate.listed(dict.fromkeys(kinds))}"
        allowed = context["expected_tags"].replace("'", "")
        near = validate.meant(str(context["tag"]), allowed.split(", "))
        return f"{key}.{tag}={validate.shown(context['tag'])} must be one of {allowed}{near}"
    if unknown:
        known = [name for table in tables for name in (*_fields(table), *getattr(table, "SYMBOLS", {}))]
        return f"{quoted(key)}: unknown key{_elsewhere(model, location) or validate.meant(location[-1], known)}"
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
    if problem["type"] in ("list_type", "tuple_type") and isinstance(problem["input"], dict):
        return f"{key} must be a list: [[{key}]] begins each of its tables"
    if rule := RULES.get(problem["type"].removesuffix("_size").removesuffix("_parsing").removesuffix("_type")):
        return f"{key}{found} must {rule.format(**context)}{_by_name(tables, problem['input'])}{also}"
    return f"{key}{found}: {problem['msg'][0].lower() + problem['msg'][1:]}{also}"


RULES = {  # what pydantic says in the words of Python, by its kinds of errors
    "greater_than": "be > {gt:.12g}", "greater_than_equal": "be >= {ge:.12g}", "less_than": "be < {lt:.12g}",
    "less_than_equal": "be <= {le:.12g}", "finite_number": "be a finite number", "int": "be a whole number",
    "int_from_float": "be a whole number", "float": "be a number", "bool": "be true or false", "string": "be text",
    "list": "be a list", "tuple": "be a list", "dict": "be a table", "model": "be a table",
    "model_attributes": "be a table", "dataclass": "be a table", "too_short": "list at least {min_length}",
    "too_long": "list at most {max_length}", "path": "be a path",
}  # fmt: skip


def quoted(key: str) -> str:
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


def _by_name(tables: list[type], value: Any) -> str:
    """The table that a name stands for, where one of these has it."""
    found = [n for table in tables for n, kind in _fields(table).items() if isinstance(value, str)
             and get_origin(kind) is Literal and value in get_args(kind)]  # fmt: skip
    return f": {{ {found[0]} = {value!r} }}" if found else ""


def _elsewhere(model: type[BaseModel], location: list[str]) -> str:
    """The end of a message about a key that other tables of the file have."""
    said = location[-1]
    key = validate.OTHERS_SAY.get(said, said)
    if key in _fields(model):
        return "; it stands above the first [table] of the file" if key == said and len(location) > 1 else ""
    has = [n for n, kind in _fields(model).items() if any(key in _fields(table) for table in _tables_in(kind))]
    if not has or {*has} & {*location}:
        return ""
    if key == said:
        return f"; it is a key of {' and of '.join(has)}"
    return f"; did you mean '{key}' of {' or of '.join(has)}?"


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


def in_symbols(told: str, written: dict[str, str]) -> str:
    """A key that may be a word of the language is a name where the text begins, before a value or an index, in quotes.

    >>> in_symbols("rounds=0 must be a whole number: no rounds, no clip_norm", {"rounds": "T", "clip_norm": "G"})
    'T=0 must be a whole number: no rounds, no G'
    """
    plain = {key: re.escape(key) for key in written}
    names = [rf"^{key}\b|\b{key}(?=[=['])" if word.islower() and word.isalpha() else rf"\b{key}\b"
             for word, key in plain.items()]  # fmt: skip
    return re.sub("|".join(names), lambda found: written[found.group()], told) if names else told
