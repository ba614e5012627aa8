"""Log moments of the Poisson-sampled Gaussian mechanism. Host, float64.

With rate q, u = 1/z^2 and Y = exp(x sqrt(u) - u/2), x standard normal,

    A_alpha(q, u) = log E[(1 - q + q Y)^alpha],        rdp_alpha = A_alpha / (alpha - 1)

covers add and remove alike. At integer alpha it is a sum, A = log sum_k w_k e^{j_k u}, with w the Binomial(alpha, q)
weights and j_k = k(k-1)/2 (AdaScale (9)); at any other alpha it is an integral.

e^A is convex and rising in u, which `chords` relies on: with f(Y) = (1-q+qY)^alpha, d/du E f = E[Y^2 f'']/2, and
g = Y^2 f'' is itself convex for every alpha >= 1 (with b = alpha-2 and t = qY/(1-q+qY), g'' has the sign of
2 + 4bt + b(b-1)t^2 >= 0), so the second derivative E[Y^2 g'']/4 is not negative.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import namespace
from otafl.privacy.gaussian import HALF_LOG_2PI

SWITCH = 30.0  # log moment above which 1 + e^x is e^x to double precision
SERIES_FROM = 8.0  # 1/z above which fractional orders come from a series: the integral's cost grows like 1/z^2
SERIES_TERMS = 128  # beyond the largest order
CELL = 0.15  # widest block in u that is recentred at once
LARGEST_EXPONENT = 600.0  # of e^{j u} within a block: blocks shrink as orders grow, or it would overflow from order 128


def log_mixture(prob: Array, x: Array) -> Array:
    """log(1 - p + p e^x), without loss where x is small or large; p and x broadcast."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        small = np.log1p(prob * np.expm1(np.minimum(x, SWITCH)))
        large = np.logaddexp(np.log1p(-prob), np.log(prob) + x)
    return np.where(x < SWITCH, small, large)


class LogMoment(NamedTuple):
    """A and its first two derivatives in u, shapes as the broadcast inputs."""

    value: Array
    slope: Array
    curvature: Array


@lru_cache(maxsize=256)
def _log_choose(order: int) -> Array:
    k = np.arange(order + 1)
    out = scipy.special.gammaln(order + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(order - k + 1)
    out.setflags(write=False)
    return out


def _log_weights(rate: Array, order: int) -> Array:
    """log w_k, shape rate.shape + (order + 1,); 0 < rate < 1."""
    k = np.arange(order + 1)
    rate = np.asarray(rate, np.float64)[..., None]
    return _log_choose(order) + k * np.log(rate) + (order - k) * np.log1p(-rate)


def log_weights(rate: Array, order: int) -> Array:
    """log w_k at any rate in [0, 1], (..., order + 1): certain to be in, or out, all weight is on one k."""
    rate = np.asarray(rate, np.float64)[..., None]
    certain = np.where(np.arange(order + 1) == np.where(rate == 1, order, 0), 0.0, -np.inf)
    sampled = (rate > 0) & (rate < 1)
    return np.where(sampled, _log_weights(np.where(sampled, rate, 0.5)[..., 0], order), certain)


def sampled_gaussian_log_moment(rate: Array, u: Array, order: int) -> LogMoment:
    """A, A' = E_p[j] and A'' = Var_p[j] at one integer order, p = softmax(log w_k + j_k u). AdaScale 3.1

    `rate` (q, in [0, 1]) and `u` (1/z^2, >= 0) broadcast.

    >>> float(sampled_gaussian_log_moment(1.0, 0.5, 3).value / 2)  # alpha u / 2
    0.75
    """
    validate.whole("order", order, low=2)
    rate, u = np.broadcast_arrays(np.asarray(rate, np.float64), np.asarray(u, np.float64))
    validate.in_closed("rate", rate, 0, 1)
    validate.not_negative("u", u)
    order = int(order)
    k = np.arange(order + 1)
    j = k * (k - 1) / 2.0
    sampled = (rate > 0) & (rate < 1)
    log_weight = _log_weights(np.where(sampled, rate, 0.5), order)
    log_term = log_weight + j * u[..., None]
    share = np.exp(log_term - log_term.max(-1)[..., None])
    total = share.sum(-1)
    slope = (share @ j) / total
    curvature = np.sum(share * (j - slope[..., None]) ** 2, -1) / total
    value = np.where(sampled, weighted_moment(log_weight, u), np.where(rate == 1, j[-1] * u, 0.0))
    slope = np.where(sampled, slope, np.where(rate == 1, j[-1], 0.0))
    return LogMoment(value[()], slope[()], np.where(sampled, curvature, 0.0)[()])


def weighted_moment(log_weight: Array, u: Array) -> Array:
    """A = log sum_k w_k e^{j_k u} of weights (..., order + 1) that sum to one, u (...) finite. NumPy or JAX.

    Small moments are summed without their 1, so that nothing cancels; large ones with their largest term taken out.
    """
    xp = namespace(u)
    k = np.arange(log_weight.shape[-1])
    j = k * (k - 1) / 2.0
    log_term = log_weight + j * u[..., None]
    top = log_term.max(-1)
    large = top + xp.log(xp.exp(log_term - top[..., None]).sum(-1))
    growth = j[2:] * u[..., None]
    product = xp.exp(log_weight[..., 2:]) * xp.expm1(xp.minimum(growth, 700.0))
    tiny_times_huge = xp.exp(xp.minimum(log_term[..., 2:], SWITCH))  # the - 1 of expm1 is below its last digit
    small = xp.log1p(xp.sum(xp.where(growth < 700.0, product, tiny_times_huge), -1))
    return xp.where(top < SWITCH, small, large)


def integer_orders(rate: float, u: Array, orders: Array) -> Array:
    """A at integer orders for one rate and many noise levels, (N, orders). 0 < rate < 1.

    The exponentials e^{j_k u} are shared by all orders, so the sum over k is one matrix product. Values are recentred
    in cells of u, so nothing overflows; only terms k >= 2 are summed, so nothing cancels when A is tiny.
    """
    u = np.asarray(u, np.float64)
    orders = np.asarray(orders, int)
    k = np.arange(2, orders.max() + 1)
    j = k * (k - 1) / 2.0
    log_weight = np.full((k.size, orders.size), -np.inf)
    for column, order in enumerate(orders):
        log_weight[: order - 1, column] = _log_weights(rate, int(order))[2:]
    tail = np.exp(log_weight).sum(0)  # sum of w_k, k >= 2
    out = np.empty((u.size, orders.size))
    width = min(CELL, LARGEST_EXPONENT / j[-1])
    cell = np.floor(u / width)
    for index in np.unique(cell):
        rows = np.flatnonzero(cell == index)
        if index == 0:
            out[rows] = np.log1p(np.expm1(j * u[rows, None]) @ np.exp(log_weight))
        else:
            centre = (index + 0.5) * width
            scaled = log_weight + j[:, None] * centre
            top = scaled.max(0)
            total = np.exp(j * (u[rows, None] - centre)) @ np.exp(scaled - top)
            out[rows] = _log_one_plus(top + np.log(total), tail)
    return out


def _log_one_plus(log_sum: Array, tail: Array) -> Array:
    """log(1 - tail + e^log_sum), without loss on either side."""
    large = log_sum > SWITCH
    out = np.log1p(np.exp(np.where(large, 0.0, log_sum)) - tail)
    out[large] = log_sum[large]  # 1 - tail <= 1 is below the last digit
    return out


def any_order(rate: Array, u: Array, orders: Array) -> Array:
    """A at real orders > 1 by the trapezoid rule, (N, orders). `rate` () or (N,) in (0, 1), `u` (N,).

    Since E[Y] = 1, e^A - 1 is the integral of phi(x) h(q (Y - 1)) with h(d) = (1+d)^alpha - 1 - alpha d >= 0: a sum of
    positive terms, so small moments keep their digits. The integrand is analytic for abs(Im x) < pi/sqrt(u), which
    makes the rule converge like exp(-2 pi^2 / (step sqrt(u))); the step below leaves about 1e-15. Where there is hardly
    any noise (z < 1/8) the integral gives way to `_series`.
    """
    u = np.atleast_1d(np.asarray(u, np.float64))
    rate = np.broadcast_to(np.asarray(rate, np.float64), u.shape)
    orders = np.asarray(orders, np.float64)
    out = np.zeros((u.size, orders.size))
    loud = u >= SERIES_FROM**2
    for block in np.array_split(np.flatnonzero(loud), 1 + loud.sum() // 64):
        out[block] = _series(rate[block], np.sqrt(u[block]), orders)
    for row in np.flatnonzero(~loud):
        if u[row] > 0:
            out[row] = _integrate(float(rate[row]), float(np.sqrt(u[row])), orders)
    return out


def _series(rate: Array, shift: Array, orders: Array) -> Array:
    """A from above, (N, orders), for s = sqrt(u) >= SERIES_FROM, by the binomial series of (1 - q + q Y)^alpha: in
    powers of qY/(1-q) left of the point x0 where that is 1, of its inverse right of it (Mironov, Talwar, Zhang 2019).

    Term k holds E[Y^k; x < x0] = e^{j_k u} Phi(x0 - k s) and E[Y^(alpha-k); x > x0]. Beyond k = alpha the terms
    alternate and shrink, so the first one left out, which is added, covers the rest.
    """
    k = np.arange(np.ceil(orders.max()) + SERIES_TERMS + 1.0)
    s, log_in, log_out = (part[:, None, None] for part in (shift, np.log(rate), np.log1p(-rate)))
    middle = s / 2 + (log_out - log_in) / s  # x0
    beside = orders[:, None] - k
    left = beside * log_out + k * log_in + k * (k - 1) / 2 * s**2 + scipy.special.log_ndtr(middle - k * s)
    right = (
        beside * log_in + k * log_out + beside * (beside - 1) / 2 * s**2 + scipy.special.log_ndtr(beside * s - middle)
    )
    log_term = np.logaddexp(left, right)
    top = log_term.max(-1)
    term = scipy.special.binom(orders[:, None], k) * np.exp(log_term - top[..., None])
    total = term[..., :-1].sum(-1) + np.abs(term[..., -1])
    return np.asarray(top + np.log(total))


def _integrate(rate: float, shift: float, orders: Array) -> Array:
    """A of one (q, sqrt(u)), all orders at once."""
    step = min(0.7, 0.5 / shift)
    nodes = np.arange(-9.5, orders.max() * shift + 9.5 + step, step)
    log_likelihood = shift * nodes - shift**2 / 2  # log Y
    near = np.log1p(rate * np.expm1(np.minimum(log_likelihood, 1.0)))
    far = np.logaddexp(np.log1p(-rate), np.log(rate) + log_likelihood)
    log_ratio = np.where(log_likelihood < 1.0, near, far)
    return _log_moment(log_ratio, -(nodes**2) / 2 - HALF_LOG_2PI + np.log(step), orders)


def antipodal(rate: float, shift: float, orders: Array) -> Array:
    """log E_Q (P/Q)^alpha of P = (1-q) N(0,1) + q N(c,1) against Q with -c for c, (orders,).

    The pair that a replaced unit makes under hidden sampling when its two contributions, each of norm c times the
    noise std, oppose each other (taken as the worst case, not proved). Where there is hardly any noise it is taken from
    above (by at most 3e-6 of its value), for the integral's cost grows like c^2: Q is at least (1-q) N(0,1), which
    leaves the moment of one contribution; and silence tells no more than sending always.
    """
    orders = np.asarray(orders, np.float64)
    if shift >= SERIES_FROM:
        one = any_order(rate, np.array([shift**2]), orders)[0] - (orders - 1) * np.log1p(-rate)
        return np.minimum(one, orders * (orders - 1) * 2 * shift**2)
    step = min(0.5, 0.4 / shift)
    reach = (2 * orders.max() - 1) * shift + 9.5
    nodes = np.arange(-reach, reach + step, step)
    plus = np.logaddexp(np.log1p(-rate), np.log(rate) + shift * nodes - shift**2 / 2)
    minus = np.logaddexp(np.log1p(-rate), np.log(rate) - shift * nodes - shift**2 / 2)
    return _log_moment(plus - minus, minus - nodes**2 / 2 - HALF_LOG_2PI + np.log(step), orders)


def _log_moment(log_ratio: Array, log_mass: Array, orders: Array) -> Array:
    """log sum_i mass_i r_i^alpha where mass and mass * r both sum to 1: log1p of a sum of terms h(r_i - 1) >= 0."""
    far = orders.max() * log_ratio > 600.0  # r^alpha would overflow
    direct = np.log1p(_gap(log_ratio[~far], orders) @ np.exp(log_mass[~far]))
    if not far.any():
        return direct
    power, ratio = orders[:, None] * log_ratio[far], log_ratio[far]
    log_line = np.where(ratio < 300.0, np.log1p(orders[:, None] * np.expm1(np.minimum(ratio, 300.0))), 0.0)
    log_line = np.where(ratio < 300.0, log_line, np.log(orders[:, None]) + ratio)
    log_term = power + np.log1p(-np.exp(log_line - power)) + log_mass[far]
    top = log_term.max(1)
    return np.logaddexp(direct, top + np.log(np.exp(log_term - top[:, None]).sum(1)))


def _gap(log_ratio: Array, orders: Array) -> Array:
    """h(d) = (1+d)^a - 1 - a d at d = e^log_ratio - 1, (orders, nodes)."""
    change = np.expm1(log_ratio)
    out = np.expm1(orders[:, None] * log_ratio) - orders[:, None] * change
    near = np.abs(change) < min(1e-3, 0.3 / orders.max())  # where the series has converged
    out[:, near] = _gap_series(change[near], orders)
    return out


def _gap_series(change: Array, orders: Array) -> Array:
    """h(d) for small d: d^2 a(a-1)/2 (1 + (a-2)d/3 (1 + (a-3)d/4 (1 + ...)))."""
    a = orders[:, None]
    series = np.ones((orders.size, change.size))
    for n in range(8, 2, -1):
        series = 1 + (a - n + 1) * change / n * series
    return a * (a - 1) / 2 * change**2 * series
