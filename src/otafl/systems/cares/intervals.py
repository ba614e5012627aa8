"""Unions of closed intervals, and where a function stays below a level: exact tools for the feasible sets."""

from collections.abc import Callable

import numpy as np

from otafl.core.arrays import Floats

RESOLUTION = 401  # points of a dense search
Interval = tuple[float, float]
Union = list[Interval]  # disjoint, ascending
Curve = Callable[[Floats], Floats]  # elementwise


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


def below(value: Curve, level: float, points: Floats) -> Union:
    """Where value <= level between the first and the last of `points` (ascending): ends exact to the last bit.

    Between neighbouring points the function is taken to cross the level at most once, except around a local minimum,
    which is searched for; so the points must resolve the function.
    """

    def inside(x: float) -> bool:
        return bool(value(np.asarray(x)) <= level)

    points = _with_minima(value, level, points)
    good = value(points) <= level
    found: Union = []
    for i in np.flatnonzero(good):
        if i > 0 and good[i - 1]:
            continue
        last = i + int(np.argmin(np.append(good[i:], False))) - 1
        low = points[i] if i == 0 else first_true(inside, float(points[i - 1]), float(points[i]))
        high = (
            points[last] if last + 1 == points.size else last_true(inside, float(points[last]), float(points[last + 1]))
        )
        found.append((float(low), float(high)))
    return found


def minimiser(value: Curve, union: Union) -> float | None:
    """Smallest minimiser over a union of intervals: a dense search, refined around its best point."""
    best: tuple[float, float] | None = None
    for low, high in union:
        points = np.linspace(low, high, RESOLUTION)
        for _ in range(5):
            centre = int(np.argmin(value(points)))
            found = float(value(points)[centre]), float(points[centre])
            points = np.linspace(points[max(centre - 1, 0)], points[min(centre + 1, RESOLUTION - 1)], RESOLUTION)
            best = found if best is None else min(best, found)
    return None if best is None else best[1]


def _with_minima(value: Curve, level: float, points: Floats) -> Floats:
    """Add the local minima that may dip under the level between points that do not."""
    values = value(points)
    middle = values[1:-1]
    valley = (middle > level) & (middle <= values[:-2]) & (middle <= values[2:])
    extra = [minimiser(value, [(float(points[i]), float(points[i + 2]))]) for i in np.flatnonzero(valley)]
    return np.unique(np.append(points, np.array(extra, float)))
