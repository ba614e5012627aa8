"""What an (eps, delta) target allows in zCDP, and back, under the two accountings that CARES' rounds admit.

`classic` is the paper's conversion. `gaussian` is exact: Gaussian rounds of total zCDP rho compose to one Gaussian
mechanism (CARES 3.9, E12), so costs stay additive and only the conversion changes.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.privacy import gaussian, zcdp

Accounting = Literal["classic", "gaussian"]


def zcdp_budget(accounting: Accounting, eps: float, delta: float) -> float:
    """Largest total zCDP that meets (eps, delta).

    >>> round(zcdp_budget("classic", 500.0, 1e-5), 8), round(zcdp_budget("gaussian", 500.0, 1e-5), 4)
    (369.54607786, 382.9061)
    """
    convert = zcdp.classic_budget if accounting == "classic" else gaussian.budget_rho
    return float(convert(eps, delta))


def eps_of(accounting: Accounting, rho: ArrayLike, delta: float) -> np.ndarray:
    """The eps that a total zCDP of rho amounts to at delta."""
    convert = zcdp.classic_eps if accounting == "classic" else gaussian.eps_from_rho
    return np.asarray(convert(rho, delta))
