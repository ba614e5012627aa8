"""Who is dropped, bounded from public channel statistics alone (CARES (7)-(9)). NumPy, float64, no data.

A client with weight p_k and clip norm G stays silent when its Rayleigh gain (scale mu_k) cannot carry the receive
scaling eta within its energy limit P. The probability is at most q_k = 1 - exp(-c_k eta^2) with
c_k = p_k^2 G^2/(2 mu_k^2 P), and equal to it for a gradient of norm G. Every function broadcasts: rx_scale (...),
drop_rate (K,) or (..., K).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from otafl.core.arrays import Floats


def drop_rate(weights: ArrayLike, channel_scale: ArrayLike, clip_norm: ArrayLike, max_power: ArrayLike) -> Floats:
    """Exponent coefficients c_k, shape of `channel_scale`: (K,) or (T, K). A client of weight 0 has rate 0.

    >>> drop_rate([0.5, 0.5], [1.0, 0.5], clip_norm=1.0, max_power=0.125).tolist()
    [1.0, 4.0]
    """
    weights, scale = np.asarray(weights, float), np.asarray(channel_scale, float)
    return (weights * np.asarray(clip_norm, float) / scale) ** 2 / (2 * np.asarray(max_power, float))


def drop_prob(rx_scale: ArrayLike, rate: ArrayLike) -> Floats:
    """Bound q_k on the probability that client k is silent, (..., K)."""
    square = np.asarray(rx_scale, float)[..., None] ** 2
    return -np.expm1(-square * np.asarray(rate, float))  # CARES (7)


def dropped_weight(rx_scale: ArrayLike, weights: ArrayLike, rate: ArrayLike) -> Floats:
    """Bound on the expected dropped weight E[S], (...).

    >>> round(float(dropped_weight(np.sqrt(np.log(2)), [0.5, 0.5], [1.0, 1.0])), 12)
    0.5
    """
    return drop_prob(rx_scale, rate) @ np.asarray(weights, float)  # CARES (8)


def dropped_weight_slope(rx_scale: ArrayLike, weights: ArrayLike, rate: ArrayLike) -> Floats:
    """Derivative of `dropped_weight` in rx_scale, (...)."""
    eta, rate = np.asarray(rx_scale, float)[..., None], np.asarray(rate, float)
    return (2 * rate * eta * np.exp(-rate * eta**2)) @ np.asarray(weights, float)


def dropped_square(rx_scale: ArrayLike, weights: ArrayLike, rate: ArrayLike) -> Floats:
    """Bound on E[S^2] when channels are independent across clients, (...): below `dropped_weight`.

    Rises in every q_k, since its partial derivative p_k^2 (1 - 2 q_k) + 2 p_k sum_j p_j q_j is at least p_k^2.
    """
    weights, prob = np.asarray(weights, float), drop_prob(rx_scale, rate)
    return (prob * (1 - prob)) @ weights**2 + (prob @ weights) ** 2


def asymmetry(rx_scale: ArrayLike, rate_min: float, rate_max: float) -> Floats:
    """Bound on the spread of participation between the easiest and the hardest client, (...).

    The product form keeps its digits when the two rates are close.
    """
    square = np.asarray(rx_scale, float) ** 2
    return np.exp(-rate_min * square) * -np.expm1(-(rate_max - rate_min) * square)  # CARES (9)


def eta_peak(rate_min: float, rate_max: float) -> float | None:
    """Receive scaling at which `asymmetry` is largest; None for equal clients, where it is 0 everywhere.

    >>> eta_peak(1.0, 1.0) is None
    True
    >>> round(eta_peak(1.0, 1.0 + 1e-15), 12)
    1.0
    """
    spread = rate_max - rate_min
    if spread == 0:
        return None
    return math.sqrt(math.log1p(spread / rate_min) / spread)
