"""The four feasible sets at a horizon fixed in advance, and their intersection (CARES (14)-(18)). NumPy, float64.

C: convergence, P: privacy, Q: asymmetry, U: dropped weight. U and P are lower intervals. Q is one up to `eta_peak` and
has a second piece beyond, where everybody is dropped alike; U is what removes it. C is found by search.
An empty intersection means "not certifiable with these bounds", not "impossible".
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.systems.cares.closed_form import low_truncation_design
from otafl.systems.cares.constraint_ends import eta_P, eta_Q, eta_U
from otafl.systems.cares.intervals import Union, below, first_true, intersect, minimiser
from otafl.systems.cares.monotone import is_upper_interval
from otafl.systems.cares.problem import Problem

_POINTS = 401  # resolution of the search for C; the certificate has few features per decade


class FeasibleSets(NamedTuple):
    """Unions of closed intervals inside [eta_min, eta_max], at one horizon, one convergence target."""

    rounds: int
    conv_target: float
    eta_range: tuple[float, float]
    C: Union
    P: Union
    Q: Union
    U: Union
    F: Union
    eta_P: float  # upper ends, unclipped; inf where the constraint never binds
    eta_Q: float
    eta_U: float
    C_is_upper: bool | None  # Corollary 2.3: C is empty or [eta_C, eta_max]; None when the test cannot decide
    eta_best: float | None  # argmin of the certificate over F
    eta_LT_feasible: float | None  # low-truncation design over F (App. D)


class GridSets(NamedTuple):
    """Membership of each arm, (M,) bool, at one horizon."""

    C: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    U: np.ndarray
    F: np.ndarray


def _asymmetry_set(problem: Problem, low: float, high: float) -> Union:
    end = eta_Q(problem)
    pieces: Union = [(low, min(end, high))] if low <= end else []
    peak = problem.eta_peak
    if peak is None or math.isinf(end) or high <= peak:
        return pieces

    def even(eta: float) -> bool:
        return bool(problem.asymmetry(eta) <= problem.max_asymmetry)

    if even(high):  # everybody is dropped alike
        start = first_true(even, max(low, peak), high)
        pieces.append((start, high))
    return pieces


def feasible_sets(problem: Problem, rounds: int, conv_target: float, eta_min: float, eta_max: float) -> FeasibleSets:
    """All sets as unions of intervals on [eta_min, eta_max] at a fixed number of rounds."""
    validate.whole("rounds", rounds)
    validate.positive("eta_min", eta_min)
    validate.positive("eta_max", eta_max)
    if eta_min > eta_max:
        raise InputError(f"eta_min={eta_min!r} must be <= eta_max={eta_max!r}")
    ends = eta_P(problem, rounds), eta_Q(problem), eta_U(problem)
    points = np.geomspace(eta_min, eta_max, _POINTS) if eta_min < eta_max else np.array([eta_min])
    points[0], points[-1] = eta_min, eta_max
    conv = below(lambda eta: problem.conv_bound(eta, rounds).total, conv_target, points)  # CARES (14)
    privacy = [(eta_min, min(ends[0], eta_max))] if eta_min <= ends[0] else []  # CARES (15)
    even = _asymmetry_set(problem, eta_min, eta_max)  # CARES (16)
    kept = [(eta_min, min(ends[2], eta_max))] if eta_min <= ends[2] else []  # CARES (17)
    every = intersect(intersect(conv, privacy), intersect(even, kept))  # CARES (18)
    return FeasibleSets(
        rounds,
        conv_target,
        (eta_min, eta_max),
        conv,
        privacy,
        even,
        kept,
        every,
        *ends,
        C_is_upper=is_upper_interval(problem, eta_min, eta_max),
        eta_best=minimiser(problem.round_cost, every),
        eta_LT_feasible=low_truncation_design(problem, every),
    )


def grid_sets(problem: Problem, arms: ArrayLike, rounds: int, conv_target: float) -> GridSets:
    """The sets of (14)-(18) on a grid, at one fixed horizon. Not the arm set of the initialisation (CARES E17)."""
    validate.whole("rounds", rounds)
    eta = np.asarray(arms, float)
    conv = problem.conv_bound(eta, rounds).total <= conv_target
    privacy = rounds * problem.zcdp_cost(eta) <= problem.zcdp_budget
    even = problem.asymmetry(eta) <= problem.max_asymmetry
    kept = problem.dropped_weight(eta) <= problem.max_dropped
    return GridSets(conv, privacy, even, kept, conv & privacy & even & kept)
