"""Executors by name: what `--executor` takes. An executor of your own is anything with `submit(function, argument)`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.runs.board import board
from otafl.runs.executors import Executor
from otafl.runs.remote import Elsewhere

KINDS = ("local", "ray")


@contextmanager
def opened(wanted: Any) -> Iterator[Executor]:
    """The executor of `local`, `local:4`, `ray`, `ray:ADDRESS`, closed afterwards; one that was given stays open."""
    if not isinstance(wanted, str):
        if not callable(getattr(wanted, "submit", None)):
            found = f"executor={validate.shown(wanted)}"
            raise InputError(f"{found} must be local[:N], ray[:ADDRESS] or have submit(function, argument)")
        yield wanted
        return
    kind, _, rest = wanted.partition(":")
    validate.one_of("executor", kind, KINDS)
    made = _local(rest) if kind == "local" else _ray(rest)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def elsewhere(executor: Any, json_log: bool = False, progress: bool = True) -> Iterator[Elsewhere | None]:
    """The executor of that name and a board for what it does; None where nobody asked for one."""
    from rich.console import Console

    if executor is None:
        yield None
        return
    with opened(executor) as where, board(Console(stderr=True), json_log, progress) as live:
        yield Elsewhere(where, live)


def _local(rest: str) -> Any:
    from otafl.runs.workers import Local

    if rest and not (rest.isascii() and rest.isdigit() and len(rest) <= 4 and 0 < int(rest) <= 4096):
        said = validate.shown(f"local:{rest}")
        raise InputError(f"executor={said}: the number of processes must be a whole number from 1 to 4096")
    return Local(int(rest) if rest else None)


def _ray(rest: str) -> Any:
    from otafl.connect.ray import Ray

    return Ray(rest or "auto")
