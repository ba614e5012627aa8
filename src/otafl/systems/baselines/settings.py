"""What `constant` and `weakest` choose for a site and a privacy target, from plans alone."""

import math

import numpy as np

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.simulated import Bench, Options, Refusal, bench, cost


def spending_scale(at: Bench) -> float:
    """Receive scaling at which all rounds together spend the budget: sqrt(tv) / (wmax sensitivity z).

    The loudest client is charged with its declared gain error; z = sqrt(T / (2 B)) where costs add.
    """
    moved = float(np.max(np.asarray(at.deployment.weights) * at.message.sensitivity))
    loudest = moved * (1 + float(at.deployment.gain_error))
    return math.sqrt(at.deployment.trusted_noise_var) / (loudest * at.multiplier)


def without_trusted_noise(deployment: Deployment) -> Refusal | None:
    if deployment.trusted_noise_var > 0:
        return None
    return Refusal("its only noise is the receiver's, of which nothing is trusted (trusted_noise_var=0)")


def constant(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Spends the budget exactly in `rounds` rounds."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    return {"rx_scale": spending_scale(bench(deployment, message, budget, rounds, channel, seed))}


def weakest(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Costs grow in proportion to energy, so the back-off is one division on simulated channels."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    at = bench(deployment, message, budget, rounds, channel, seed)
    return {"headroom": min(1.0, at.rho / cost("weakest", {"headroom": 1.0}, at))}
