"""Unions of closed intervals, and where a function stays below a level: exact tools for the feasible sets."""

from collections.abc import Callable

import numpy as np

Interval = tuple[float, float]
Union = list[Interval]  # disjoint, ascending


def intersect(left: Union, right: Union) -> Union:
    """Common points of two unions; touching ends stay as single points.

    >>> intersect([(0.0, 2.0), (3.0, 5.0)], [(1.0, 4.0)])
    [(1.0, 2.0), (3.0, 4.0)]
    """
    pairs = [(max(a, c), min(b, d)) for a, b in left for c, d in right]
    return sorted((low, high) for low, high in pairs if low <= high)


def last_true(test: Callable[[float], bool], low: float, high: float) -> float:
    """Largest float x in [low, high] with test(x), for a test that holds at low and switches off once."""
    if test(high):
        return high
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (middle, high) if test(middle) else (low, middle)
    return low


def first_true(test: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest float x in [low, high] with test(x), for a test that holds at high and switches on once."""
    if test(low):
        return low
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


def below(value: Callable[[float], float], level: float, points: np.ndarray) -> Union:
    """Where value <= level between the first and the last of `points` (ascending): ends exact to the last bit.

    Between neighbouring points the function is taken to cross the level at most once, except around a local minimum,
    which is searched for; so the points must resolve the function.
    """

    def inside(x: float) -> bool:
        return value(x) <= level

    points = _with_minima(value, level, points)
    good = np.array([inside(x) for x in points])
    found: Union = []
    for i in np.flatnonzero(good):
        if i > 0 and good[i - 1]:
            continue
        last = i + int(np.argmin(np.append(good[i:], False))) - 1
        low = points[i] if i == 0 else first_true(inside, points[i - 1], points[i])
        high = points[last] if last == len(points) - 1 else last_true(inside, points[last], points[last + 1])
        found.append((float(low), float(high)))
    return found


def _with_minima(value: Callable[[float], float], level: float, points: np.ndarray) -> np.ndarray:
    """Add the local minima that dip under the level between points that do not."""
    values = np.array([value(x) for x in points])
    extra = []
    for i in range(1, len(points) - 1):
        if level < values[i] <= min(values[i - 1], values[i + 1]):
            extra.append(_golden(value, points[i - 1], points[i + 1]))
    return np.unique(np.append(points, extra))


def _golden(value: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search for a minimum of a unimodal function."""
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if value(left) <= value(right) else (left, high)
    return float((low + high) / 2)
