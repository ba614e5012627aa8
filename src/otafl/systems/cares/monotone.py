"""Corollary 2.3: does the certificate at a fixed horizon fall on the whole interval? Decided, not sampled."""

from collections.abc import Callable

import numpy as np

from otafl.bounds.envelopes import drop_prob
from otafl.core.arrays import Floats
from otafl.systems.cares.problem import Problem

_CELLS = 256


def is_upper_interval(problem: Problem, eta_min: float, eta_max: float) -> bool | None:
    """Corollary 2.3: is the certificate at fixed T non-increasing on the whole interval, so that C is [eta_C, eta_max]?

    True is a proof (every cell is bounded from above), False has a witness, None means neither was found.
    """
    if problem.antennas > 1 or problem.local_steps > 1:
        return None  # decided for (8) alone
    edges = np.geomspace(eta_min, eta_max, _CELLS + 1)
    low, high = edges[:-1, None], edges[1:, None]
    rate, limit = problem.drop_rate, 2 * problem.noise_term

    def climb(eta: Floats) -> Floats:  # eta^3 times the derivative of q_k; rises up to eta^2 = 2/rate
        return 2 * rate * eta**4 * np.exp(-rate * eta**2)

    with np.errstate(divide="ignore"):
        summit = np.sqrt(2 / rate)
    upper = climb(np.clip(summit, low, high)) @ problem.weights
    exact = climb(edges[:, None]) @ problem.weights
    if problem.independent_channels:
        upper, exact = _climb_of_square(problem, climb, summit, edges)
    if np.all(problem.truncation_factor * upper <= limit):
        return True
    return False if np.any(problem.truncation_factor * exact > limit) else None


def _climb_of_square(
    problem: Problem, climb: Callable[[Floats], Floats], summit: Floats, edges: Floats
) -> tuple[Floats, Floats]:
    """The same for the derivative of `dropped_square`, where q_k' has the factor p_k (p_k (1 - 2 q_k) + 2 E[S])."""
    weights = problem.weights
    prob = drop_prob(edges, problem.drop_rate)
    mass = (prob @ weights)[:, None]
    exact = (climb(edges[:, None]) * weights * (weights * (1 - 2 * prob) + 2 * mass)).sum(-1)
    factor = weights * (weights * (1 - 2 * prob[:-1]) + 2 * mass[1:])
    upper = (climb(np.clip(summit, edges[:-1, None], edges[1:, None])) * factor).sum(-1)
    return upper, exact
