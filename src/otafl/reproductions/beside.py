"""Schemes of a run in a table: ours, the paper's numbers in brackets, and paired differences to one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from otafl.reports.tables import METRICS
from otafl.reproductions.findings import Grid, Record
from otafl.runs.comparing.compare import difference
from otafl.runs.comparing.statistics import Gap, mean_sd, numbers


def compare(found: Sequence[Record], metrics: Sequence[str], targets: dict[str, Any]) -> Grid:
    """Ours, and the paper's in brackets."""
    rows = [
        [entry["label"], *(_cell(entry, metric, targets.get(entry["label"], {})) for metric in metrics)]
        for entry in found
    ]
    return Grid("ours (paper)", ("method", *(METRICS[metric] for metric in metrics)), rows)


def _cell(entry: Record, metric: str, said: Record) -> str:
    digits = {"final_eps": 1, "rounds": 0}.get(metric, 3)
    values = numbers(entry[metric])
    good = values[~np.isnan(values)]
    if metric == "final_eps" and not entry["private"]:
        ours = "∞"
    elif 0 < good.size < values.size:  # as in the paper: a spread only where all seeds contribute
        ours = f"{np.mean(good):.{digits}f} ({good.size} of {values.size} seeds)"
    else:
        ours = mean_sd(values, digits)
    return ours + (f" ({said[metric]})" if metric in said else "")


def gaps(found: Sequence[Record], reference: str, metrics: Sequence[str]) -> Grid:
    """Paired differences to one method, with 95 % t intervals."""
    (base,) = (entry for entry in found if entry["label"] == reference)
    rows = [
        [f"{entry['label']} − {reference}",
         *(_gap(difference(entry, base, metric)) for metric in metrics)]
        for entry in found if entry is not base
    ]  # fmt: skip
    return Grid("paired differences", ("methods", *(METRICS[metric] for metric in metrics)), rows)


def _gap(gap: Gap) -> str:
    """A dash where no seed has both."""
    if not np.isfinite(gap.mean):
        return "–"
    width = f" ± {gap.half_width:.4f}" if np.isfinite(gap.half_width) else ""
    return f"{gap.mean:+.4f}{width} ({gap.pairs} pairs)"
