"""The attack on one scheme: both worlds played, scores taken, and what they show about the charge."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.privacy import audit, participation
from otafl.privacy.by_pld import distinct_rows
from otafl.runs.audit import canaries as worlds
from otafl.runs.audit.canary_clients import message_trials
from otafl.runs.audit.canary_records import record_trials
from otafl.runs.audit.target import Target, Trial, chosen, totals

Tick = Callable[[int], None]  # so many runs more are done


class Canary(NamedTuple):
    """One client, one pattern, all runs."""

    client: int
    pattern: str
    absent: Array  # (n,) scores
    present: Array
    finding: audit.Finding


def attack(target: Target, runs: int, error: float, seed: int = 0, tick: Tick = lambda count: None) -> list[Canary]:
    """Play every pair of worlds `runs` times each; `error` is shared by all tests of this scheme."""
    trials = message_trials(target, seed) if target.records is None else record_trials(target)
    beta = error / sum(audit.statistics(bool(normal)) for trial in trials for normal in trial.normal)
    charges = _charges(target)
    found = []
    for number, trial in enumerate(trials):
        keys = np.random.default_rng([seed, number]).integers(2**31, size=2)
        absent, present = (
            np.concatenate(list(_scores(trial, world, runs, int(key), tick)))
            for world, key in zip((trial.absent, trial.present), keys)
        )
        who = chosen(*totals(target), trial.stage.basis.shape[1])
        for j, client in enumerate(who):
            finding = audit.examine(absent[:, j], present[:, j], charges(client), beta, bool(trial.normal[j]))
            number = int(client if target.ids is None else target.ids[client])
            found.append(Canary(number, trial.pattern, absent[:, j], present[:, j], finding))
    return found


def _scores(trial: Trial, world: worlds.World, runs: int, key: int, tick: Tick) -> Iterator[Array]:
    for seen in worlds.play(trial.stage, world, runs, key):
        tick(len(seen))
        yield trial.score(seen)


def _charges(target: Target) -> Callable[[int], audit.Charge]:
    """The charge of a client; clients with equal rounds share one."""
    rows, where, _ = distinct_rows(target.events, participation.certified(target.accounting), None, ())
    made: dict[int, audit.Charge] = {}

    def charge(client: int) -> audit.Charge:
        row = int(where[client])
        if row not in made:
            made[row] = audit.row_charge(rows[row], target.message.adjacency, float(target.eps[client]), target.delta)
        return made[row]._replace(eps=float(target.eps[client]))

    return charge
