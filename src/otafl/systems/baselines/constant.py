"""One receive scaling for all rounds: clients invert their channel, and stay silent where that costs too much energy.

This is the fixed scaling that CARES compares with under the name OTA-FFL (without that work's fairness weights).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import (
    Context,
    Deployment,
    Message,
    Obs,
    Plan,
    Policy,
    namespace,
    silent_by_bound,
    silent_by_message,
    stateless,
)


@dataclass(frozen=True)
class Config:
    """`silence="norm"` looks at the message's own norm (CARES (2)), "bound" at the declared bound and leaks nothing."""

    rx_scale: float = 0.3
    silence: Literal["norm", "bound"] = "bound"


class Info(NamedTuple):
    """Per client."""

    threshold: Array  # gain below which a message at the declared bound is not sent


def truncated_inversion(
    rx_scale: Array, weights: Array, energy: Array, obs: Obs, message: Message, silence: str
) -> tuple[Plan, Array]:
    """The plan of CARES (2)-(4) for a receive scaling of shape (...); also the gain threshold at the declared bound.

    `send_prob` is for Rayleigh fading, where abs(gain)^2 is exponential with mean rms^2.
    """
    xp = namespace(obs.estimate)
    scale = xp.asarray(rx_scale)[..., None]
    faded = obs.estimate == 0
    tx = xp.where(faded, 0, scale * weights / xp.where(faded, 1, obs.estimate))  # CARES (3)
    threshold = scale * weights * message.bound / xp.sqrt(energy)  # CARES (2) at the declared bound
    max_norm = silent_by_message(tx, energy) if silence == "norm" else silent_by_bound(tx, energy, message.bound)
    max_norm = xp.where(faded, -1.0, max_norm)
    send_prob = xp.exp(-((threshold / obs.rms) ** 2))
    shape = tx.shape[:-1]
    plan = Plan(tx, xp.zeros_like(tx), max_norm, xp.broadcast_to(scale[..., 0], shape), send_prob, xp.ones(shape, bool))
    return plan, threshold


def constant(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise; every round is charged in full, silent clients included."""
    validate.positive("rx_scale", config.rx_scale)
    weights, energy = np.asarray(deployment.weights, float), np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        scale = np.full(obs.coin.shape[:-1], config.rx_scale)
        plan, threshold = truncated_inversion(scale, weights, energy, obs, message, config.silence)
        return state, plan, Info(np.broadcast_to(threshold, obs.coin.shape))

    gate: Literal["message", "bound"] = "message" if config.silence == "norm" else "bound"
    return Policy("constant", stateless, step, loop="open", csi="own", gate=gate)
