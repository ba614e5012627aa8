"""Closed forms of regularised inversion under Rayleigh fading. Host, float64.

Client k arrives with amplitude a_t in round t; x_t = abs(h_t)^2 / E abs(h)^2 is its own channel. The learning signal is
linear in the amplitudes, privacy costs a^2 and energy a^2 / x:

    maximise sum_t a_t   subject to   sum_t a_t^2 <= P,   sum_t a_t^2 / x_t <= E

whose stationarity 1 = 2 a (lambda_1 + lambda_2 / x) gives a(x) = c x / (x + kappa), kappa = lambda_2 / lambda_1. With a
limit on the energy of one round, a(x) = min(c x / (x + kappa), peak sqrt(x)); all below is in units of the peak, with
level q = c / peak, so that the limit binds where q sqrt(x) > x + kappa.

x is exponential with mean 1. kappa = 0 is full inversion, kappa -> infinity a matched filter.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import exp1, gammainc

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import Infeasible

LARGEST = 100.0  # kappa: beyond it the matched filter is reached (e = 0.71) and the closed forms cancel
LEAST = 1e-9  # full inversion for all purposes
LEVELS = np.linspace(0.0, np.log(1e5), 400)  # of q over the level at which the peak begins to bind


class Moments(NamedTuple):
    """Of x/(x + kappa): E of it, of its square, and of its square over x."""

    mean: Array
    square: Array
    energy: Array


def moments(kappa: Array) -> Moments:
    """By g = e^kappa E1(kappa) = E 1/(x + kappa) and E 1/(x + kappa)^2 = 1/kappa - g.

    >>> [round(float(value), 4) for value in moments(1.37)]
    [0.3442, 0.1599, 0.1345]
    """
    kappa = _checked(kappa)
    g = np.exp(kappa) * exp1(kappa)
    return Moments(1 - kappa * g, 1 + kappa - kappa * (2 + kappa) * g, (1 + kappa) * g - 1)


def efficiency(kappa: Array) -> Array:
    """e = S / S_max: what unequal amplitudes leave of the learning signal at one privacy cost; 1 at kappa = 0.

    >>> round(float(efficiency(0.204)), 3)
    0.951
    """
    found = moments(kappa)
    return found.mean / np.sqrt(found.square)


def energy(kappa: Array) -> Array:
    """Energy in units of the privacy cost, E[a^2/x] / E[a^2]; falls from infinity to 1/2.

    >>> round(float(energy(0.204)), 2)
    1.45
    """
    found = moments(kappa)
    return found.energy / found.square


def kappa_for_efficiency(wanted: float) -> float:
    """The kappa that leaves this efficiency, hence the cheapest power control that has it.

    >>> round(kappa_for_efficiency(0.861), 2)
    1.37
    """
    validate.in_open("efficiency", wanted, 0, 1)
    if wanted <= efficiency(LARGEST):
        raise Infeasible(
            f"efficiency={wanted:g} must be above {float(efficiency(LARGEST)):.4f}: no ridge is less efficient than a "
            "matched filter; lower the privacy target instead"
        )
    if wanted >= efficiency(LEAST):
        return 0.0
    return float(
        np.exp(scipy.optimize.brentq(lambda k: efficiency(np.exp(k)) - wanted, np.log(LEAST), np.log(LARGEST)))
    )


def kappa_for_energy(wanted: Array) -> Array:
    """The least kappa with at most this energy per privacy cost; `LARGEST` where none has so little.

    >>> kappa_for_energy(np.array([1.45, 0.1])).round(2).tolist()
    [0.2, 100.0]
    """
    grid = np.exp(np.linspace(np.log(LEAST), np.log(LARGEST), 2000))
    return np.exp(np.interp(-np.asarray(wanted, float), -energy(grid), np.log(grid)))


class Limited(NamedTuple):
    """Of min(q x/(x + kappa), sqrt(x)): mean and mean square."""

    mean: Array
    square: Array


def limited(q: Array, kappa: Array) -> Limited:
    """Moments with the limit on the energy of one round, which binds between the roots of x + kappa = q sqrt(x)."""
    q, kappa = np.broadcast_arrays(np.asarray(q, float), _checked(kappa))
    gap = np.sqrt(np.maximum(q**2 - 4 * kappa, 0.0))
    low, high = (kappa / ((q + gap) / 2)) ** 2, ((q + gap) / 2) ** 2  # the product of the roots of sqrt(x) is kappa
    low, high = np.where(gap > 0, low, 1.0), np.where(gap > 0, high, 1.0)
    whole = moments(kappa)
    first, second = _partial(low, kappa), _partial(high, kappa)
    mean = q * (whole.mean - second.mean + first.mean)
    square = q**2 * (whole.square - second.square + first.square)
    root = gammainc(1.5, high) - gammainc(1.5, low)  # E[sqrt(x)] = Gamma(3/2) of it
    return Limited(mean + np.sqrt(np.pi) / 2 * root, square + gammainc(2.0, high) - gammainc(2.0, low))


def _partial(y: Array, kappa: Array) -> Limited:
    """Moments of x/(x + kappa) over [0, y]."""
    inside = np.exp(kappa) * (exp1(kappa) - exp1(kappa + y))  # of 1/(x + kappa)
    squared = 1 / kappa - np.exp(-y) / (y + kappa) - inside  # of 1/(x + kappa)^2
    all_ = -np.expm1(-y)
    return Limited(all_ - kappa * inside, all_ - 2 * kappa * inside + kappa**2 * squared)


class Levels:
    """The level q that spends a mean square per round, for clients with these kappas (K,)."""

    def __init__(self, kappa: Array):
        self.kappa = _checked(kappa)
        self.square = moments(self.kappa).square
        self.kinds, self.kind = np.unique(self.kappa, return_inverse=True)
        self.grid = 2 * np.sqrt(self.kinds)[:, None] * np.exp(LEVELS)  # (kinds, levels)
        self.spent = np.maximum.accumulate(limited(self.grid, self.kinds[:, None]).square, axis=-1)

    def of(self, square: Array) -> Array:
        """(..., K) mean squares in units of peak^2 -> levels; what full power does not spend stays unspent."""
        q = np.sqrt(np.asarray(square, float) / self.square)
        binding = q > 2 * np.sqrt(self.kappa)
        if not np.any(binding):
            return q
        for n in range(len(self.kinds)):
            own = binding & (self.kind == n)
            q[own] = np.exp(np.interp(np.broadcast_to(square, q.shape)[own], self.spent[n], np.log(self.grid[n])))
        return q


def _checked(kappa: Array) -> Array:
    validate.in_closed("kappa", kappa, 0, LARGEST * (1 + 1e-12))
    return np.maximum(np.asarray(kappa, float), LEAST)
