"""Files for people: the bias-variance frontier as a picture, the pre-scalers as a table."""

from pathlib import Path
from typing import Any

from otafl.core.files import as_csv, write_atomic


def pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """frontier.png and prescalers.csv."""
    return [_draw_frontier(report, folder / "frontier.png"), _export(report, folder / "prescalers.csv")]


def _export(report: dict[str, Any], path: Path) -> Path:
    devices, eps = report["devices"], report.get("privacy", {}).get("eps")
    rows = [{**row, "eps": its} for row, its in zip(devices, eps)] if eps else devices
    write_atomic(path, as_csv(rows[0], (row.values() for row in rows)))
    return path


def _draw_frontier(report: dict[str, Any], path: Path) -> Path:
    from matplotlib.figure import Figure

    line = report["frontier"]
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(line["bias"], line["variance"], color="tab:blue", label="optimal designs, rho from 0 to inf")
    marks = (("design", "o", "this design"), ("kappa_equals_G", "s", "kappa = G"))
    for key, marker, label in marks:
        axes.plot(line[key]["bias"], line[key]["variance"], marker, label=label)
    axes.plot(line["bias"][-1], line["variance"][-1], "^", label="zero bias")
    axes.set(xlabel="bias  sum (p - w)²/w", ylabel="variance  ζ/G²")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    return path
