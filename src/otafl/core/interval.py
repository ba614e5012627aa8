"""The interval of a mean."""

from collections.abc import Iterable

import numpy as np
from scipy import special

LEVEL = 0.95


def half_width(values: Iterable[float]) -> float:
    """Half of the Student interval of a mean; inf below two values, of which nothing follows.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)  # 4.303 s / sqrt(3)
    2.484
    """
    found = np.asarray(list(values), float)
    if found.size < 2:
        return float("inf")
    return float(special.stdtrit(found.size - 1, (1 + LEVEL) / 2) * np.std(found, ddof=1) / np.sqrt(found.size))
