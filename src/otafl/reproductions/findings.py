"""What a reproduction finds and how it is written: verdicts on claims, tables, records, figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from otafl.core.files import as_csv, to_json, write_atomic
from otafl.core.markdown import table as markdown_table

Record = dict[str, Any]
HOLDS, PRINTED, FAILS = "holds", "holds only with the printed accounting", "does not hold"
UNDECIDED = "undecided"  # by the seeds at hand; the evidence says how many would do
NOT_STATED = "not stated"  # by the paper: measured beside it, and counted nowhere
CLAIM_HEAD = ("claim", "place", "rule", "verdict", "evidence")


class Verdict(NamedTuple):
    """One claim of a paper and what became of it."""

    claim: str  # in the paper's words
    verdict: str
    evidence: str
    place: str = ""  # in the paper
    rule: str = ""  # what would make it hold, fixed before measuring
    needs: int | None = None  # seeds that would decide it


class Grid(NamedTuple):
    """A table for a page: a title, a head and rows of text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def by_accounting(printed: bool, sound: bool) -> str:
    """The verdict on a claim that was checked under the paper's accounting and under one that holds.

    >>> by_accounting(True, False)
    'holds only with the printed accounting'
    """
    if printed:
        return HOLDS if sound else PRINTED
    return "holds only with sound accounting" if sound else FAILS


def by_case(cases: dict[str, bool]) -> str:
    """The verdict on a claim that was checked in several cases.

    >>> by_case({"alpha = 2": True, "alpha = 10": False})
    'holds for alpha = 2 only'
    """
    good = [name for name, held in cases.items() if held]
    return HOLDS if len(good) == len(cases) else f"holds for {', '.join(good)} only" if good else FAILS


def verdict_grid(verdicts: Sequence[Verdict]) -> Grid:
    rows = [[one.claim, one.place or "–", one.rule or "–", one.verdict, one.evidence] for one in verdicts]
    return Grid("verdicts", CLAIM_HEAD, rows)


def markdown_of(told: Mapping[str, Any], picture_at: str) -> str:
    """A results file as a part of a page, from results.json alone."""
    grids = [Grid(**grid) for grid in told["grids"]]
    if told["verdicts"]:
        grids.append(verdict_grid([Verdict(**one) for one in told["verdicts"]]))
    values = [value for panel in told["panels"] for value in (*panel["said"], *panel["points"])]
    beside = any(value["said" if "said" in value else "y"] is not None for value in values)
    shows = "ours beside what the paper prints" if beside else "as measured"
    parts = [f"![{told['source']}: {shows}]({picture_at})"] * bool(told["panels"])
    parts += [markdown(grid) for grid in grids]
    parts += ["\n".join(f"- {note}" for note in told["notes"])] * bool(told["notes"])
    return "\n\n".join(parts) + "\n"


def markdown(grid: Grid) -> str:
    """A grid as a table of a Markdown page."""
    return "\n".join([f"**{grid.title}**", "", *markdown_table(grid.head, grid.rows)])


def write_records(folder: Path, name: str, records: Sequence[Record]) -> None:
    """Records as JSON and as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = list(dict.fromkeys(key for record in records for key in record))
    rows = ([record.get(field) for field in fields] for record in records)
    write_atomic(folder / f"{name}.csv", as_csv(fields, rows))
    write_atomic(folder / f"{name}.json", to_json(list(records)))


def draw(folder: Path, name: str, columns: int, rows: int, paint: Callable[[list[Any]], None]) -> None:
    """A figure of rows x columns axes as PNG and PDF, the same bytes for the same data."""
    import matplotlib
    from matplotlib.figure import Figure

    from otafl.reports.plots import STYLE, for_print

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.4 * columns, 3.3 * rows), layout="constrained")
        paint(list(figure.subplots(rows, columns, squeeze=False).flat))
        for_print(figure, folder / name)
