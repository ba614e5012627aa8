"""What an attack has shown: lower confidence bounds on mu and eps from its scores in two worlds. Host, float64.

A score is one number per run of the mechanism, larger where the attacker leans to "present". Against one Gaussian of
parameter mu the best score is normal with variance 1 and means mu apart, so the noncentral t distribution bounds mu
exactly (`shift`). Against anything, a threshold has false alarms and misses, and Clopper-Pearson limits on both bound
the trade-off (`counts`): a charge is refuted where 1 - FNR passes the charged power at FPR, both limits taken upwards.

An audit that refutes nothing has shown nothing but its own bounds: there is no word "private" here.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy import gaussian
from otafl.privacy.attack import power_of, tpr
from otafl.privacy.by_pld import Row

ERROR = 1e-3  # of refuting any true charge in one audit, in all
WEAK = 0.95  # an attack whose upper limit stays below this share of the charge has not tried the charge
USUAL = 0.05  # error of that upper limit
FAR = 1000.0  # t statistics beyond this: the noncentral t is not evaluated, a union bound serves
THRESHOLDS = 200


class Charge(NamedTuple):
    """What was charged for one client: the numbers, and the largest true positive rate at a false positive rate."""

    eps: float  # by the run's accountant
    delta: float
    mu: float | None  # where the charged rounds are one Gaussian
    power: Callable[[Array], Array]


class Shift(NamedTuple):
    """mu as the means of the scores lie apart, in standard deviations."""

    mu: float
    low: float  # at the error of the test
    high: float  # at the usual error
    equal: float  # p-value of equal variances in both worlds, which the bound needs


class Counts(NamedTuple):
    """A threshold chosen on one half of the scores and counted on the other."""

    threshold: float
    fpr: float  # upper limits
    fnr: float
    power: float  # charged at that fpr
    eps: float  # log((1 - fnr - delta) / fpr), or the same with the worlds exchanged; 0 where that is negative
    high: float  # upper limit of 1 - fnr at the usual error
    high_power: float  # charged at the lower limit of fpr

    @property
    def refutes(self) -> bool:
        return 1 - self.fnr > self.power


class Finding(NamedTuple):
    """One canary under one pattern."""

    shift: Shift | None  # None where scores are not normal
    curve: Counts  # threshold for the charged curve
    point: Counts  # threshold for eps at delta
    charge: Charge
    beta: float

    @property
    def sound_shift(self) -> Shift | None:
        """The shift, where both worlds may have the variance that its bound assumes equal."""
        return self.shift if self.shift is not None and self.shift.equal >= self.beta else None

    @property
    def refuted(self) -> str:
        """Which bound passed the charge; empty if none."""
        shift, mu = self.sound_shift, self.charge.mu
        if shift is not None and mu is not None and shift.low > mu:
            return f"mean shift: μ ≥ {shift.low:.4g}, charged {mu:.4g}"
        for counts in (self.curve, self.point):
            if counts.refutes:
                seen = f"{1 - counts.fnr:.4g} true positives at {counts.fpr:.4g} false ones"
                return f"counts: at least {seen}, charged {counts.power:.4g}"
        return f"ε ≥ {self.eps:.4g}" if self.eps > self.charge.eps else ""

    @property
    def eps(self) -> float:
        """Largest lower bound on eps at the charge's delta."""
        shift = self.sound_shift
        by_shift = 0.0 if shift is None else float(gaussian.eps(max(shift.low, 0.0), self.charge.delta))
        return max(by_shift, self.point.eps, self.curve.eps)

    @property
    def weak(self) -> bool:
        """Whether even the upper limits of what was seen stay well below the charge."""
        shift, mu = self.sound_shift, self.charge.mu
        if shift is not None and mu is not None:
            return shift.high < WEAK * mu
        return self.curve.high < WEAK * self.curve.high_power


def gaussian_charge(mu: float, eps: float, delta: float) -> Charge:
    """Rounds that are one Gaussian of parameter mu; `eps` is what the run's accountant says of them."""
    return Charge(eps, delta, mu, partial(tpr, mu))


def row_charge(row: Row, adjacency: str, eps: float, delta: float) -> Charge:
    """All rounds of one client, sampled or not."""
    if row.gaussian:
        return gaussian_charge(row.mu, eps, delta)
    return Charge(eps, delta, None, power_of(row, adjacency == "replace"))


def examine(absent: Array, present: Array, charge: Charge, beta: float, normal: bool) -> Finding:
    """All tests of one canary: scores of runs in either world, each test at error `beta`."""
    absent, present = _scores("absent", absent), _scores("present", present)
    apart = shift(absent, present, beta) if normal else None
    half = len(absent) // 2, len(present) // 2
    train, held = (absent[: half[0]], present[: half[1]]), (absent[half[0] :], present[half[1] :])
    curve = counts(*held, _best(*train, charge, beta, _margin), charge, beta)
    point = counts(*held, _best(*train, charge, beta, lambda c: c.eps), charge, beta)
    return Finding(apart, curve, point, charge, beta)


def statistics(normal: bool) -> int:
    """Tests that `examine` makes of one canary: each has its share of the error."""
    return 3 if normal else 2


# --- the mean shift ----------------------------------------------------------------------------------------------


def shift(absent: Array, present: Array, beta: float) -> Shift:
    """mu between two normal samples of equal variance, with an exact lower limit by the noncentral t.

    >>> rng = np.random.default_rng(0)
    >>> found = shift(rng.normal(-1, 1, 500), rng.normal(1, 1, 500), 0.05)
    >>> bool(1.8 < found.low < found.mu < found.high < 2.2)
    True
    """
    absent, present = _scores("absent", absent), _scores("present", present)
    n0, n1 = len(absent), len(present)
    freedom, root = n0 + n1 - 2, np.sqrt(n0 * n1 / (n0 + n1))
    variance0, variance1 = float(np.var(absent, ddof=1)), float(np.var(present, ddof=1))
    spread = np.sqrt(((n0 - 1) * variance0 + (n1 - 1) * variance1) / freedom)
    between = float(np.mean(present) - np.mean(absent))
    # Scores come from float32: no smaller noise than their rounding can be told from it.
    rounding = 1e-6 * float(np.max(np.abs(np.concatenate([absent, present]))))
    pooled = max(spread, rounding)
    if pooled == 0:
        return Shift(0.0, 0.0, 0.0, 1.0)
    statistic = between / pooled * root
    ratio = variance1 / variance0 if variance0 > 0 else np.inf
    one_side = stats.f.sf(ratio, n1 - 1, n0 - 1)
    equal = float(2 * min(one_side, 1 - one_side)) if spread > rounding else 1.0
    low = noncentrality(statistic, freedom, beta) / root
    high = -noncentrality(-statistic, freedom, USUAL) / root
    return Shift(between / pooled, low, high, equal)


def noncentrality(statistic: float, freedom: int, beta: float) -> float:
    """Lower limit at error beta: the noncentrality under which a t this large has probability beta."""
    if abs(statistic) > FAR:  # both of the mean and of the variance, half the error each
        spread = stats.chi2.ppf(beta / 2 if statistic > 0 else 1 - beta / 2, freedom) / freedom
        return float(statistic * np.sqrt(spread) - stats.norm.isf(beta / 2))
    spread = np.sqrt(1 + statistic**2 / (2 * freedom))
    middle = statistic - stats.norm.isf(beta) * spread  # nearly the answer: the series fails far from it
    low, high = middle - spread, middle + spread
    while stats.nct.sf(statistic, freedom, low) > beta:
        low -= 2 * (middle - low)
    while stats.nct.sf(statistic, freedom, high) < beta:
        high += 2 * (high - middle)
    return float(optimize.brentq(lambda c: stats.nct.sf(statistic, freedom, c) - beta, low, high, xtol=1e-10))


# --- counts ------------------------------------------------------------------------------------------------------


def upper_limit(hits: Array, of: int, beta: float) -> Array:
    """Clopper-Pearson: the probability under which so few hits or fewer have probability beta.

    >>> round(float(upper_limit(0, 500, 0.025)), 5)
    0.00735
    """
    hits = np.asarray(hits)
    with np.errstate(invalid="ignore"):
        return np.where(hits >= of, 1.0, stats.beta.ppf(1 - beta, hits + 1, np.maximum(of - hits, 1)))


def counts(absent: Array, present: Array, threshold: Array, charge: Charge, beta: float) -> Counts:
    """Limits at one threshold, or at several (every field is then an array)."""
    at = np.asarray(threshold)
    false = len(absent) - np.searchsorted(np.sort(absent), at, side="right")
    missed = np.searchsorted(np.sort(present), at, side="right")
    fpr, fnr = upper_limit(false, len(absent), beta / 2), upper_limit(missed, len(present), beta / 2)
    low_fpr = 1 - upper_limit(len(absent) - false, len(absent), USUAL / 2)
    low_fnr = 1 - upper_limit(len(present) - missed, len(present), USUAL / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.maximum(_log_ratio(1 - fnr - charge.delta, fpr), _log_ratio(1 - fpr - charge.delta, fnr))
    found = (at, fpr, fnr, charge.power(fpr), np.maximum(shown, 0.0), 1 - low_fnr, charge.power(low_fpr))
    return Counts(*(float(x) if np.ndim(x) == 0 else x for x in found))  # type: ignore[arg-type]


def _log_ratio(above: Array, below: Array) -> Array:
    return np.where(above > 0, np.log(np.maximum(above, 1e-300) / below), -np.inf)


def _margin(found: Counts) -> Array:
    return 1 - found.fnr - found.power


def _best(absent: Array, present: Array, charge: Charge, beta: float, worth: Callable[[Counts], Array]) -> float:
    """The threshold that would have shown most on these scores."""
    pooled = np.unique(np.concatenate([absent, present]))
    between = (np.mean(absent) + np.mean(present)) / 2
    candidates = np.append(np.quantile(pooled, np.linspace(0, 1, THRESHOLDS)), between)
    return float(candidates[int(np.argmax(worth(counts(absent, present, candidates, charge, beta))))])


def _scores(name: str, values: Array) -> Array:
    values = np.asarray(values, np.float64)
    validate.finite(f"scores {name}", values)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(f"scores {name} must be at least 2 numbers in a row, not of shape {values.shape}")
    return values
