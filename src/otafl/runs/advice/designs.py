"""An experiment without settings, completed: every scheme that designs itself, for this site and this target."""

import math
from typing import Any

import numpy as np

from otafl import clients as client_kinds
from otafl.core.errors import OtaflError
from otafl.privacy import Budget
from otafl.runs import build
from otafl.runs.planning.channel_risk import delta_left
from otafl.runs.planning.facts import Facts
from otafl.runs.schema import Experiment, options_of
from otafl.systems.settings import settings
from otafl.systems.simulated import Options, Refusal

# EEZOFL's message: few scalars instead of a gradient, so that they fit a ring.
OWN_CLIENTS: dict[str, dict[str, Any]] = {
    "eezofl": {"kind": "zero-order", "directions": 64, "clip_norm": 0.2, "batch": 0, "radius": 0.05},
}


def design(experiment: Experiment, scheme: Any, facts: Facts | build.Task) -> Options | Refusal:
    """The scheme's own choice; a refusal in words where it has none."""
    choice = scheme.clients or experiment.clients
    options, factory = client_kinds.KINDS[choice.kind]
    sizes = np.asarray(facts.sizes[0])
    message = factory(options_of(choice, options), facts.model, int(sizes.min())).promise(sizes)
    channel, deployment = build.site_of(experiment, message, sizes)
    privacy = experiment.privacy
    eps = math.inf if privacy.eps is None else privacy.eps
    delta, _ = delta_left(privacy, experiment.channel, experiment.horizon(scheme), experiment.task.clients)
    budget = Budget(eps, delta, privacy.accountant, privacy.accounting, message.adjacency)
    try:
        rounds, seed = experiment.horizon(scheme), experiment.seed_list[0]
        return settings(scheme.name, deployment, message, budget, rounds, channel, seed)
    except OtaflError as refusal:
        return Refusal(str(refusal))
