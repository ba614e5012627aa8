"""Where the privacy, asymmetry and dropped-weight constraints end on the axis of receive scaling. NumPy, float64."""

import math
from collections.abc import Callable

from otafl.certify.intervals import last_true
from otafl.certify.problem import Problem


def eta_P(problem: Problem, rounds: int) -> float:
    """Largest receive scaling whose `rounds` rounds fit the privacy budget; closed form, as the cost is a square."""
    budget, unit_cost = problem.zcdp_budget, float(problem.zcdp_cost(1.0))
    end = math.sqrt(budget / (rounds * unit_cost))
    while rounds * float(problem.zcdp_cost(end)) > budget:  # rounding may put the root one step too far
        end = math.nextafter(end, 0.0)
    return end


def eta_U(problem: Problem) -> float:
    """Largest receive scaling with dropped_weight <= max_dropped; inf when nothing is asked."""
    if problem.max_dropped >= 1:
        return math.inf

    def kept(eta: float) -> bool:
        return bool(problem.dropped_weight(eta) <= problem.max_dropped)

    return last_true(kept, 0.0, _doubled_until_false(kept, problem))


def eta_Q(problem: Problem) -> float:
    """Largest receive scaling below `eta_peak` with asymmetry <= max_asymmetry; inf when the peak itself passes."""
    peak = problem.eta_peak
    if peak is None or problem.asymmetry(peak) <= problem.max_asymmetry:
        return math.inf
    return last_true(lambda eta: bool(problem.asymmetry(eta) <= problem.max_asymmetry), 0.0, peak)


def _doubled_until_false(test: Callable[[float], bool], problem: Problem) -> float:
    high = 1 / math.sqrt(problem.drop_rate_max)
    while test(high):
        high *= 2
    return high


def upper_end(problem: Problem) -> tuple[float, str]:
    """The first end among dropped weight, asymmetry and the privacy of a single round, and which one it is."""
    ends = {
        "max_dropped": eta_U(problem),
        "max_asymmetry": eta_Q(problem),
        "eps_target": eta_P(problem, rounds=1),
    }
    reason = min(ends, key=ends.__getitem__)
    return ends[reason], reason
