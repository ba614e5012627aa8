"""When no arm is feasible: the least change of each single target that would make one feasible. NumPy, float64.

All answers keep the other three targets and the grid as they are, with the convergence target at its resolved value.
"""

import math
from typing import NamedTuple

import numpy as np

from otafl.systems.cares.arms import CONSTRAINTS, Certificate, Constraint
from otafl.systems.cares.problem import Problem


class Relaxation(NamedTuple):
    """`target` alone raised to `value` makes `rx_scale` feasible; value None: no value of it does.

    conv_target: where no convergence target was given, the level that has to be stated with a new eps_target, since
    the default follows the horizons, which follow eps; None elsewhere.
    """

    target: Constraint
    value: float | None
    rx_scale: float | None
    conv_target: float | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"no value of {self.target} alone makes an arm feasible"
        held = "" if self.conv_target is None else f" with conv_target = {rounded_up(self.conv_target)}"
        return f"feasible if {self.target} >= {rounded_up(self.value)}{held} (then rx_scale={self.rx_scale:.6g})"


class NearestArm(NamedTuple):
    """The arm whose worst violation is smallest, and all targets that it would need."""

    rx_scale: float
    worst_usage: float
    needs: dict[Constraint, float]


def rounded_up(value: float) -> str:
    """Six digits, never less than the value: what is printed must be enough when typed in.

    >>> rounded_up(0.41000860486), rounded_up(250.0)
    ('0.410009', '250')
    """
    text = f"{value:.6g}"
    if float(text) < value:
        unit = 10.0 ** (math.floor(math.log10(value)) - 5)
        text = f"{float(text) + unit:.6g}"
    return text


def relaxations(problem: Problem, certificate: Certificate) -> list[Relaxation]:
    """One entry per target, in the order of `CONSTRAINTS`."""
    arms, passes = certificate.arms, certificate.verdict.passes
    needed = {
        "conv_target": np.where(arms.horizon >= 1, arms.conv_bound.total, np.inf),
        "eps_target": eps_needed(problem, certificate),
        "max_asymmetry": arms.asymmetry,
        "max_dropped": arms.dropped_weight,
    }
    found = [_cheapest(name, needed[name], _others(passes, i), arms.rx_scale) for i, name in enumerate(CONSTRAINTS)]
    return [_with_held_target(problem, certificate, one) for one in found]


def _with_held_target(problem: Problem, certificate: Certificate, found: Relaxation) -> Relaxation:
    if found.target != "eps_target" or found.rx_scale is None or certificate.conv_target_given:
        return found
    level = certificate.conv_target  # infinite where no arm affords a round: then the bound of that one round
    if math.isinf(level):
        level = float(problem.conv_bound(found.rx_scale, 1).total) * (1 + 1e-9)
    return found._replace(conv_target=level)


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


def reward_alone(problem: Problem) -> str | None:
    """A sentence where no receive scaling helps, because one reward already costs more than the whole budget."""
    cost = float(problem.reward_zcdp().max())
    if cost <= problem.zcdp_budget:
        return None
    return (
        f"one reward at reward_noise={problem.reward_noise:g} costs zCDP {cost:.4g} at {problem.granularity} level, "
        f"more than the budget {problem.zcdp_budget:.4g} of eps_target={problem.eps_target:g}; raise reward_noise "
        "or use reward_data='public'"
    )


def nearest_arm(problem: Problem, certificate: Certificate) -> NearestArm:
    """For when no single relaxation helps: the arm that misses its targets by the smallest worst factor."""
    arms, verdict = certificate.arms, certificate.verdict
    worst = verdict.usage.max(-1)
    best = int(np.argmin(worst))
    eta = float(arms.rx_scale[best])
    rounds = np.maximum(arms.horizon, 1)
    needs: dict[Constraint, float] = {  # of whole columns, as `certify` computes them: scalars may round differently
        "conv_target": float(problem.conv_bound(arms.rx_scale, rounds).total[best]),
        "eps_target": float(problem.eps_of(arms.zcdp_cost)[best]) * (1 + 1e-9),
        "max_asymmetry": float(arms.asymmetry[best]),
        "max_dropped": float(arms.dropped_weight[best]),
    }
    missed = {name for name, ok in zip(CONSTRAINTS, verdict.passes[best], strict=True) if not ok}
    return NearestArm(eta, float(worst[best]), {name: value for name, value in needs.items() if name in missed})
