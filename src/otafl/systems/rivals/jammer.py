"""A cooperative jammer: a device without data whose artificial noise hides the others' messages.

Clients of weight 0 jam, and so do the last `jammers` of the others, which give up their data and leave the aggregate.
The jammer turns its phase onto the messages'; what its phase error lets a server see that keeps both parts is charged
(radio (C3)). It must not collude, and a second antenna nulls it: an array is charged by its whole covariance.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, stateless
from otafl.core.uplink import ANALOG
from otafl.systems.rivals.seif import aligned
from otafl.systems.rivals.split import jammed
from otafl.systems.rivals.target import round_multiplier

REMARK = "a jammer's artificial noise is counted: eps holds only if no jammer colludes with the server"


@dataclass(frozen=True)
class Config:
    """`share` of its energy that a jammer spends on noise in every round."""

    jammers: int = 1  # clients, counted from the last, that jam instead of learning; those of weight 0 always do
    share: float = 1.0


class Info(NamedTuple):
    """Per round."""

    jam: Array  # received variance of the jammers' noise, per real dimension


def roles(weights: Array, jammers: int) -> tuple[Array, Array]:
    """Weights (K,) of those that send data, adding up to 1, and who jams (K,) bool."""
    validate.whole("jammers", jammers, 0)
    jams = np.asarray(weights, float) <= 0
    jams[np.flatnonzero(~jams)[::-1][:jammers]] = True
    if np.all(jams) or not np.any(jams):
        raise InputError(
            f"jammers={jammers} of {len(jams)} clients: there must be a jammer and somebody with data; a client of "
            "weight 0 jams too"
        )
    data = np.where(jams, 0.0, weights)
    return data / data.sum(), jams


def jammer(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Privacy noise: the trusted receiver noise and the jammers'. Messages are as loud as both allow."""
    validate.in_left_open("share", config.share, 0, 1)
    weights, jams = roles(np.asarray(deployment.weights, float), config.jammers)
    multiplier = round_multiplier("jammer", deployment._replace(weights=weights), message, context)
    energy, size = np.asarray(deployment.energy, float), np.sqrt(np.asarray(message.mean_square, float))
    noise_energy = np.where(jams, config.share * energy, 0.0)
    site = {"energy": energy, "weights": weights, "bound": size, "dim": deployment.dim}

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        split = jammed(obs.estimate, **site, trusted_noise_var=deployment.trusted_noise_var, multiplier=multiplier,
                       sensitivity=message.sensitivity, noise_energy=noise_energy)  # fmt: skip
        plan = aligned(np.sqrt(split.square), weights, np.sqrt(split.shares), obs.estimate)
        silent = np.broadcast_to(jams, plan.tx.shape)
        plan = plan._replace(max_norm=np.where(silent, -1.0, np.inf), send_prob=np.where(silent, 0.0, 1.0))
        return state, plan, Info(split.artificial)

    # An array brings its own account of the noise that it leaves.
    uplink: Any = ANALOG._replace(assumed=(REMARK,)) if deployment.receiver.antennas == 1 else "analog"
    return Policy("jammer", stateless, step, loop="open", csi="global", gate="bound", uplink=uplink)
