"""Seif, Tandon and Li: aligned messages, and the rest of the energy as artificial noise where that is needed.

Every round has the noise multiplier that spends the privacy target in the horizon. The artificial noise of all clients
adds up with the part of the receiver's noise that is trusted; counting others' noise is no local privacy.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless
from otafl.systems.rivals.split import power_split
from otafl.systems.rivals.target import round_multiplier


@dataclass(frozen=True)
class Config:
    """`multiplier`: noise over sensitivity of every round; None spends the experiment's target in the horizon."""

    multiplier: float | None = None


class Info(NamedTuple):
    """Per round."""

    artificial: Array  # received variance of the artificial noise, per real dimension


def seif(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Privacy noise: the trusted receiver noise and the clients' own. Planned for exact channels: declared errors are
    charged on top (radio (C3)) and cost rounds."""
    if config.multiplier is not None:
        validate.positive("multiplier", config.multiplier)
    multiplier = config.multiplier or round_multiplier("seif", deployment, message, context)
    weights, size = np.asarray(deployment.weights, float), np.sqrt(np.asarray(message.mean_square, float))
    site = {"energy": deployment.energy, "weights": weights, "bound": size, "dim": deployment.dim}

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        split = power_split(obs.estimate, **site, trusted_noise_var=deployment.trusted_noise_var,
                            sensitivity=message.sensitivity, multiplier=multiplier)  # fmt: skip
        plan = aligned(np.sqrt(split.square), weights, np.sqrt(split.shares), obs.estimate)
        return state, plan, Info(split.artificial)

    return Policy("seif", stateless, step, loop="open", csi="global", gate="open")


def aligned(amplitude: Array, weights: Array, noise_std: Array, estimate: Array) -> Plan:
    """Messages arrive with amplitude c_t p_k, artificial noise with `noise_std` (..., K), all in phase."""
    inverse = np.where(estimate == 0, 0, 1 / np.where(estimate == 0, 1, estimate))
    tx = amplitude[..., None] * weights * inverse
    scale = np.where(amplitude > 0, amplitude, np.inf)  # a client at gain zero: nobody sends, the update is zero
    return Plan(tx, noise_std * inverse, always(tx), scale, np.ones(tx.shape), np.ones(scale.shape, bool))
