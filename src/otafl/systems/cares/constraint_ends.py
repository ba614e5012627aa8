"""Where the privacy, asymmetry and dropped-weight constraints end on the axis of receive scaling. NumPy, float64."""

import math

from otafl.systems.cares.intervals import last_true
from otafl.systems.cares.problem import CERTAIN, Problem


def eta_P(problem: Problem, rounds: int) -> float:
    """Largest receive scaling whose `rounds` rounds fit the privacy budget; 0 where their rewards alone do not.

    What the air costs is a square, so on public rewards this is a closed form.
    """
    budget = problem.zcdp_budget

    def fits(eta: float) -> bool:
        return bool(rounds * problem.zcdp_cost(eta) <= budget)

    # Without rewards the root itself, unless rounding puts it one step too far.
    return last_true(fits, 0.0, eta_air(problem, rounds)) if fits(0.0) else 0.0


def eta_air(problem: Problem, rounds: int) -> float:
    """Where the budget would end if the rewards cost nothing."""
    return math.sqrt(problem.zcdp_budget / (rounds * float(problem.air_zcdp(1.0).max())))


def eta_U(problem: Problem) -> float:
    """Largest receive scaling with dropped_weight <= max_dropped; inf when that holds even with everybody dropped.

    Every scaling drops somebody some time: where nothing may be dropped this is 0, not where float64 underflows.
    """
    if problem.max_dropped == 0:
        return 0.0

    def kept(eta: float) -> bool:
        return bool(problem.dropped_weight(eta) <= problem.max_dropped)

    nobody_left = math.sqrt(CERTAIN / problem.drop_rate_min)
    return math.inf if problem.max_dropped >= 1 or kept(nobody_left) else last_true(kept, 0.0, nobody_left)


def eta_Q(problem: Problem) -> float:
    """Largest receive scaling below `eta_peak` with asymmetry <= max_asymmetry; inf when the peak itself passes."""
    peak = problem.eta_peak
    if peak is None or problem.asymmetry(peak) <= problem.max_asymmetry:
        return math.inf
    if problem.max_asymmetry == 0:  # as above
        return 0.0
    return last_true(lambda eta: bool(problem.asymmetry(eta) <= problem.max_asymmetry), 0.0, peak)


def upper_end(problem: Problem) -> tuple[float, str]:
    """The first end among dropped weight, asymmetry and the privacy of a single round, and which one it is.

    A target that excludes every scaling (participation 0, a budget below one reward) ends nothing: a grid is still
    wanted to say so.
    """
    ends = {"eps_target": eta_P(problem, rounds=1) or eta_air(problem, rounds=1)}
    if problem.max_dropped > 0:
        ends["max_dropped"] = eta_U(problem)
    if problem.max_asymmetry > 0:
        ends["max_asymmetry"] = eta_Q(problem)
    reason = min(ends, key=ends.__getitem__)
    return ends[reason], reason
