"""Certified initialisation on a grid of receive scalings (CARES 3, Algorithm 1 lines 1-9). NumPy, float64.

Every arm is judged at the horizon its own privacy cost allows. Nothing here raises for an empty answer: the report
says which constraint fails where, and by how much.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.bounds.budget import countable, horizons
from otafl.bounds.convergence import ConvBound
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.core.plan import NO_CERTIFICATE
from otafl.systems.cares.closed_form import eta_budget
from otafl.systems.cares.constraint_ends import upper_end
from otafl.systems.cares.problem import Problem

Constraint = Literal["conv_target", "eps_target", "max_asymmetry", "max_dropped"]
CONSTRAINTS: tuple[Constraint, ...] = ("conv_target", "eps_target", "max_asymmetry", "max_dropped")
NEAR = 0.9  # where the grid starts if not even its end spends the budget
LOST = 1e4  # drop rate of one client over the median from which it, not the units, explains a grid too far down


class Arms(NamedTuple):
    """Everything that is known about each arm, (M,) unless noted."""

    rx_scale: Floats
    zcdp_cost: Floats
    horizon: np.ndarray  # rounds that fit the budget, int
    conv_bound: ConvBound  # at that horizon
    drop_prob: Floats  # (M, K)
    dropped_weight: Floats
    asymmetry: Floats
    eps_at_horizon: Floats  # spent by exactly `horizon` rounds
    informative: np.ndarray  # bool: the bound says more than ||grad F||^2 <= G^2


class Verdict(NamedTuple):
    """Arms against targets. Constraints run along the last axis in the order of `CONSTRAINTS`."""

    passes: np.ndarray  # (M, 4) bool
    margin: Floats  # (M, 4) target - value, in the target's own unit (privacy: zCDP left after one round)
    usage: Floats  # (M, 4) value / target
    binding: list[Constraint]  # (M,) the constraint with the largest usage
    feasible: np.ndarray  # (M,) bool: F_H


class Certificate(NamedTuple):
    """The answer of the certifier."""

    label: str  # "certified", or `NO_CERTIFICATE` on everything that follows from an empty F_H
    arms: Arms
    verdict: Verdict
    zcdp_budget: float
    conv_target: float
    conv_target_given: bool
    init: int | None  # index of the chosen arm
    warnings: tuple[str, ...]

    @property
    def eta_init(self) -> float | None:
        return None if self.init is None else float(self.arms.rx_scale[self.init])

    @property
    def feasible(self) -> bool:
        return bool(self.verdict.feasible.any())


def check_arms(arms: ArrayLike) -> Floats:
    """A grid of receive scalings: non-empty, positive, strictly ascending."""
    grid = np.asarray(arms, float)
    validate.positive("arms", grid)
    validate.ascending("arms", grid)
    return grid


def evaluate_arms(problem: Problem, arms: ArrayLike) -> Arms:
    """Costs, horizons, envelopes and convergence bounds of every arm."""
    eta = check_arms(arms)
    budget, cost = problem.zcdp_budget, problem.zcdp_cost(eta)
    rounds = horizons(budget, cost)
    bound = problem.conv_bound(eta, rounds)
    return Arms(
        eta,
        cost,
        rounds,
        bound,
        problem.drop_prob(eta),
        problem.dropped_weight(eta),
        problem.asymmetry(eta),
        problem.eps_of(rounds * cost),
        problem.informative(bound.total),
    )


def judge(problem: Problem, arms: Arms, conv_target: float) -> Verdict:
    """Which arm meets which target, by what margin."""
    values = np.stack([arms.conv_bound.total, arms.zcdp_cost, arms.asymmetry, arms.dropped_weight], -1)
    targets = np.array([conv_target, problem.zcdp_budget, problem.max_asymmetry, problem.max_dropped])
    passes = values <= targets
    passes[:, 0] &= arms.horizon >= 1  # an infinite bound never passes, not even an infinite target
    with np.errstate(divide="ignore", invalid="ignore"):
        usage = np.where(values == targets, 1.0, values / targets)
        margin = np.where(values == targets, 0.0, targets - values)
    binding: list[Constraint] = [CONSTRAINTS[i] for i in np.argmax(usage, -1)]
    return Verdict(passes, margin, usage, binding, np.asarray(passes.all(-1)))


def certify(
    problem: Problem, arms: ArrayLike, conv_target: float | None = None, diagnostic: bool = False
) -> Certificate:
    """Feasible arms F_H and the one with the smallest convergence bound at its own horizon.

    conv_target: level for the bound; None takes twice the smallest bound on the grid, as the paper does.
    diagnostic: with F_H empty go on from the median arm, everything labelled `NO_CERTIFICATE`.
    """
    table = evaluate_arms(problem, arms)
    bound = table.conv_bound.total
    if conv_target is not None:
        validate.positive("conv_target", conv_target)
    target = float(2 * bound.min()) if conv_target is None else float(conv_target)
    verdict = judge(problem, table, target)
    init: int | None = None
    if verdict.feasible.any():
        init = int(np.argmin(np.where(verdict.feasible, bound, np.inf)))  # first of equals: the smaller arm
    elif diagnostic:
        init = len(bound) // 2  # an arm, never a midpoint between two
    return Certificate(
        "certified" if verdict.feasible.any() else NO_CERTIFICATE,
        table,
        verdict,
        problem.zcdp_budget,
        target,
        conv_target is not None,
        init,
        problem.warnings + _warnings(problem, table, verdict, init),
    )


def _warnings(problem: Problem, table: Arms, verdict: Verdict, init: int | None) -> tuple[str, ...]:
    found = []
    if init is None or not verdict.feasible.any():
        return ()
    eta, count = float(table.rx_scale[init]), len(table.rx_scale)
    if count > 1 and init in (0, count - 1):
        edge = "lower" if init == 0 else "upper"
        end, reason = upper_end(problem)
        why = f"; beyond it {reason} ends at {end:.6g}" if init and eta > 0.99 * end else "; try arms='auto'"
        found.append(f"optimum at grid edge: rx_scale={eta:.6g} is the {edge} end of the arms{why}")
    if not table.informative[init]:
        found.append(
            f"the convergence bound {table.conv_bound.total[init]:.4g} is not informative: clipping alone gives "
            f"||grad F||^2 <= {problem.clip_norm**2:.4g}; it still ranks the arms"
        )
    return tuple(found)


def auto_grid(problem: Problem, num_arms: int = 25, eta_min: float | None = None, rounds: int | None = None) -> Floats:
    """Geometric grid from eta_min to where the first of dropped weight, asymmetry and privacy (one round) ends.

    eta_min defaults to a tenth of the smaller of that end and `eta_budget`, so that the optimum lies well inside.
    Arms that could not spend the budget in `rounds` rounds are left out: their certificate is for a longer run.
    """
    validate.whole("num_arms", num_arms, 2)
    end, reason = upper_end(problem)
    end *= 1 - 1e-12  # inside the set also when arrays round differently from scalars
    start = min(end, eta_budget(problem)) / 10 if eta_min is None else eta_min
    validate.positive("eta_min", start)
    validate.in_open("eta_min", start, 0, end)
    if eta_min is None:
        _refuse_lost_client(problem, start, reason)
    start = start if rounds is None else _within(problem, rounds, start, end)
    grid = np.geomspace(start, end, num_arms)
    grid[0], grid[-1] = start, end
    return grid


def _within(problem: Problem, rounds: int, start: float, end: float) -> float:
    """The first arm between start and end whose rounds spend the budget within the horizon; near the end if none."""
    per_round = np.maximum(problem.zcdp_budget / rounds - problem.reward_zcdp(), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a client without weight spends nothing
        spending = float(np.nanmin(np.sqrt(per_round / problem.air_zcdp(1.0))))  # zCDP grows with the scaling squared
    return max(start, NEAR * end if spending >= end else spending * (1 - 1e-9))


def _refuse_lost_client(problem: Problem, start: float, reason: str) -> None:
    """One client beyond reach pushes the whole grid to where rounds cost next to nothing: say which one."""
    if countable(problem.zcdp_budget, problem.zcdp_cost(start)):
        return
    rate = problem.drop_rate
    worst, usual = int(np.argmax(rate)), float(np.median(rate))
    if rate[worst] > LOST * usual:
        raise InputError(
            f"channel_scale[{worst}]={float(problem.channel_scale[worst])!r} is so weak for its weight and power that "
            f"arms='auto' would start at rx_scale={start:.3g} (end of {reason}), where rounds cost too little to be "
            f"counted; leave client {worst} out, raise its power, or give arms"
        )
