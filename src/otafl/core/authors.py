"""Functions of somebody else's: what fails in one is refused with the line of its source; what one says, by a hash."""

import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dis import get_instructions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy as np

from otafl.core.errors import InputError, OtaflError, first_line

PLAIN = (bool, int, float, complex, str, bytes, NoneType, type(...))
FROZEN = (*PLAIN, tuple, frozenset, CodeType, np.ndarray)  # equal ones may be one object in the next process
CODE = (
    "co_code", "co_exceptiontable", "co_flags", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_consts",
    "co_names", "co_varnames", "co_freevars", "co_cellvars",
)  # fmt: skip


@contextmanager
def by_its_author(name: str, function: Any) -> Iterator[None]:
    """What fails in somebody else's function is refused with the line of its source, the deepest in its own package."""
    try:
        yield
    except (OtaflError, MemoryError):
        raise
    except Exception as problem:
        home = _package(getattr(inspect.unwrap(function), "__module__", None))
        passed = traceback.walk_tb(problem.__traceback__)
        lines = [(frame, line) for frame, line in passed if _package(frame.f_globals.get("__name__")) == home]
        if home == "otafl" or not lines:
            raise
        last = traceback.StackSummary.extract(lines[-1:])[0]
        place = f"{Path(last.filename).name}, line {last.lineno}" + (f", `{last.line}`" if last.line else "")
        raise InputError(f"{name}: fails in {place} ({type(problem).__name__}: {first_line(problem)})") from problem


def _package(module: Any) -> str:
    return str(module).partition(".")[0]


def code_digest(function: Any) -> str:
    """SHA-256 of a function's code, and of what it reads: numbers, arrays, objects, code that is not installed.

    The same in every process: no address is in it and no order of a set. Of installed packages, but for the function's
    own, names are told alone; what is imported inside a function is not seen.

    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1), code_digest(len) == code_digest(max)
    (True, False)
    """
    return _digest(function, _package(getattr(inspect.unwrap(function), "__module__", None)), {})


def _digest(value: Any, home: str, met: dict[int, tuple[int, Any]]) -> str:
    """`met` are those that may lead back to themselves, held on to: what is gone leaves its address to others."""
    hashed, left = hashlib.sha256(), [value]
    while left:
        value = left.pop()
        while _bare(value, home):
            value = _wrapped(value)
        if id(value) in met:
            label, inside = f"again {met[id(value)][0]}", list[Any]()
        else:
            if type(value) not in FROZEN:
                met[id(value)] = len(met), value
            label, inside = _parts(value, home, met)
        hashed.update(f"{len(label)} {len(inside)} {label}".encode())
        left += reversed(inside)
    return hashed.hexdigest()


def _wrapped(value: Any) -> Any:
    """The function that one around it says it is of."""
    try:
        return vars(value).get("__wrapped__")
    except Exception:  # no attributes, or somebody else's answer to the question
        return None


def _bare(value: Any, home: str) -> bool:
    """Whether a function was but jitted or cached: what is around it has no code of its author's and no state."""
    around = _wrapped(value) is not None and type(value) is not FunctionType
    return around and all(name[:1] == "_" for name in vars(value)) and not _counts(type(value).__module__, home)


def _parts(value: Any, home: str, met: dict[int, tuple[int, Any]]) -> tuple[str, list[Any]]:
    """What a value says of itself, and what else makes it up."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, np.generic):
        return f"{kind.__name__} {value!r}", []
    if kind is FunctionType:
        held = [_inside(cell) for cell in value.__closure__ or ()]
        inside: list[Any] = [*held, value.__defaults__, value.__kwdefaults__, vars(value)]
        if not _counts(value.__globals__.get("__name__"), home):
            return f"{value.__module__}.{value.__qualname__}", inside
        return "function", [*inside, value.__code__, _read(value.__code__, value.__globals__, home)]
    if kind is CodeType:
        return "code", [getattr(value, name) for name in CODE]
    if kind is tuple or kind is list:
        return kind.__name__, [*value]
    if kind is dict:
        return "dict", [*value, *value.values()]
    if kind is set or kind is frozenset:
        return kind.__name__, sorted(_digest(one, home, {**met}) for one in value)
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return "array", [value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    if kind is property:
        return "property", [value.fget, value.fset, value.fdel]
    if kind is staticmethod or kind is classmethod:
        return kind.__name__, [value.__func__]
    if isinstance(value, type):
        read = {
            name: vars(value)[name] for name in sorted(vars(value)) if name[:2] != "__" or callable(vars(value)[name])
        }
        return f"class {value.__qualname__}", [value.__bases__, read] if _counts(value.__module__, home) else []
    return f"a {kind.__qualname__}", [*_state(value), _wrapped(value)]


def _state(value: Any) -> list[Any]:
    """What an object holds, as a pickle would take it; nothing where it cannot be told."""
    try:
        said = value.__reduce_ex__(2)
    except Exception:  # locks, modules, whatever somebody else's object says
        return []
    return [said] if isinstance(said, str) else [list(one) if isinstance(one, Iterator) else one for one in said]


def _counts(module: Any, home: str) -> bool:
    """Whether code of this module is its author's: of one package with the function, or not installed."""
    package = _package(module)
    if package == home or package == "otafl" or package in sys.stdlib_module_names:
        return package == home != "otafl"
    known = sys.modules.get(package)
    places = [getattr(known, "__file__", None) or "", *getattr(known, "__path__", ())]
    return not {"site-packages", "dist-packages"} & {part for place in places for part in Path(place).parts}


def _read(code: CodeType, held: dict[str, Any], home: str) -> dict[str, Any]:
    """What a function and those inside it look up in their module; in modules of the author's own, what these hold."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    looked_up = {one.argval for one in get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    found = {name: _of_module(held[name], {*code.co_names}, home, ()) for name in sorted(looked_up & held.keys())}
    return found | {f"{place}": _read(one, held, home) for place, one in enumerate(inner)}


def _of_module(value: Any, names: set[str], home: str, above: tuple[ModuleType, ...]) -> Any:
    """A value itself; of a module of the author's own, what it has by these names."""
    if not isinstance(value, ModuleType) or value in above or not _counts(value.__name__, home):
        return value
    inside = sorted(names & vars(value).keys())
    return {name: _of_module(vars(value)[name], names, home, (*above, value)) for name in inside}


def program_digest(function: Any, *shapes: Any) -> str:
    """SHA-256 of a function of JAX as its program for these shapes, with all constants: what is jitted has its own."""
    import jax  # not before it is needed: planners run without it
    import jax.numpy as jnp
    from jax.extend.core import ClosedJaxpr, Jaxpr

    hashed, left = hashlib.sha256(), [jax.make_jaxpr(function)(*shapes)]
    while left:
        part = left.pop()
        if isinstance(part, ClosedJaxpr):
            hashed.update(re.sub(r"0x[0-9a-f]+", "", str(part)).encode())
            for held in part.consts:
                key = jnp.issubdtype(getattr(held, "dtype", int), jax.dtypes.prng_key)
                hashed.update(np.asarray(jax.random.key_data(held) if key else held).tobytes())
        if isinstance(part, ClosedJaxpr | Jaxpr):
            left += [value for equation in part.eqns for value in equation.params.values()]
        elif isinstance(part, tuple | list):
            left += part
    return hashed.hexdigest()


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
