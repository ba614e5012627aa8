"""Pictures and exports of an AdaScale plan: the run round by round, and the methods side by side."""

from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.files import as_csv, write_atomic


def pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """adascale_rounds.svg, adascale_methods.svg and adascale_rounds.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_rounds(report, folder), _methods(report, folder), _export(report, folder)]


def _rounds(report: dict[str, Any], folder: Path) -> Path:
    """Receive scaling, noise energies and queue, leakage over rounds."""
    from matplotlib.figure import Figure

    rounds, leak = report["rounds"], np.asarray(report["totals"]["rdp_per_round_worst"], float)
    figure = Figure(figsize=(8, 7.5), layout="constrained")
    scaling, energy, leakage = figure.subplots(3, 1, sharex=True)
    scaling.semilogy(rounds["t"], rounds["eta"], lw=0.8)
    scaling.set(ylabel="receive scaling eta")
    energy.semilogy(rounds["t"], rounds["f"], lw=0.6, color="0.7", label="floor f")
    energy.semilogy(rounds["t"], rounds["N"], lw=0.8, label="noise energy N")
    if "Q" in rounds:
        queue = np.asarray(rounds["Q"], float)
        energy.semilogy(rounds["t"], np.where(queue > 0, queue, np.nan), lw=0.8, label="queue Q")
    energy.set(ylabel="energy")
    energy.legend(fontsize=8)
    leakage.plot(rounds["t"], np.cumsum(leak), lw=1.0)
    leakage.set(ylabel=f"RDP({report['alpha']}) spent, worst device", xlabel="round")
    for panel in (scaling, energy, leakage):
        panel.grid(alpha=0.3)
    figure.suptitle(f"{report['method']}, nu = {report['nu']:g} ({report['tuning']})", fontsize=10)
    path = folder / "adascale_rounds.svg"
    figure.savefig(path)
    return path


def _methods(report: dict[str, Any], folder: Path) -> Path:
    """Totals of every compared method, reconstructions hollow. Points: on a logarithmic axis no bar begins at zero."""
    from matplotlib.figure import Figure

    rows = report["comparison"]
    figure = Figure(figsize=(9, 0.4 * len(rows) + 1.6), layout="constrained")
    for panel, key, label in zip(
        figure.subplots(1, 2, sharey=True),
        ("rdp_mean", "eps_rdp_mean"),
        (f"RDP({report['alpha']}), mean over devices", f"eps at delta = {report['delta']:g}, mean over devices"),
    ):
        for row in rows:
            panel.plot(
                [row[key]], [row["method"]], "o", color="C0", fillstyle="none" if row["reconstruction"] else "full"
            )
        panel.set(xlabel=label, xscale="log")
        panel.grid(alpha=0.3)
        panel.invert_yaxis() if key == "rdp_mean" else None
    path = folder / "adascale_methods.svg"
    figure.savefig(path)
    return path


def _export(report: dict[str, Any], folder: Path) -> Path:
    """One row per round: t, eta, x, y, N, f, Q where there is a queue, then sigma of every device."""
    rounds = report["rounds"]
    columns = [key for key in ("t", "eta", "x", "y", "N", "f", "Q") if key in rounds]
    devices = len(rounds["sigma"][0])
    head = [*columns, *(f"sigma_{m}" for m in range(devices))]
    rows = zip(*(rounds[key] for key in columns), rounds["sigma"])
    path = folder / "adascale_rounds.csv"
    write_atomic(path, as_csv(head, ([*map(repr, row), *map(repr, sigma)] for *row, sigma in rows)))
    return path
