"""FedAvg with Gaussian noise, calibrated so that the horizon just fits the privacy target."""

from dataclasses import dataclass

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless
from otafl.privacy import Budget, calibrate


@dataclass(frozen=True)
class Config:
    """Set `noise_std` yourself, or leave it and it is calibrated to (eps, delta) over the scheme's horizon."""

    noise_std: float | None = None  # of the sum, per real dimension
    eps: float | None = None  # default: the experiment's target
    delta: float | None = None


def fedavg_dp(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Sensitivity: the largest weights_k times the message's; noise is added by the clients in equal parts.

    Calibrated by the accountant and the sampling rates in force: the horizon spends the target, never more.
    """
    weights = np.asarray(deployment.weights, float)
    if config.noise_std is None:
        eps = context.eps if config.eps is None else config.eps
        delta = context.delta if config.delta is None else config.delta
        if not np.isfinite(eps):
            raise InputError("fedavg-dp needs a privacy target: set privacy.eps, or noise_std of the scheme")
        target = Budget(eps, delta, context.accountant, adjacency=message.adjacency)
        std = calibrate(target, context.rounds, message, weights) * float(np.max(weights * message.sensitivity))
    else:
        validate.positive("noise_std", config.noise_std)
        std = config.noise_std

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, tuple[()]]:
        tx = np.broadcast_to(weights + 0j, obs.coin.shape)
        one = np.ones(tx.shape[:-1])
        noise = np.full(tx.shape, std / np.sqrt(len(weights)) + 0j)
        return state, Plan(tx, noise, always(tx), one, 1.0, one > 0), ()

    return Policy("fedavg-dp", stateless, step, loop="open", csi="none", gate="open", uplink="perfect")
