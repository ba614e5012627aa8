"""Where the privacy, asymmetry and dropped-weight constraints end on the axis of receive scaling. NumPy, float64."""

import math

from otafl.certify.intervals import last_true
from otafl.certify.problem import Problem

_CERTAIN = 60.0  # 1 - exp(-60) is 1 in float64


def eta_P(problem: Problem, rounds: int) -> float:
    """Largest receive scaling whose `rounds` rounds fit the privacy budget; closed form, as the cost is a square."""
    budget = problem.zcdp_budget
    root = math.sqrt(budget / (rounds * float(problem.zcdp_cost(1.0))))

    def fits(eta: float) -> bool:
        return bool(rounds * problem.zcdp_cost(eta) <= budget)

    return last_true(fits, 0.0, root)  # the root itself, unless rounding puts it one step too far


def eta_U(problem: Problem) -> float:
    """Largest receive scaling with dropped_weight <= max_dropped; inf when that holds even with everybody dropped."""

    def kept(eta: float) -> bool:
        return bool(problem.dropped_weight(eta) <= problem.max_dropped)

    nobody_left = math.sqrt(_CERTAIN / problem.drop_rate_min)
    return math.inf if problem.max_dropped >= 1 or kept(nobody_left) else last_true(kept, 0.0, nobody_left)


def eta_Q(problem: Problem) -> float:
    """Largest receive scaling below `eta_peak` with asymmetry <= max_asymmetry; inf when the peak itself passes."""
    peak = problem.eta_peak
    if peak is None or problem.asymmetry(peak) <= problem.max_asymmetry:
        return math.inf
    return last_true(lambda eta: bool(problem.asymmetry(eta) <= problem.max_asymmetry), 0.0, peak)


def upper_end(problem: Problem) -> tuple[float, str]:
    """The first end among dropped weight, asymmetry and the privacy of a single round, and which one it is.

    A participation target of 0 excludes every scaling and so ends nothing: a grid is still wanted to say so.
    """
    ends = {"eps_target": eta_P(problem, rounds=1)}
    if problem.max_dropped > 0:
        ends["max_dropped"] = eta_U(problem)
    if problem.max_asymmetry > 0:
        ends["max_asymmetry"] = eta_Q(problem)
    reason = min(ends, key=ends.__getitem__)
    return ends[reason], reason
