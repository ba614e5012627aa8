"""Renyi accounting of Gaussian rounds with Poisson sampling: costs, totals, conversion. Host, float64.

`sampled_gaussian_rdp` is exact at every order. `total_rdp` adds up a run; long runs with a different noise in every
round take fractional orders from chords that lie above the true curve (see `chords`), integer orders stay exact:
its result is then an upper bound, never an interpolation that may fall below.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy import moment_bounds, moments

ORDERS: tuple[float, ...] = tuple([round(1 + n / 10, 1) for n in range(1, 100)] + [float(n) for n in range(12, 64)])
LARGEST_FRACTIONAL = 1000.0  # beyond, the binomial coefficients of the series pass the range of float64
EXACT_LIMIT = 3000  # distinct (rate, noise) pairs up to which fractional orders are integrated one by one


class EpsAt(NamedTuple):
    """eps and the order that gives it, (...)."""

    eps: Array
    order: Array


def sampled_gaussian_rdp(rate: Array, noise_multiplier: Array, orders: Array = ORDERS) -> Array:
    """Exact RDP of one round, broadcast(rate, noise_multiplier).shape + (orders,). AdaScale (9)

    rate 1 is the plain Gaussian alpha / (2 z^2), rate 0 or z = inf cost nothing, z = 0 costs inf.

    >>> float(sampled_gaussian_rdp(0.5, 4.0, [8])[0].round(7))
    0.0706589
    """
    orders = _checked_orders(orders)
    rate, u = _rate_and_u(rate, noise_multiplier)
    shape = rate.shape
    rate, u = rate.ravel(), u.ravel()
    moment = _trivial(rate, u, orders)
    for q, rows in _by_rate(rate, u):
        moment[rows] = _exact(q, u[rows], orders)
    return (moment / (orders - 1)).reshape(*shape, orders.size)


def total_rdp(rate: Array, noise_multiplier: Array, orders: Array = ORDERS, exact: bool | None = None) -> Array:
    """Sum over rounds of the RDP of each client, (..., K, orders), from z (..., T, K) and rate (K,).

    Up to EXACT_LIMIT distinct pairs of rate and noise: exact. Beyond: integer orders exact, fractional orders from
    above by `chords` (`is_exact` says which); `exact` decides by hand.
    """
    orders = _checked_orders(orders)
    z = np.asarray(noise_multiplier, np.float64)
    rate, u = _rate_and_u(rate, z)
    *lead, rounds, clients = u.shape
    rows = math.prod(lead) * clients
    columns = np.moveaxis(u, -2, -1).reshape(rows, rounds)  # one row per (lead, client)
    row_rate = np.moveaxis(rate, -2, -1).reshape(rows, rounds)[:, 0] if rounds else np.zeros(rows)
    total = _trivial(row_rate, columns.sum(-1), orders)
    if exact is None:
        exact = is_exact(rate, z)
    groups = _by_rate(row_rate, columns.max(-1, initial=0.0))
    if exact:
        for q, members in groups:
            total[members] = _sum_exact(q, columns[members], orders)
    elif groups:
        members = np.concatenate([members for _, members in groups])
        total[members] = moment_bounds.sum_upper(row_rate[members], columns[members], orders)
    return (total / (orders - 1)).reshape(*lead, clients, orders.size)


def is_exact(rate: Array, noise_multiplier: Array) -> bool:
    """Whether `total_rdp` integrates every fractional order for these rounds."""
    rate, u = _rate_and_u(rate, noise_multiplier)
    sampled = (rate > 0) & (rate < 1) & (u > 0)
    if sampled.sum() <= EXACT_LIMIT:
        return True
    pairs = np.empty(sampled.sum(), np.complex128)
    pairs.real, pairs.imag = rate[sampled], u[sampled]  # rate + 1j * u is NaN where there is no noise
    return np.unique(pairs).size <= EXACT_LIMIT


def rdp_to_eps(rdp: Array, delta: Array, orders: Array = ORDERS, warn: bool = True) -> EpsAt:
    """eps = min_alpha rdp + log((alpha-1)/alpha) - (log delta + log alpha)/(alpha-1), at least 0. AdaScale (6)

    `rdp` is (..., orders), `delta` () or (...). eps is 0 where even the total variation, at most sqrt(1 - e^-rdp), is
    below delta. Warns when the minimiser is the first or last order: another list may then give a smaller (equally
    valid) eps.
    """
    orders = _checked_orders(orders)
    rdp = np.asarray(rdp, np.float64)
    validate.in_open("delta", delta, 0, 1)
    delta = np.asarray(delta, np.float64)[..., None]
    candidates = np.maximum(rdp + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1), 0.0)
    candidates = np.where(delta**2 + np.expm1(-rdp) > 0, 0.0, candidates)
    best = np.argmin(candidates, -1)
    eps = np.take_along_axis(candidates, best[..., None], -1)[..., 0]
    edge = ((best == 0) | (best == orders.size - 1)) & (eps > 0) & np.isfinite(eps)
    if warn and orders.size > 1 and np.any(edge):
        warnings.warn(
            f"the best RDP order is at the edge of the list ({orders[0]} to {orders[-1]}): eps is valid but may be "
            "loose; extend `orders`",
            stacklevel=2,
        )
    return EpsAt(eps[()], orders[best])


def rdp_budget(eps: float, delta: float, orders: Array = ORDERS) -> Array:
    """The total RDP each order may reach before its own conversion passes eps, (orders,); negative: never usable."""
    orders = _checked_orders(orders)
    validate.positive("eps", eps)
    validate.in_open("delta", delta, 0, 1)
    return eps - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)


def _exact(rate: float, u: Array, orders: Array) -> Array:
    """A at all orders, (N, orders), 0 < rate < 1."""
    out = np.empty((u.size, orders.size))
    whole = orders == np.round(orders)
    if whole.any():
        out[:, whole] = moments.integer_orders(rate, u, orders[whole])
    if not whole.all():
        level, where = np.unique(u, return_inverse=True)
        out[:, ~whole] = moments.any_order(rate, level, orders[~whole])[where]
    return out


def _sum_exact(rate: float, u: Array, orders: Array) -> Array:
    """Sum over rounds of A, (R, orders) from u (R, T); equal noise levels are computed once."""
    level, where = np.unique(u, return_inverse=True)
    moment = _exact(rate, level, orders)
    count = np.zeros((len(u), level.size))
    np.add.at(count, (np.arange(len(u))[:, None], where.reshape(u.shape)), 1.0)
    return count @ moment


def _trivial(rate: Array, u: Array, orders: Array) -> Array:
    """A where no sampling enters: rate 1 (closed form), rate 0 or u = 0 (nothing), u = inf (no noise)."""
    plain = np.where(rate == 1, u, 0.0)
    out = orders * (orders - 1) / 2 * plain[..., None]
    out[(rate > 0) & np.isinf(u)] = np.inf
    return out


def _by_rate(rate: Array, u: Array) -> list[tuple[float, Array]]:
    """Rows with true sampling and true noise, grouped by equal rate."""
    sampled = (rate > 0) & (rate < 1) & (u > 0) & np.isfinite(u)
    return [(float(q), np.flatnonzero(sampled & (rate == q))) for q in np.unique(rate[sampled])]


def _rate_and_u(rate: Array, noise_multiplier: Array) -> tuple[Array, Array]:
    rate, z = np.broadcast_arrays(np.asarray(rate, np.float64), np.asarray(noise_multiplier, np.float64))
    validate.in_closed("rate", rate, 0, 1)
    validate.in_closed("noise_multiplier", z, 0, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        return rate, 1 / z**2


def _checked_orders(orders: Array) -> Array:
    orders = np.asarray(orders, np.float64)
    validate.ascending("orders", orders)
    validate.in_left_open("orders", orders - 1, 0, np.inf)
    validate.finite("orders", orders)
    fractional = orders[orders != np.round(orders)]
    if fractional.size and fractional[-1] > LARGEST_FRACTIONAL:
        raise InputError(f"orders={fractional[-1]:g} must be a whole number above {LARGEST_FRACTIONAL:g}")
    return orders
