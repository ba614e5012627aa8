"""What accountants take and give: releases beside the air, and what a run cost. Host, float64."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import participation

ADJACENCIES = ("add-remove", "replace", "zero-out")


class Release(NamedTuple):
    """A Gaussian release beside the air: a noisy reward, a pilot count. Charged like a round, without sampling."""

    name: str
    sensitivity: Array  # () or (K,) L2 change under the ledger's unit and adjacency
    noise_std: float
    times: int = 1

    def square(self, clients: int) -> Array:
        """1/z^2 of one occurrence, (K,)."""
        validate.not_negative(f"release {self.name!r} sensitivity", self.sensitivity)
        if np.ndim(self.sensitivity):
            validate.shape(f"release {self.name!r} sensitivity", self.sensitivity, (clients,))
        validate.positive(f"release {self.name!r} noise_std", self.noise_std)
        validate.whole(f"release {self.name!r} times", self.times)
        return np.broadcast_to((np.asarray(self.sensitivity, np.float64) / self.noise_std) ** 2, (clients,))


class Terms(NamedTuple):
    """How a run is to be counted, by whichever accountant."""

    delta: float
    adjacency: str = "add-remove"
    accounting: str = "none"  # what silence is worth
    colluders: Array = None  # (K,) bool: clients whose noise does not count for the others
    releases: Sequence[Release] = ()  # beside the air


def release_square(releases: Sequence[Release], clients: int) -> Array:
    """Sum of 1/z^2 over all occurrences of all releases, (K,): Gaussian releases without sampling are one."""
    return sum((r.times * r.square(clients) for r in releases), np.zeros(clients))


def with_rounds(each_round: Sequence[Release], events: Events) -> list[Release]:
    """Releases that accompany every live round of one run (T, K), as often as it has such rounds."""
    live = int(np.sum(events.live))
    return [r._replace(times=r.times * live) for r in each_round] if live else []


class Spend(NamedTuple):
    """What a run cost by one accountant."""

    eps: Array  # (..., K) per client
    worst: Array  # (...) the guarantee of the system: a unit lives at one client
    mean: Array  # (...)
    delta: float
    accountant: str
    accounting: str
    certified: bool  # False: a design value, or infinite, and no guarantee
    notes: tuple[str, ...]


def make_spend(name: str, eps: Array, terms: Terms, notes: Sequence[str]) -> Spend:
    """The spend of an accountant from eps (..., K); certified where participation allows it and eps is finite."""
    certified = terms.accounting in participation.CERTIFIED
    if not certified:
        notes = [*notes, f"participation '{terms.accounting}' is a design value, not a certificate (CDPB E13b)"]
    worst = np.max(eps, -1)
    finite = bool(np.all(np.isfinite(worst)))
    sure = certified and finite
    return Spend(eps, worst, np.mean(eps, -1), terms.delta, name, terms.accounting, sure, tuple(notes))


def check_run(events: Events, terms: Terms) -> None:
    """What every accountant asks of its input."""
    validate.in_open("delta", terms.delta, 0, 1)
    validate.one_of("adjacency", terms.adjacency, ADJACENCIES)
    validate.one_of("accounting", terms.accounting, participation.ACCOUNTINGS)
    if np.ndim(events.amp) < 2:
        raise InputError(f"events have shape {np.shape(events.amp)} but need axes (rounds, clients)")


def sampled(events: Events) -> bool:
    """Whether a client's unit is left out of some rounds by Poisson sampling."""
    return bool(np.any((events.rate > 0) & (events.rate < 1)))
