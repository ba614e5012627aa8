"""Rayleigh fading that remembers: AR(1) and Jakes. Host, NumPy, float64 and complex128.

    Jakes   E g_t conj(g_{t-n}) = J0(2 pi f_D T_round n),       f_D = speed * carrier / c
    AR(1)   g_t = rho g_{t-1} + sqrt(1 - rho^2) w_t,            E g_t conj(g_{t-n}) = rho^n                  (C1)

With rho = J0(2 pi f_D T_round) the two agree at lag 1 and nowhere else: at f_D T_round = 0.1, lag 5 is 0.603 instead of
-0.304. Both are exact from the first round on, and a longer run extends a shorter one bit for bit. The first axis is
time; every other axis is independent (clients today, blocks beside them tomorrow).
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

Law = Callable[[Floats], Complexes]  # rms gains of the next rounds -> their gains

SPEED_OF_LIGHT = 299_792_458.0  # m/s, exact by definition
JITTER = 1e-9  # on the diagonal: the Toeplitz matrix of J0 is nearly singular where little moves in a round
MOST_ROUNDS = 5000  # of jakes: its factor has rounds^2 numbers
_ROWS = 64  # that are factored together; the same whatever the horizon, hence the same bits
_FIRST_MINIMUM = 3.8317059702075125  # J0 falls from 0 to here
_LEAST = -0.402759395702553  # J0 there


def doppler_hz(speed_m_s: float, carrier_ghz: float) -> float:
    """Largest Doppler shift f_D = speed * carrier / c.

    >>> round(doppler_hz(1.5, 3.5), 4)
    17.5121
    """
    return float(speed_m_s * carrier_ghz * 1e9 / SPEED_OF_LIGHT)


def jakes_correlation(turns: ArrayLike, rounds: ArrayLike = 1) -> Floats:
    """J0(2 pi f_D T_round n) for `turns` = f_D T_round and n = `rounds`.

    >>> round(float(jakes_correlation(0.1)), 6), round(float(jakes_correlation(0.1, 5)), 4)
    (0.903713, -0.3042)
    """
    from scipy.special import j0

    return np.asarray(j0(2 * np.pi * np.asarray(turns, float) * np.asarray(rounds, float)))


def check_jakes(rho: float) -> None:
    """Refuse a correlation that no speed has."""
    if not _LEAST <= rho < 1:
        raise InputError(f"rho={rho!r} must lie in [{_LEAST:.4f}, 1) for jakes: no speed has another correlation")


def turns_of(rho: float) -> float:
    """The least f_D T_round with J0(2 pi f_D T_round) = rho; rho must lie above the minimum of J0, -0.4028.

    >>> round(turns_of(0.5), 4)
    0.2421
    """
    from scipy.optimize import brentq
    from scipy.special import j0

    check_jakes(rho)
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
    return ar1_law(rng, rho)(rms_gain)


def ar1_law(rng: np.random.Generator, rho: float) -> Law:
    """The same for rounds that are asked for in order; how many at a time changes no number."""
    check_rho(rho)
    fresh, last = np.sqrt((1 - rho) * (1 + rho)), np.zeros(0, np.complex128)

    def law(rms_gain: Floats) -> Complexes:
        nonlocal last
        gain = circular_normal(rng, rms_gain.shape)
        for t in range(len(gain)):
            if last.size:
                gain[t] = rho * last + fresh * gain[t]  # (C1)
            last = gain[t]
        return np.asarray(rms_gain * gain)

    return law


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
    """Gains (T, ...) with correlation J0(2 pi turns n) after n rounds, turns = f_D T_round."""
    return jakes_law(rng, turns)(rms_gain)


def jakes_law(rng: np.random.Generator, turns: float) -> Law:
    """The same for rounds that are asked for in order; a whole group of rows is drawn when its first is asked for."""
    validate.positive("turns", turns)
    fresh: list[Floats] = []  # (64, everything else) of each group
    ready: list[Floats] = []
    done = 0

    def group(rest: tuple[int, ...]) -> Floats:
        number = len(fresh)
        fresh.append(rng.standard_normal((_ROWS, *rest, 2)).reshape(_ROWS, -1))
        factor = jakes_factor(turns, 1 << number.bit_length())
        rows = slice(number * _ROWS, (number + 1) * _ROWS)
        return np.asarray(factor[rows, : rows.stop] @ np.concatenate(fresh))

    def law(rms_gain: Floats) -> Complexes:
        nonlocal done
        stop = done + len(rms_gain)
        validate.at_most("rounds", stop, MOST_ROUNDS, "use ar1, whose memory is one round, or fewer rounds")
        while len(ready) * _ROWS < stop:
            ready.append(group(rms_gain.shape[1:]))
        first = done // _ROWS
        parts = np.concatenate(ready[first:])[done - first * _ROWS : stop - first * _ROWS]
        done, parts = stop, parts.reshape(*rms_gain.shape, 2)
        return np.asarray(rms_gain * (parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2))

    return law
