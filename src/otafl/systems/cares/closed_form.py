"""Closed forms for few drops (CARES App. D): diagnostics beside the certified search, never certificates."""

from otafl.systems.cares.intervals import Union
from otafl.systems.cares.problem import Problem


def low_truncation_terms(problem: Problem) -> tuple[float, float]:
    """(A, D): for few drops the round cost is about A/eta^2 + D eta^2 (CARES App. D)."""
    power = 2 if problem.independent_channels else 1
    slope = float(problem.weights**power @ problem.drop_rate)  # K_LT when power = 1
    return problem.noise_term, problem.truncation_factor * slope


def eta_LT(problem: Problem) -> float:
    """Closed-form minimiser of the low-truncation round cost. A diagnostic: it ignores that rounds cost privacy."""
    noise, truncation = low_truncation_terms(problem)
    return float((noise / truncation) ** 0.25)


def eta_budget(problem: Problem) -> float:
    """The same with the horizon shrinking as 1/eta^2: the initial-gap term is then about I eta^2.

    The cost of a reward adds to that term the same at every eta, and moves nothing.
    """
    noise, truncation = low_truncation_terms(problem)
    per_round = problem.bound_constants.gap * problem.loss_gap / problem.step_size
    gap = per_round * float(problem.air_zcdp(1.0).max()) / problem.zcdp_budget
    return float((noise / (truncation + gap)) ** 0.25)


def low_truncation_design(problem: Problem, union: Union) -> float | None:
    """Projection of `eta_LT` onto one interval; of several projections the best, as the cost has one valley."""
    if not union:
        return None
    noise, truncation = low_truncation_terms(problem)
    centre = eta_LT(problem)
    nearest = [min(max(centre, low), high) for low, high in union]
    return min(nearest, key=lambda eta: (noise / eta**2 + truncation * eta**2, eta))
