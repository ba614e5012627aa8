"""FSK-MV (Sahin): a sign is energy in one of two bins, and the louder bin of all devices together decides.

No device knows a channel and none is inverted; near devices have louder votes. Every device spends the same share of
its energy, E_k/D per coordinate at most. The update is the decided signs at the norm of the clients' bound.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from otafl.core import validate
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, check_bound, stateless
from otafl.systems.noncoherent.energies import refuse_fading
from otafl.systems.noncoherent.uplink import votes


@dataclass(frozen=True)
class Config:
    """`share` of its energy that a device spends; `credit` names the noise that privacy rests on."""

    share: float = 1.0
    credit: Literal["receiver", "fading"] = "receiver"  # "fading" is refused, in words


def fsk_mv(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise. Sensitivity is that of all votes, at record level too."""
    validate.in_left_open("share", config.share, 0, 1)
    refuse_fading(config.credit)
    check_bound(message)
    level = np.sqrt(config.share * np.asarray(deployment.energy, float) / message.dim)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, tuple[()]]:
        tx = np.broadcast_to(level + 0j, obs.coin.shape)
        one = np.ones(tx.shape[:-1])
        return state, Plan(tx, np.zeros_like(tx), always(tx), one, np.ones(tx.shape), one > 0), ()

    uplink = votes(message.bound, message.dim)
    return Policy("fsk-mv", stateless, step, loop="open", csi="none", gate="bound", uplink=uplink)
