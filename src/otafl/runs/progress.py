"""What a long run says while it works: a live line on a terminal, JSON lines for machines, nothing otherwise."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from otafl.core.files import plain
from otafl.privacy.card_text import round_up
from otafl.runs.interrupts import FINISHING, stopping
from otafl.systems.screen import say

ECHO_COLUMNS = 6  # of ^C, three times
CELLS = 10  # of a bar
NARROW = 88  # below that, no bar and no speed: numbers come first


class Tick(NamedTuple):
    """The state of one scheme after a chunk, means over seeds."""

    label: str
    round: int
    rounds: int
    accuracy: float
    eps: float  # worst client, by the budget's accountant; NaN where nothing is counted
    eps_target: float
    rounds_per_second: float  # of one seed
    metric: str = "accuracy"  # what `accuracy` is, where the task has another metric


class Reporter:
    """Quiet base: tests and pipes use it."""

    def start(self, label: str, rounds: int, done: int) -> None: ...

    def tick(self, tick: Tick) -> None: ...

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)

    def close(self) -> None: ...


class Narrow(Progress):
    """Leaves room for the ^C that a terminal echoes: a full line would break there and be drawn twice.

    What has been asked to stop takes its time, and says so: a signal handler cannot print, but the next frame can.
    """

    def __init__(self, *columns: ProgressColumn, console: Console):
        self.terminal = console  # before all else: what follows draws already
        super().__init__(*columns, console=console)

    def get_renderable(self) -> RenderableType:
        shown = super().get_renderable()
        if stopping():
            shown = Group(shown, Text(FINISHING, style="yellow"))
        return Constrain(shown, max(self.terminal.width - ECHO_COLUMNS, 1))


def spent_bar(share: float) -> str:
    """A budget as a bar; it is full only when all of it is spent.

    >>> spent_bar(0.34), spent_bar(0.999), spent_bar(1.0)
    ('▰▰▰▱▱▱▱▱▱▱', '▰▰▰▰▰▰▰▰▰▱', '▰▰▰▰▰▰▰▰▰▰')
    """
    full = min(max(int(share * CELLS), 0), CELLS)
    return "▰" * full + "▱" * (CELLS - full)


class LiveLine(Reporter):
    """One line per scheme: accuracy, epsilon spent / target; where there is room rounds/s, bars, time left."""

    def __init__(self, console: Console):
        self.console = console
        self.room = console.width - NARROW
        name = "{task.description:<22}" if self.room > 0 else "{task.description}"
        columns: list[ProgressColumn] = [
            TextColumn(name, style="bold", markup=False), TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[said]}", markup=False),
        ]  # fmt: skip
        if self.room > 0:
            columns.insert(1, BarColumn(bar_width=min(self.room, 24)))
        if self.room > -16:
            columns.append(TimeRemainingColumn())
        self.progress = Narrow(*columns, console=console)
        self.tasks: dict[str, Any] = {}

    def start(self, label: str, rounds: int, done: int) -> None:
        self.progress.start()  # not before: a refusal must leave the terminal as it was
        said = "compiling" if done < rounds else "done before"
        self.tasks[label] = self.progress.add_task(label, total=rounds, completed=done, said=said)

    def tick(self, tick: Tick) -> None:
        eps = "" if tick.eps != tick.eps else f"  ε {round_up(tick.eps)}"
        if eps and tick.eps_target < float("inf"):
            bar = f" {spent_bar(tick.eps / tick.eps_target)}" if self.console.width > 99 else ""
            eps += f"/{tick.eps_target:g}{bar}"
        metric = "acc" if tick.metric == "accuracy" else tick.metric
        speed = f"{tick.rounds_per_second:.0f} rounds/s  " if self.room > 0 else ""
        said = f"{speed}{metric} {tick.accuracy:.3f}{eps}"
        self.progress.update(self.tasks[tick.label], completed=tick.round, total=tick.rounds, said=said)

    def note(self, text: str) -> None:
        say(self.console, text, soft_wrap=True)

    def close(self) -> None:
        self.progress.stop()


class JsonLog(Reporter):
    """One JSON object per chunk and note, for machines."""

    def __init__(self, stream: IO[str]):
        self.stream = stream
        self.turn = threading.Lock()  # schemes may run side by side

    def write(self, **fields: Any) -> None:
        with self.turn:
            self.stream.write(json.dumps(plain({"time": time.time(), **fields})) + "\n")
            self.stream.flush()

    def start(self, label: str, rounds: int, done: int) -> None:
        self.write(event="start", label=label, rounds=rounds, done=done)

    def tick(self, tick: Tick) -> None:
        self.write(event="chunk", **tick._asdict())

    def note(self, text: str) -> None:
        self.write(event="note", text=text)


@contextmanager
def counter(console: Console) -> Iterator[Callable[[str, int], None]]:
    """Counts what is done of several things at once, on a terminal: `count(name, how many more)`."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda name, more: None
        return
    columns = (TextColumn("{task.description:<22}", style="bold", markup=False), TextColumn("{task.completed} runs"))
    with Narrow(*columns, console=console) as progress:
        tasks: dict[str, Any] = {}

        def count(name: str, more: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.advance(tasks[name], more)

        yield count


def of_a_call(progress: bool) -> Reporter:
    """For functions of Python: a live line beside what they print, or silence."""
    return reporter(Console(stderr=True)) if progress else Reporter()


def reporter(console: Console, json_log: bool = False) -> Reporter:
    if json_log:
        return JsonLog(sys.stdout)
    return LiveLine(console) if console.is_terminal and not console.is_dumb_terminal else Reporter()
