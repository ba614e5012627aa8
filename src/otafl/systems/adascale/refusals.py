"""A device-side odometer around any open-loop policy: devices refuse what would pass their own budget or power limit.

A refusing device sends nothing, so nothing of it is charged; the others are not re-weighted, so sensitivities stay as
they are and the sum lacks its share. Host, NumPy, float64. Nothing here looks at data.

Privacy unit, adjacency and noise: those of the message and of the deployment's trusted receiver noise.
"""

from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message, Obs, Plan, Policy, around
from otafl.systems.adascale.odometer import Odometer, admit


class State(NamedTuple):
    inner: Any
    spent: Array  # (..., K) RDP at the odometer's order; None before the first round


def silenced(plan: Plan, sending: Array) -> Plan:
    """The plan in which only some devices send (..., K). Where nobody does, the round changes nothing."""
    return plan._replace(
        tx=np.where(sending, plan.tx, 0),
        max_norm=np.where(sending, plan.max_norm, -1.0),
        send_prob=np.where(sending, plan.send_prob, 0.0),
        rx_scale=np.where(sending.any(-1), plan.rx_scale, np.inf),
    )


def with_odometer(policy: Policy, odometer: Odometer, deployment: Deployment, message: Message) -> Policy:
    """The same policy, with every device free to refuse. Its info counts the silent devices where it has the field."""
    if policy.loop != "open":
        raise InputError(f"policy {policy.name!r} runs inside the loop: an odometer guards open-loop policies only")
    if deployment.receiver.antennas > 1:
        raise InputError(
            f"device_rdp: channel.antennas={deployment.receiver.antennas} must be 1: a device cannot count what an "
            "array hears of it by its own gain"
        )

    def init(key: Any) -> State:
        return State(policy.init(key), None)

    def step(state: State, obs: Obs) -> tuple[State, Plan, Any]:
        inner, plan, info = policy.step(state.inner, obs)
        spent = np.zeros(np.shape(plan.tx)) if state.spent is None else state.spent
        willing, spent = admit(odometer, spent, plan.tx, obs.estimate, deployment, message)
        sending = willing & (np.asarray(plan.max_norm) >= 0)
        if hasattr(info, "silent"):
            info = info._replace(silent=(~sending).sum(-1))
        return State(inner, spent), silenced(plan, sending), info

    return around(policy, step, init=init, spans=False)
