"""Following a channel law that changes: when a new rho comes into force. Host, float64."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.systems.cdpb.accounting import Charge
from otafl.systems.cdpb.model import IDLE, Params, Scheme
from otafl.systems.cdpb.paper import PAPER, best_load


class Law(NamedTuple):
    """What the server has broadcast, and what it is still solving for."""

    power: Array  # (K,) mean power gain last noticed; empty before the first round
    rho: float  # in force
    due: int  # round at which the rho of `power` comes into force; -1: it is in force


def unknown() -> Law:
    return Law(np.zeros(0), float("nan"), -1)


def follow(law: Law, round_: int, power: Array, rho_for: Callable[[Array], float], period: int, delay: int) -> Law:
    """One round: look for a change every `period` rounds, put the new rho into force `delay` rounds later (CDPB E24).

    The first round is solved before it starts.
    """
    if law.power.size == 0:
        return Law(np.array(power), rho_for(power), -1)
    if round_ % period == 0 and not np.array_equal(power, law.power):
        law = Law(np.array(power), law.rho, round_ + delay)
    if 0 <= law.due <= round_:
        law = Law(law.power, rho_for(law.power), -1)
    return law


def resolve_on_change(
    params: Params,
    sigma2_seq: Array,
    tau: int,
    period: int = 1,
    delay: int = 0,
    scheme: Scheme = IDLE,
    charge: Charge = PAPER,
) -> Array:
    """rho in force in each round, (T,), for a sequence of fading laws sigma2_seq (T,) or (T, K).

    Each law is solved for the load that is best over tau rounds.
    """
    validate.positive("sigma2_seq", sigma2_seq)
    validate.whole("period", period)
    validate.whole("delay", delay, low=0)

    def rho_for(power: Array) -> float:
        there = params.but(sigma2=float(power[0]) / 2 if power.size == 1 else tuple(power / 2))
        return float(there.rho(best_load(there, tau, scheme, charge)))

    law, out = unknown(), []
    for t, sigma2 in enumerate(np.asarray(sigma2_seq, float)):
        law = follow(law, t, 2 * np.atleast_1d(sigma2), rho_for, period, delay)
        out.append(law.rho)
    return np.array(out)
