"""Ideal FedAvg: the weighted mean of all messages, without noise and without silence. The yardstick."""

from dataclasses import dataclass

import numpy as np

from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless


@dataclass(frozen=True)
class Config:
    """Nothing to set: clipping stays in force, everything else is ideal."""


def fedavg(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """No privacy: the server sees the exact sum (epsilon is infinite)."""

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, tuple[()]]:
        tx = np.broadcast_to(deployment.weights + 0j, obs.coin.shape)
        one = np.ones(tx.shape[:-1])
        return state, Plan(tx, np.zeros_like(tx), always(tx), one, 1.0, one > 0), ()

    return Policy("fedavg", stateless, step, loop="open", csi="none", gate="open", uplink="perfect")
