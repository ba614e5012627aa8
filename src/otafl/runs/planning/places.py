"""A site and a target as the design rule of one scheme meets them."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from otafl import systems
from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.runs import build
from otafl.runs.planning.facts import Facts
from otafl.runs.planning.left import left_of
from otafl.runs.schema import Experiment
from otafl.runs.sites import site_of
from otafl.runs.streamed.choice import DEVICE_ROUNDS, goes_by


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
    channel, deployment = site_of(experiment, message, sizes)
    private = systems.SCHEMES[scheme.name].private
    left = left_of(privacy, experiment.channel, rounds, experiment.task.clients, private)
    budget = Budget(left.target, left.delta, privacy.accountant, privacy.accounting, message.adjacency)
    place = Place(deployment, message, budget, rounds, channel, experiment.seed_list[0])
    return _in_part(place, max(1, DEVICE_ROUNDS // experiment.task.clients)) if goes_by(experiment) else place


def _in_part(place: Place, most: int) -> Place:
    """As many rounds as are kept in memory, under their share of the budget. Rules choose; they charge nothing."""
    rounds, convert = min(place.rounds, most), place.budget.counted.convert
    if convert is None or math.isinf(place.budget.eps):
        return place._replace(rounds=rounds)
    eps = float(convert(np.float64(place.budget.zcdp * rounds / place.rounds), place.budget.delta))
    return place._replace(rounds=rounds, budget=dataclasses.replace(place.budget, eps=eps))
