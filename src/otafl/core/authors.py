"""Functions of somebody else's: what fails in one is refused with the line of its source; what one says, by a hash."""

import hashlib
import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from otafl.core.errors import InputError, OtaflError, first_line


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
    """SHA-256 of a function's code, and of the numbers, arrays and functions of its own package that it reads.

    What else it holds (objects, other packages) is told by its type or name alone.

    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 1), code_digest(len) == code_digest(max)
    (True, False)
    """
    hashed = hashlib.sha256()
    for part in _said(inspect.unwrap(function), set()):
        hashed.update(f"{len(part)}:".encode() + part)
    return hashed.hexdigest()


def _said(value: Any, seen: set[int]) -> Iterator[bytes]:
    if isinstance(value, FunctionType | list | dict):  # which may lead back to themselves
        if id(value) in seen:
            return
        seen.add(id(value))
    if isinstance(value, FunctionType):
        known = dict(zip(value.__code__.co_freevars, (_inside(cell) for cell in value.__closure__ or ())))
        known |= {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        for one in (value.__code__, value.__defaults__, value.__kwdefaults__ and tuple(value.__kwdefaults__.items())):
            yield from _said(one, seen)
        for name, held in sorted(known.items()):
            held = inspect.unwrap(held) if callable(held) else held
            if not isinstance(held, FunctionType) or _package(held.__module__) == _package(value.__module__):
                yield name.encode()
                yield from _said(held, seen)
    elif isinstance(value, CodeType):
        yield value.co_code
        yield from _said((value.co_names, value.co_varnames, value.co_consts), seen)
    elif isinstance(value, tuple | list | dict):
        for one in value.items() if isinstance(value, dict) else value:
            yield from _said(one, seen)
    elif isinstance(value, frozenset):
        yield from _said(tuple(sorted(map(repr, value))), seen)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        yield f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
    elif isinstance(value, bool | int | float | complex | str | bytes | None | np.generic):
        yield f"{type(value).__name__} {value!r}".encode()
    else:
        yield getattr(value, "__qualname__", type(value).__qualname__).encode()


def _names(code: CodeType) -> set[str]:
    """Of all that a function and those inside it may look up."""
    return {*code.co_names}.union(*(_names(one) for one in code.co_consts if isinstance(one, CodeType)))


def _inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
