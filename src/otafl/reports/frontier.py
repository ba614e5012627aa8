"""The frontier: accuracy over ε for several numbers of devices, and what a device pays in energy."""

from typing import Any

import numpy as np
from rich import box

from otafl.core.markdown import table as markdown_table
from otafl.reports.comparison import placed
from otafl.reports.plots import COLOURS, FOR_SVG, MARKERS, as_svg, label_ends
from otafl.runs.comparing.compare import Part
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.summaries import on_air
from otafl.systems.screen import Fitted

Point = dict[str, Any]
STORED = "frontier.json"  # in reports/assets: a dated run of the preset demo-frontier
BANDS = ("#4C72B0", "#55A868", "#C44E52", "#8172B2")


def points_of(parts: list[Part], devices: int) -> list[Point]:
    """One point per target and scheme."""
    found = []
    for part in parts:
        for entry, place in placed(part.found):
            accuracy, joules = numbers(entry["final_accuracy"]), numbers(entry["joules_mean"])
            found.append({
                "devices": devices, "eps": part.target, "label": entry["label"], "private": place != "ref",
                "accuracy": float(np.mean(accuracy)), "seeds": len(accuracy),
                "sd": float(np.std(accuracy, ddof=1)) if len(accuracy) > 1 else None,
                "joules": float(np.mean(joules)) if on_air(entry) else None,
                "efficiency": float(np.mean(numbers(entry["efficiency"]))) if entry["private"] else None,
            })  # fmt: skip
    return found


def span_table(told: dict[str, Any]) -> str:
    """Accuracy of the worst and the best private scheme, as Markdown."""
    points = [point for point in told["points"] if point["private"]]
    counts, targets = (sorted({point[key] for point in points}) for key in ("devices", "eps"))
    rows = [[f"{count:,}"] for count in counts]
    for row, count in zip(rows, counts):
        for eps in targets:
            at = [point["accuracy"] for point in points if (point["devices"], point["eps"]) == (count, eps)]
            row.append(f"{min(at):.2f} to {max(at):.2f}")
    return "\n".join(markdown_table(("devices", *(f"ε = {eps:g}" for eps in targets)), rows))


def picture(told: dict[str, Any]) -> str:
    """An SVG for a page: a band per number of devices, schemes as marks; below it joules per device."""
    import matplotlib
    from matplotlib.figure import Figure

    counts = sorted({point["devices"] for point in told["points"]})
    labels = list(dict.fromkeys(point["label"] for point in told["points"] if point["private"]))
    with matplotlib.rc_context(FOR_SVG):
        figure = Figure(figsize=(7.2, 5.6))
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        bands = {count: [p for p in told["points"] if p["devices"] == count and p["private"]] for count in counts}
        ends = {f"{count:,} devices": _band(top, bands[count], n, labels) for n, count in enumerate(counts)}
        _energy(below, [p for p in told["points"] if p["devices"] == counts[-1] and p["joules"]], labels)
        best = [point["accuracy"] for point in told["points"] if not point["private"]]
        if best:
            top.axhline(max(best), color="black", linewidth=1, linestyle=(0, (4, 3)))
            top.annotate("without privacy", (0, max(best)), xycoords=("axes fraction", "data"), xytext=(4, 3),
                         textcoords="offset points", fontsize=8)  # fmt: skip
        top.set(ylabel="accuracy", ylim=(0, 1))
        label_ends(top, ends)
        below.set(xlabel="ε of a client", ylabel=f"J per device\n({counts[-1]:,} devices)")
        ticks = sorted({point["eps"] for point in told["points"]})
        below.set_xticks(ticks, [f"{eps:g}" for eps in ticks])
        below.minorticks_off()
        return as_svg(figure)


def _band(axes: Any, points: list[Point], n: int, labels: list[str]) -> tuple[float, float, str]:
    """From the worst to the best scheme; returns where the band ends, and its colour."""
    eps = sorted({point["eps"] for point in points})
    at = [[point["accuracy"] for point in points if point["eps"] == one] for one in eps]
    colour = BANDS[n % len(BANDS)]
    axes.fill_between(eps, [min(a) for a in at], [max(a) for a in at], color=colour, alpha=0.25, linewidth=0)
    for point in points:
        marker = MARKERS[labels.index(point["label"]) % len(MARKERS)]
        axes.plot(point["eps"], point["accuracy"], marker, color=colour, markersize=3.5)
    return eps[-1], max(at[-1]), colour


def _energy(axes: Any, points: list[Point], labels: list[str]) -> None:
    """One line per scheme."""
    axes.set(xscale="log", yscale="log")
    ends = {}
    for label in labels:
        own = sorted((p["eps"], p["joules"]) for p in points if p["label"] == label)
        if own:
            k = labels.index(label)
            axes.plot(*zip(*own), marker=MARKERS[k % len(MARKERS)], color=COLOURS[k % len(COLOURS)], linewidth=1)
            ends[label] = (*own[-1], COLOURS[k % len(COLOURS)])
    label_ends(axes, ends)


def table(told: dict[str, Any]) -> Fitted:
    """`spans` on a terminal."""
    head, *rows = spans(told)
    return Fitted.of(head, rows, box=box.SIMPLE_HEAD, show_edge=False)


def spans(told: dict[str, Any]) -> list[list[str]]:
    """Least to largest mean accuracy of the schemes: a head, then a row per number of devices."""
    eps = sorted({point["eps"] for point in told["points"]})
    rows = [["devices", *(f"ε = {one:g}" for one in eps)]]
    for count in sorted({point["devices"] for point in told["points"]}):
        own = [p for p in told["points"] if p["devices"] == count and p["private"]]
        at = [[p["accuracy"] for p in own if p["eps"] == one] for one in eps]
        rows.append([f"{count:,}", *(f"{min(a):.2f}–{max(a):.2f}" if a else "–" for a in at)])
    return rows
