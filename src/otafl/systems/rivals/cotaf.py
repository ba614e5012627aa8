"""COTAF with a public schedule: model changes are scaled up as they shrink, by what the steps allow them to be.

The published scale sqrt(E / max_k E norm(Delta_k)^2) is measured on data. A public one follows from the clients' own
bound: with L local steps of size alpha_t and gradients of norm at most G, norm(Delta_k) <= B_t = alpha_t L G, and the
scale is sqrt(E) / B_t. Identity: the message of a round is then sqrt(E)/G times the pseudo-gradient Delta_k /
(alpha_t L), whatever alpha_t: constant scaling, at one privacy cost per round that does not fall with the step.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, stateless
from otafl.systems.baselines.constant import Info, truncated_inversion


@dataclass(frozen=True)
class Config:
    """Devices whose gain is below `threshold` times its root mean square stay silent; the limit of the worst counts."""

    threshold: float = 0.3
    schedule: Literal["public", "measured"] = "public"


def precoding(steps: Array, local_steps: int, bound: float, energy: float) -> tuple[Floats, Floats]:
    """(B_t, sqrt(E)/B_t), (T,) each, of local steps alpha_t: the bound on a model change and its public scale.

    >>> bounds, scales = precoding(np.array([0.1, 0.05]), 5, 2.0, 9.0)
    >>> bounds.tolist(), scales.tolist(), (scales * np.array([0.1, 0.05]) * 5).round(12).tolist()
    ([1.0, 0.5], [3.0, 6.0], [1.5, 1.5])
    """
    validate.positive("steps", steps)
    validate.whole("local_steps", local_steps)
    bounds = np.asarray(steps, np.float64) * local_steps * bound
    return np.asarray(bounds), np.asarray(np.sqrt(energy) / bounds)


def receive_scale(rms: Array, energy: Array, weights: Array, bound: float, threshold: float) -> Floats:
    """rx_scale (...) at which the worst device sends from `threshold` times its rms gain on: of the pseudo-gradient."""
    weights = np.asarray(weights, np.float64)
    with np.errstate(divide="ignore"):
        each = np.sqrt(np.asarray(energy, np.float64)) * np.asarray(rms, np.float64) / (weights * bound)
    return np.asarray(threshold * np.min(np.where(weights > 0, each, np.inf), axis=-1))


def cotaf(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise. Messages are pseudo-gradients, so the step size does not enter."""
    validate.positive("threshold", config.threshold)
    if config.schedule == "measured":
        raise InputError(
            "schedule='measured' is refused: the scale sqrt(E / max E norm(Delta)^2) is data, and nothing charges it; "
            "use schedule='public'"
        )
    weights, energy = np.asarray(deployment.weights, float), np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        scale = receive_scale(obs.rms, energy, weights, message.bound, config.threshold)
        plan, threshold = truncated_inversion(scale, weights, energy, obs, message, "bound")
        return state, plan, Info(np.broadcast_to(threshold, obs.coin.shape))

    return Policy("cotaf", stateless, step, loop="open", csi="own", gate="bound")
