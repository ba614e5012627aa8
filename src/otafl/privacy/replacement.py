"""Replacing a unit under Poisson sampling, certified. Host, float64.

Which pair of contributions is the worst for a replaced record in a Poisson batch is not proved (opposed ones are what
dp_accounting takes). Certified is the way through the run R in which the record is nulled: with contributions of half
the replacement's sensitivity,

    P(S) <= e^e1 R(S) + s delta,   R(S) <= e^e2 Q(S) + (1-s) delta e^-e1,   e1 = eps_rem(s delta)
    eps_rep(delta) <= min over s in (0, 1) of e1 + eps_add((1-s) delta e^-e1)

whatever accountant gives eps_rem (record leaves) and eps_add (record joins). Releases beside the air belong to the
first step alone: R may publish what Q would.
"""

from collections.abc import Callable

import numpy as np

from otafl.core.arrays import Array

_TAIL = np.geomspace(1e-6, 0.5, 40)
SHARES = np.concatenate([_TAIL, 1 - _TAIL[-2::-1]])  # of delta for the first step, dense at both ends
TINY = np.finfo(np.float64).tiny
CERTIFIED_PAIR = (
    "replacement under sampling: certified through the run without the record (no proof is known of the worst pair)"
)


def certified_eps(removed: Callable[[Array], Array], added: Callable[[Array], Array], delta: float) -> Array:
    """The bound above; `removed` and `added` give eps at a delta each, of one shape.

    >>> from otafl.privacy import gaussian
    >>> half = lambda delta: gaussian.eps(0.5, delta)
    >>> bool(certified_eps(half, half, 1e-5) > gaussian.eps(1.0, 1e-5))  # two steps of mu 1/2, never below one of mu 1
    True
    """
    best: Array = np.inf
    for share in SHARES:
        first = np.asarray(removed(share * delta), np.float64)
        left = (1 - share) * delta * np.exp(-first)
        second = np.where(left > 0, added(np.maximum(left, TINY)), np.inf)
        best = np.minimum(best, first + second)
    return best
