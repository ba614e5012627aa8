"""What a run of very many clients cost, as one exact sum per client instead of every round of everybody. Host, float64.

Costs of zero-concentrated privacy add. An exact sum is kept as a few doubles per client whose true sum is the true sum
of all costs so far, so that `math.fsum` of them is `math.fsum` of the costs: the same eps to the bit, whatever the
blocks of rounds in which they came. What a privacy card says besides (whose noise, phases, the least multiplier) is
kept as maxima. A Poisson-sampled round is charged as one without sampling; accountants that need every round refuse.
"""

import math
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Bools, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import participation, zcdp
from otafl.privacy.events import leak_of, pick
from otafl.privacy.zcdp import two_sum

SPLIT = 2.0**27 + 1


def grown(terms: Floats, row: Floats) -> Floats:
    """Terms (E, K), smallest first, with a row (K,) added exactly; rows that are zero for everybody are dropped.

    Shewchuk's expansions: grow by one, then sweep the parts together so that few are left.
    """
    carried, rest = row, []
    for term in terms:
        carried, lost = two_sum(carried, term)
        rest.append(lost)
    swept: list[Floats] = []
    for term in reversed(rest):  # from the largest down: what fits is taken up, the remainder goes on
        carried, lost = two_sum(carried, term)
        swept.append(carried)
        carried = lost
    kept = [part for part in [carried, *reversed(swept)] if np.any(part)]
    return np.stack(kept) if kept else np.zeros((1, row.size))


class Sums(NamedTuple):
    """Everything a ledger of sums knows about its rounds. K clients, E terms."""

    terms: Floats  # (E, K) zCDP costs without amplification: their exact sum is the cost
    bare: Bools  # (K,) a message of this client arrived without noise: its cost is infinite
    rate: Floats  # (K,)
    sensitivity: Floats  # (K,)
    rounds: int = 0  # live ones
    least_multiplier: float = np.inf
    receiver: bool = False  # whether trusted receiver noise was there
    artificial: bool = False  # whether artificial noise was
    leak_angle: float = 0.0  # rad, the largest
    quiet: bool = False  # whether phases leaked where no receiver noise was trusted

    @property
    def clients(self) -> int:
        return self.rate.size

    @property
    def sampled(self) -> bool:
        return bool(np.any((self.rate > 0) & (self.rate < 1)))

    def add(self, events: Events, accounting: str = "none", colluders: Array = None) -> "Sums":
        """These rounds too, (T, K)."""
        new = self
        for t in np.flatnonzero(events.live):
            new = new.add_round(events, int(t), accounting, colluders)
        return new

    def add_round(self, events: Events, t: int, accounting: str = "none", colluders: Array = None) -> "Sums":
        """One live round of a block too."""
        for name in ("rate", "sensitivity"):
            if not np.array_equal(getattr(events, name), getattr(self, name)):
                raise InputError(f"{name} changed between two rounds of one run; use one ledger per setting")
        if accounting not in participation.CERTIFIED:
            raise InputError(f"accounting={accounting!r} needs every round; a ledger of sums keeps none")
        square = participation.charged(pick(events, slice(t, t + 1)), accounting, colluders)[0] * (events.rate > 0)
        bare = np.isinf(square)
        largest, angle = float(np.max(square)), float(leak_of(events)[t])
        return self._replace(
            terms=grown(self.terms, zcdp.cost(np.where(bare, 0.0, square))),
            bare=self.bare | bare,
            rounds=self.rounds + 1,
            least_multiplier=min(self.least_multiplier, 1 / math.sqrt(largest) if largest > 0 else np.inf),
            receiver=self.receiver or bool(events.receiver_var[t] > 0),
            artificial=self.artificial or bool(np.any(events.artificial_var[t] > 0)),
            leak_angle=max(self.leak_angle, angle),
            quiet=self.quiet or (angle > 0 and bool(events.receiver_var[t] == 0)),
        )

    def beside(self, cost: Array, times: int) -> "Sums":
        """A release of this zCDP cost (K,), so many times: the sum of as many equal numbers, exactly."""
        cost = np.broadcast_to(np.asarray(cost, np.float64), self.rate.shape)
        high = (cost * SPLIT) - (cost * SPLIT - cost)  # Veltkamp: products of halves with a whole number are exact
        terms = self.terms
        for half in (high, cost - high):
            for count in (times >> 26 << 26, times & (1 << 26) - 1):
                terms = grown(terms, half * count)
        return self._replace(terms=terms)

    def zcdp(self) -> Floats:
        """(K,) total cost of every client, correctly rounded."""
        total = self.terms.sum(0)  # of two terms the sum is rounded once
        if len(self.terms) > 2:
            long = np.flatnonzero(np.any(self.terms[:-2] != 0, axis=0))
            total[long] = [math.fsum(column) for column in self.terms[:, long].T.tolist()]
        return np.where(self.bare, np.inf, total)

    def worst(self, beside: Array = 0.0) -> float:
        """The largest total, to the last few bits; `beside`: what else each client has spent, () or (K,)."""
        return float(np.max(np.where(self.bare, np.inf, self.terms.sum(0) + beside)))

    def within(self, cap: float) -> bool:
        """Whether every client's total, correctly rounded, is at most the cap."""
        return bool(np.max(self.zcdp()) <= cap)


def check_sums(sums: Sums, clients: int) -> None:
    """InputError where these are no sums of so many clients."""
    for name in ("bare", "rate", "sensitivity"):
        validate.shape(f"sums: {name}", getattr(sums, name), (clients,))
    if np.ndim(sums.terms) != 2 or np.shape(sums.terms)[1] != clients or sums.bare.dtype != bool:
        raise InputError(f"sums have terms of shape {np.shape(sums.terms)} but this ledger has {clients} clients")
    validate.finite("sums: terms", sums.terms)
    validate.not_negative("sums: cost", np.where(sums.bare, 0.0, sums.zcdp()))
    validate.in_closed("sums: rate", sums.rate, 0, 1)
    validate.not_negative("sums: sensitivity", sums.sensitivity)
    validate.whole("sums: rounds", sums.rounds, 0)
    validate.in_closed("sums: least_multiplier", sums.least_multiplier, 0, np.inf)
    validate.not_negative("sums: leak_angle", sums.leak_angle)


def no_rounds(rate: Array, sensitivity: Array) -> Sums:
    """The sums of a run that has not begun."""
    rate, sensitivity = (np.array(value, np.float64) for value in (rate, sensitivity))
    validate.in_closed("rate", rate, 0, 1)
    validate.not_negative("sensitivity", sensitivity)
    return Sums(np.zeros((1, rate.size)), np.zeros(rate.size, bool), rate, sensitivity)
