"""CARES' claims, each checked on the runs of a table: differences between methods, and what the controller does."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from otafl.core.interval import half_width
from otafl.reports.tables import METRICS, paired_difference
from otafl.reproductions.findings import FAILS, HOLDS, TIED, Record, Verdict
from otafl.runs.comparing.statistics import mean_sd, numbers
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.systems.cares.reproduce_figures import Curves


def gap_text(gap: dict[str, float], digits: int = 4) -> str:
    """A paired difference with its 95 % interval; a dash where no seed has both."""
    if not np.isfinite(gap["mean"]):
        return "–"
    width = f" ± {gap['half_width']:.{digits}f}" if np.isfinite(gap["half_width"]) else ""
    return f"{gap['mean']:+.{digits}f}{width} ({gap['pairs']:.0f} pairs)"


def judge(claims: Sequence[Record], found: list[Record]) -> list[Verdict]:
    """A claim holds if its paired difference is beyond the 95 % interval, and fails if it is so the other way."""
    known = {entry["label"]: entry for entry in found}
    out = []
    for claim in claims:
        gap = paired_difference(known[claim["better"]], known[claim["than"]], claim["metric"])
        half = gap["half_width"] if np.isfinite(gap["half_width"]) else np.inf
        word = HOLDS if gap["mean"] > half else FAILS if gap["mean"] < -half else TIED
        text = gap_text(gap, 0 if claim["metric"] == "rounds" else 4)
        out.append(Verdict(claim["text"], word, f"{METRICS[claim['metric']]}: {text}"))
    return out


def follows_the_channel(curves: Curves, span: int = 40) -> Verdict:
    """Figure 7's "the controller lowers the scaling when channels degrade", as a rank correlation over drift periods.

    The channel's badness is dropped_weight / rx_scale^2, the weighted mean drop rate where truncation is small.
    """
    found = []
    for seed in curves.seeds:
        scale, dropped = curves.rounds(seed, "rx_scale"), curves.rounds(seed, "info_dropped_weight")
        periods = np.arange(len(scale)) // span
        if periods[-1] < 2:
            continue
        badness, chosen = (_by_period(value, periods) for value in (dropped / scale**2, scale))
        found.append(float(stats.spearmanr(badness, chosen).statistic))
    claim = "the controller lowers η when channels degrade (Figure 7)"
    if not found:
        return Verdict(claim, TIED, "runs shorter than three drift periods")
    half = half_width(found)
    word = HOLDS if np.mean(found) < -half else FAILS if np.mean(found) > half else TIED
    return Verdict(claim, word, f"rank correlation of η with badness: {', '.join(f'{r:+.2f}' for r in found)} by seed")


def _by_period(value: np.ndarray, periods: np.ndarray) -> np.ndarray:
    return np.array([np.mean(value[periods == p]) for p in np.unique(periods)])


def near(entry: Record, value: float, tolerance: float) -> Verdict:
    """Figure 5's mean of the controller's scalings; `tolerance` is how we read "near"."""
    scale = numbers(entry["mean_rx_scale"])
    word = HOLDS if abs(np.mean(scale) - value) <= tolerance else FAILS
    claim = f"the controller's mean scaling is near {value:g} (within {tolerance:g})"
    return Verdict(claim, word, f"{mean_sd(scale)} over {scale.size} seeds")


def always_certified(entry: Record) -> Verdict:
    """Figure 5's "all selected arms remain certified feasible": the run remarks every round without a certificate."""
    missed = [remark for remark in entry["remarks"] if remark.startswith(NO_CERTIFICATE)]
    evidence = missed[0] if missed else "every round has a joint certificate"
    return Verdict("all selected arms remain certified feasible", FAILS if missed else HOLDS, evidence)
