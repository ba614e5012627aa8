"""REED: numbers travel as energies of two bins, and the server takes the difference. No channel is inverted.

    E_k+- = gamma p_k x_k+- / rms_k^2;   update = (e+ - e-) / gamma,  unbiased over fading

Devices know their mean gain. Energy goes by the L1 norm, gamma p_k norm1(x_k) / rms_k^2, so gamma is limited by
sqrt(D) G of the weakest device.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from otafl.core import validate
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, check_bound, stateless
from otafl.systems.noncoherent.energies import energy_scale, refuse_fading
from otafl.systems.noncoherent.uplink import differences


@dataclass(frozen=True)
class Config:
    """`share` of the largest gamma that all energies allow; `credit` names the noise that privacy rests on."""

    share: float = 1.0
    credit: Literal["receiver", "fading"] = "receiver"  # "fading" is refused, in words


def energy_difference(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise; a change is charged by its L1 norm, at most sqrt(D) of its L2 norm."""
    validate.in_left_open("share", config.share, 0, 1)
    refuse_fading(config.credit)
    check_bound(message)
    weights, energy = np.asarray(deployment.weights, float), np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, tuple[()]]:
        scale = np.array([energy_scale(energy, rms, weights, message.bound, message.dim)
                          for rms in obs.rms.reshape(-1, obs.rms.shape[-1])])  # fmt: skip
        scale = config.share * scale.reshape(obs.rms.shape[:-1])
        tx = np.sqrt(scale[..., None] * weights) / obs.rms + 0j
        plan = Plan(tx, np.zeros_like(tx), always(tx), scale, np.ones(tx.shape), np.ones(scale.shape, bool))
        return state, plan, ()

    uplink = differences(message.bound, message.dim)
    return Policy("energy-difference", stateless, step, loop="open", csi="statistical", gate="bound", uplink=uplink)
