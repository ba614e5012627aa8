"""What a device keeps track of by itself: the Renyi leakage of its own records, and its power. Host, float64.

A device need not trust the server's receive scaling. It knows what it is asked to transmit, its own channel and the
receiver noise it trusts; from these follows what the round would cost its records, at one Renyi order fixed in advance.
It refuses a round that would pass its own budget or its power limit: it then sends nothing, which costs nothing. The
decision looks at channels and scalings only, never at data, and a sum of costs at one fixed order is a valid filter
even against a server that chooses later scalings after seeing earlier rounds.

Unit: one record of the device, under the message's adjacency. Whose noise: the receiver's trusted part.
"""

from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Bools, Floats
from otafl.core.plan import Deployment, Message
from otafl.privacy.moments import sampled_gaussian_log_moment
from otafl.systems.adascale.leakage import MAX_ALPHA

MARGIN = 1e-12  # relative: a ledger adds the same costs in another order
POWER_ROUNDING = 1e-12  # relative, of products of a few doubles


class Odometer(NamedTuple):
    """One per fleet; every device has its own line in it."""

    budget: Floats  # () or (K,) cap on the RDP at `order`
    order: int

    @classmethod
    def checked(cls, budget: Any, order: Any) -> "Odometer":
        validate.positive("device_rdp", budget)
        validate.whole("device_order", order, 2, MAX_ALPHA)
        return cls(np.asarray(budget, float), int(order))


def round_cost(order: int, amplitude: Any, deployment: Deployment, message: Message) -> Floats:
    """RDP at `order` of one round in which messages arrive with these amplitudes: (..., K) -> (..., K)."""
    validate.positive("trusted_noise_var", deployment.trusted_noise_var)
    reach = np.asarray(amplitude, float) * (1 + deployment.gain_error) * np.asarray(message.sensitivity, float)
    moment = sampled_gaussian_log_moment(message.rate, reach**2 / deployment.trusted_noise_var, order)
    return np.asarray(moment.value) / (order - 1)


def admit(
    odometer: Odometer, spent: Any, tx: Any, estimate: Any, deployment: Deployment, message: Message
) -> tuple[Bools, Floats]:
    """Who takes part if asked to transmit with `tx`, and what everyone has spent afterwards: (..., K), (..., K)."""
    tx = np.asarray(tx)
    after = spent + round_cost(odometer.order, np.abs(estimate * tx), deployment, message)
    energy = np.abs(tx) ** 2 * message.mean_square
    willing = (after <= odometer.budget * (1 - MARGIN)) & (energy <= deployment.energy * (1 + POWER_ROUNDING))
    return willing, np.where(willing, after, spent)


def guard(odometer: Odometer, tx: Any, estimate: Any, deployment: Deployment, message: Message) -> tuple[Bools, Floats]:
    """A whole run, tx and estimate (..., T, K): who took part (..., T, K), and the odometers at the end (..., K)."""
    tx, estimate = np.broadcast_arrays(np.asarray(tx), np.asarray(estimate))
    spent, part = np.zeros((*tx.shape[:-2], tx.shape[-1])), np.empty(tx.shape, bool)
    for t in range(tx.shape[-2]):
        part[..., t, :], spent = admit(odometer, spent, tx[..., t, :], estimate[..., t, :], deployment, message)
    return part, spent
