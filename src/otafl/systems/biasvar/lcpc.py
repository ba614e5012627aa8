"""LCPC: truncated channel inversion to one common level, scaled for least mean squared error. Host, NumPy, float64.

The paper names this baseline without a formula; ours is the minimum over the level gamma and the post-scale xi of

    MSE / G^2 = sum P_m (gamma xi - w_m)^2 + sum (1 - P_m) w_m^2 + n_f d N_0 xi^2 / G^2
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, check_bound, stateless
from otafl.systems.biasvar.design import check, params_from_rho
from otafl.systems.biasvar.policy import radio, truncated_plan
from otafl.systems.biasvar.yardsticks import design_lcpc
from otafl.systems.remembered import once_per_row


@dataclass(frozen=True)
class Config:
    """`unit_sum` undoes the shrinkage of a least-squares estimate: mean weights then sum to 1."""

    noise_factor: float = 0.5
    unit_sum: bool = False


class Info(NamedTuple):
    """Per client."""

    mean_weight: Array  # (..., K) E[c_m]
    sends: Array  # (..., K) bool


def lcpc(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """It shrinks (sum of mean weights below 1): tune the step size per scheme, or set `unit_sum`."""
    check_bound(message)
    par = params_from_rho(0.0, message.bound, noise_factor=config.noise_factor, weights=deployment.weights)
    check(radio(np.ones_like(deployment.energy, float), deployment), par)

    def design(rms: Array) -> tuple[Array, Array, Array]:
        found = [design_lcpc(radio(row, deployment), par) for row in rms]
        gamma, xi, prob = (np.array([getattr(one, name) for one in found]) for name in ("gamma", "xi", "tx_prob"))
        alpha = gamma * prob.sum(-1) if config.unit_sum else 1 / xi
        return np.broadcast_to(gamma[:, None], prob.shape), alpha, prob

    levels = once_per_row(design)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        gamma, alpha, prob = levels(obs.rms)
        plan = truncated_plan(gamma, alpha, prob, obs, deployment, message)
        return state, plan, Info(gamma * prob / alpha[..., None], plan.max_norm >= 0)

    return Policy("lcpc", stateless, step, loop="open", csi="own", gate="bound")
