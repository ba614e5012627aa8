"""Ctrl-C and SIGTERM: finish the chunk, write a checkpoint, say where it is. A second Ctrl-C stops at once.

An exception that a signal handler raises can be lost, or end in a library's traceback: inside a callback or an import
of C code it is printed and the program goes on. So the command line stops at once without one: it says so and leaves.
Files are written whole or not at all, so nothing is lost by that but the last rounds. Inside another program, which is
not ours to end, a second Ctrl-C raises KeyboardInterrupt, again at the end of the run if it was lost on its way.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = "\x1b[?25h"
STOPPED = "otafl: stopped at once; what was written is whole; otafl run --resume or the same command goes on from it"
FINISHING = "finishing the rounds under way; Ctrl-C stops at once"
GOES_ON = "interrupted; what was done is kept, and the same command goes on from there"


class StopFlag:
    """Set by the first signal; the runner looks at it between chunks."""

    def __init__(self) -> None:
        self.requested = False
        self.at_once = False
        self.before = signal.getsignal(signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            self.at_once = True
            if self.before is leave:
                leave(number, frame)
            raise KeyboardInterrupt
        self.requested = True


def stopping() -> bool:
    """Whether what this process does now has been asked to stop and is finishing."""
    flag = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return isinstance(flag, StopFlag) and flag.requested


def leave(number: int, frame: FrameType | None) -> None:
    """End the process now, with one line and the terminal as it was."""
    cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
    os.write(2, f"{cursor}{STOPPED}\n".encode())
    os._exit(EXIT_CODE)


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    """Both signals go to the handler for the duration; a no-op outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
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
def immediate_stop() -> Iterator[None]:
    """Outside the rounds there is nothing to finish: the first signal ends the command, wherever it is."""
    with _handled(leave):
        yield


def immediate_stop_to_the_end() -> None:
    """The same for a process of our own until it is gone: Python takes a while to end, and would speak of it itself.

    In the last of that it gives signals back to the system, and a late one would be its end instead of its exit code;
    only those that are ignored stay so.
    """
    for number in SIGNALS:
        signal.signal(number, leave)
        atexit.register(signal.signal, number, signal.SIG_IGN)
