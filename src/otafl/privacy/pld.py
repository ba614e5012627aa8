"""Tight (eps, delta) of a run by privacy loss distributions, through dp_accounting. Host, float64.

A run with a different noise in every round would need one distribution per round. Noise multipliers are therefore
rounded *down* to `bins` values equally spaced in log: less noise than there was, so the result stays an upper bound.
Rounds without sampling need no binning: they compose to one Gaussian exactly.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy import gaussian

BINS = 24
LARGEST = 50.0  # multipliers above this, and above SPAN times the least, are charged as the larger of these two
SPAN = 30.0
TAIL = 15.0  # standard deviations of the noise that a loss is looked at
POINTS = 1e5  # of one round's losses: dp_accounting takes microseconds for each
MOST_POINTS = 1e6  # where rounds are so quiet that they need a finer grid: seconds
ROUNDING = 5e-16  # of delta, for every round: thirty times what Fourier transforms were seen to lose


def bin_down(noise_multiplier: Array, bins: int = BINS) -> tuple[Array, Array]:
    """Distinct values (at most `bins`) and counts of z rounded down on a log grid from the least to the largest z.

    >>> bin_down([1.0, 2.0, 5.0, 5.5, 16.0], bins=3)
    (array([ 1.,  4., 16.]), array([2, 2, 1]))
    """
    z = np.asarray(noise_multiplier, np.float64).ravel()
    validate.positive("noise_multiplier", z)
    z = np.minimum(z, max(LARGEST, SPAN * z.min()))
    validate.whole("bins", bins)
    distinct = np.unique(z)
    if distinct.size <= bins:
        grid = distinct
    else:
        grid = np.exp(np.linspace(np.log(distinct[0]), np.log(distinct[-1]), bins))
        grid[[0, -1]] = distinct[[0, -1]]  # exp(log(x)) may miss x
    index = np.searchsorted(grid, z, side="right") - 1
    count = np.bincount(index, minlength=grid.size)
    return grid[count > 0], count[count > 0]


def pld_eps(
    noise_multiplier: Array,
    rate: Array,
    delta: float,
    adjacency: str = "add-remove",
    bins: int = BINS,
    interval: float | None = None,
) -> float:
    """eps at delta of one client's rounds, z (T,) and rate () or (T,).

    Multipliers are relative to the declared sensitivity; under `replace` that is the distance of two contributions of
    half that norm each, opposed, which is an *assumed* worst pair where rounds are sampled (`by_pld` has the certified
    way). `interval` is the grid of the privacy loss (default: `loss_interval`).
    """
    validate.in_open("delta", delta, 0, 1)
    validate.one_of("adjacency", adjacency, ("add-remove", "replace", "zero-out"))
    z, rate, square = _used(noise_multiplier, rate)
    if z.size == 0 and square == 0:
        return 0.0
    if np.isinf(square) or np.any(z == 0):
        return math.inf
    if z.size == 0:
        return float(gaussian.eps(math.sqrt(square), delta))
    return eps_at(compose(z, rate, square, adjacency == "replace", bins, interval), delta, z.size)


def _used(noise_multiplier: Array, rate: Array) -> tuple[Array, Array, float]:
    """z and rate of the sampled rounds that cost anything, and the sum of 1/z^2 of those without sampling."""
    z, rate = np.broadcast_arrays(np.asarray(noise_multiplier, np.float64), np.asarray(rate, np.float64))
    validate.in_closed("rate", rate, 0, 1)
    used = np.isfinite(z) & (rate > 0)
    z, rate = z[used], rate[used]
    with np.errstate(divide="ignore"):
        return z[rate < 1], rate[rate < 1], float(np.sum(1 / z[rate == 1] ** 2))


def compose(
    z: Array, rate: Array, plain_square: float = 0.0, opposed: bool = False, bins: int = BINS,
    interval: float | None = None,
) -> Any:  # fmt: skip
    """dp_accounting's distribution of sampled rounds (T,), rate < 1, and of Gaussians with sum 1/z^2 `plain_square`.

    `opposed`: every sampled round is N(+s) against N(-s) with probability q, instead of N(s) against N(0).
    """
    try:
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise InputError("accountant 'pld' needs the package dp-accounting; install it or use 'rdp'") from None
    relation = NeighboringRelation.REPLACE_ONE if opposed else NeighboringRelation.ADD_OR_REMOVE_ONE
    factor = 2 if opposed else 1  # dp_accounting's opposed pair counts one of the two contributions
    step = interval or loss_interval(z, rate)
    plain = [(1.0, plain_square**-0.5, 1)] if plain_square > 0 else []  # Gaussians without sampling, as one
    try:
        return _composed(pld, relation, factor, step, [*_groups(z, rate, bins), *plain])
    except (TypeError, ValueError, LookupError, ArithmeticError, MemoryError) as problem:
        raise InputError(
            f"accountant 'pld' cannot count these rounds (dp-accounting: {type(problem).__name__}); use 'rdp'"
        ) from None


def _composed(pld: Any, relation: Any, factor: int, step: float, parts: list[tuple[float, float, int]]) -> Any:
    total = pld.identity(step)
    for q, value, count in parts:
        one = pld.from_gaussian_mechanism(
            value * factor, value_discretization_interval=step, sampling_prob=q, neighboring_relation=relation
        )
        total = total.compose(one.self_compose(count))
    return total


def eps_at(total: Any, delta: float, rounds: int) -> float:
    """eps at delta of a distribution of so many sampled rounds, or of one of its `directions`.

    dp_accounting composes by Fourier transforms, whose rounding may hide that much of delta: it is taken off first.
    """
    left = float(delta) - ROUNDING * (rounds + 1)
    return float(total.get_epsilon_for_delta(left)) if left > 0 else math.inf


def directions(total: Any) -> tuple[Any, Any]:
    """The distributions of a unit that leaves and of one that joins; both for `eps_at`.

    dp_accounting keeps them apart inside; where a version does not, the larger of both stands for either (valid).
    """
    return getattr(total, "_pmf_remove", total), getattr(total, "_pmf_add", total)


def _groups(z: Array, rate: Array, bins: int) -> Iterator[tuple[float, float, int]]:
    for q in np.unique(rate):
        for value, count in zip(*bin_down(z[rate == q], bins)):
            yield float(q), float(value), int(count)


def loss_interval(z: Array, rate: Array) -> float:
    """Coarser losses for noisier sums of losses: about 1e-3 of the scale of eps, within [1e-4, 5e-3] or what POINTS
    allow, and below a third of one round's standard deviation, or rounding would be the larger part of many quiet
    rounds. A coarser grid rounds losses up: still a bound."""
    scale = math.sqrt(float(np.sum((rate / z) ** 2))) + float(np.max(1 / z**2))
    one = math.sqrt(float(np.mean(rate**2 * np.expm1(np.minimum(1 / z**2, 100.0)))))
    with np.errstate(divide="ignore"):
        widest = float(np.max(np.logaddexp(0.0, np.log(rate) + (1 + 2 * TAIL * z) / (2 * z**2))))
    step = max(float(np.clip(1e-3 * scale, 1e-4, 5e-3)), widest / POINTS)
    return max(min(step, one / 3), widest / MOST_POINTS)
