"""The phase diagram trained: the same jobs on a coarse grid of energy, ε and devices, as points on the closed form.

A cell's leader is the scheme of the air with the largest mean accuracy; it leads where its paired interval to the next
one leaves zero out, else the cell says "alike".
"""

from typing import Any

import numpy as np

from otafl.runs.comparing.compare import Part
from otafl.runs.comparing.statistics import numbers, paired
from otafl.runs.folder.summaries import on_air

STORED = "phases.json"  # in reports/assets: a dated run of the preset demo-phases-trained

Cell = dict[str, Any]


def cell_of(part: Part, devices: int, joules: float) -> Cell:
    """Accuracies of every ranked scheme by seed; those without a radio stand apart."""
    found = part.found
    private = {entry["label"]: entry for entry in found.ranked}
    return {
        "devices": devices,
        "joules": joules,
        "eps": part.target,
        "seeds": found.ranked[0]["seeds"] if found.ranked else [],
        "air": {k: _each(e) for k, e in private.items() if on_air(e)},
        "ideal": {k: _each(e) for k, e in private.items() if not on_air(e)},
    }


def _each(entry: dict[str, Any]) -> list[float]:
    return [float(value) for value in numbers(entry["final_accuracy"])]


def leader(cell: Cell) -> tuple[str, float, bool]:
    """Who has the largest mean accuracy, its lead over the next, and whether that is beyond the paired interval.

    >>> leader({"seeds": [0, 1], "air": {"a": [0.9, 0.8], "b": [0.7, 0.61]}})
    ('a', 0.195, True)
    """
    order = sorted(cell["air"], key=lambda label: -float(np.mean(cell["air"][label])))
    if len(order) < 2:
        return (order[0] if order else "–"), 0.0, False
    first, second = (dict(zip(cell["seeds"], cell["air"][label])) for label in order[:2])
    gap = paired(first, second)
    return order[0], round(float(gap.mean), 6), bool(gap.apart)


def sentence(cell: Cell) -> str:
    """One cell in words."""
    label, lead, apart = leader(cell)
    at = f"ε = {cell['eps']:g}, {cell['devices']:,} devices, {cell['joules']:.0e} J"
    if not cell["air"]:
        return f"{at}: nobody on the air can afford a round."
    best = float(np.mean(cell["air"][label]))
    ideal = max((float(np.mean(values)) for values in cell["ideal"].values()), default=float("nan"))
    told = f"leads by {lead:.3f}" if apart else f"is first by {lead:.3f}, which {len(cell['seeds'])} seeds cannot tell"
    return f"{at}: {label} {told}, {best:.3f}; without a radio {ideal:.3f}."


def overlay(panels: dict[float, Any], told: dict[str, Any]) -> None:
    """Marks on the panels of their ε, filled where the best scheme leads beyond its interval; the best accuracy."""
    for cell in told["cells"]:
        axes = panels.get(cell["eps"])
        if axes is None or not cell["air"]:
            continue
        label, _, apart = leader(cell)
        best = float(np.mean(cell["air"][label]))
        face = "black" if apart else "white"
        axes.plot(cell["joules"], cell["devices"], "o", markersize=5, markeredgecolor="black", markerfacecolor=face,
                  clip_on=False, zorder=3)  # fmt: skip
        paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
        axes.annotate(f"{best:.2f}", (cell["joules"], cell["devices"]), xytext=(0, 6), textcoords="offset points",
                      fontsize=7, ha="center", bbox=paper)  # fmt: skip
