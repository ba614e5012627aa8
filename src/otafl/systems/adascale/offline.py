"""The offline optimum of AdaScale's problem: least total leakage for a given mean excess noise. Host, float64.

    min mean_t R(f_t + y_t)   subject to   mean_t y_t <= nu,  y_t >= 0                             # AdaScale (28)

As R is the same function in every round, the optimum is water-filling: N_t = max(f_t, W). It depends neither on the
order alpha nor on q or B, and equals a constant receive scaling capped by the power limit. Where R changes from
round to round (devices join, batches change) the general dual form is needed.
"""

from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.roots import bracketed_root


def water_level(floors: Any, nu: Any) -> Floats:
    """W with mean_t (W - f_t)^+ = nu, exactly, by sorting: floors (..., T), nu (...) -> (...).

    >>> float(water_level(np.array([1.0, 2.0, 6.0]), 1.0))
    3.0
    """
    floors, nu = np.asarray(floors, float), np.asarray(nu, float)
    validate.positive("floor", floors)
    validate.not_negative("nu", nu)
    horizon = floors.shape[-1]
    ranked = np.sort(floors, axis=-1)
    count = np.arange(1, horizon + 1)
    level = (horizon * nu[..., None] + np.cumsum(ranked, axis=-1)) / count  # level if the k lowest floors are filled
    following = np.concatenate([ranked[..., 1:], np.full((*ranked.shape[:-1], 1), np.inf)], axis=-1)
    first = np.argmax(level <= following, axis=-1)
    return np.take_along_axis(level, first[..., None], axis=-1)[..., 0]


def fill(floors: Any, level: Any) -> Array:
    """y_t = (W - f_t)^+: optimal for whatever mean excess it spends."""
    return np.maximum(np.asarray(level)[..., None] - np.asarray(floors), 0.0)


def optimal_excess(floors: Any, nu: Any) -> Array:
    """The offline optimum y* of (28) for a leakage that does not change over time: (..., T)."""
    return fill(floors, water_level(floors, nu))


def best_excess_offline(floors: Any, nu: float, leakage: Leakage) -> Floats:
    """The offline optimum for these devices, floors (T,): water-filling, or the dual form where q, B or C change."""
    return dual_excess(floors, nu, leakage) if leakage.changes else optimal_excess(floors, nu)


def dual_excess(floors: Any, nu: float, leakage: Leakage, tolerance: float = 1e-10) -> Floats:
    """The offline optimum for any leakage, changing over time or not: floors (T,) -> y* (T,).

    For a price mu of noise each round takes the N >= f_t with -R_t'(N) = mu; mu is such that mean(y) = nu.
    """
    floors = np.asarray(floors, float)
    if floors.ndim != 1:
        raise InputError(f"floors has shape {floors.shape} but must have shape (T,)")
    validate.positive("floor", floors)
    validate.not_negative("nu", nu)
    if nu == 0:
        return np.zeros(floors.shape)
    limit = leakage.steepest()

    def noise_at(log_price: Floats) -> Array:
        price = np.exp(log_price)
        top = np.log(np.maximum(np.sqrt(limit / price), floors) * (1 + 1e-9))  # -R'(N) <= limit / N^2
        bottom = np.log(floors)

        def surplus(log_noise: Floats) -> Floats:
            return log_price - np.log(-leakage.slopes(np.exp(log_noise))[0])

        at_floor = surplus(bottom)
        top = np.where(at_floor >= 0, bottom, top)  # already cheaper than the price at full power
        low_value, high_value = np.minimum(at_floor, 0.0), np.maximum(surplus(top), 0.0)
        root = bracketed_root(surplus, (bottom, top, low_value, high_value))
        return np.where(at_floor >= 0, floors, np.maximum(np.exp(root), floors))

    def overspent(log_price: Floats) -> Floats:
        return np.array([1 - np.mean(noise_at(p) - floors) / nu for p in np.atleast_1d(log_price)])

    # At the least price some round still pays more than nu on its own; at the greatest nobody pays.
    dearest = np.log(np.max(-leakage.slopes(floors)[0]))
    cheapest = np.log(np.min(-leakage.slopes(np.maximum(floors, 0) + 2 * nu)[0]))
    low, high = np.array([min(cheapest, dearest - 1.0)]), np.array([dearest])
    bracket = (low, high, overspent(low), overspent(high))
    log_price = bracketed_root(overspent, bracket, lambda value: np.abs(value) < tolerance)
    return noise_at(log_price[0]) - floors
