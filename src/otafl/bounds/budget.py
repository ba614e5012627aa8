"""What an (eps, delta) target allows in zCDP, and back, under the two accountings that CARES' rounds admit.

`classic` is the paper's conversion. `gaussian` is exact: Gaussian rounds of total zCDP rho compose to one Gaussian
mechanism (CARES 3.9, E12), so costs stay additive and only the conversion changes.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.privacy import ACCOUNTANTS, Accountant, zcdp

Accounting = Literal["classic", "gaussian"]
COUNTED_BY: dict[str, Accounting] = {"zcdp": "classic", "gaussian": "gaussian"}  # accountants of the ledger
_COUNTABLE = 2.0**52  # beyond it float64 cannot tell one more round


def zcdp_budget(accounting: Accounting, eps: float, delta: float) -> float:
    """Largest total zCDP that meets (eps, delta).

    >>> round(zcdp_budget("classic", 500.0, 1e-5), 8), round(zcdp_budget("gaussian", 500.0, 1e-5), 4)
    (369.54607786, 382.9061)
    """
    cap = _accountant(accounting).cap
    assert cap is not None
    return float(cap(eps, delta))


def eps_of(accounting: Accounting, rho: ArrayLike, delta: float) -> np.ndarray:
    """The eps that a total zCDP of rho amounts to at delta."""
    convert = _accountant(accounting).convert
    assert convert is not None
    return np.asarray(convert(rho, delta))


def countable(budget: float, cost: ArrayLike) -> bool:
    """Whether float64 can tell how many rounds of the least of the costs fit."""
    return bool(np.min(cost) > 0 and budget / np.min(cost) <= _COUNTABLE)


def _accountant(accounting: Accounting) -> Accountant:
    return next(ACCOUNTANTS[name] for name, word in COUNTED_BY.items() if word == accounting)


def horizons(budget: float, costs: ArrayLike) -> np.ndarray:
    """How many rounds of each cost fit the budget, exactly, (M,) int."""
    costs = np.atleast_1d(np.asarray(costs, float))
    validate.positive("zcdp_cost", costs)
    if not countable(budget, costs):
        raise InputError(
            f"zcdp_cost={costs.min():.3g} must be at least zcdp_budget/2^52={budget / _COUNTABLE:.3g}: "
            "more rounds than can be counted; check the units of noise_std and arms"
        )
    return np.array([zcdp.horizon(budget, float(cost)) for cost in costs])
