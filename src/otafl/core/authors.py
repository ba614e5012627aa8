"""Functions of somebody else's: what fails in one is refused with the line of its source."""

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
