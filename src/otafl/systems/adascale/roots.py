"""Roots of many monotone functions at once. Host, float64."""

from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.core.arrays import Bools, Floats
from otafl.core.errors import InputError

FURTHEST = 60.0  # of a root from where its search starts
Function = Callable[[Floats], Floats]


def expand_bracket(function: Function, start: Any) -> tuple[Floats, ...]:
    """A bracket of the root of a *rising* function, searched outwards from start +- 1, elementwise.

    Returns (low, high, function at low, function at high). Steps double, but never leave start +- FURTHEST: a root
    further out is refused. What was passed on the way out becomes the near end.
    """
    centre = np.asarray(start, float)
    low, high = centre - 1, centre + 1
    at_low, at_high = np.asarray(function(low), float), np.asarray(function(high), float)
    reach = np.ones(centre.shape)
    while np.any(outside := (at_low > 0) | (at_high < 0)):
        if np.any(reach[outside] >= FURTHEST):
            raise InputError(f"no root within e^{FURTHEST:g} of the starting point: the target cannot be met by tuning")
        reach = np.minimum(np.where(outside, 2 * reach, reach), FURTHEST)
        left, right = at_low > 0, at_high < 0
        probe = np.where(left, centre - reach, np.where(right, centre + reach, low))
        value = np.where(outside, function(probe), at_low)
        high, at_high = np.where(left, low, high), np.where(left, at_low, at_high)
        low, at_low = np.where(left, probe, low), np.where(left, value, at_low)
        low, at_low = np.where(right, high, low), np.where(right, at_high, at_low)
        high, at_high = np.where(right, probe, high), np.where(right, value, at_high)
    return low, high, at_low, at_high


def bracketed_root(
    function: Function,
    bracket: tuple[Floats, ...],
    close_enough: Callable[[Floats], Bools] = lambda value: value == 0,
    width: float = 1e-14,
) -> Floats:
    """Elementwise root inside a bracket (low, high, f(low), f(high)): Chandrupatla's hybrid of bisection and inverse
    quadratic interpolation. Stops where close_enough(f) holds or the bracket is narrower than width (1 + abs(root)).

    >>> square = lambda x: x**2 - np.array([2.0, 9.0])
    >>> low, high = np.zeros(2), np.full(2, 5.0)
    >>> np.round(bracketed_root(square, (low, high, square(low), square(high))), 9).tolist()
    [1.414213562, 3.0]
    """
    b, a, fb, fa = (np.array(part, float) for part in bracket)
    if np.any(fa * fb > 0):
        raise InputError("the bracket holds no sign change")
    step = np.full(a.shape, 0.5)
    for _ in range(200):
        x = a + step * (b - a)
        fx = np.asarray(function(x), float)
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        best = np.where(np.abs(fa) <= np.abs(fb), a, b)
        tolerance = width * (1 + np.abs(best))
        done = close_enough(np.where(np.abs(fa) <= np.abs(fb), fa, fb)) | (np.abs(b - a) <= tolerance)
        if np.all(done):
            return best
        with np.errstate(divide="ignore", invalid="ignore"):
            where, value = (a - b) / (c - b), (fa - fb) / (fc - fb)
            quadratic = (value**2 < where) & ((1 - value) ** 2 < 1 - where)
            guess = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            edge = np.minimum(0.5, 0.5 * tolerance / np.abs(b - a))
        step = np.where(done | ~quadratic | ~np.isfinite(guess), 0.5, np.clip(guess, edge, 1 - edge))
        step = np.where(done, 0.0, step)  # finished elements stay where they are
    return best
