"""CARES' claims, each checked on the runs of a table: differences between methods, and what the controller does."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import stats

from otafl.core.files import parse
from otafl.core.interval import half_width
from otafl.reports.tables import METRICS
from otafl.reproductions import claims as rules
from otafl.reproductions.claims import Claim
from otafl.reproductions.findings import FAILS, HOLDS, Record, Verdict
from otafl.runs.comparing.statistics import Gap, mean_sd, numbers
from otafl.runs.folder.summaries import by_seed
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.systems.cares.reproduce_figures import Curves


def gap_text(gap: dict[str, float], digits: int = 4) -> str:
    """A paired difference with its 95 % interval; a dash where no seed has both."""
    if not np.isfinite(gap["mean"]):
        return "–"
    width = f" ± {gap['half_width']:.{digits}f}" if np.isfinite(gap["half_width"]) else ""
    return f"{gap['mean']:+.{digits}f}{width} ({gap['pairs']:.0f} pairs)"


def judge(claims: Sequence[Record], found: list[Record]) -> list[Verdict]:
    """The claims of a preset about what the methods' summaries say, seed by seed."""
    known = {entry["label"]: entry for entry in found}
    out = []
    for record in claims:
        claim = parse(Claim, {"digits": 0 if record["metric"] == "rounds" else 4, **record}, "claim")
        out.append(rules.judge(claim, partial(_values, known, claim.metric), METRICS[claim.metric]))
    return out


def _values(known: dict[str, Record], metric: str, label: str) -> dict[int, float]:
    return by_seed(known[label], metric)


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
    claim = "when channels degrade, the controller reduces η_t"
    mean, half = (float(np.mean(found)), half_width(found)) if found else (0.0, float("inf"))
    part = rules.ahead(Gap(-mean, half, len(found)))
    text = f"{mean:+.2f} ± {half:.2f} over {len(found)} seeds" if len(found) > 1 else "too few drift periods"
    return rules.joined(claim, [part._replace(evidence=f"rank correlation {text}")], "Appendix H",
                        "rank correlation of η with the channel's badness over drift periods: mean < 0")  # fmt: skip


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
