"""What the digital rivals choose for a site and a privacy target, from plans alone."""

import math
from typing import Any

import numpy as np

from otafl.systems.baselines.settings import HEARD
from otafl.systems.digital.votes import vote_sensitivity
from otafl.systems.simulated import Bench, Options, Refusal, best, on_bench, trial

BACKED_OFF = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.14, 0.1)


@on_bench
def obda(at: Bench) -> Options | Refusal:
    """Votes so loud that all rounds spend the budget; quieter where energy is short."""
    message, site = at.message, at.deployment
    moved = vote_sensitivity(message.dim, message.unit, message.adjacency) * (1 + float(site.gain_error))
    vote = math.sqrt(site.trusted_noise_var / site.noise_var) / (moved * at.multiplier)
    if trial("obda", {"vote": vote}, at).heard >= HEARD * min(1.0, math.sqrt(2 / np.pi) * vote * at.devices):
        return {"vote": vote}
    return best("obda", [{"vote": vote * factor} for factor in (1.0, *BACKED_OFF)], at)


def orthogonal(*site: Any) -> Options:
    """The noise follows from the experiment's target; eight bits are below it."""
    return {"bits": 8}
