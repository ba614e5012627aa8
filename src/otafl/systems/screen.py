"""Lines and tables on a terminal: as many columns as fit, the first first. Words may break; no number is ever cut."""

from bisect import bisect_right
from collections.abc import Collection, Iterable
from copy import copy
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

BREAKS = 20  # columns of words are made no narrower than this
ENOUGH = 10**4  # columns of a screen on which everything fits
LIGHT: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)}  # style of a table
ROWS = 40  # of a table with one for every device, or every choice


def say(console: Console, text: str, **how: Any) -> None:
    """A line as it is: what somebody has named is no markup, and numbers are not coloured."""
    console.print(text, markup=False, highlight=False, **how)


class Fitted(Table):
    """A rich Table that leaves out its last columns where the screen is too narrow, and says which.

    Columns that stand left hold words, all others numbers. `elsewhere` says where those without room are.
    """

    elsewhere = "; a wider screen shows all"

    @classmethod
    def of(
        cls, heads: Iterable[str], rows: Iterable[Iterable[str]], words: Collection[str] = ("scheme",), **style: Any
    ) -> "Fitted":
        """With these columns and cells; columns of `words` stand left."""
        made = cls(**style)
        for head in heads:
            made.add_column(head, justify="left" if head in words else "right")
        for row in rows:
            made.add_row(*row)
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = copy(self)
        columns = [_kept(column) for column in self.columns]

        def least(count: int) -> int:
            shown.columns = columns[:count]
            return shown.least(console)

        fitting = bisect_right(range(3, len(columns) + 1), options.max_width, key=least)
        shown.columns = columns[: 2 + fitting]
        yield from Table.__rich_console__(shown, console, options)
        left_out = [str(column.header) for column in self.columns[len(shown.columns) :]]
        if left_out:
            yield Text(f"no room for {', '.join(left_out)}{self.elsewhere}", style="dim")

    def show(self, console: Console, wide: bool = False) -> None:
        """Print it, for a command with an option `--wide`: every column, also where the screen is too narrow."""
        if self.elsewhere == Fitted.elsewhere:
            self.elsewhere = "; all columns with --wide"
        if wide:
            console.width = max(console.width, self.least(console, breaking=False))
        console.print(self)

    def least(self, console: Console, breaking: bool = True) -> int:
        """Width it takes to show every column; without `breaking`, each on one line."""
        whole = Measurement.get(console, console.options.update(max_width=ENOUGH), self).maximum
        widths = [_natural(column) for column in self.columns if column.justify == "left"] if breaking else []
        return whole - sum(max(width - BREAKS, 0) for width in widths)


def _natural(column: Column) -> int:
    return max(Text.from_markup(str(cell)).cell_len for cell in (column.header, *column.cells))


def _kept(column: Column) -> Column:
    """Numbers on one line; words broken where they are longer than the column, not cut."""
    made = copy(column)
    if made.justify == "left":
        made.overflow, made.min_width = "fold", min(_natural(column), BREAKS)
    else:
        made.no_wrap = True
    return made


def some_of(count: int, always: Iterable[int] = ()) -> list[int]:
    """Numbers of the rows to print: of many some from end to end, those of `always` among them.

    >>> some_of(3), len(some_of(10_000, [17])), 17 in some_of(10_000, [17])
    ([0, 1, 2], 41, True)
    """
    if count <= ROWS:
        return list(range(count))
    return sorted({*always, *(round(n * (count - 1) / (ROWS - 1)) for n in range(ROWS))})


def say_remarks(console: Console, warnings: Iterable[str] = (), notes: Iterable[str] = ()) -> None:
    """What a report says beside its numbers."""
    for line in warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(line)}")
    for line in notes:
        console.print(f"[dim]{escape(line)}[/dim]")


def say_left_out(console: Console, shown: int, count: int, what: str) -> None:
    """One line where a table has fewer rows than there are."""
    if shown < count:
        console.print(f"[dim]{shown} of {count:,} {what}; all of them with --json[/dim]")
