"""A lower bound on mu from a single run with many canaries. Host, float64.

Every canary client flips a coin: its message is in (sign +1) or its substitute is (sign -1). Their scores are normal,
sign * mu/2 apart from zero, under the same noise as all the coordinates along which nobody sends:

    t = mean_k(sign_k s_k) sqrt(K) / sqrt(v),   v = mean of the squares of n other coordinates over their charged noise

is noncentral t with n degrees of freedom and noncentrality sqrt(K) mu/2, mu the canaries' mean: where they differ, the
dearest is at least that. Noise that is used again in the next round is not seen here; the patterns of `audit` see it.
"""

from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy.audit import USUAL, noncentrality


class OneRun(NamedTuple):
    """Mean mu of the canaries of one run."""

    mu: float
    low: float  # at the error of the test
    high: float  # at the usual error
    noise: float  # std of the noise that was found, over the charged one


def one_run(scores: Array, signs: Array, others: Array, beta: float) -> OneRun:
    """scores (K,) of unit variance where the noise is as charged; signs (K,) +1 or -1; others (n,) likewise standard.

    >>> rng = np.random.default_rng(0)
    >>> signs = rng.choice([-1.0, 1.0], 200)
    >>> found = one_run(signs * 0.5 + rng.normal(size=200), signs, rng.normal(size=4000), 0.05)
    >>> bool(0.7 < found.low < found.mu < found.high < 1.5)
    True
    """
    scores, signs, others = (np.asarray(x, np.float64) for x in (scores, signs, others))
    for name, values in (("scores", scores), ("others", others)):
        validate.finite(name, values)
    if scores.ndim != 1 or scores.shape != signs.shape or not np.all(np.abs(signs) == 1):
        raise InputError(f"signs must be +1 or -1, one for each of the {scores.size} scores")
    if others.ndim != 1 or others.size < 2:
        raise InputError("others must be at least 2 numbers in a row: without them the noise is not known")
    root, variance = np.sqrt(scores.size), float(np.mean(others**2))
    mean = float(np.mean(signs * scores))
    if variance == 0:
        apart = np.inf if mean > 0 else 0.0
        return OneRun(apart, apart, apart, 0.0)
    statistic = mean * root / np.sqrt(variance)
    low = 2 / root * noncentrality(statistic, others.size, beta)
    high = -2 / root * noncentrality(-statistic, others.size, USUAL)
    return OneRun(2 * mean / np.sqrt(variance), low, high, float(np.sqrt(variance)))
