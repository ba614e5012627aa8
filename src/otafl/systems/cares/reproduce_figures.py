"""Panels of CARES' Figures 1 and 3 to 7, drawn from run folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.privacy.zcdp import classic_budget
from otafl.reports.plots import COLOURS, DASHES
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.store import RunFolder

WINDOW = 25  # rounds of the running mean of the scaling


class Curves(NamedTuple):
    """One method's run, all seeds."""

    label: str
    number: int  # in the run, for its colour
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

    @property
    def look(self) -> dict[str, Any]:
        return {"color": COLOURS[self.number % len(COLOURS)], "linestyle": DASHES[self.number % len(DASHES)]}


def read_curves(run: Path, label: str) -> Curves:
    folder = RunFolder.open(run)
    place = folder.scheme(label)
    return Curves(
        label, folder.labels().index(label), place.json("summary"), place.read("evaluations"), place.read("rounds")
    )


def band(axes: Any, curves: Curves, x: np.ndarray, rows: list[np.ndarray]) -> None:
    """Mean over the seeds that reach x, solid only where all do; one standard deviation where all do."""
    table = np.stack(rows)
    reached = np.isfinite(table)
    count = reached.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(reached, table, 0).sum(0) / count
    everyone = count == len(table)
    axes.plot(x[everyone], mean[everyone], label=curves.label, **curves.look)
    axes.plot(x, mean, **{**curves.look, "linewidth": 0.7})
    if len(table) > 1:
        sd = table[:, everyone].std(0, ddof=1)
        axes.fill_between(
            x[everyone], mean[everyone] - sd, mean[everyone] + sd, color=curves.look["color"], alpha=0.15, lw=0
        )


def over_rounds(column: str, name: str) -> Callable[[Any, list[Curves]], None]:
    def paint(axes: Any, shown: list[Curves]) -> None:
        for curves in shown:
            x = np.unique(np.concatenate([curves.evaluations(seed, "round") for seed in curves.seeds]))
            rows = [
                _at(x, curves.evaluations(seed, "round"), curves.evaluations(seed, column)) for seed in curves.seeds
            ]
            band(axes, curves, x, rows)
        axes.set(xlabel="round", ylabel=name)
        axes.legend()

    return paint


def over_eps(column: str, name: str) -> Callable[[Any, list[Curves]], None]:
    """Interpolated in eps on one grid; FedAvg, whose eps is infinite, as a level."""

    def paint(axes: Any, shown: list[Curves]) -> None:
        for curves in shown:
            if not curves.summary["private"]:
                level = np.mean([curves.evaluations(seed, column)[-1] for seed in curves.seeds])
                axes.axhline(level, label=f"{curves.label} (ε = ∞)", **{**curves.look, "linewidth": 1})
                continue
            x = np.linspace(0, max(float(curves.evaluations(seed, "eps")[-1]) for seed in curves.seeds), 120)[1:]
            band(
                axes,
                curves,
                x,
                [_at(x, curves.evaluations(seed, "eps"), curves.evaluations(seed, column)) for seed in curves.seeds],
            )
        target = shown[0].summary["target_eps"]
        axes.axvline(target, color="black", lw=1, ls=(0, (1, 1)))
        axes.annotate(f" ε* = {target:g}", (target, 0.02), xycoords=("data", "axes fraction"), fontsize=8)
        axes.set(xlabel="ε of the worst client", ylabel=name)
        axes.legend()

    return paint


def _at(x: np.ndarray, own_x: np.ndarray, value: np.ndarray) -> np.ndarray:
    return np.asarray(np.interp(x, own_x, value, left=np.nan, right=np.nan))


def at_budget(axes: Any, shown: list[Curves]) -> None:
    """Accuracy and worst client at the budget, one pair of points per method, with the deviation over seeds."""
    private = [curves for curves in shown if curves.summary["private"]]
    for n, (key, name, marker) in enumerate(
        (("accuracy_at_eps", "accuracy", "o"), ("worst_client_at_eps", "worst client", "s"))
    ):
        values = [numbers(curves.summary[key]) for curves in private]
        good = [v[np.isfinite(v)] for v in values]
        mean = [np.mean(v) if v.size else np.nan for v in good]
        sd = [np.std(v, ddof=1) if v.size > 1 else 0.0 for v in good]
        place = np.arange(len(private)) + 0.15 * (2 * n - 1)
        axes.errorbar(place, mean, sd, fmt=marker, color=COLOURS[n], capsize=3, label=f"{name} at ε*")
    axes.set_xticks(range(len(private)), [curves.label for curves in private], rotation=20)
    axes.legend()


def scaling(axes: Any, shown: list[Curves]) -> None:
    """Mean over the seeds still running, smoothed over a window of rounds."""
    for curves in shown:
        longest = max(len(curves.rounds(seed, "rx_scale")) for seed in curves.seeds)
        table = np.full((len(curves.seeds), longest), np.nan)
        for row, seed in zip(table, curves.seeds):
            own = curves.rounds(seed, "rx_scale")
            row[: len(own)] = own
        mean = np.nanmean(table, 0)
        window = min(WINDOW, longest)
        axes.plot(np.arange(longest - window + 1) + window // 2, np.convolve(mean, np.ones(window) / window, "valid"),
                  label=curves.label, **curves.look)  # fmt: skip
    axes.set(xlabel="round", ylabel=f"receive scaling η, mean over {WINDOW} rounds")
    axes.legend()


def remaining(axes: Any, shown: list[Curves]) -> None:
    """zCDP left after every evaluation, from eps by the classic conversion."""
    for curves in shown:
        delta, target = curves.summary["delta"], curves.summary["target_eps"]
        for n, seed in enumerate(curves.seeds):
            left = classic_budget(target, delta) - classic_budget(curves.evaluations(seed, "eps"), delta)
            name = {"label": curves.label} if n == 0 else {}
            axes.plot(
                curves.evaluations(seed, "round"), left, **{**curves.look, "linewidth": 0.9, "alpha": 0.7}, **name
            )
    axes.set(xlabel="round", ylabel="remaining zCDP")
    axes.legend()


class Figure(NamedTuple):
    schemes: tuple[str, ...]
    panels: tuple[Callable[[Any, list[Curves]], None], ...]


_PRIVATE = ("FedAvg+DP", "OTA-FFL†", "OTA-FFL budget", "CARES static", "CARES adaptive")
_ACCURACY = "accuracy"
FIGURES = {
    1: Figure(("FedAvg", *_PRIVATE), (over_eps(_ACCURACY, _ACCURACY), at_budget)),
    3: Figure(("FedAvg", "OTA-FFL budget", "CARES static", "CARES adaptive"), (over_rounds(_ACCURACY, _ACCURACY),)),
    4: Figure(_PRIVATE, (over_eps("worst_client", "accuracy of the worst client"),)),
    5: Figure(("OTA-FFL budget", "CARES static", "CARES adaptive"), (scaling, remaining)),
    6: Figure(("FedAvg", "FedAvg+DP", "OTA-FFL†"), (over_rounds(_ACCURACY, _ACCURACY),)),
    7: Figure(("OTA-FFL budget", "CARES static", "CARES adaptive"), (over_eps(_ACCURACY, _ACCURACY), scaling)),
}
