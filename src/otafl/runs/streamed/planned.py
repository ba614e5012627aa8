"""One scheme planned and charged in blocks of rounds, of which nothing is kept that grows with rounds x clients."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from otafl.core.plan import Events, Plan, Trace, check_silence
from otafl.privacy import Ledger
from otafl.privacy.sums import Sums
from otafl.runs.planning.planned import Planned
from otafl.runs.streamed import choice
from otafl.runs.streamed.ahead import Ahead


class StreamedPlanned(Planned):
    """`Planned`, whose plans are made again whenever they are asked for."""

    streamed = True

    def __init__(self, experiment: Any, scheme: Any, *others: Any):
        self.at_once = choice.rounds_at_once(experiment)
        choice.refuse(experiment, scheme, scheme.label or scheme.name)
        super().__init__(experiment, scheme, *others)
        with self._planning():
            choice.refuse_uplink(experiment, self.uplink)  # of a closed loop

    def _plan_everything(self) -> None:
        choice.refuse_uplink(self.experiment, self.uplink)
        choice.refuse_ahead(self.experiment, self.retires)
        self.ran.extend(self._afford(s) for s in range(len(self.setup.sites)))

    def _afford(self, s: int) -> int:
        """How many rounds of this seed fit the budget; every one of them is checked on the way."""
        site, ledger = self.setup.sites[s], self.ledgers[s]
        ahead, sums = Ahead(site, self.experiment.seed_list[s]), self._opening(s)
        for release in ledger.releases:  # of an earlier run
            sums = sums.beside(release.square(ledger.clients) / 2, release.times)
        horizon = self.experiment.horizon(self.scheme)
        for block in ahead.blocks(horizon, self.at_once):
            first = block.first
            assert block.plan is not None
            check_silence(site.policy, site.message, block.plan, first)
            released = self.checked_release(block.plan, block.trace, site, first)
            live = released.live.copy()
            for t in np.flatnonzero(live) if self.capped else ():
                more = sums.add_round(released, int(t), self.budget.accounting)
                if not more.within(self.budget.zcdp):
                    live[t:] = False
                    if first + t == 0:
                        first_round = Ledger(self.budget, ledger.clients, [], [], sums=more)
                        self.least_eps.append(float(first_round.spent().worst))
                    break
                sums = more
            self._check_radiated(s, block.plan, live, first)
            if not np.all(live):
                return first + int(np.sum(live))
        return horizon

    def _opening(self, s: int) -> Sums:
        message = self.setup.sites[s].message
        return self.ledgers[s].opening(message.rate, message.sensitivity)

    def blocks(self, s: int) -> Iterator[tuple[Trace, Plan]]:
        ahead = Ahead(self.setup.sites[s], self.experiment.seed_list[s])
        for block in ahead.blocks(self.ran[s], self.at_once):
            assert block.plan is not None
            yield block.trace, block.plan

    def count(self, ledger: Ledger, released: Events) -> Ledger:
        return Ledger(ledger.budget, ledger.clients, [], [*ledger.releases], sums=self._with(ledger, released))

    def spend(self, ledger: Ledger, released: Events) -> None:
        ledger.charge(self._with(ledger, released), each_round=self.releases[0])

    def _with(self, ledger: Ledger, released: Events) -> Sums:
        return ledger.opening(released.rate, released.sensitivity).add(released, self.budget.accounting)
