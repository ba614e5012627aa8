"""The ledger of one run: what was released, what it cost, and the refusal of the round that would pass the cap.

It stores events, not results, so any accountant can recount them later; of very many clients it stores exact sums
(`sums`), which the accountants with additive costs count to the same eps. Costs that add (`zcdp`, `zcdp-optimal`,
`gaussian`) are summed correctly rounded and compared with the cap without tolerance: how a run was cut into chunks
changes nothing. A budget is a cap (CARES E20): where a policy looks at the training, the cap is the guarantee, and
what was realised is only "spent".
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import BudgetExceeded, InputError
from otafl.core.plan import Events, frozen
from otafl.privacy import participation, rdp, zcdp
from otafl.privacy.accountants import ACCOUNTANTS, Accountant, account, release_costs, round_costs, spend_of_sums
from otafl.privacy.by_rdp import RdpTotal, rdp_total
from otafl.privacy.events import checked, join, no_events, pick
from otafl.privacy.spend import ADJACENCIES, Release, Spend, sampled, with_rounds
from otafl.privacy.sums import Sums, no_rounds

# rdp and pld add floats in an order that depends on the chunks: plans stay this much (relative) below the cap.
PLANNING_MARGIN = 1e-12
_ADDITIVE = ", ".join(name for name, entry in ACCOUNTANTS.items() if entry.additive)


@dataclass(frozen=True)
class Budget:
    """A cap (eps, delta), how it is counted, and for which neighbours.

    `adaptive`: the policy may look at the training. Then only accountants with a filter theorem are accepted: those
    with additive costs, and `rdp` at one `order` fixed in advance.
    """

    eps: float
    delta: float
    accountant: str = "zcdp"
    accounting: str = "none"
    adjacency: str = "add-remove"
    adaptive: bool = False
    order: float | None = None
    colluders: tuple[int, ...] = ()
    unit: str | None = None  # whose data differ between neighbours; None: not told
    missed: float = 0.0  # chance that a channel passes what it was declared to do: not in delta, see `holds_at`

    def __post_init__(self) -> None:
        validate.in_left_open("eps", self.eps, 0, np.inf)  # inf: nothing is capped, everything is counted
        validate.in_open("delta", self.delta, 0, 1)
        validate.not_negative("missed", self.missed)
        validate.one_of("accountant", self.accountant, ACCOUNTANTS)
        validate.one_of("accounting", self.accounting, participation.ACCOUNTINGS)
        validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        if self.accounting not in self.counted.supports:
            raise InputError(
                f"accountant {self.accountant!r} does not support accounting={self.accounting!r}; use 'rdp'"
            )
        if self.accounting == "hidden" and self.unit == "record":
            raise InputError("accounting='hidden' needs unit='client': a client's other records tell that it sends")
        if self.order is not None:
            validate.in_left_open("order - 1", self.order - 1, 0, 1e6)
            if self.accountant != "rdp":
                raise InputError(f"order={self.order:g} belongs to accountant='rdp', not to {self.accountant!r}")
        if self.adaptive and self.counted.adaptive == "none":
            raise InputError(
                f"accountant {self.accountant!r} has no filter for adaptive runs; use 'zcdp', 'gaussian' or 'rdp' "
                "with an order"
            )
        if self.adaptive and self.counted.adaptive == "order" and self.order is None:
            raise InputError(
                f"an adaptive run with accountant {self.accountant!r} needs one order fixed in advance: set order "
                "(privacy.order)"
            )

    def __str__(self) -> str:
        return f"eps={self.eps:g}, delta={self.holds_at:g} ({self.accountant})"

    @property
    def holds_at(self) -> float:
        """The delta at which eps holds, whatever the channel does."""
        return self.delta + self.missed

    @property
    def counted(self) -> Accountant:
        """The accountant itself."""
        return ACCOUNTANTS[self.accountant]

    @cached_property
    def zcdp(self) -> float:
        """The zCDP cap of accountants with additive costs, and of `rdp` at its one order, without sampling."""
        if np.isinf(self.eps):
            return np.inf
        if self.order is not None:
            return max(0.0, float(rdp.rdp_budget(self.eps, self.delta, self.orders)[0])) / self.order
        if self.counted.cap is None:
            raise InputError(f"accountant {self.accountant!r} has no single additive cap")
        return float(self.counted.cap(self.eps, self.delta))

    @property
    def orders(self) -> Array:
        return np.asarray(rdp.ORDERS if self.order is None else (self.order,), np.float64)


@dataclass
class Ledger:
    """Events and releases of one run under a budget.

    >>> import numpy as np
    >>> from otafl.core.plan import Events
    >>> ones = np.ones((400, 1))
    >>> run = Events(0.8 * ones, 0 * ones, ones > 0, ones, np.full(400, 0.05**2), ones[:, 0] > 0, np.ones(1),
    ...              np.array([0.09]))
    >>> ledger = Ledger(Budget(eps=500.0, delta=1e-5), clients=1)
    >>> int(ledger.affordable(run).sum())
    356
    """

    budget: Budget
    clients: int
    parts: list[Events] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    sums: Sums | None = None  # of rounds that are not among the parts
    _counted: int = field(default=0, init=False)  # parts that are in the running total, accountant 'rdp' only
    _rdp: RdpTotal | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        validate.whole("clients", self.clients)
        if any(not 0 <= k < self.clients for k in self.budget.colluders):
            raise InputError(f"colluders={self.budget.colluders} must be client numbers below {self.clients}")

    @property
    def events(self) -> Events:
        """Everything spent so far as one run."""
        return join(self.parts)

    @property
    def colluders(self) -> Array:
        return None if not self.budget.colluders else np.isin(np.arange(self.clients), self.budget.colluders)

    @property
    def sampled(self) -> bool:
        """Whether any client's unit was left out of rounds by Poisson sampling."""
        return any(map(sampled, self.parts)) or (self.sums is not None and self.sums.sampled)

    def besides(self, events: Events | None, releases: Sequence[Release] = ()) -> "Ledger":
        """A ledger that holds these rounds (T, K) and releases too; nothing is checked or spent."""
        parts = self.parts if events is None else [*self.parts, events]
        return Ledger(self.budget, self.clients, [*parts], [*self.releases, *releases], sums=self.sums)

    def rounds(self) -> int:
        """Live rounds charged so far."""
        return int(sum(np.sum(part.live) for part in self.parts)) + (0 if self.sums is None else self.sums.rounds)

    def affordable(self, events: Events, each_round: Sequence[Release] = ()) -> Array:
        """`live` of the events, cleared from the first round on that would pass the cap: (T,) or (S, T).

        Open-loop planning: every leading index is a run of its own that starts from what this ledger has spent.
        `each_round` are releases that accompany every live round.
        """
        events = checked(events, self.clients)
        self._refuse_other_setting(events)
        live = np.array(events.live, bool)
        for index in np.ndindex(live.shape[:-1]):
            run = pick(events, index)
            rounds = self._fitting(run, each_round)
            live[(*index, slice(rounds, None))] = False
        return live

    def spend(self, events: Events, each_round: Sequence[Release] = ()) -> None:
        """Record a chunk of rounds (T, K); BudgetExceeded, and nothing recorded, if any client would pass the cap."""
        events = checked(events, self.clients)
        if np.ndim(events.live) != 1:
            raise InputError("spend takes one run, events of shape (rounds, clients)")
        extra = with_rounds(each_round, events)
        self._refuse_other_setting(events)
        if not self._fits(events, extra, margin=0.0):
            fit = self._fitting(events, each_round)
            raise BudgetExceeded(
                f"round {self.rounds() + fit + 1} would pass the privacy budget {self.budget}; {fit} of these "
                f"{int(np.sum(events.live))} rounds are affordable"
            )
        self.parts.append(frozen(pick(events, slice(_ran(events)))))  # whoever fills the same arrays again
        self.releases.extend(map(frozen, extra))

    def charge(self, sums: Sums, each_round: Sequence[Release] = ()) -> None:
        """Record the rounds of a whole run, which were added up elsewhere; BudgetExceeded if a client passes the cap.

        What this ledger held before must be among the sums (`opening`).
        """
        if not self.budget.counted.additive:
            raise InputError(f"accountant {self.budget.accountant!r} needs every round; sums are for {_ADDITIVE}")
        before, held = self.rounds(), self.opening(sums.rate, sums.sensitivity)
        if sums.rounds < before or np.any(sums.zcdp() < held.zcdp()):
            raise InputError("these sums do not hold what the ledger has spent before: begin them with its `opening`")
        beside = [r._replace(times=r.times * (sums.rounds - before)) for r in each_round if sums.rounds > before]
        trial = Ledger(self.budget, self.clients, [], [*self.releases, *beside], sums=sums)
        if not trial._fits(None, (), margin=0.0):
            raise BudgetExceeded(f"{sums.rounds - before} rounds would pass the privacy budget {self.budget}")
        self.parts, self.releases, self.sums = [], trial.releases, sums

    def opening(self, rate: Array, sensitivity: Array) -> Sums:
        """The sums that a run of these messages starts from: all rounds that this ledger holds."""
        start = no_rounds(rate, sensitivity) if self.sums is None else self.sums
        for name, value in (("rate", rate), ("sensitivity", sensitivity)):
            if not np.array_equal(getattr(start, name), np.asarray(value, np.float64)):
                raise InputError(f"{name} changed between two runs; use one ledger per setting")
        for part in self.parts:
            start = start.add(part, self.budget.accounting, self.colluders)
        return start

    def release(self, release: Release) -> None:
        """Charge a Gaussian release beside the air."""
        release.square(self.clients)
        if not self._fits(None, [release], margin=0.0):
            raise BudgetExceeded(f"release {release.name!r} would pass the privacy budget {self.budget}")
        self.releases.append(frozen(release))

    def zcdp(self) -> Array:
        """Total zCDP cost without amplification, (K,), summed exactly; rounds in full where participation averages."""
        if self.sums is not None and not self.parts:
            return self._whole().zcdp()
        return zcdp.strict_sums(self._costs([], []))

    def zcdp_left(self) -> Array:
        """What each client has left, (K,), for accountants with additive costs."""
        return np.array([math.fsum([self.budget.zcdp, *-costs]) for costs in self._costs([], []).T])

    def spent(self, accountant: str | None = None) -> Spend:
        """eps per client of everything recorded, by the budget's accountant or another."""
        if self.sums is not None:
            return spend_of_sums(
                accountant or self.budget.accountant, self.zcdp(), self.sums.sampled, self.budget.delta,
                self.budget.accounting, self.budget.orders,
            )  # fmt: skip
        run = self.events if self.parts else self._no_rounds
        options: dict[str, Any] = (
            {"orders": self.budget.orders} if (accountant or self.budget.accountant) == "rdp" else {}
        )
        return account(
            accountant or self.budget.accountant,
            run,
            self.budget.delta,
            adjacency=self.budget.adjacency,
            accounting=self.budget.accounting,
            colluders=self.colluders,
            releases=tuple(self.releases),
            **options,
        )

    def worst(self) -> float:
        """eps of the worst client of everything recorded, by the budget's accountant: that of `spent`, sooner."""
        convert, budget = self.budget.counted.convert, self.budget
        if convert is None or self.sums is not None or budget.accounting not in participation.CERTIFIED:
            return float(self.spent().worst)
        return float(convert(np.max(zcdp.strict_sums(self._costs([], []))), budget.delta))

    def guarantee(self) -> float:
        """The eps that holds: the cap where the policy adapts (CARES E20), which is none without one; else the worst
        client's spend."""
        return self.budget.eps if self.budget.adaptive else self.worst()

    def export_dp_events(self) -> list[Any]:
        """One dp_accounting.DpEvent per client, for a recount by a third party."""
        from otafl.privacy.export import dp_events

        return dp_events(self)

    def to_bytes(self) -> bytes:
        from otafl.privacy.export import pack

        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> "Ledger":
        from otafl.privacy.export import unpack

        return unpack(content)

    def save(self, path: Path) -> None:
        from otafl.core.files import write_atomic

        write_atomic(Path(path), self.to_bytes())

    @staticmethod
    def load(path: Path) -> "Ledger":
        if (path := Path(path)).exists() and not path.is_file():  # a device has no end
            raise InputError(f"{path}: is no file")
        try:
            return Ledger.from_bytes(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None

    def _refuse_other_setting(self, events: Events) -> None:
        if self.parts:
            join([self.parts[-1], no_events(events.rate, events.sensitivity)])

    def _fitting(self, run: Events, each_round: Sequence[Release]) -> int:
        """Largest number of leading rounds that fits; costs are never negative, so bisection finds it."""
        margin, every = 0.0 if self.budget.counted.additive else PLANNING_MARGIN, int(np.size(run.live))

        def passes(rounds: int) -> bool:
            part = pick(run, slice(rounds))
            return not self._fits(part, with_rounds(each_round, part), margin)

        return bisect_left(range(1, every), True, key=passes) if passes(every) else every

    def _fits(self, events: Events | None, releases: Sequence[Release], margin: float) -> bool:
        """Whether everything so far, with these added, stays within the cap for every client."""
        budget = self.budget
        if budget.counted.additive:
            if self.sums is not None and events is None and not self.parts:
                return self._whole(releases).within(budget.zcdp)
            return zcdp.within(self._costs([] if events is None else [events], releases), budget.zcdp)
        cap_eps = budget.eps * (1 - margin)
        if budget.accountant == "rdp":
            total = self._rdp_total(events, [*self.releases, *releases])
            return bool(np.all(total.eps(budget.delta, budget.orders)[0] <= cap_eps))
        return bool(self.besides(events, releases).spent().worst <= cap_eps)

    def _costs(self, events: Sequence[Events], releases: Sequence[Release]) -> Array:
        """All zCDP costs, (rounds and releases, K)."""
        blocks = [round_costs(part, self.budget.accounting, self.colluders) for part in [*self.parts, *events]]
        rows = [*blocks, release_costs([*self.releases, *releases], self.clients)]
        if self.sums is not None:
            rows.append(np.where(self.sums.bare, np.inf, self.sums.terms))
        return np.concatenate(rows)

    @property
    def _no_rounds(self) -> Events:
        return no_events(np.ones(self.clients), np.zeros(self.clients))

    def _whole(self, releases: Sequence[Release] = ()) -> Sums:
        """The sums with all releases in them."""
        assert self.sums is not None
        whole = self.sums
        for release in [*self.releases, *releases]:
            whole = whole.beside(release.square(self.clients) / 2, release.times)
        return whole

    def _rdp_total(self, events: Events | None, releases: Sequence[Release]) -> RdpTotal:
        """All parts so far, however they came, with these events added; its releases are these."""
        for part in self.parts[self._counted :]:
            self._rdp, self._counted = self._with_rdp(part), self._counted + 1
        total = self._rdp if events is None else self._with_rdp(events)
        beside = rdp_total(self._no_rounds, self.budget.accounting, self.budget.orders, releases=releases)
        return beside if total is None else total._replace(releases=beside.releases)

    def _with_rdp(self, events: Events) -> RdpTotal:
        """The running total and these rounds."""
        budget = self.budget
        own = rdp_total(events, budget.accounting, budget.orders, self.colluders, budget.adjacency)
        return own if self._rdp is None else self._rdp + own


def _ran(run: Events) -> int:
    """Rounds up to the last live one: those after it released nothing, and their number is no part of a ledger."""
    live = np.flatnonzero(run.live)
    return int(live[-1]) + 1 if live.size else 0
