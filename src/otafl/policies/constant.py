"""One receive scaling for all rounds: clients invert their channel, and stay silent where that costs too much energy.

This is the fixed scaling that CARES compares with under the name OTA-FFL (without that work's fairness weights).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl import validate
from otafl.plan import Array, Context, Deployment, Message, Obs, Plan, Policy, silent_by_bound, silent_by_message


@dataclass(frozen=True)
class Config:
    """`silence="norm"` looks at the message's own norm (CARES (2)); "bound" at the declared bound, which leaks nothing."""

    rx_scale: float = 0.3
    silence: Literal["norm", "bound"] = "bound"


class Info(NamedTuple):
    """Per client."""

    threshold: Array  # gain below which a message at the declared bound is not sent


def truncated_inversion(rx_scale: Any, obs: Obs, deployment: Deployment, message: Message, silence: str) -> tuple[Plan, Array]:
    """The plan of CARES (2)-(4) for a receive scaling of shape (...); also the gain threshold at the declared bound.

    `send_prob` is for Rayleigh fading, where abs(gain)^2 is exponential with mean rms^2.
    """
    weights = np.asarray(deployment.weights, float)
    scale = np.asarray(rx_scale, float)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        tx = np.where(obs.estimate == 0, 0, scale * weights / obs.estimate)  # CARES (3)
    energy = np.asarray(deployment.energy, float)
    threshold = scale * weights * message.bound / np.sqrt(energy)  # CARES (2) at the declared bound
    max_norm = silent_by_message(tx, energy) if silence == "norm" else silent_by_bound(tx, energy, message.bound)
    max_norm = np.where(obs.estimate == 0, -1.0, max_norm)
    send_prob = np.exp(-((threshold / obs.rms) ** 2))
    shape = tx.shape[:-1]
    plan = Plan(tx, np.zeros_like(tx), max_norm, np.broadcast_to(scale[..., 0], shape), send_prob, np.ones(shape, bool))
    return plan, threshold


def constant(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise; every round is charged in full, silent clients included."""
    validate.positive("rx_scale", config.rx_scale)

    def init(key: Any) -> tuple[()]:
        return ()

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        scale = np.full(obs.coin.shape[:-1], config.rx_scale)
        plan, threshold = truncated_inversion(scale, obs, deployment, message, config.silence)
        return state, plan, Info(np.broadcast_to(threshold, obs.coin.shape))

    gate: Literal["message", "bound"] = "message" if config.silence == "norm" else "bound"
    return Policy("constant", init, step, loop="open", csi="own", gate=gate)
