"""Ours beside the paper's: panels as plain data, kept with the results, and one way to draw them.

Curves are means over seeds with their 95 % t intervals; what the paper prints stands on them as open diamonds. A panel
of points compares single values. Numbers a paper draws but does not print are not guessed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from otafl.core.interval import half_width
from otafl.reports.plots import COLOURS, DASHES, FOR_SVG, as_svg

MOST_POINTS = 60  # of a curve: the file stays small
PAPER: dict[str, Any] = {
    "marker": "D", "markerfacecolor": "white", "markeredgecolor": "black", "linestyle": "none", "markersize": 6,
}  # fmt: skip
LEVEL: dict[str, Any] = {"linewidth": 1, "linestyle": (0, (2, 2))}


class Line(NamedTuple):
    """A curve of ours: mean and interval."""

    label: str
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class Said(NamedTuple):
    """A value that the paper prints; at x, or a level for all x. The label is that of the line it belongs to."""

    label: str
    y: float
    x: float | None = None
    spread: float | None = None  # as printed


class Point(NamedTuple):
    """A value of ours with its interval, and the paper's."""

    label: str
    mean: float
    low: float
    high: float
    said: float | None = None
    spread: float | None = None


class Panel(NamedTuple):
    """One pair of axes: lines with printed values, or points."""

    title: str
    x: str
    y: str
    lines: Sequence[Line] = ()
    said: Sequence[Said] = ()
    points: Sequence[Point] = ()
    log: str = ""  # "x", "y" or "xy"


def line(label: str, x: Any, rows: Any) -> Line:
    """A curve from seeds x places: of the seeds that have a number there, as long as half of them do.

    >>> line("a", [0, 1], [[1.0, 2.0], [3.0, np.nan], [2.0, np.nan]]).mean
    [2.0]
    """
    table, place = np.atleast_2d(np.asarray(rows, float)), np.asarray(x, float)
    good = np.flatnonzero(2 * np.sum(np.isfinite(table), axis=0) >= len(table))
    keep = good[np.unique(np.linspace(0, len(good) - 1, min(len(good), MOST_POINTS)).round().astype(int))]
    columns = [column[np.isfinite(column)] for column in table[:, keep].T]
    mean = np.array([np.mean(column) for column in columns])
    half = np.nan_to_num([half_width(column) for column in columns], posinf=0.0)
    return Line(label, *(_short(values) for values in (place[keep], mean, mean - half, mean + half)))


def point(label: str, values: Sequence[float], said: float | None = None, spread: float | None = None) -> Point:
    """Mean and interval of one value per seed."""
    good = [value for value in values if np.isfinite(value)]
    mean, half = float(np.mean(good)), float(np.nan_to_num(half_width(good), posinf=0.0))
    middle, low, high = _short([mean, mean - half, mean + half])
    return Point(label, middle, low, high, said, spread)


def _short(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in np.asarray(values, float)]


def from_json(panels: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Panels as they are stored."""
    kinds: dict[str, Any] = {"lines": Line, "said": Said, "points": Point}
    return [
        Panel(**{**one, **{key: [kind(**each) for each in one[key]] for key, kind in kinds.items()}}) for one in panels
    ]


def picture(panels: Sequence[Panel]) -> str:
    """All panels side by side, two in a row, as SVG; the same bytes for the same data."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(FOR_SVG):
        figure = Figure(figsize=(4.6 * columns, 3.4 * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for own, panel in zip(axes, panels):
            _paint(own, panel)
        for empty in axes[len(panels) :]:
            empty.set_visible(False)
        _legends(figure, axes[: len(panels)])
        return as_svg(figure)


def _legends(figure: Any, axes: Sequence[Any]) -> None:
    """One below all panels if they name the same things, else one in each."""
    named = [own.get_legend_handles_labels() for own in axes]
    if len(named) > 1 and all(labels == named[0][1] for _, labels in named):
        figure.legend(*named[0], loc="outside lower center", ncols=3)
        return
    for own, (handles, _) in zip(axes, named):
        if handles:
            own.legend(fontsize="x-small")


def _paint(axes: Any, panel: Panel) -> None:
    colours = {one.label: COLOURS[n % len(COLOURS)] for n, one in enumerate(panel.lines)}
    for n, one in enumerate(panel.lines):
        axes.plot(one.x, one.mean, color=colours[one.label], linestyle=DASHES[n % len(DASHES)], label=one.label,
                  marker="o" if len(one.x) == 1 else None)  # fmt: skip
        axes.fill_between(one.x, one.low, one.high, color=colours[one.label], alpha=0.18, linewidth=0)
    for said in panel.said:
        edge = colours.get(said.label, "black")
        if said.x is None:
            axes.axhline(said.y, color=edge, **LEVEL)
        else:
            axes.errorbar([said.x], [said.y], [said.spread] if said.spread else None, ecolor=edge, capsize=2,
                          **{**PAPER, "markeredgecolor": edge})  # fmt: skip
    if panel.points:
        _points(axes, panel.points)
    if panel.said or any(one.said is not None for one in panel.points):
        levels = panel.said and all(said.x is None for said in panel.said)
        axes.plot([], [], label="paper, as printed", **({"color": "black", **LEVEL} if levels else PAPER))
    scales = {f"{name}scale": "log" for name in panel.log}
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, **scales)


def _points(axes: Any, points: Sequence[Point]) -> None:
    apart = 0.1 if any(one.said is not None for one in points) else 0.0
    for n, one in enumerate(points):
        interval = [[one.mean - one.low], [one.high - one.mean]]
        axes.errorbar([n - apart], [one.mean], interval, fmt="o", color=COLOURS[0], capsize=3,
                      label=("ours" if one.low == one.high else "ours, 95 % interval") if n == 0 else None)  # fmt: skip
        if one.said is not None:
            width = [one.spread] if one.spread else None
            axes.errorbar([n + apart], [one.said], width, ecolor="black", capsize=2, **PAPER)
    turn = 20 if len(points) <= 8 else 60
    axes.set_xlim(-0.5, len(points) - 0.5)
    axes.set_xticks(range(len(points)), [one.label for one in points], rotation=turn, ha="right")
