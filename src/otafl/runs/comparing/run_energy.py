"""Settings under a budget of energy for the whole run, by one search for all schemes: on simulated channels, no data.

A scheme has two ways to spend less: to send more softly, as if its privacy target were a smaller one, and to be silent
in bad channels, by a lower limit of a round. Both are inputs of every scheme's own rule; the pair with the largest
learning signal is taken. A scheme whose options have `joules` is told the budget itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from otafl import systems
from otafl.core.errors import OtaflError
from otafl.core.uplink import uplink_of
from otafl.privacy import Budget
from otafl.runs.planning.energy import within_run
from otafl.runs.sites import limited
from otafl.systems.simulated import Bench, Options, Refusal, planned, trial

LIMITS = (3.0, 10.0)  # of a round, in units of the run's energy over its rounds
SOFTER = 0.5  # factor of the privacy target from one try to the next
FINER = (0.71, 1.41)  # around the best one
TRIES = 16

Rule = Callable[[float | None, Budget], Options | Refusal]  # limit of a round, target -> options


class Found(NamedTuple):
    """The best of a search."""

    snr: float
    options: Options
    max_energy: float | None  # own limit of a round
    share: float  # of the privacy target that it was set for


def told(scheme: str, joules: float) -> Options | None:
    """Options of a scheme that plans with the energy of a run by itself."""
    config = systems.scheme(scheme).config
    return {"joules": joules} if "joules" in {field.name for field in fields(config)} else None


def settings(scheme: str, rule: Rule, at: Bench, joules: float) -> Options | Refusal:
    """Options of the scheme, with an own limit of a round among them where one is better; as an experiment says it."""
    if (own := told(scheme, joules)) is not None:
        return own
    plain = rule(None, at.budget)
    if isinstance(plain, Refusal) or not uplink_of(planned(scheme, plain, at)[0]).radio:
        return plain
    found = search(scheme, rule, at, joules)
    if isinstance(found, Refusal):
        return found
    return found.options if found.max_energy is None else {**found.options, "max_energy": found.max_energy}


def search(scheme: str, rule: Rule, at: Bench, joules: float) -> Found | Refusal:
    """Over limits of a round and softer targets."""
    largest = float(np.max(at.deployment.energy))
    limits = [None, *(factor * joules / at.rounds for factor in LIMITS if factor * joules / at.rounds < largest)]
    tried = [found for limit in limits for found in _softer(scheme, rule, at, joules, limit)]
    if not tried:
        return Refusal("no setting is heard within the energy of the run")
    coarse = max(tried, key=lambda found: found.snr)
    shares = [coarse.share * factor for factor in FINER if coarse.share * factor <= 1]
    near = [_one(scheme, rule, at, joules, coarse.max_energy, share) for share in shares]
    return max([coarse, *(found for found in near if found is not None)], key=lambda found: found.snr)


def _softer(scheme: str, rule: Rule, at: Bench, joules: float, limit: float | None) -> Iterator[Found]:
    """Tries with ever smaller targets until the signal falls; one alone where costs do not add."""
    best, share = 0.0, 1.0
    for _ in range(TRIES if at.budget.counted.additive else 1):
        found = _one(scheme, rule, at, joules, limit, share)
        if found is not None:
            yield found
            if found.snr < best:
                return
            best = found.snr
        share *= SOFTER


def _one(scheme: str, rule: Rule, at: Bench, joules: float, limit: float | None, share: float) -> Found | None:
    site = limited(at.deployment, limit)
    try:
        options = rule(limit, softened(at.budget, share))
        if isinstance(options, Refusal):
            return None
        kept = trial(scheme, options, at._replace(deployment=site), lambda plan: within_run(plan, at.message, joules))
        return Found(kept.snr, options, limit, share)
    except OtaflError:
        return None


def softened(budget: Budget, share: float) -> Budget:
    """A target of so much of the budget's additive cost."""
    if share == 1 or budget.counted.convert is None:
        return budget
    return replace(budget, eps=float(budget.counted.convert(share * budget.zcdp, budget.delta)))
