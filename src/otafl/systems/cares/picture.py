"""The certified trade-off as a picture: how much of each target a receive scaling uses up."""

from pathlib import Path
from typing import Any

import numpy as np

# Okabe and Ito's colours, told apart by line style as well
_LINES = {
    "conv_bound": ("conv_target", "#0072B2", "-", "convergence bound, own horizon"),
    "eps": ("eps_target", "#D55E00", "--", "privacy eps, {rounds} rounds"),
    "dropped_weight": ("max_dropped", "#009E73", "-.", "dropped weight"),
    "asymmetry": ("max_asymmetry", "#CC79A7", ":", "asymmetry"),
}


def draw_trilemma(report: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the curves of a summary as shares of their targets, F_H shaded. Writes PNG and PDF."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    curves = report["curves"]
    eta = np.asarray(curves["rx_scale"], float)
    for key, (target, colour, style, label) in _LINES.items():
        share = _share(curves[key], report["targets"][target])
        axes.plot(eta, share, style, color=colour, lw=2, label=label.format(rounds=curves["rounds"]))
    axes.axhline(1.0, color="black", lw=0.8)
    axes.annotate("target", (0.0, 1.0), xycoords=("axes fraction", "data"), xytext=(3, 2), textcoords="offset points")
    _shade(axes, report)
    arms = np.asarray(report["arms"], float)
    axes.plot(arms, np.zeros_like(arms), "|", color="black", transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set(xscale="log" if arms[-1] > 4 * arms[0] else "linear", yscale="log")
    axes.set(xlabel="receive scaling rx_scale", ylabel="value / target", title=_title(report))
    axes.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "cares_trilemma.png", folder / "cares_trilemma.pdf"]
    figure.savefig(files[0], dpi=160)
    figure.savefig(files[1], metadata={"CreationDate": None})
    return files


def _share(values: Any, target: Any) -> np.ndarray:
    """value / target where both are positive and finite; gaps elsewhere."""
    top, bottom = _numbers(values), _numbers(target)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = top / bottom
    return np.where(np.isfinite(share) & (share > 0), share, np.nan)


def _numbers(values: Any) -> np.ndarray:
    """Floats again from a report that may have been through JSON, where infinities are words."""
    return np.asarray([np.nan if v is None else float(v) for v in np.atleast_1d(np.asarray(values, object))])


def _shade(axes: Any, report: dict[str, Any]) -> None:
    """Shade each run of feasible arms, half-way out to its infeasible neighbours."""
    arms, good = np.asarray(report["arms"], float), np.asarray(report["feasible_arms"], bool)
    edges = np.concatenate([arms[:1], np.sqrt(arms[:-1] * arms[1:]), arms[-1:]])
    label: str | None = "feasible arms F_H"
    for i in np.flatnonzero(good):
        axes.axvspan(edges[i], edges[i + 1], color="#56B4E9", alpha=0.25, lw=0, label=label)
        label = None
    if report["eta_init"] is not None:
        axes.axvline(report["eta_init"], color="black", ls=(0, (1, 1)), lw=1.2, label="rx_scale chosen")


def _title(report: dict[str, Any]) -> str:
    count, total = int(np.sum(report["feasible_arms"])), len(report["arms"])
    return f"CARES: {count} of {total} arms certified" if count else f"CARES: {report['label']}"
