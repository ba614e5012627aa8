"""The pictures of the gallery, drawn from what the examples' own runs left, and the command that runs them again.

python docs/gallery.py [NAME ...]     runs these examples, or all, and stores their curves in gallery.json

A card is panels; a panel has lines by name, each a list of (x, y), and what its axes are called.
"""

import json
import re
import runpy
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parent
STORED = DOCS / "gallery.json"
Panel = dict[str, Any]


# --- running ---------------------------------------------------------------------------------------------------------


def example(name: str, *arguments: str) -> dict[str, Any]:
    """Run one of examples/ as a script; its names."""
    before, sys.argv = sys.argv, [name, *arguments]
    try:
        return runpy.run_path(str(DOCS.parent / "examples" / name), run_name="__main__")
    finally:
        sys.argv = before


def curves(run: Any, over: str, metric: str) -> dict[str, list[tuple[float, float]]]:
    """Means over seeds of every scheme, one point per evaluation; schemes without privacy have no curve over eps."""
    table = run.frame("evaluations").replace([np.inf, -np.inf], np.nan).dropna(subset=[over, metric])
    means = table.groupby(["scheme", "round"])[list({"eps", metric} - {"round"})].mean().reset_index()
    found = {label: means[means["scheme"] == label] for label in run.labels}
    return {label: [*zip(own[over].tolist(), own[metric].tolist())] for label, own in found.items() if len(own)}


def own_scheme() -> list[Panel]:
    run = example("own_scheme.py")["run"]
    return [{"x": "ε of a client", "y": "accuracy", "lines": curves(run, "eps", "accuracy")}]


def own_data() -> list[Panel]:
    run = in_folder("own_data.py")
    return [{"x": "round", "y": "squared error, 1: the mean", "lines": curves(run, "round", "mse"),
             "axes": {"ylim": [0, 1]}}]  # fmt: skip


def scaling_sweep() -> list[Panel]:
    lines = curves(in_folder("scaling_sweep.py"), "eps", "accuracy")
    return [{"x": "ε of a client", "y": "accuracy", "lines": {f"η = {name}": line for name, line in lines.items()}}]


def own_loop_numpy() -> list[Panel]:
    history = example("own_loop_numpy.py")["history"]
    lines = {"40 devices": [(float(eps), float(accuracy)) for eps, accuracy in history]}
    return [{"x": "ε of a client", "y": "accuracy", "lines": lines}]


def in_folder(name: str) -> Any:
    """The run an example leaves in the folder that it is given."""
    from otafl.reports.run import Run

    folder = Path(tempfile.mkdtemp()) / "run"
    example(name, str(folder))
    return Run(folder)


RUNS: dict[str, Callable[[], list[Panel]]] = {
    one.__name__: one for one in (own_scheme, own_data, scaling_sweep, own_loop_numpy)
}


# --- drawing ---------------------------------------------------------------------------------------------------------


def picture(panels: list[Panel]) -> str:
    """SVG; every line carries its own name."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    from otafl.reports.plots import COLOURS, MARKERS, STYLE, as_svg, label_ends

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "otafl", "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.6 * len(panels), 2.9))
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            for n, line in enumerate(panel["lines"].values()):
                few = {"marker": MARKERS[n % len(MARKERS)]} if len(line) < 20 else {}
                axes.plot(*zip(*line), color=COLOURS[n % len(COLOURS)], **few)
            axes.set(xlabel=panel["x"], ylabel=panel["y"], **panel.get("axes", {}))
            if "ticks" in panel:
                axes.set_xticks(panel["ticks"])
                axes.xaxis.set_major_formatter(ScalarFormatter())
                axes.xaxis.set_minor_formatter(NullFormatter())
        edge = {"left": 0.14 / len(panels), "right": 1 - 0.24 / len(panels), "bottom": 0.17, "top": 0.97}
        figure.subplots_adjust(**edge, wspace=0.75)
        for axes, panel in zip(figure.axes, panels):
            axes.autoscale_view()  # names stand where the data end: limits must be known
            label_ends(axes, {name: (*line[-1], COLOURS[n % len(COLOURS)])
                              for n, (name, line) in enumerate(panel["lines"].items())})  # fmt: skip
        return as_svg(figure)


def stored(name: str) -> list[Panel]:
    return list(json.loads(STORED.read_text(encoding="utf-8"))[name]["panels"])


def antennas() -> list[Panel]:
    """From the tables of the page itself: what is drawn is what stands there."""
    attacks = rows("antennas.md", "| beam |")
    lines = {}
    for beam in ("fixed", "iterated"):
        own = [row for row in attacks if row[1] == "1" or row[0] == beam]
        for name, column in (("charged", 3), ("measured", 4)):
            lines[f"{beam}, {name}"] = [(float(row[1]), float(row[column])) for row in own]
    noises = rows("antennas.md", "| antennas | receiver noise alone |")
    names = ("receiver noise alone", "own noise", "somebody else's")
    log = {"xscale": "log", "yscale": "log"}
    return [
        {"x": "antennas", "y": "ε", "lines": lines, "axes": log, "ticks": [1, 2, 4, 8]},
        {"x": "antennas", "y": "mean charge 1/z²", "axes": log, "ticks": [1, 2, 4, 8, 16, 64],
         "lines": {name: [(float(row[0]), float(row[n + 1])) for row in noises] for n, name in enumerate(names)}},
    ]  # fmt: skip


def rows(page: str, head: str) -> list[list[str]]:
    """The cells below the table head that begins so."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^{re.escape(head)}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]


PICTURES: dict[str, Callable[[], str]] = {
    "antennas": lambda: picture(antennas()),
    "gallery-antennas": lambda: picture(antennas()[:1]),
    **{f"gallery-{name}": lambda name=name: picture(stored(name)) for name in RUNS},
}


def main(names: list[str]) -> None:
    told = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    for name in names or list(RUNS):
        panels = [
            {**panel, "lines": {key: [[float(f"{v:.4g}") for v in point] for point in line]
                                for key, line in panel["lines"].items()}}
            for panel in RUNS[name]()
        ]  # fmt: skip
        told[name] = {"date": datetime.now(UTC).date().isoformat(), "command": f"python docs/gallery.py {name}",
                      "panels": panels}  # fmt: skip
        STORED.write_text(json.dumps(told, sort_keys=True, ensure_ascii=False, indent=None) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
