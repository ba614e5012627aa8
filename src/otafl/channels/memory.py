"""Rayleigh fading that remembers: AR(1) and Jakes. Host, NumPy, float64 and complex128.

    Jakes   E g_t conj(g_{t-n}) = J0(2 pi f_D T_round n),       f_D = speed * carrier / c
    AR(1)   g_t = rho g_{t-1} + sqrt(1 - rho^2) w_t,            E g_t conj(g_{t-n}) = rho^n                  (C1)

With rho = J0(2 pi f_D T_round) the two agree at lag 1 and nowhere else: at f_D T_round = 0.1, lag 5 is 0.603 instead of
-0.304. Both are exact from the first round on, and a longer run extends a shorter one bit for bit. The first axis is
time; every other axis is independent (clients today, blocks beside them tomorrow).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.constants import speed_of_light

from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

JITTER = 1e-9  # on the diagonal: the Toeplitz matrix of J0 is nearly singular where little moves in a round
MOST_ROUNDS = 5000  # of jakes: its factor has rounds^2 numbers
_ROWS = 64  # that are factored together; the same whatever the horizon, hence the same bits
_FIRST_MINIMUM = 3.8317059702075125  # J0 falls from 0 to here


def doppler_hz(speed_m_s: float, carrier_ghz: float) -> float:
    """Largest Doppler shift f_D = speed * carrier / c, with c = 299792458 m/s.

    >>> round(doppler_hz(1.5, 3.5), 4)
    17.5121
    """
    return float(speed_m_s * carrier_ghz * 1e9 / speed_of_light)


def jakes_correlation(turns: ArrayLike, rounds: ArrayLike = 1) -> Floats:
    """J0(2 pi f_D T_round n) for `turns` = f_D T_round and n = `rounds`.

    >>> round(float(jakes_correlation(0.1)), 6), round(float(jakes_correlation(0.1, 5)), 4)
    (0.903713, -0.3042)
    """
    from scipy.special import j0

    return np.asarray(j0(2 * np.pi * np.asarray(turns, float) * np.asarray(rounds, float)))


def turns_of(rho: float) -> float:
    """The least f_D T_round with J0(2 pi f_D T_round) = rho; rho must lie above the minimum of J0, -0.4028.

    >>> round(turns_of(0.5), 4)
    0.2421
    """
    from scipy.optimize import brentq
    from scipy.special import j0

    least = float(j0(_FIRST_MINIMUM))
    if not least <= rho < 1:
        raise InputError(f"rho={rho!r} must lie in [{least:.4f}, 1) for jakes: no speed has another correlation")
    return float(brentq(lambda x: j0(x) - rho, 0.0, _FIRST_MINIMUM, xtol=1e-15, rtol=1e-14)) / (2 * np.pi)


def check_rho(rho: float) -> None:
    """A correlation of +-1 never changes: that is block fading over the whole run, not memory."""
    validate.in_open("rho", rho, -1, 1)


def circular_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Complexes:
    """Circular complex normals of unit mean square, real and imaginary part drawn in turn."""
    parts = rng.standard_normal((*shape, 2))
    return np.asarray((parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2))


def ar1(rng: np.random.Generator, rms_gain: Floats, rho: float) -> Complexes:
    """AR(1) gains (T, ...) with correlation rho^n after n rounds; rho < 0 is legal."""
    check_rho(rho)
    gain = circular_normal(rng, rms_gain.shape)
    fresh = np.sqrt((1 - rho) * (1 + rho))
    for t in range(1, len(gain)):
        gain[t] = rho * gain[t - 1] + fresh * gain[t]  # (C1)
    return np.asarray(rms_gain * gain)


@lru_cache(maxsize=2)
def jakes_factor(turns: float, groups: int) -> Floats:
    """Cholesky factor of the J0 Toeplitz matrix plus 1e-9 I, (64 groups, 64 groups), one group of rows at a time."""
    size = groups * _ROWS
    lags = jakes_correlation(turns, np.arange(size))
    lags[0] += JITTER
    factor = np.zeros((size, size))
    from scipy.linalg import solve_triangular, toeplitz

    for first in range(0, size, _ROWS):
        rows = slice(first, first + _ROWS)
        own = toeplitz(lags[:_ROWS])
        if first:
            earlier = lags[np.abs(np.arange(first)[:, None] - np.arange(first, first + _ROWS))]
            known = solve_triangular(factor[:first, :first], earlier, lower=True, check_finite=False)
            factor[rows, :first] = known.T
            own = own - known.T @ known
        factor[rows, rows] = np.linalg.cholesky(own)
    factor.flags.writeable = False
    return factor


def jakes(rng: np.random.Generator, rms_gain: Floats, turns: float) -> Complexes:
    """Complexes (T, ...) with correlation J0(2 pi turns n) after n rounds, turns = f_D T_round."""
    validate.positive("turns", turns)
    rounds = len(rms_gain)
    validate.at_most("rounds", rounds, MOST_ROUNDS, "use ar1, whose memory is one round, or fewer rounds")
    groups = -(-rounds // _ROWS)
    factor = jakes_factor(turns, groups)
    fresh = np.zeros((groups * _ROWS, *rms_gain.shape[1:], 2))
    fresh[:rounds] = rng.standard_normal((*rms_gain.shape, 2))
    flat = fresh.reshape(len(fresh), -1)
    parts = np.empty_like(flat)
    for first in range(0, len(flat), _ROWS):
        end = first + _ROWS
        parts[first:end] = factor[first:end, :end] @ flat[:end]
    parts = parts[:rounds].reshape(*rms_gain.shape, 2)
    return np.asarray(rms_gain * (parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2))
