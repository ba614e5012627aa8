"""The privacy target of a scheme: what an earlier run and the channel leave of it, and the cap. Host, float64."""

from typing import NamedTuple

import numpy as np

from otafl.channels import Channel
from otafl.core.plan import Message
from otafl.privacy import Budget
from otafl.runs.planning.channel_risk import delta_left
from otafl.runs.planning.prior_spend import eps_left
from otafl.runs.schema import Experiment, Privacy


class Left(NamedTuple):
    """What policies, planners and design rules plan with; the ledgers cap the whole."""

    eps: float | None  # None: no target
    delta: float  # that accountants may use
    missed: float  # of the declared delta: what a channel may do beyond its declaration

    @property
    def target(self) -> float:
        return np.inf if self.eps is None else self.eps


def left_of(privacy: Privacy, channel: Channel, rounds: int, clients: int, private: bool = True) -> Left:
    """A reference without privacy has spent nothing: all of eps is left."""
    delta, missed = delta_left(privacy, channel, rounds, clients)
    eps = eps_left(privacy.model_copy(update={"delta": delta}), clients) if private else privacy.eps
    return Left(eps, delta, missed)


def with_target(experiment: Experiment, left: Left) -> Experiment:
    """The experiment as policies and planners see it."""
    privacy = experiment.privacy.model_copy(update={"eps": left.eps, "delta": left.delta})
    return experiment.model_copy(update={"privacy": privacy})


def budget_of(privacy: Privacy, capped: bool, left: Left, message: Message, adaptive: bool) -> Budget:
    """The cap of one scheme, what an earlier run has spent included."""
    return Budget(
        eps=(privacy.eps or np.inf) if capped else np.inf,
        delta=left.delta,
        accountant=privacy.accountant,
        accounting=privacy.accounting,
        adjacency=message.adjacency,
        adaptive=adaptive,
        order=privacy.order,
        unit=message.unit,
        missed=left.missed,
    )
