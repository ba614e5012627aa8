"""Full channel inversion: everybody arrives with its weight, so the weakest device sets the receive scaling."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless


@dataclass(frozen=True)
class Config:
    """`headroom` < 1 leaves part of the energy unused."""

    headroom: float = 1.0


class Info(NamedTuple):
    """Per round."""

    weakest: Array  # the device that sets the scale


def weakest(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Under Rayleigh fading the mean of the resulting noise is infinite: look at quantiles."""
    validate.in_left_open("headroom", config.headroom, 0, 1)
    weights = np.asarray(deployment.weights, float)
    # Poisson messages have no norm bound; their energy limit is one on the mean (AdaScale (14)).
    size = np.sqrt(np.asarray(message.mean_square, float))

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(
                weights > 0,
                np.abs(obs.estimate) * np.sqrt(config.headroom * deployment.energy) / (weights * size),
                np.inf,
            )
        scale = np.min(reach, axis=-1)
        faded = scale == 0  # a device at gain zero cannot be inverted: nobody sends, the update is zero
        tx = np.where(faded[..., None], 0, scale[..., None] * weights / np.where(obs.estimate == 0, 1, obs.estimate))
        plan = Plan(tx, np.zeros_like(tx), always(tx), np.where(faded, np.inf, scale), 1.0, np.ones_like(faded))
        return state, plan, Info(np.argmin(reach, axis=-1))

    return Policy("weakest", stateless, step, loop="open", csi="global", gate="open")
