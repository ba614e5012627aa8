"""Print-quality plots of a report's data: PNG to look at, PDF to put into a paper."""

import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core.files import write_atomic
from otafl.runs.comparing.statistics import mean_and_sd, numbers
from otafl.runs.folder.summaries import on_air

# Okabe and Ito's colours; yellow is darkened to be seen on paper
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#A89A00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 2)), (0, (6, 2, 1.5, 2)), (0, (9, 3)), (0, (3, 1.5)))
MARKERS = ("o", "s", "^", "D", "X", "P")
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#E6E8EB", "grid.linewidth": 0.7, "lines.linewidth": 1.8,
    "lines.markersize": 4.5, "legend.frameon": False, "legend.fontsize": 8, "pdf.fonttype": 42, "savefig.dpi": 200,
    "text.parse_math": False, "figure.subplot.left": 0.13, "figure.subplot.right": 0.98, "figure.subplot.bottom": 0.14,
    "figure.subplot.top": 0.97,
}  # fmt: skip
FOR_SVG = {**STYLE, "svg.hashsalt": "otafl", "svg.fonttype": "none"}  # the same bytes for the same data, text as text
SIZE_INCHES = (5.2, 3.4)
NAMES_INSIDE = 4


class Plot(NamedTuple):
    """One file: a column of the evaluations over rounds, or over eps."""

    name: str
    column: str
    label: str
    over_eps: bool = False


PLOTS = (
    Plot("accuracy", "accuracy", "accuracy"),
    Plot("accuracy_over_eps", "accuracy", "accuracy", over_eps=True),
    Plot("worst_client", "worst_client", "accuracy of the worst client"),
    Plot("loss", "loss", "loss"),
    Plot("eps", "eps", "ε of the worst client"),
)


def draw(data: dict[str, Any], folder: Path) -> list[Path]:
    """Draw everything that has data into `folder`; returns the files."""
    import matplotlib
    from matplotlib.figure import Figure

    schemes = [scheme for scheme in data["schemes"] if scheme["finished"]]
    written: list[Path] = []
    with matplotlib.rc_context(STYLE):
        for name, paint in (*((plot.name, lines_of(plot)) for plot in _plots(schemes)), ("energy", _energy)):
            figure = Figure(figsize=SIZE_INCHES)
            if paint(figure.add_subplot(), schemes):
                folder.mkdir(parents=True, exist_ok=True)
                written += for_print(figure, folder / name)
    return written


def _plots(schemes: list[dict[str, Any]]) -> list[Plot]:
    """The usual ones, with another metric in the place of accuracy where a run is told in one."""
    told = {s["summary"].get("metric", "accuracy") for s in schemes if s["summary"]} - {"accuracy", "loss"}
    extra = [Plot(f"{name}{end}", name, name, bool(end)) for name in sorted(told) for end in ("", "_over_eps")]
    return [*PLOTS, *extra]


def label_ends(axes: Any, ends: dict[str, tuple[float, float, str]]) -> None:
    """Names (x, y, colour) at the right ends of lines, not in a legend over the data; moved apart where they touch."""
    per_pixel = 72 / axes.figure.dpi
    right, height = axes.transAxes.transform((1, 0))[0], -np.inf
    for name, (x, y, colour) in sorted(ends.items(), key=lambda item: item[1][1]):
        across, up = axes.transData.transform((x, y))
        height = max(up, height + 1.25 * STYLE["legend.fontsize"] / per_pixel)
        offset = ((right - across) * per_pixel + 5, (height - up) * per_pixel)
        axes.annotate(name, (x, y), xytext=offset, textcoords="offset points", color=colour, va="center",
                      fontsize=STYLE["legend.fontsize"], annotation_clip=False)  # fmt: skip


def plain_logs(figure: Any) -> None:
    """Ticks of logarithmic axes as plain numbers: no mathematics is set in these figures."""
    from matplotlib.ticker import LogFormatter, NullFormatter

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(NullFormatter())


def as_svg(figure: Any, tight: bool = True) -> str:
    """A figure for a page, without dates and versions, and without names that a second figure would have too."""
    plain_logs(figure)
    buffer = io.StringIO()
    box = {"bbox_inches": "tight"} if tight else {}
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, **box)
    text = buffer.getvalue()
    return re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])


def for_print(figure: Any, path: Path) -> list[Path]:
    """PNG and PDF, without dates and versions, so that the same data give the same bytes."""
    plain_logs(figure)
    saved = []
    for kind, dated in (("png", ("Software",)), ("pdf", ("CreationDate", "Producer", "Creator"))):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(dated))
        saved.append(path.with_name(f"{path.name}.{kind}"))
        write_atomic(saved[-1], buffer.getvalue())
    return saved


def seed_statistics(matrix: list[list[Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sample standard deviation over the seeds that have a number, per column.

    >>> mean, sd = seed_statistics([[1.0, None, "inf"], [3.0, 2.0, "inf"]])
    >>> mean.tolist(), sd.tolist()
    ([2.0, 2.0, inf], [1.4142135623730951, nan, nan])
    """
    told = [mean_and_sd(column) for column in np.array([numbers(row) for row in matrix]).T]
    mean, sd = np.reshape(told, (-1, 2)).T
    return mean, sd


def carried(table: dict[str, Any], column: str) -> list[list[Any]]:
    """A seed that has stopped keeps its model and what it has spent: its last evaluation holds from then on.

    >>> carried({"round": [5, 8, 9], "end": [9, 5], "columns": {"eps": [[1, 2, 3], [4, None, None]]}}, "eps")
    [[1, 2, 3], [4, 4, 4]]
    """
    lasts = [table["round"].index(end) for end in table["end"]]
    return [row[: last + 1] + [row[last]] * (len(row) - last - 1) for row, last in zip(table["columns"][column], lasts)]


def lines_of(plot: Plot) -> Any:
    def paint(axes: Any, schemes: list[dict[str, Any]]) -> bool:
        found = [s for s in schemes if plot.column in (s["evaluations"] or {}).get("columns", ())]
        drawn = [_line(axes, plot, scheme) for scheme in found]
        caps = {s["summary"]["target_eps"] for s in found if s["summary"] and s["summary"]["capped"]}
        for cap in sorted(caps) if plot.column == "eps" else ():
            axes.axhline(cap, color="black", linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(f"cap ε = {cap:g}", (0, cap), xycoords=("axes fraction", "data"), xytext=(4, -10),
                          textcoords="offset points", fontsize=8)  # fmt: skip
        axes.set_xlabel("ε of the worst client, mean over seeds" if plot.over_eps else "round")
        axes.set_ylabel(plot.label)
        axes.margins(x=0.03)
        if any(drawn):
            _legend(axes)
        return any(drawn)

    return paint


def _line(axes: Any, plot: Plot, scheme: dict[str, Any]) -> bool:
    """Mean, a band of one standard deviation within the seeds' range, faint seeds; False if nothing is finite."""
    table, look = scheme["evaluations"], _look(scheme["id"])
    matrix = table["columns"][plot.column]
    lasting = carried(table, plot.column)
    mean, sd = seed_statistics(lasting)
    seeds = np.array([numbers(row) for row in lasting])
    mean[np.any(np.isnan(seeds), axis=0)] = np.nan  # evaluated in some seeds only
    x = seed_statistics(carried(table, "eps"))[0] if plot.over_eps else np.asarray(table["round"], float)
    if plot.over_eps and not np.any(np.isfinite(x)):
        level = mean[np.isfinite(mean)][-1:]
        if level.size:
            axes.axhline(level[0], label=f"{_name(scheme)} (ε = ∞)", **{**look, "marker": None, "linewidth": 1.2})
        return False
    good = np.isfinite(x) & np.isfinite(mean)
    if not np.any(good):
        return False
    band = np.maximum(mean - sd, seeds.min(0))[good], np.minimum(mean + sd, seeds.max(0))[good]
    axes.fill_between(x[good], *band, color=look["color"], alpha=0.15, linewidth=0)
    if len(matrix) > 1:
        along = table["columns"]["eps"] if plot.over_eps else [table["round"]] * len(matrix)
        faint = np.hstack([_with_gap(*pair) for pair in zip(along, matrix)])
        axes.plot(*faint, color=look["color"], linewidth=0.5, alpha=0.35)
    axes.plot(x[good], mean[good], label=_name(scheme), markevery=max(1, int(np.sum(good)) // 10), **look)
    return True


def _legend(axes: Any) -> None:
    """Inside the axes, or beside them where so many names would lie over the curves."""
    names = axes.get_legend_handles_labels()[1]
    if len(names) <= NAMES_INSIDE:
        axes.legend()
        return
    width, height = SIZE_INCHES
    letters = min(max(map(len, names)), 60)
    share = width / (width + 0.5 + 0.07 * letters)  # a line's sample, and letters of 8 points
    axes.figure.set_size_inches(width / share, height)
    axes.figure.subplots_adjust(left=STYLE["figure.subplot.left"] * share, right=STYLE["figure.subplot.right"] * share)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _with_gap(x: list[Any], y: list[Any]) -> np.ndarray:
    """The finite points (2, n) of a line and a gap: matplotlib draws a hundred lines far more slowly than one."""
    points = np.array([numbers(x), numbers(y)])
    return np.append(points[:, np.isfinite(points).all(0)], np.full((2, 1), np.nan), axis=1)


def _energy(axes: Any, schemes: list[dict[str, Any]]) -> bool:
    """Mean to largest energy of each device, with the limit."""
    found = [s for s in schemes if s["devices"] and s["summary"] and on_air(s["summary"])]
    limits = set()
    for n, scheme in enumerate(found):
        bars, look = scheme["devices"]["bars"], _look(scheme["id"])
        x = np.arange(len(bars["start"])) + 0.6 * ((n + 0.5) / len(found) - 0.5)
        mean, largest, limit = numbers(bars["mean"]), numbers(bars["max"]), numbers(bars["limit"])
        limits |= set(limit[np.isfinite(limit)].tolist())
        axes.vlines(x, mean, largest, color=look["color"], linewidth=1.2, alpha=0.6)
        label = f"{_name(scheme)}: mean to largest"
        axes.plot(x, mean, look["marker"], color=look["color"], markersize=3.5, label=label)
    if not found or not any(np.any(numbers(s["devices"]["bars"]["max"]) > 0) for s in found):
        return False
    if len(limits) == 1:
        axes.axhline(limits.pop(), color="black", linewidth=1, linestyle=(0, (4, 3)), label="limit")
    grouped = len(found[0]["devices"]["bars"]["start"]) < found[0]["devices"]["count"]
    axes.set(yscale="log", xlabel="group of devices" if grouped else "device", ylabel="transmit energy per round (J)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)
    return True


def _name(scheme: dict[str, Any]) -> str:
    """The label; matplotlib leaves out those that begin with an underscore, hence the zero-width space."""
    label: str = scheme["label"]
    return f"\u200b{label}" if label.startswith("_") else label


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[(number + number // len(COLOURS)) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }
