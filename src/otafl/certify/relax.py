"""When no arm is feasible: the least change of each single target that would make one feasible. NumPy, float64.

All answers keep the other three targets and the grid as they are, with the convergence target at its resolved value.
"""

import math
from typing import NamedTuple

import numpy as np

from otafl.certify.arms import CONSTRAINTS, Certificate, Constraint
from otafl.certify.problem import Problem


class Relaxation(NamedTuple):
    """`target` alone raised to `value` makes `rx_scale` feasible; value None: no value of it does."""

    target: Constraint
    value: float | None
    rx_scale: float | None

    def __str__(self) -> str:
        if self.value is None:
            return f"no value of {self.target} alone makes an arm feasible"
        return f"feasible if {self.target} >= {self.value:.6g} (then rx_scale={self.rx_scale:.6g})"


class NearestArm(NamedTuple):
    """The arm whose worst violation is smallest, and all targets that it would need."""

    rx_scale: float
    worst_usage: float
    needs: dict[Constraint, float]


def relaxations(problem: Problem, certificate: Certificate) -> list[Relaxation]:
    """One entry per target, in the order of `CONSTRAINTS`."""
    arms, passes = certificate.arms, certificate.verdict.passes
    needed = {
        "conv_target": np.where(arms.horizon >= 1, arms.conv_bound.total, np.inf),
        "eps_target": eps_needed(problem, certificate),
        "max_asymmetry": arms.asymmetry,
        "max_dropped": arms.dropped_weight,
    }
    return [_cheapest(name, needed[name], _others(passes, i), arms.rx_scale) for i, name in enumerate(CONSTRAINTS)]


def _others(passes: np.ndarray, index: int) -> np.ndarray:
    """Arms that meet every other target. A larger eps also buys rounds, so `eps_needed` judges convergence itself."""
    left_out = {CONSTRAINTS.index("eps_target"): [0, 1]}.get(index, [index])
    return np.asarray(np.delete(passes, left_out, axis=-1).all(-1))


def _cheapest(name: Constraint, needed: np.ndarray, others: np.ndarray, rx_scale: np.ndarray) -> Relaxation:
    needed = np.where(others, needed, np.inf)
    best = int(np.argmin(needed))
    if not math.isfinite(needed[best]):
        return Relaxation(name, None, None)
    return Relaxation(name, float(needed[best]), float(rx_scale[best]))


def eps_needed(problem: Problem, certificate: Certificate) -> np.ndarray:
    """Smallest eps_target, (M,), at which each arm can afford enough rounds for the convergence target; inf if none."""
    arms, bound = certificate.arms, certificate.arms.conv_bound
    room = certificate.conv_target - (bound.grad_variance + bound.channel_noise + bound.truncation)
    per_round = problem.bound_constants.gap * problem.loss_gap / problem.step_size
    possible = (room > 0) | ((room == 0) & (per_round == 0))
    rounds = np.maximum(np.ceil(per_round / np.where(room > 0, room, np.inf)), 1.0)
    rounds += problem.conv_bound(arms.rx_scale, rounds).total > certificate.conv_target  # rounding left it just above
    eps = problem.eps_of(rounds * arms.zcdp_cost) * (1 + 1e-9)  # the way back from eps to a budget rounds too
    return np.where(possible, eps, np.inf)


def nearest_arm(problem: Problem, certificate: Certificate) -> NearestArm:
    """For when no single relaxation helps: the arm that misses its targets by the smallest worst factor."""
    arms, verdict = certificate.arms, certificate.verdict
    worst = verdict.usage.max(-1)
    best = int(np.argmin(worst))
    eta = float(arms.rx_scale[best])
    rounds = max(int(arms.horizon[best]), 1)
    needs: dict[Constraint, float] = {
        "conv_target": float(problem.conv_bound(eta, rounds).total),
        "eps_target": float(problem.eps_of(arms.zcdp_cost[best])) * (1 + 1e-9),
        "max_asymmetry": float(arms.asymmetry[best]),
        "max_dropped": float(arms.dropped_weight[best]),
    }
    missed = {name for name, ok in zip(CONSTRAINTS, verdict.passes[best], strict=True) if not ok}
    return NearestArm(eta, float(worst[best]), {name: value for name, value in needs.items() if name in missed})
