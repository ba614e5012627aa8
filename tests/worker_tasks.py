"""Tasks for the workers of tests: a worker imports them by name."""

import os
import time
from pathlib import Path

from otafl.core.errors import Interrupted
from otafl.runs.executors import DONE, Outcome
from otafl.runs.interrupts import graceful_stop
from otafl.runs.workers import one_core


def square(number: int) -> Outcome:
    return Outcome(DONE, value=number**2)


def who(folder: str) -> Outcome:
    """Says by a file which process does it, and the first time is long about it."""
    place = Path(folder)
    first = not any(place.iterdir())
    (place / str(os.getpid())).touch()
    if first:
        time.sleep(60)
    return Outcome(DONE, value=os.getpid())


def cores_of(_: None) -> Outcome:
    return Outcome(DONE, value={name: os.environ[name] for name in one_core()})


def until_told(folder: str) -> Outcome:
    """As a run does: SIGTERM ends it at its next checkpoint."""
    with graceful_stop() as stop:
        (Path(folder) / "began").touch()
        while not stop.requested:
            time.sleep(0.01)
    return Outcome("interrupted", Interrupted.exit_code)


def out_of_order(_: None) -> Outcome:
    raise RuntimeError("a fault outside of attempt")
