"""Silence and cost at a server with M antennas, as far as they are proved. NumPy, float64.

If the beam is never worse than the best antenna for the weakest client, antennas fade independently by Rayleigh's law
and clients independently of each other, then with CARES' rates c_k (`bounds.envelopes.drop_rate`, of one antenna)

    P(anyone silent) <= (1 - exp(-eta^2 sum_k c_k))^M                                                             (H3)

Proof: where one antenna serves everybody, the beam does; antennas are independent. It bounds every drop probability,
the asymmetry, E[S] and E[S^2]. A round costs 2 eta^2 p_k^2 G^2 / (v cos^2 theta), theta the angle between h_k and the
beam: random, so that a horizon needs the public trace.
"""

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats


def any_silent(rx_scale: ArrayLike, drop_rate: ArrayLike, antennas: int) -> Floats:
    """Bound on the probability that anyone is silent, (...), from rates c_k (K,) of one antenna (H3).

    >>> round(float(any_silent(1.0, [np.log(2) / 2, np.log(2) / 2], antennas=3)), 12)
    0.125
    """
    validate.whole("antennas", antennas)
    total = float(np.sum(np.asarray(drop_rate, float)))
    one = -np.expm1(-(np.asarray(rx_scale, float) ** 2) * total)
    return np.asarray(one**antennas)  # (H3)
