"""Zero-concentrated privacy: costs that add, two conversions, budgets and exact horizons. Host, float64.

A Gaussian round with noise multiplier z costs rho = 1 / (2 z^2). Sums are correctly rounded, as `math.fsum` is, and
compared with the cap without any tolerance.
"""

import math
from fractions import Fraction

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats

EPS = np.finfo(np.float64).eps


def cost(inverse_square: Array) -> Array:
    """rho of one Gaussian release from 1/z^2. CARES (13)"""
    return np.asarray(inverse_square, np.float64) / 2


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b rounded, and what the rounding lost, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def strict_sums(costs: Array) -> Floats:
    """Sums of the columns of costs (n, K), correctly rounded, (K,); inf where a cost is inf.

    What is lost by every addition is added up apart. What that lacks itself is below (n eps)^2 of the sum of absolute
    values (Ogita, Rump, Oishi 2005): where it could turn the rounding, `math.fsum` decides.

    >>> strict_sums(np.array([[0.1, 0.2], [0.2, 0.2], [np.inf, 0.0]]))
    array([inf, 0.4])
    """
    costs = np.asarray(costs, np.float64)
    total, lost = np.zeros(costs.shape[1]), np.zeros(costs.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        for row in costs:
            total, rest = two_sum(total, row)
            lost += rest
        doubt = 2 * (len(costs) * EPS) ** 2 * np.abs(costs).sum(0)
        low, high = total + (lost - doubt), total + (lost + doubt)
        unsure = np.isfinite(total) & (low != high)
    low[unsure] = [math.fsum(column) for column in costs[:, unsure].T.tolist()]
    return np.where(np.isfinite(total), low, total)


def within(costs: Array, cap: float) -> bool:
    """Whether every column of costs (n, K) sums, strictly, to at most the cap; float64 sums decide most."""
    with np.errstate(invalid="ignore"):
        total, doubt = np.asarray(costs).sum(0), 2 * len(costs) * EPS * np.abs(costs).sum(0)
    if not np.all(np.isfinite(total)):
        return bool(np.all(total <= cap))
    if np.any(total - doubt > cap):
        return False
    return bool(np.all(strict_sums(costs[:, total + doubt > cap]) <= cap))


def classic_eps(rho: Array, delta: Array) -> Array:
    """eps = rho + 2 sqrt(rho ln(1/delta)). CARES (11)"""
    rho = np.asarray(rho, np.float64)
    _check(rho, delta)
    return (rho + 2 * np.sqrt(rho * -np.log(delta)))[()]


def classic_budget(eps: Array, delta: Array) -> Array:
    """The rho at which `classic_eps` reaches eps, in the form that does not cancel. CARES 3.4

    >>> round(float(classic_budget(500.0, 1e-5)), 8)
    369.54607786
    """
    validate.positive("eps", eps)
    validate.in_open("delta", delta, 0, 1)
    spread = -np.log(np.asarray(delta, np.float64))
    return ((np.asarray(eps, np.float64) / (np.sqrt(spread + eps) + np.sqrt(spread))) ** 2)[()]


def optimal_eps(rho: Array, delta: Array) -> Array:
    """min over alpha > 1 of rho alpha + log(1 - 1/alpha) - log(delta alpha)/(alpha - 1), at least 0.

    The minimiser solves rho (alpha-1)^2 = -log(delta alpha), one root since the left rises and the right falls.
    Every alpha gives a valid eps, so the accuracy of the root is no matter of safety.

    >>> round(float(optimal_eps(369.54607786, 1e-5)), 2)
    497.18
    """
    rho, spread = np.broadcast_arrays(np.asarray(rho, np.float64), -np.log(np.asarray(delta, np.float64)))
    _check(rho, delta)
    inside = np.where((rho > 0) & np.isfinite(rho), rho, 1.0)
    low, high = np.full(inside.shape, -60.0), np.log(np.sqrt(spread / inside) + 1e-300)  # in log(alpha - 1)
    low = np.minimum(low, high)
    for _ in range(80):
        middle = (low + high) / 2
        excess = np.exp(middle)
        left = inside * excess**2 < spread - np.log1p(excess)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    excess = np.exp(high)
    value = inside * (1 + excess) - np.log1p(1 / excess) + (spread - np.log1p(excess)) / excess
    value = np.minimum(np.maximum(value, 0.0), classic_eps(inside, delta))
    return np.where(rho == 0, 0.0, np.where(np.isinf(rho), np.inf, value))[()]


def optimal_budget(eps: Array, delta: Array) -> Array:
    """Largest rho with `optimal_eps` <= eps: the best over alpha of what one order admits,

    rho(alpha) = (eps - log(1 - 1/alpha) + log(delta alpha)/(alpha - 1)) / alpha,

    which rises while rho (alpha-1)^2 < -log(delta alpha) and falls after.
    """
    classic = classic_budget(eps, delta)
    eps, spread = np.broadcast_arrays(np.asarray(eps, np.float64), -np.log(np.asarray(delta, np.float64)))

    def admitted(excess: Array) -> Array:
        return (eps + np.log1p(1 / excess) - (spread - np.log1p(excess)) / excess) / (1 + excess)

    low, high = np.full(eps.shape, -60.0), np.full(eps.shape, 60.0)  # in log(alpha - 1)
    for _ in range(80):
        middle = (low + high) / 2
        excess = np.exp(middle)
        rising = admitted(excess) * excess**2 < spread - np.log1p(excess)
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    rho, step = np.maximum(admitted(np.exp(low)), classic), np.finfo(float).eps
    while np.any(over := optimal_eps(rho, delta) > eps):  # rounding only
        rho, step = np.where(over, rho * (1 - step), rho), 2 * step
    return rho[()]


def horizon(budget: float, cost: float) -> int:
    """How many rounds of equal cost fit: the largest n with fsum of n costs <= budget, exactly.

    fsum of n equal doubles is the correctly rounded product n * cost, so no list is needed.

    >>> horizon(369.54607786, 1.0368), horizon(1.0, 0.1), horizon(1.0, 2.0)
    (356, 10, 0)
    """
    validate.not_negative("budget", budget)
    validate.positive("cost", cost)
    rounds = math.floor(Fraction(budget) / Fraction(cost))
    while rounds < 2**53 and (rounds + 1) * cost <= budget:  # a product may round down to the budget
        rounds += 1
    return rounds


def _check(rho: Array, delta: Array) -> None:
    validate.not_negative("rho", np.where(np.isinf(rho) & (rho > 0), 0.0, rho))
    validate.in_open("delta", delta, 0, 1)
