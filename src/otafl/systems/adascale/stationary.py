"""What channel statistics alone say about Rayleigh fading: the stationary water level. Host, float64.

The weakest effective channel of independent Rayleigh channels is exponential, so the floor is f = a / E with E standard
exponential and a the `typical` floor. Its mean is infinite; the mean excess below a level W is not.
"""

from typing import Any

import numpy as np
from scipy.special import exp1

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.systems.adascale.leakage import Leakage


def expected_fill(level: Any, typical: Any) -> Array:
    """E (W - f)^+ = W exp(-a/W) - a E_1(a/W)."""
    ratio = np.asarray(typical, float) / level
    return level * np.exp(-ratio) - typical * exp1(ratio)


def resolved_level(floor: Any, rounds_left: int, budget: Any, typical: Any) -> Array:
    """W with (W - f)^+ + n E (W - f)^+ = b, elementwise; the expectation alone for floor = inf.

    The left side is convex and rises, so Newton's method lands right of the root after one step and then descends.
    """
    floor, budget, typical = np.broadcast_arrays(
        np.asarray(floor, float), np.asarray(budget, float), np.asarray(typical, float)
    )
    level = np.maximum(typical, budget / max(rounds_left, 1))
    for _ in range(200):
        value = np.maximum(level - floor, 0.0) + rounds_left * expected_fill(level, typical) - budget
        slope = (level > floor) + rounds_left * np.exp(-typical / level)
        step = value / slope
        level = np.where(step < level, level - step, level / 2)
        if np.all(np.abs(step) <= 1e-13 * level):
            break
    return level


def stationary_level(nu: Any, typical: Any) -> Array:
    """W_inf with E (W - f)^+ = nu: the level of the best stationary policy, from path losses alone.

    >>> level = stationary_level(0.04, 0.05)
    >>> round(float(expected_fill(level, 0.05)), 12)
    0.04
    """
    validate.positive("nu", nu)
    validate.positive("typical", typical)
    return resolved_level(np.inf, 1, nu, typical)


def stationary_leakage(level: float, typical: float, leakage: Leakage) -> float:
    """R_inf = E R(max(f, W_inf)): what that policy leaks per round, all devices together.

    >>> devices = Leakage(np.full(10, 0.1445), np.full(10, 0.01))
    >>> nearly_constant = stationary_leakage(0.1, 1e-6, devices)  # hardly any fade reaches the level
    >>> bool(abs(nearly_constant / devices.total(0.1) - 1) < 1e-4)
    True
    """
    from scipy.integrate import quad  # slow to import, and few ask

    ratio = typical / level  # f > W iff E < a/W
    faded, _ = quad(lambda x: float(leakage.total(typical / x)) * np.exp(-x), 0.0, ratio, epsabs=0.0, epsrel=1e-10)
    return float(leakage.total(level)) * float(np.exp(-ratio)) + faded
