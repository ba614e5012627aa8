"""What may be said about few seeds: means with their spread, paired t intervals, Holm's correction, seeds needed.

One of each for tables, pages, reproductions and the comparison.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from otafl.core.interval import LEVEL, half_width

SIGNIFICANT = 0.05


class Gap(NamedTuple):
    """A paired difference."""

    mean: float
    half_width: float  # of its 95 % t interval; inf below two pairs
    pairs: int
    p: float = float("nan")  # two-sided, of no difference

    @property
    def apart(self) -> bool:
        """Whether the interval leaves zero out."""
        return abs(self.mean) > self.half_width


def numbers(values: Iterable[Any]) -> np.ndarray:
    """A list as stored (null for NaN, "inf" for infinity) as floats."""
    return np.array([np.nan if value is None else float(value) for value in values])


def mean_and_sd(values: np.ndarray) -> tuple[float, float]:
    """Mean and sample standard deviation of those that are numbers; NaN where these do not tell.

    >>> mean_and_sd(np.array([1.0, 3.0, np.nan])), mean_and_sd(np.array([2.0]))
    ((2.0, 1.4142135623730951), (2.0, nan))
    """
    known = values[~np.isnan(values)]
    spread = np.std(known, ddof=1) if known.size > 1 and np.all(np.isfinite(known)) else np.nan
    return float(np.mean(known)) if known.size else np.nan, float(spread)


def mean_sd(values: Iterable[Any], digits: int = 3) -> str:
    """Mean and sample standard deviation, with the number of seeds where not all contribute.

    >>> mean_sd([0.5, 0.7]), mean_sd([0.5, None]), mean_sd(["inf"]), mean_sd([]), mean_sd([1200, 1400])
    ('0.600 ± 0.141', '0.500 (1 of 2)', '∞', '–', '1300 ± 141')
    >>> mean_sd([5.1e7, 6.5e7]), mean_sd([0.0091, 0.0092])
    ('5.8e+07 ± 9.9e+06', '0.00915 ± 7.1e-05')
    """
    every = numbers(values)
    good = every[~np.isnan(every)]
    if good.size == 0:
        return "–"
    if np.any(np.isinf(good)):
        return "∞"
    mean = float(np.mean(good))
    extreme = abs(mean) >= 1e5 or 0 < abs(mean) < 10 ** (1 - digits)  # fixed digits would leave one, or none
    of_mean, of_spread = (".3g", ".2g") if extreme else [f".{0 if abs(mean) >= 1000 else digits}f"] * 2
    spread = f" ± {np.std(good, ddof=1):{of_spread}}" if good.size > 1 else ""
    count = f" ({good.size} of {every.size})" if good.size < every.size else ""
    return f"{mean:{of_mean}}{spread}{count}"


def paired(a: Mapping[Any, float], b: Mapping[Any, float]) -> Gap:
    """a - b over the pairs that have a number in both.

    >>> gap = paired({0: 0.5, 1: 0.7, 2: 0.6}, {0: 0.4, 1: 0.5, 2: 0.5, 3: 0.1})
    >>> round(gap.mean, 4), round(gap.half_width, 4), gap.pairs, round(gap.p, 4), gap.apart
    (0.1333, 0.1434, 3, 0.0572, False)
    """
    both = [key for key in a if key in b and math.isfinite(a[key]) and math.isfinite(b[key])]
    gaps = np.array([a[key] - b[key] for key in both])
    if gaps.size < 2:
        return Gap(float(np.mean(gaps)) if gaps.size else float("nan"), float("inf"), gaps.size)
    mean, spread = float(np.mean(gaps)), float(np.std(gaps, ddof=1))
    if spread == 0:
        return Gap(mean, 0.0, gaps.size, 1.0 if mean == 0 else 0.0)
    t = abs(mean) / (spread / math.sqrt(gaps.size))
    return Gap(mean, half_width(gaps), gaps.size, float(2 * special.stdtr(gaps.size - 1, -t)))


def from_zero(values: Sequence[float]) -> Gap:
    """A mean over seeds as a difference to zero."""
    return paired(dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: below 0.05 at most 5 % of all families have one wrong rejection. NaN counts as 1.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.where(np.isnan(p_values), 1.0, np.asarray(p_values, float))
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    adjusted = np.empty(len(p))
    adjusted[order] = stepped
    return adjusted.tolist()


def behind(ranked: Sequence[Mapping[Any, float]]) -> list[tuple[Gap, float]]:
    """The first less every other, with p values that are corrected for all pairs: below SIGNIFICANT they differ."""
    gaps = {(a, b): paired(ranked[a], ranked[b]) for a, b in combinations(range(len(ranked)), 2)}
    adjusted = dict(zip(gaps, holm([gap.p for gap in gaps.values()])))
    return [(gaps[0, n], adjusted[0, n]) for n in range(1, len(ranked))]


def seeds_needed(gap: Gap, most: int = 10_000, margin: float = 0.0) -> int | None:
    """Seeds after which an interval of this spread would leave `margin` out, were the mean to stay; None beyond `most`.

    >>> gap = Gap(0.01, 0.02, 10)
    >>> seeds_needed(gap), seeds_needed(gap, margin=0.01), seeds_needed(gap, margin=0.02)
    (33, None, 33)
    """
    if gap.pairs < 2 or gap.mean == margin or not math.isfinite(gap.half_width):
        return None
    spread = gap.half_width * math.sqrt(gap.pairs) / float(special.stdtrit(gap.pairs - 1, (1 + LEVEL) / 2))

    def enough(count: int) -> bool:
        half = float(special.stdtrit(count - 1, (1 + LEVEL) / 2)) * spread / math.sqrt(count)
        return half < abs(gap.mean - margin)

    return fewest(enough, most)


def fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """The least number of seeds from 2 on that is enough, where more always are; None beyond `most`.

    >>> fewest(lambda count: count >= 33, 10_000), fewest(lambda count: False, 10_000)
    (33, None)
    """
    found = bisect_left(range(2, most + 1), True, key=enough) + 2
    return found if found <= most else None
