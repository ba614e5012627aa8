"""What is said about many tasks at once: a line for each that ends, JSON lines for machines, or nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from otafl.runs.executors import Outcome
from otafl.runs.progress import JsonLog, Narrow
from otafl.systems.screen import say


class Board:
    """What is known of many tasks at once: a line for each that ends."""

    def told(self, name: str, outcome: Outcome, done: int, of: int) -> None:
        """A task has ended; so many of all have."""

    def note(self, text: str) -> None:
        """Something that a user should read."""


class Lines(Board):
    """Lines on a terminal or in a log, below them how many are done."""

    def __init__(self, console: Console, live: Progress | None):
        self.console, self.live = console, live
        self.task = None if live is None else live.add_task("points", total=None, said="")

    def told(self, name: str, outcome: Outcome, done: int, of: int) -> None:
        said = "done before" if outcome.done and not outcome.seconds else outcome.said
        time_ = f", {outcome.seconds:.1f} s" if outcome.seconds else ""
        code = "" if outcome.done else f" (exit code {outcome.exit_code})"
        self.note(f"[{done}/{of}] {name}: {said}{code}{time_}")
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=done, total=of, said=f"{done} of {of}")

    def note(self, text: str) -> None:
        say(self.console, text, soft_wrap=True)


class JsonLines(Board):
    """One JSON object per task and note, for machines."""

    def __init__(self, stream: IO[str]):
        self.log = JsonLog(stream)

    def told(self, name: str, outcome: Outcome, done: int, of: int) -> None:
        self.log.write(event="task", name=name, outcome=outcome.said, exit_code=outcome.exit_code,
                       seconds=outcome.seconds, done=done, of=of)  # fmt: skip

    def note(self, text: str) -> None:
        self.log.note(text)


@contextmanager
def board(console: Console, json_log: bool, progress: bool = True) -> Iterator[Board]:
    """Where many tasks are told of."""
    if json_log or not progress:
        yield JsonLines(sys.stdout) if json_log else Board()
    elif not console.is_terminal or console.is_dumb_terminal:
        yield Lines(console, None)
    else:
        columns = (TextColumn("{task.description}", style="bold"), BarColumn(), TextColumn("{task.fields[said]}"))
        with Narrow(*columns, console=console) as live:
            yield Lines(console, live)
