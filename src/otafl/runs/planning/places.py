"""A site and a target as the design rule of one scheme meets them."""

import math
from typing import Any, NamedTuple

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.runs import build
from otafl.runs.planning.channel_risk import delta_left
from otafl.runs.planning.facts import Facts
from otafl.runs.schema import Experiment


class Place(NamedTuple):
    """From facts that are public under the adjacency; the arguments of a rule of `systems.settings`, in their order."""

    deployment: Deployment
    message: Message
    budget: Budget
    rounds: int
    channel: Channel
    seed: int


def place_of(experiment: Experiment, scheme: Any, task: build.Task | Facts) -> Place:
    """Of the first seed's roster."""
    privacy, rounds, sizes = experiment.privacy, experiment.horizon(scheme), task.sizes[0]
    message = build.clients_of(experiment, scheme, task).promise(sizes)
    channel, deployment = build.site_of(experiment, message, sizes)
    delta, _ = delta_left(privacy, experiment.channel, rounds, experiment.task.clients)
    eps = math.inf if privacy.eps is None else privacy.eps
    budget = Budget(eps, delta, privacy.accountant, privacy.accounting, message.adjacency)
    return Place(deployment, message, budget, rounds, channel, experiment.seed_list[0])
