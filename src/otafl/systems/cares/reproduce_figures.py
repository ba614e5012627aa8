"""Panels of CARES' tables and of its Figures 1 and 3 to 7, from run folders, beside what the paper prints."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.privacy.zcdp import classic_budget
from otafl.reports.tables import METRICS
from otafl.reproductions.pictures import Line, Panel, Said, line, point
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.store import RunFolder

WINDOW = 25  # rounds of the running mean of the scaling
EPS_POINTS = 60
Printed = dict[str, dict[str, tuple[float, float | None]]]  # method -> metric -> value, spread


class Curves(NamedTuple):
    """One method's run, all seeds."""

    label: str
    summary: dict[str, Any]
    evaluation_table: dict[str, np.ndarray]
    round_table: dict[str, np.ndarray]

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in np.unique(self.evaluation_table["seed"])]

    def evaluations(self, seed: int, column: str) -> Array:
        return self.evaluation_table[column][self.evaluation_table["seed"] == seed]

    def rounds(self, seed: int, column: str) -> Array:
        return self.round_table[column][self.round_table["seed"] == seed]


Painter = Callable[[list[Curves], Printed], Panel]


def read_curves(run: Path, label: str) -> Curves:
    place = RunFolder.open(run).scheme(label)
    return Curves(label, place.json("summary"), place.read("evaluations"), place.read("rounds"))


def printed(targets: dict[str, Any]) -> Printed:
    """The numbers of a preset's targets; what is printed as a bound is none.

    >>> printed({"a": {"best_accuracy": "0.785 ± 0.020", "final_eps": "≤ 500"}})
    {'a': {'best_accuracy': (0.785, 0.02)}}
    """
    out: Printed = {}
    for label, said in targets.items():
        split = {metric: text.split("±") for metric, text in said.items() if "≤" not in text}
        out[label] = {metric: (float(own[0]), float(own[1]) if own[1:] else None) for metric, own in split.items()}
    return out


def level_panels(found: list[dict[str, Any]], said: Printed, metrics: Sequence[str]) -> list[Panel]:
    """One panel of points per column of a table."""
    panels = []
    for metric in metrics:
        own = [(entry, numbers(entry[metric])) for entry in found if entry["private"] or metric != "final_eps"]
        points = [point(entry["label"], values.tolist(), *said.get(entry["label"], {}).get(metric, (None, None)))
                  for entry, values in own if np.isfinite(values).any()]  # fmt: skip
        if points:
            panels.append(Panel(METRICS[metric], "", "", points=points))
    return panels


def accuracy(at: float | None = None) -> Painter:
    """Over rounds; at: the round for which the paper prints the accuracy at the budget."""

    def panel(shown: list[Curves], said: Printed) -> Panel:
        lines = []
        for curves in shown:
            x = np.unique(np.concatenate([curves.evaluations(seed, "round") for seed in curves.seeds]))
            rows = [_at(x, curves.evaluations(s, "round"), curves.evaluations(s, "accuracy")) for s in curves.seeds]
            lines.append(line(curves.label, x, rows))
        there = [one.label for one in shown if at is not None and one.label in said]
        metric = {"FedAvg": "best_accuracy"}  # which has no budget
        marks = [Said(label, said[label][metric.get(label, "accuracy_at_eps")][0], at) for label in there]
        return Panel("accuracy over rounds", "round", "accuracy", lines, marks)

    return panel


def over_eps(column: str, name: str, metric: str) -> Painter:
    """Interpolated in eps on one grid; FedAvg, whose eps is infinite, as a level. The paper prints values at eps*."""

    def panel(shown: list[Curves], said: Printed) -> Panel:
        target, lines = float(shown[0].summary["target_eps"]), []
        for curves in shown:
            if not curves.summary["private"]:
                last = [[float(curves.evaluations(seed, column)[-1])] * 2 for seed in curves.seeds]
                lines.append(line(curves.label, [0.0, target], last))
                continue
            end = max(float(curves.evaluations(seed, "eps")[-1]) for seed in curves.seeds)
            x = np.linspace(0, min(end, 1.2 * target), EPS_POINTS)[1:]
            rows = [_at(x, curves.evaluations(s, "eps"), curves.evaluations(s, column)) for s in curves.seeds]
            lines.append(line(curves.label, x, rows))
        marks = [Said(one.label, said[one.label][metric][0], target, said[one.label][metric][1])
                 for one in shown if metric in said.get(one.label, {})]  # fmt: skip
        return Panel(f"{name} over ε", "ε of the worst client", name, lines, marks)

    return panel


def _at(x: np.ndarray, own_x: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.asarray(np.interp(x, own_x, value, left=np.nan, right=np.nan))


def scaling(shown: list[Curves], said: Printed) -> Panel:
    """Mean over the seeds still running, smoothed over a window of rounds."""
    lines = []
    for curves in shown:
        longest = max(len(curves.rounds(seed, "rx_scale")) for seed in curves.seeds)
        window, rows = min(WINDOW, longest), []
        for seed in curves.seeds:
            own = curves.rounds(seed, "rx_scale")
            smooth = np.convolve(own, np.ones(window) / window, "valid") if len(own) >= window else own[:0]
            rows.append(np.pad(smooth, (0, longest - window + 1 - len(smooth)), constant_values=np.nan))
        lines.append(line(curves.label, np.arange(longest - window + 1) + window // 2, rows))
    marks = [Said(label, own["mean_rx_scale"][0]) for label, own in said.items() if "mean_rx_scale" in own]
    return Panel("receive scaling", "round", f"η, mean over {WINDOW} rounds", lines, marks)


def remaining(shown: list[Curves], said: Printed) -> Panel:
    """zCDP left after every evaluation, from eps by the classic conversion."""
    lines: list[Line] = []
    for curves in shown:
        delta, target = curves.summary["delta"], curves.summary["target_eps"]
        x = np.unique(np.concatenate([curves.evaluations(seed, "round") for seed in curves.seeds]))
        rows = []
        for seed in curves.seeds:
            left = classic_budget(target, delta) - classic_budget(curves.evaluations(seed, "eps"), delta)
            rows.append(np.interp(x, curves.evaluations(seed, "round"), left))
        lines.append(line(curves.label, x, rows))
    return Panel("remaining budget", "round", "remaining zCDP", lines)


def at_budget(shown: list[Curves], said: Printed) -> Panel:
    """The worst client at the budget."""
    found = [{"label": one.label, **one.summary} for one in shown if one.summary["private"]]
    return level_panels(found, said, ["worst_client_at_eps"])[0]


class Figure(NamedTuple):
    schemes: tuple[str, ...]
    panels: tuple[Painter, ...]


_PRIVATE = ("FedAvg+DP", "OTA-FFL†", "OTA-FFL budget", "CARES static", "CARES adaptive")
_CONTROLLED = ("OTA-FFL budget", "CARES static", "CARES adaptive")
_OVER_EPS = over_eps("accuracy", "accuracy", "accuracy_at_eps")
FIGURES = {
    1: Figure(("FedAvg", *_PRIVATE), (_OVER_EPS, at_budget)),
    3: Figure(("FedAvg", *_CONTROLLED), (accuracy(),)),
    4: Figure(_PRIVATE, (over_eps("worst_client", "accuracy of the worst client", "worst_client_at_eps"),)),
    5: Figure(_CONTROLLED, (scaling, remaining)),
    6: Figure(("FedAvg", "FedAvg+DP", "OTA-FFL†"), (accuracy(600.0),)),
    7: Figure(_CONTROLLED, (_OVER_EPS, scaling)),
}
