"""RDP of one round with random participation, x = 1 / z^2; broadcast over p and x. Float64, host."""

from typing import Any

import numpy as np
from scipy.special import logsumexp

from otafl.privacy.moments import sampled_gaussian_log_moment
from otafl.privacy.rdp import sampled_gaussian_rdp

Array = Any


def visible(alpha: float, p: Array, x: Array) -> Array:
    """Participation is seen: log(1 - p + p e^((alpha - 1) alpha x / 2)) / (alpha - 1)."""
    p, x = np.broadcast_arrays(np.asarray(p, float), np.asarray(x, float))
    grown = (alpha - 1) * alpha * x / 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        large = np.logaddexp(np.log1p(-p), np.log(p) + grown)
        value = np.where(grown < 30, np.log1p(p * np.expm1(np.minimum(grown, 30))), large)
    return np.where(p > 0, value / (alpha - 1), 0.0)


def hidden(alpha: float, p: Array, x: Array) -> Array:
    """Participation is hidden, zero-out: the Poisson-sampled Gaussian mechanism."""
    p, x = np.broadcast_arrays(np.asarray(p, float), np.asarray(x, float))
    finite = np.isfinite(x)
    some = np.where(finite, x, 1.0)
    if alpha == int(alpha):
        value = sampled_gaussian_log_moment(p, some, int(alpha)).value / (alpha - 1)
    else:
        value = sampled_gaussian_rdp(p, 1 / np.sqrt(np.maximum(some, 1e-300)), [alpha])[..., 0]
    return np.where(finite | (p == 0), value, np.inf)


def hidden_replace(alpha: float, p: float, x0: float) -> float:
    """Participation is hidden, replace: the antipodal pair (1-p) N(0,1) + p N(+-sqrt(x0), 1), x0 = rho W^2 / s^2.

    That opposite updates are the worst pair is assumed, not proved.

    >>> round(hidden_replace(3, 0.5, 1 / 9), 6)
    0.162203
    """
    if p == 0 or not np.isfinite(x0):
        return 0.0 if p == 0 else float("inf")
    shift = np.sqrt(x0)
    y = np.linspace(-alpha * shift - 14, alpha * shift + 14, max(4001, int(200 * alpha * shift)))
    stay = np.log1p(-p) - y**2 / 2 if p < 1 else np.full_like(y, -np.inf)
    right, left = (np.logaddexp(stay, np.log(p) - (y - side * shift) ** 2 / 2) for side in (1, -1))
    cell = np.log((y[1] - y[0]) / np.sqrt(2 * np.pi))
    return max(0.0, float(logsumexp(alpha * right + (1 - alpha) * left + cell) / (alpha - 1)))
