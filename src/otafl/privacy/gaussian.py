"""The exact privacy curve of a Gaussian mechanism, and of any composition of them. Host, float64.

A Gaussian mechanism with sensitivity / noise std = mu is mu-GDP; rounds compose exactly to mu^2 = sum_t mu_t^2, which
is twice the total zCDP cost rho. Its curve (CARES 3.9) is

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)

evaluated here in logs, so that eps = 500 or delta = 1e-300 are ordinary inputs.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from numbers import Real

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array

CLOSE = 1e-6  # mu below which two values of Mills' ratio are too near for their difference
FAR = 30.0
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def log_delta(eps: Array, mu: Array) -> Array:
    """log delta(eps) of a mu-GDP mechanism, broadcast. mu = 0 gives -inf, mu = inf gives 0."""
    eps, mu = np.broadcast_arrays(np.asarray(eps, np.float64), np.asarray(mu, np.float64))
    validate.not_negative("eps", eps)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near, far = eps / mu - mu / 2, eps / mu + mu / 2
        # phi(far) e^eps = phi(near): with Mills' ratio m(x) = Q(x)/phi(x) the curve is phi(near) (m(near) - m(far)),
        # which loses nothing where both Q are tiny. erfcx overflows left of 0, where Q is near 1 and logs are safe.
        mills = np.where(mu < CLOSE, mu * (_slope(near) + _slope(far)) / 2, _mills(near) - _mills(far))
        right = -(near**2) / 2 - HALF_LOG_2PI + np.log(mills)
        keep = scipy.special.log_ndtr(-near)
        left = keep + np.log1p(-np.exp(np.minimum(eps + scipy.special.log_ndtr(-far) - keep, 0.0)))
    out = np.where((near > 0) | (mu < CLOSE), right, left)
    out = np.where(mu == 0, -np.inf, np.where(np.isinf(mu), 0.0, out))
    return out[()]


def _mills(x: Array) -> Array:
    """m(x) = Q(x)/phi(x)."""
    return np.sqrt(np.pi / 2) * scipy.special.erfcx(x / np.sqrt(2))


def _slope(x: Array) -> Array:
    """-m'(x) = 1 - x m(x), from above: below 1/(1 + x^2), which is all that is left of the difference far out.

    m(a) - m(b) is its integral, and at most the mean of both ends times b - a: -m' is the transform of a positive
    function, hence convex. Where a and b are close the difference itself would be rounding.
    """
    return np.where(x > FAR, 1 / (1 + np.asarray(x, np.float64) ** 2), 1 - x * _mills(np.minimum(x, FAR)))


def delta(eps: Array, mu: Array) -> Array:
    """delta(eps) of a mu-GDP mechanism.

    >>> round(float(delta(1.0, 1.0)), 6)
    0.126937
    """
    return np.exp(log_delta(eps, mu))


def eps(mu: Array, delta: Array) -> Array:
    """Smallest eps with delta(eps) <= delta, broadcast; rounded to the safe side of the last bisection step."""
    mu, target = np.broadcast_arrays(np.asarray(mu, np.float64), np.asarray(delta, np.float64))
    validate.not_negative("mu", np.where(np.isinf(mu) & (mu > 0), 0.0, mu))
    validate.in_open("delta", target, 0, 1)
    log_target = np.log(target)
    finite = np.where(np.isfinite(mu), mu, 0.0)
    low = np.zeros(mu.shape)
    high = finite**2 / 2 + finite * np.sqrt(-2 * log_target)  # the classic conversion is never too small
    low, high = _bisect(lambda x: log_delta(x, finite) > log_target, low, high)
    done = log_delta(np.zeros(mu.shape), finite) <= log_target
    return np.where(np.isfinite(mu), np.where(done, 0.0, high), np.inf)[()]


def _once(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Of two numbers it is worked out once: each costs a bisection, and a run asks for the same many times."""
    of_numbers = lru_cache(2**12)(function)

    @wraps(function)
    def asked(one: Array, other: Array) -> Array:
        if isinstance(one, Real) and isinstance(other, Real):
            return of_numbers(float(one), float(other))
        return function(one, other)

    return asked


@_once
def eps_from_rho(rho: Array, delta: Array) -> Array:
    """Exact eps of Gaussian rounds with total zCDP cost rho = mu^2 / 2.

    >>> round(float(eps_from_rho(369.54607786, 1e-5)), 3)
    484.564
    """
    if np.ndim(rho) == 0 or np.ndim(delta):
        return eps(np.sqrt(2 * np.asarray(rho, np.float64)), delta)
    distinct, where = np.unique(rho, return_inverse=True)  # clients are often alike, and each costs a bisection
    return eps(np.sqrt(2 * distinct), delta)[where].reshape(np.shape(rho))


@_once
def budget_rho(eps: Array, delta: Array) -> Array:
    """Largest rho whose exact curve meets (eps, delta): what Gaussian rounds may cost in total.

    >>> round(float(budget_rho(500.0, 1e-5)), 4)
    382.9061
    """
    target, log_target = np.broadcast_arrays(np.asarray(eps, np.float64), np.log(np.asarray(delta, np.float64)))
    validate.positive("eps", target)
    validate.in_open("delta", delta, 0, 1)
    root = np.sqrt(-log_target)
    low = np.sqrt(2) * target / (np.sqrt(root**2 + target) + root)  # the classic budget always fits
    high = 2 * low
    while np.any(fits := log_delta(target, high) <= log_target):
        high = np.where(fits, 2 * high, high)
    low, high = _bisect(lambda x: log_delta(target, x) <= log_target, low, high)
    return (low**2 / 2)[()]


def _bisect(below: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Halve [low, high] until it holds no further double; `below(x)` is True left of the crossing."""
    for _ in range(200):
        middle = low + (high - low) / 2
        left = below(middle)
        new_low, new_high = np.where(left, middle, low), np.where(left, high, middle)
        if np.array_equal(new_low, low) and np.array_equal(new_high, high):
            break
        low, high = new_low, new_high
    return low, high
