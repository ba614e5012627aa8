"""Roots of many monotone functions at once. Host, float64."""

from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.errors import InputError

Array = np.ndarray
Function = Callable[[Array], Array]


def expand_bracket(function: Function, start: Any, factor: float = 1.0, limit: float = 60.0) -> tuple[Array, ...]:
    """Widen [start - factor, start + factor] until a *rising* function changes sign in it, elementwise.

    Returns (low, high, function at low, function at high). Steps double, but never leave start +- limit: a root
    further out is refused.
    """
    centre = np.asarray(start, float)
    ends, values = [], []
    for side in (-1.0, 1.0):
        reach = np.full(centre.shape, factor)
        value = np.asarray(function(centre + side * reach), float)
        while np.any(missing := side * value < 0):
            if np.any(reach[missing] >= limit):
                raise InputError(
                    f"no root within e^{limit:g} of the starting point: the target cannot be met by tuning"
                )
            reach = np.where(missing, np.minimum(2 * reach, limit), reach)
            value = np.asarray(function(centre + side * reach), float)
        ends.append(centre + side * reach)
        values.append(value)
    return ends[0], ends[1], values[0], values[1]


def bracketed_root(
    function: Function,
    bracket: tuple[Array, ...],
    close_enough: Callable[[Array], Array] = lambda value: value == 0,
    width: float = 1e-14,
) -> Array:
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
