"""CARES' claims about the scalings that its static rule and its controller choose, round by round."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from otafl.reproductions import claims as rules
from otafl.reproductions.claims import fact
from otafl.reproductions.findings import Record, Verdict
from otafl.runs.comparing.statistics import from_zero, mean_sd, numbers
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.systems.cares.reproduce_figures import Curves

PERIOD = 40  # rounds between two drifts
NEAR = 0.02  # how "near" a scaling is read
MUCH = 0.5  # "much smaller": less than this share
Known = dict[str, Record]  # a method's summary by label
Read = Callable[[str], Curves]


def correlations(curves: Curves) -> list[float]:
    """Rank correlation of the scaling with the channel's badness over drift periods, by seed.

    Badness is dropped_weight / rx_scale^2, the weighted mean drop rate where truncation is small.
    """
    found = []
    for seed in curves.seeds:
        scale, dropped = curves.rounds(seed, "rx_scale"), curves.rounds(seed, "info_dropped_weight")
        periods = np.arange(len(scale)) // PERIOD
        if len(periods) <= 2 * PERIOD:  # fewer than three periods, or no round at all
            continue
        badness, chosen = (_by_period(value, periods) for value in (dropped / scale**2, scale))
        if np.ptp(chosen) > 0:
            found.append(float(stats.spearmanr(badness, chosen).statistic))
    return found


def _by_period(value: np.ndarray, periods: np.ndarray) -> np.ndarray:
    return np.array([np.mean(value[periods == p]) for p in np.unique(periods)])


def follows_the_channel(known: Known, read: Read) -> Verdict:
    """Figure 7's right panel."""
    found = correlations(read("CARES adaptive"))
    gap = from_zero(found)
    text = f"rank correlation {gap.mean:+.2f} ± {gap.half_width:.2f} ({gap.pairs} seeds)" if found else "too few rounds"
    part = rules.ahead(gap._replace(mean=-gap.mean))._replace(evidence=text)
    claim = "when channels degrade, the controller reduces η_t to lower the per-round privacy cost"
    rule = "rank correlation of η with the channel's badness over drift periods: mean < 0"
    return rules.joined(claim, [part], "Appendix H", rule)


def varies(known: Known, read: Read) -> Verdict:
    """Both halves of one sentence."""
    moved, still = (
        [float(np.ptp(curves.rounds(seed, "rx_scale"))) for seed in curves.seeds]
        for curves in (read("CARES adaptive"), read("CARES static"))
    )
    text = f"range of η_t over rounds: adaptive {min(moved):.3f} or more, static {max(still):.3f} or less, every seed"
    return fact("the adaptive controller varies η_t over time …, while the static variant remains fixed",
                min(moved) > 0 and max(still) == 0, text, "Appendix H", "in every seed")  # fmt: skip


def near(known: Known, read: Read, value: float = 0.31) -> Verdict:
    """Figure 5a's mean of the controller's scalings, seed by seed."""
    scale = numbers(known["CARES adaptive"]["mean_rx_scale"])
    text = f"mean η {mean_sd(scale)}, {scale.min():.3f} to {scale.max():.3f} over {scale.size} seeds"
    held = bool(np.all(np.abs(scale - value) <= NEAR))
    claim = f"The adaptive rule explores …, with a smoothed mean near η = {value:g} across all seeds"
    return fact(claim, held, text, "Figure 5a", f"mean η within {NEAR:g} of it in every seed")


def always_certified(known: Known, read: Read) -> Verdict:
    """The run remarks every round without a certificate."""
    missed = [remark for remark in known["CARES adaptive"]["remarks"] if remark.startswith(NO_CERTIFICATE)]
    evidence = missed[0] if missed else "every round has a joint certificate"
    return fact("All selected arms remain certified feasible", not missed, evidence, "Section 4.2", "in every round")


def concentrates(known: Known, read: Read) -> Verdict:
    """Spread of the chosen scalings in the first and in the last quarter of a run."""
    curves, falls = read("CARES adaptive"), []
    for seed in curves.seeds:
        scale = curves.rounds(seed, "rx_scale")
        quarter = max(len(scale) // 4, 1)
        falls.append(float(np.std(scale[:quarter]) - np.std(scale[-quarter:])))
    gap = from_zero(falls)
    part = rules.ahead(gap)._replace(evidence=f"spread of η, first − last quarter of the rounds: {gap.mean:+.4f} ± "
                                     f"{gap.half_width:.4f} ({gap.pairs} seeds)")  # fmt: skip
    return rules.joined("the adaptive controller explores early and then concentrates on safe receive-scaling values",
                        [part], "Section 4.2", "standard deviation of η, first − last quarter: mean > 0")  # fmt: skip


def largest_arm(known: Known, read: Read) -> Verdict:
    scale = numbers(known["CARES static"]["mean_rx_scale"])
    text = f"η* {scale.min():.3f} to {scale.max():.3f} over {scale.size} seeds"
    return fact("The certified feasible set is nonempty for all seeds, and CARES static selects η* = 0.40",
                bool(np.all(np.abs(scale - 0.40) < 1e-9)), text, "Section 4", "in every seed")  # fmt: skip


def within_budget(known: Known, read: Read) -> Verdict:
    spent = {label: numbers(known[label]["final_eps"]) for label in ("OTA-FFL budget", "CARES static", "CARES adaptive")
             if label in known}  # fmt: skip
    text = ", ".join(f"{label} {eps.max():.1f}" for label, eps in spent.items())
    held = all(np.all(eps <= 500) for eps in spent.values())
    return fact("All private OTA methods terminate before exceeding ε*", held, f"largest final ε: {text}", "Appendix G",
                "in every seed")  # fmt: skip


def drops_less(known: Known, read: Read) -> Verdict:
    """Weight that was dropped, beside the envelope (8) of the same rounds."""
    curves = read("CARES static")
    pairs = [(1 - float(np.mean(curves.rounds(seed, "sent_weight"))),
              float(np.mean(curves.rounds(seed, "info_dropped_weight")))) for seed in curves.seeds]  # fmt: skip
    less, count = sum(lost < MUCH * envelope for lost, envelope in pairs), len(pairs)
    lost, envelope = np.mean(pairs, axis=0)
    text = f"dropped {lost:.2%}, envelope {envelope:.2%}, means over {count} seeds; less than half in {less} of them"
    claim = "in our MNIST experiments, actual participation loss is often much smaller"
    rule = f"dropped weight < {MUCH:g} of its envelope, in more than half of the seeds"
    return fact(claim, less > count / 2, text, "Appendix J", rule)


def learns_faster(known: Known, read: Read) -> Verdict:
    """Accuracy of the larger scaling beside that of the smaller one after as many rounds."""
    static, fixed = read("CARES static"), read("OTA-FFL budget")
    gaps = []
    for seed in static.seeds:
        rounds, others = static.evaluations(seed, "round"), fixed.evaluations(seed, "round")
        last = np.intersect1d(rounds, others).max()
        pair = [float(one.evaluations(seed, "accuracy")[own == last][0])
                for one, own in ((static, rounds), (fixed, others))]  # fmt: skip
        gaps.append(pair[0] - pair[1])
    gap = from_zero(gaps)
    text = f"CARES static − OTA-FFL budget: {gap.mean:+.4f} ± {gap.half_width:.4f} ({gap.pairs} pairs)"
    rule = "accuracy at the last round that both evaluate: mean difference > 0"
    part = rules.ahead(gap)._replace(evidence=text)
    return rules.joined("The larger scaling … improves per-round learning", [part], "Section 4.1", rule)


ASKED: dict[str, Callable[[Known, Read], Verdict]] = {
    "follows": follows_the_channel, "varies": varies, "near": near, "certified": always_certified,
    "concentrates": concentrates, "largest": largest_arm, "budget": within_budget, "drops": drops_less,
    "learns": learns_faster,
}  # fmt: skip
