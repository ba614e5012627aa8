"""Tight (eps, delta) of a run by privacy loss distributions, through dp_accounting. Host, float64.

A run with a different noise in every round would need one distribution per round. Noise multipliers are therefore
rounded *down* to `bins` values equally spaced in log: less noise than there was, so the result stays an upper bound.
Rounds without sampling need no binning: they compose to one Gaussian exactly.
"""

import math
from collections.abc import Iterator

import numpy as np

from otafl import validate
from otafl.errors import InputError
from otafl.plan import Array

BINS = 24
LARGEST = 50.0  # multipliers above are charged as this one; such a round costs next to nothing either way


def bin_down(noise_multiplier: Array, bins: int = BINS) -> tuple[Array, Array]:
    """Distinct values (at most `bins`) and counts of z rounded down on a log grid from the least to the largest z.

    >>> bin_down([1.0, 2.0, 5.0, 5.5, 16.0], bins=3)
    (array([ 1.,  4., 16.]), array([2, 2, 1]))
    """
    z = np.minimum(np.asarray(noise_multiplier, np.float64).ravel(), LARGEST)
    validate.positive("noise_multiplier", z)
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
    half that norm each, which is how the sampled pair is built. `interval` is the grid of the privacy loss (default
    chosen from the size of the loss, between 1e-4 and 5e-3).
    """
    validate.in_open("delta", delta, 0, 1)
    validate.one_of("adjacency", adjacency, ("add-remove", "replace", "zero-out"))
    z, rate = np.broadcast_arrays(np.asarray(noise_multiplier, np.float64), np.asarray(rate, np.float64))
    validate.in_closed("rate", rate, 0, 1)
    used = np.isfinite(z) & (rate > 0)
    z, rate = z[used], rate[used]
    if z.size == 0:
        return 0.0
    if np.any(z == 0):
        return math.inf
    plain_square = float(np.sum(1 / z[rate == 1] ** 2))
    if np.all(rate == 1):
        from otafl.privacy import gaussian

        return float(gaussian.eps(math.sqrt(plain_square), delta))
    return _compose(z, rate, plain_square, delta, adjacency, bins, interval)


def _compose(
    z: Array, rate: Array, plain_square: float, delta: float, adjacency: str, bins: int, interval: float | None
) -> float:
    try:
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise InputError("accountant 'pld' needs the package dp-accounting; install it or use 'rdp'") from None
    replace = adjacency == "replace"
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    step = interval or _interval(z, rate)
    total = pld.identity(step)
    for q, value, count in _groups(z, rate, bins):
        # dp_accounting's replacement pair is N(+s) against N(-s): its sensitivity is half of ours.
        one = pld.from_gaussian_mechanism(
            value * (2 if replace else 1),
            value_discretization_interval=step,
            sampling_prob=q,
            neighboring_relation=relation,
        ).self_compose(count)
        total = total.compose(one)
    if plain_square > 0:
        total = total.compose(
            pld.from_gaussian_mechanism(
                (2 if replace else 1) / math.sqrt(plain_square),
                value_discretization_interval=step,
                neighboring_relation=relation,
            )
        )
    return float(total.get_epsilon_for_delta(delta))


def _groups(z: Array, rate: Array, bins: int) -> Iterator[tuple[float, float, int]]:
    sampled = np.unique(rate[rate < 1])
    for q in sampled:
        for value, count in zip(*bin_down(z[rate == q], bins)):
            yield float(q), float(value), int(count)


def _interval(z: Array, rate: Array) -> float:
    """Coarser losses for noisier sums of losses: about 1e-4 of the scale of eps, within [1e-4, 5e-3]."""
    scale = math.sqrt(float(np.sum((rate / z) ** 2))) + float(np.max(1 / z**2))
    return float(np.clip(1e-3 * scale, 1e-4, 5e-3))
