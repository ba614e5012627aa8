"""Does a plan stay within the radios' limits, whatever the clients will have to say? Host, float64."""

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import RunError
from otafl.core.plan import Deployment, Message, Plan
from otafl.core.uplink import ANALOG, Uplink
from otafl.core.validate import first_place
from otafl.privacy.retire import retired

ROUNDING = 1e-9  # relative; policies plan to the limit itself


def planned_energy(plan: Plan, message: Message, uplink: Uplink = ANALOG) -> Array:
    """Most that each client radiates, J, (..., K): data and artificial noise.

    The largest message that passes the gate where the norm is bounded, the mean where only the mean square is.
    """
    gate = np.maximum(np.asarray(plan.max_norm, float), 0.0)
    mean = np.sqrt(np.asarray(message.mean_square, float))
    largest = np.minimum(gate, message.bound) if np.isfinite(message.bound) else mean
    return uplink.energy(plan, largest, np.asarray(plan.max_norm) >= 0, message.dim)


def within_run(plan: Plan, message: Message, joules: float, uplink: Uplink = ANALOG) -> Plan:
    """The plan (T, K) with every client silent in the rounds that would take its run above so many J.

    Who is silent follows from channels and plan alone, so it is public. Later rounds that cost less are sent.
    """
    energy = planned_energy(plan, message, uplink)
    inside = np.zeros(energy.shape, bool)
    spent = np.zeros(energy.shape[-1])
    for t in np.flatnonzero(plan.live):
        inside[t] = spent + energy[t] <= joules
        spent += np.where(inside[t], energy[t], 0.0)
    return retired(plan, inside, keep_noise=False)


def check_energy(
    plan: Plan, live: Array, deployment: Deployment, message: Message, where: str, first: int = 0,
    uplink: Uplink = ANALOG,
) -> None:  # fmt: skip
    """Raise RunError with the round and the client where a plan (T, K) of rounds from `first` on passes a limit."""
    with np.errstate(invalid="ignore"):  # dead rounds may hold anything
        energy = planned_energy(plan, message, uplink)
    _refuse_above(deployment, energy, live, where, first, "" if np.isfinite(message.bound) else " on average")


def check_sent(
    energy: Array, live: Array, deployment: Deployment, message: Message, where: str, first: int = 0
) -> None:
    """The same of what was really sent, J, (T, K): a bounded message never breaks its limit.

    A Poisson sum may in a round; its limit is one on the mean, which `check_energy` holds its plans to.
    """
    if np.isfinite(message.bound):
        _refuse_above(deployment, energy, live, where, first)


def _refuse_above(deployment: Deployment, energy: Array, live: Array, where: str, first: int, kind: str = "") -> None:
    limit = np.broadcast_to(np.asarray(deployment.energy, float), energy.shape)
    over = np.asarray(live, bool)[:, None] & ~(energy <= limit * (1 + ROUNDING))
    if np.any(over):
        round_, client = first_place(over)
        raise RunError(
            f"{where}, round {first + round_}: client {client} would radiate {energy[round_, client]:.6g} J{kind}, "
            f"limit {limit[round_, client]:.6g} J; the policy must scale down or stay silent"
        )
