"""Ctrl-C and SIGTERM: finish the chunk, write a checkpoint, say where it is. A second Ctrl-C stops at once.

An exception that a signal handler raises can be lost: inside a callback of a library, Python prints it and goes on.
So what was asked for is also remembered: `stopping` says so to whoever decides on the exit code, and a signal after
one that should have ended the process already ends it without unwinding. Files are written whole or not at all, so
nothing is lost by that but the last rounds.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 130
SHOW_CURSOR = "\x1b[?25h"


class StopFlag:
    """Set by the first signal; the runner looks at it between chunks."""

    def __init__(self) -> None:
        self.requested = False
        self.at_once = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            if self.at_once:
                leave()
            self.at_once = True
            raise KeyboardInterrupt
        self.requested = True


class Immediate:
    """Outside the rounds there is nothing to finish: the first signal ends the command."""

    def __init__(self) -> None:
        self.stopping = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            leave()
        self.stopping = True
        raise KeyboardInterrupt


def leave() -> None:
    """End the process now, with the terminal as it was."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), SHOW_CURSOR.encode())
    os._exit(EXIT_CODE)


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Both signals go to the handler for the duration; a no-op outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def graceful_stop() -> Iterator[StopFlag]:
    """Catch the first SIGINT or SIGTERM for the duration."""
    flag = StopFlag()
    with _handled(flag.handle):
        yield flag
    if flag.at_once:  # it was raised, and lost on its way
        raise KeyboardInterrupt


@contextmanager
def immediate_stop() -> Iterator[Immediate]:
    """End a command at the first SIGINT or SIGTERM, wherever it is."""
    flag = Immediate()
    with _handled(flag.handle):
        yield flag


def ignore_signals() -> None:
    """The way out is short; a signal on it would only print a traceback."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
