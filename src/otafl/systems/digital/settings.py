"""What the digital rivals choose for a site and a privacy target, from plans alone."""

import math

import numpy as np

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.baselines.settings import HEARD, without_trusted_noise
from otafl.systems.digital.votes import vote_sensitivity
from otafl.systems.simulated import Options, Refusal, bench, best, trial

BACKED_OFF = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.14, 0.1)


def obda(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Votes so loud that all rounds spend the budget; quieter where energy is short."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    at = bench(deployment, message, budget, rounds, channel, seed)
    moved = vote_sensitivity(message.dim, message.unit, message.adjacency) * (1 + float(deployment.gain_error))
    vote = math.sqrt(deployment.trusted_noise_var / deployment.noise_var) / (moved * at.multiplier)
    if trial("obda", {"vote": vote}, at).heard >= HEARD * min(1.0, math.sqrt(2 / np.pi) * vote * at.devices):
        return {"vote": vote}
    return best("obda", [{"vote": vote * factor} for factor in (1.0, *BACKED_OFF)], at)


def orthogonal(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """The noise follows from the experiment's target; eight bits are below it."""
    return {"bits": 8}
