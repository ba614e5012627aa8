"""Can a convergence target be held online over T rounds? Checks before training (CARES App. E.4). NumPy, float64.

The controller's filter starts from conv_left_0 and pays round_cost every round. Two questions are answered in advance:
the necessary conditions (without them the filter empties at once, or the ledger stops the run early) and a sufficient
one at stationary channels (one arm that affords all T rounds in both currencies).
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.systems.cares.arms import check_arms
from otafl.systems.cares.problem import Problem

Held = Literal["infeasible", "necessary", "sufficient"]


class ConvBudget(NamedTuple):
    """conv_left_0 and which conditions hold at the channels as they are now."""

    rounds: int
    conv_target: float
    conv_left_0: float
    round_cost: Floats  # (M,)
    safe: np.ndarray  # (M,) bool: asymmetry and dropped weight within their targets
    necessary: bool
    sufficient: np.ndarray  # (M,) bool: safe arms that hold the target for all rounds on their own
    held: Held
    reasons: tuple[str, ...]  # the necessary conditions that fail


def conv_budget(problem: Problem, arms: ArrayLike, rounds: int, conv_target: float) -> ConvBudget:
    """The feasibility checks; a report, never an exception for a target that cannot be held."""
    validate.whole("rounds", rounds)
    validate.positive("conv_target", conv_target)
    eta = check_arms(arms)
    constants, step = problem.bound_constants, problem.step_size
    gap = constants.gap * problem.loss_gap / (step * rounds)
    left = rounds * (conv_target - gap - constants.variance * step * problem.effective_grad_var)
    cost, privacy, budget = problem.round_cost(eta), rounds * problem.zcdp_cost(eta), problem.zcdp_budget
    safe = (problem.asymmetry(eta) <= problem.max_asymmetry) & (problem.dropped_weight(eta) <= problem.max_dropped)
    reasons = []
    if left <= 0:
        reasons.append(f"conv_left_0={left:.6g} must be > 0: initial gap and gradient variance alone pass the target")
    if not safe.any():
        reasons.append("no arm meets max_asymmetry and max_dropped")
    elif (least := rounds * cost[safe].min()) > left:
        reasons.append(f"rounds*round_cost={least:.6g} at the best arm must be <= conv_left_0={left:.6g}")
    if safe.any() and (dear := privacy[safe].min()) > budget:
        reasons.append(f"rounds*zcdp_cost={dear:.6g} at the cheapest arm must be <= zcdp_budget={budget:.6g}")
    enough = safe & (privacy <= budget) & (rounds * cost <= left) & (left > 0)
    held: Held = "sufficient" if enough.any() else ("infeasible" if reasons else "necessary")
    return ConvBudget(rounds, conv_target, left, cost, safe, not reasons, enough, held, tuple(reasons))
