"""A sweep as people read it: one table of all points and schemes, one picture of the metric over the swept keys."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape as plain

from otafl.core.files import as_csv, write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.reports import write_report
from otafl.reports.plain_page import plain_page, scrolling_table
from otafl.reports.plots import COLOURS, DASHES, FOR_SVG, MARKERS, as_svg
from otafl.reports.run import Run
from otafl.reports.tables import attack_cells, footer, metric_of, named, result, spent
from otafl.runs.comparing.statistics import mean_and_sd, numbers
from otafl.runs.executors import DONE, Outcome
from otafl.runs.folder.disk import storage
from otafl.runs.folder.results import figures
from otafl.runs.folder.summaries import summaries
from otafl.runs.remote import Elsewhere
from otafl.runs.schema import Experiment
from otafl.runs.sweep import FILE, number, point_name, points, read, run_all, run_of_point
from otafl.systems.screen import LIGHT, Fitted, say

if TYPE_CHECKING:
    import pandas as pd

Entry = dict[str, Any]  # a summary, and "values" and "folder" of its point
PANELS = 6  # schemes with a panel of their own
SPAN = 10.0  # of a positive key, from which on its axis is logarithmic


class Sweep:
    """The results of a sweep, read from its folder: `table`, `runs`, `failed`, `plot()`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.points = read(self.folder)
        self.keys = list(self.points[0]["values"])
        self._done = [point for point in self.points if point["outcome"] == DONE]
        self._left = [point for point in self.points if point["outcome"] != DONE]

    @property
    def failed(self) -> dict[str, str]:
        """Points that are not done, and why."""
        return {point_name(point["values"]): str(point["outcome"]) for point in self._left}

    @property
    def refusals(self) -> list[str]:
        """The same in lines, with the exit code of each."""
        codes = (point["exit_code"] for point in self._left)
        return [f"{name}: {why} (exit code {code})" for (name, why), code in zip(self.failed.items(), codes)]

    @property
    def entries(self) -> list[Entry]:
        """One per point and scheme that is done; every file is compared with its seal."""
        return [
            {**entry, "values": point["values"], "folder": point["folder"]}
            for point in self._done
            for entry in summaries(run_of_point(self.folder, point))
        ]

    @property
    def runs(self) -> dict[str, Any]:
        """A `Run` for every point that is done, by its name."""
        return {point_name(p["values"]): Run(run_of_point(self.folder, p)) for p in self._done}

    @property
    def table(self) -> "pd.DataFrame":
        """One row per point and scheme: the keys, and means over seeds."""
        import pandas as pd

        head, *rows = numbers_table(self.entries, self.keys)
        return pd.DataFrame(rows, columns=head)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} not done" if self.failed else ""
        return f"Sweep of {', '.join(self.keys)}: {len(self.points)} points{failed} in {self.folder}"

    def _repr_html_(self) -> str:
        return f"<figure>{picture(self.entries, self.keys)}</figure>"


def run_and_write(
    folder: Path, axes: Mapping[str, Sequence[str]], made: Callable[[list[str]], Experiment], where: Elsewhere
) -> dict[str, Outcome]:
    """Run every point and keep the index; returns what became of each."""
    found = points(folder, axes, made)
    title = found[0].experiment.title or folder.name
    outcomes = run_all(found, folder, where.executor, where.live, lambda: write_index(folder, title, False))
    write_index(folder, title)
    return outcomes


def rows(entries: list[Entry], keys: list[str]) -> list[list[str]]:
    """Head and cells of the table."""
    metric = metric_of(entries)
    head = [*keys, "scheme", metric, "ε", "TPR@1 %", "rounds run", "worst client", "μ"]
    cells = []
    for entry in entries:
        mu, power = attack_cells(entry)
        cells.append([
            *entry["values"].values(), named(entry), result(entry, figures(metric)[0]), spent(entry), power,
            f"{np.mean(numbers(entry['rounds'])):.0f}", result(entry, "worst_client"), mu,
        ])  # fmt: skip
    return [head, *cells]


def numbers_table(entries: list[Entry], keys: list[str]) -> list[list[Any]]:
    """The same for programs: numbers, one column each; keys that are numbers are numbers."""
    metric = figures(metric_of(entries))[0]
    told = [metric, "worst_client", "final_loss", "final_eps", "mu", "tpr_at_1pct", "rounds"]
    out: list[list[Any]] = [[*keys, "scheme", "seeds", *(f"{name}_{kind}" for name in told for kind in ("mean", "sd"))]]
    for entry in entries:
        cells: list[Any] = [value if number(value) is None else number(value) for value in entry["values"].values()]
        cells += [entry["label"], len(entry["seeds"])]
        for name in told:
            cells += mean_and_sd(numbers(entry.get(name) or [None]))
        out.append(cells)
    return out


def show(found: Sweep, console: Console, wide: bool = False) -> None:
    """The table, what the numbers mean, and what is not done."""
    entries = found.entries
    if entries:
        head, *cells = rows(entries, found.keys)
        shown = (map(plain, row) for row in cells)
        Fitted.of(map(plain, head), shown, **LIGHT).show(console, wide)
        say(console, footer(entries))
    for text in found.refusals:
        say(console, text, soft_wrap=True)


# --- files ---------------------------------------------------------------------------------------------------------


def write_index(folder: Path, title: str, pages: bool = True) -> list[Path]:
    """index.html, index.md, table.csv and metric.svg; and the page of every point that has none yet."""
    found = Sweep(folder)
    entries = found.entries
    if pages:
        for entry in {entry["folder"] for entry in entries}:
            if not (folder / entry / "report.html").exists():
                write_report([folder / entry])
    table = rows(entries, found.keys) if entries else [[*found.keys, "scheme"]]
    head, *written = numbers_table(entries, found.keys) if entries else table
    drawn = picture(entries, found.keys) if entries else ""
    files = {
        "index.html": _page(found, entries, table, drawn, title),
        "index.md": _markdown(found, entries, table, title),
        "table.csv": as_csv(map(_as_text, head), (map(_as_text, row) for row in written)),
        **({"metric.svg": drawn} if drawn else {}),
    }
    with storage(folder):
        for name, content in files.items():
            write_atomic(folder / name, content)
    return [folder / name for name in files]


def _as_text(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula, whatever its scheme is called.

    >>> _as_text("=1+1"), _as_text("constant"), _as_text(-1.0)
    ("'=1+1", 'constant', -1.0)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def _markdown(found: Sweep, entries: list[Entry], table: list[list[str]], title: str) -> str:
    head, *cells = table
    lines = [f"# {title}", "", *markdown_table(head, cells)]
    lines += ["", footer(entries)] if entries else []
    lines += [f"- not done: {name}: {why}" for name, why in found.failed.items()]
    return inert("\n".join(lines)) + "\n"


def _page(found: Sweep, entries: list[Entry], cells: list[list[str]], drawn: str, title: str) -> str:
    """A page that stands on its own and needs no script; every row leads to its run."""
    links = [f'<a href="{escape(entry["folder"], quote=True)}/report.html">report</a>' for entry in entries]
    failed = "".join(f"<li>{escape(text)}</li>" for text in found.refusals)
    alarm = f'<section id="open"><h2>Not done</h2><ul>{failed}</ul></section>' if failed else ""
    figure = f'<figure class="chart drawn" tabindex="0">{drawn}</figure>' if drawn else ""
    said = f"<p>{escape(footer(entries))}</p>" if entries else ""
    files = f'<p><a href="table.csv">table.csv</a>, <a href="{FILE}">{FILE}</a></p>'
    made = scrolling_table(cells[0], cells[1:], "Points", links)
    points = f'<section id="points"><h2>Points</h2>{made}{said}{files}</section>'
    return plain_page("sweep", title, f"{alarm}{figure}{points}")


# --- the picture -----------------------------------------------------------------------------------------------------


def picture(entries: list[Entry], keys: list[str]) -> str:
    """SVG: the metric over the first key that varies, a panel per scheme, a line per combination of the other keys."""
    import matplotlib
    from matplotlib.figure import Figure

    metric = metric_of(entries)
    over = next((key for key in keys if len({entry["values"][key] for entry in entries}) > 1), keys[0])
    labels = list(dict.fromkeys(entry["label"] for entry in entries))
    alone = len(keys) == 1 or len(labels) > PANELS  # one panel, a line per scheme
    panels = [None] if alone else labels
    ticks = list(dict.fromkeys(entry["values"][over] for entry in entries))
    with matplotlib.rc_context(FOR_SVG):
        figure = Figure(figsize=(min(4.2 * len(panels) + 1.4, 12.6), 3.6))
        for axes, label in zip(np.ravel(figure.subplots(1, len(panels), sharey=True, squeeze=False)), panels):
            own = [entry for entry in entries if label in (None, entry["label"])]
            _lines(axes, own, over, keys, ticks, figures(metric)[0], alone)
            axes.set(xlabel=over, title=label or "")
            _ticks(axes, ticks)
            axes.legend(fontsize=7)
        figure.axes[0].set_ylabel(metric)
        return as_svg(figure)


def _lines(
    axes: Any, entries: list[Entry], over: str, keys: list[str], ticks: list[str], metric: str, alone: bool
) -> None:
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for entry in entries:
        others = [f"{key.rpartition('.')[2]}={entry['values'][key]}" for key in keys if key != over]
        name = ", ".join([*([entry["label"]] if alone else []), *others])
        values = numbers(entry[metric])
        known = values[np.isfinite(values)]
        if known.size:
            sd = float(np.std(known, ddof=1)) if known.size > 1 else 0.0
            lines.setdefault(name, []).append((_place(entry["values"][over], ticks), float(np.mean(known)), sd))
    for n, (name, line) in enumerate(lines.items()):
        x, y, spread = zip(*sorted(line))
        axes.errorbar(x, y, spread, label=name, color=COLOURS[n % len(COLOURS)], marker=MARKERS[n % len(MARKERS)],
                      linestyle=DASHES[n % len(DASHES)], capsize=2, elinewidth=0.8)  # fmt: skip


def _place(value: str, ticks: list[str]) -> float:
    """Where a value stands on the axis: at its number, or at its place among the others."""
    known = [number(tick) for tick in ticks]
    return float(ticks.index(value)) if None in known else float(number(value) or 0.0)


def _ticks(axes: Any, ticks: list[str]) -> None:
    places = [_place(tick, ticks) for tick in ticks]
    if None not in [number(tick) for tick in ticks] and min(places) > 0 and max(places) >= SPAN * min(places):
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(places, ticks)
