"""The step size by rule: s over the noise that a plan leaves in the model, at most eight clip norms in one round."""

import math
from itertools import accumulate
from typing import Any

import numpy as np

from otafl.bounds import merit
from otafl.core.arrays import Array
from otafl.core.plan import Link, Message
from otafl.runs.schema import Experiment
from otafl.runs.schema.blocks import Server
from otafl.runs.server import server_of


def step_size(
    experiment: Experiment, scheme: Any, link: Link, live: Array, message: Message, num_params: int,
    scale: float | None = None,
) -> float:  # fmt: skip
    """For the rounds of `link` that are `live`. If they are a part of the horizon, the others are taken to be alike."""
    heard = np.where(np.asarray(link.max_norm) >= 0, link.weight, 0.0)[live].sum(-1)
    sent = heard[heard > 0]  # a round that is skipped moves nothing, and must not make the others' step longer
    spread, reach = _lift(experiment.client_choice(scheme), num_params)
    horizon = experiment.horizon(scheme)
    stays = spread * math.sqrt(horizon / len(live)) * lasting(server_of(experiment, scheme), horizon)
    bound = math.sqrt(float(np.max(message.mean_square))) * (float(np.mean(sent)) if sent.size else 1.0) * reach
    return merit.step_size(np.asarray(link.noise_std)[live] * stays, bound, is_linear(experiment), scale)


def lasting(server: Server, rounds: int) -> float:
    """How far what was received once has moved the model in the end, per unit of step; root mean square over rounds.

    >>> lasting(Server(), 100)
    1.0
    >>> 9 < lasting(Server(momentum=0.9), 100) < 10
    True
    """
    fade = (1.0 + np.arange(rounds)) ** -server.step_decay
    pulls = list(accumulate(fade[::-1], lambda later, own: own + server.momentum * later))  # last round first
    return float(np.sqrt(np.mean(np.square(pulls))))


def is_linear(experiment: Experiment) -> bool:
    return experiment.task.model.name in ("logistic", "binary-logistic")


def _lift(choice: Any, num_params: int) -> tuple[float, float]:
    """From message to model: factor of the noise per coordinate, and of the norm. Scalars take random directions."""
    if choice.kind != "zero-order":
        return 1.0, 1.0
    return 1 / math.sqrt(choice.directions), math.sqrt(num_params) / choice.directions
