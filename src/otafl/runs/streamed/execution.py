"""One scheme whose rounds go by in blocks: planned and charged so (`streamed.planned`), then trained the same way."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from otafl.core.errors import InputError
from otafl.core.plan import check_silence, cut
from otafl.core.rounds import Carry, Record, Row
from otafl.privacy.spend import release_square
from otafl.runs.execution import Execution
from otafl.runs.folder.checkpoints import fits
from otafl.runs.folder.chunks import Evaluation, scalars
from otafl.runs.folder.results import (
    Columns,
    Energies,
    RoundColumns,
    Seen,
    evaluated_after,
    evaluations_table,
    rounds_table,
)
from otafl.runs.kept import Findings
from otafl.runs.streamed.ahead import Ahead, Block, soon
from otafl.runs.streamed.passed import REQUIRED, Passed
from otafl.runs.streamed.planned import StreamedPlanned
from otafl.runs.streamed.tally import Tally, quantile_table


class StreamedExecution(StreamedPlanned, Execution):
    """`Execution`, without keeping what grows with rounds x clients."""

    records = Passed

    def __init__(self, experiment: Any, scheme: Any, *others: Any):
        super().__init__(experiment, scheme, *others)
        divisors = [n for n in range(1, self.every + 1) if self.every % n == 0 and n <= self.at_once]
        self.stretch = max(divisors)
        self.span = self.stretch * max(1, min(self.at_once, experiment.rounds) // self.stretch)
        self._said = float("nan")
        self._coming: Iterator[tuple[Row, list[Block]]] | None = None

    # --- the rounds --------------------------------------------------------------------------------------------------

    def run(self, *args: Any) -> None:
        seeds, clients = self.experiment.seed_list, self.experiment.task.clients
        self._ahead = [Ahead(site, seed) for site, seed in zip(self.setup.sites, seeds)]
        self._tallies = []
        for s, (site, seed) in enumerate(zip(self.setup.sites, seeds)):
            before, beside = (release_square(r, clients) / 2 for r in (self.ledgers[s].releases, self.releases[s]))
            where = f"{self.label}: seed {seed}"
            self._tallies.append(Tally(site, self._opening(s), before, beside, self.budget.accounting, where))
        super().run(*args)

    def _anyone_live(self, carry: Carry, done: int) -> bool:
        return done % self.every > 0 or super()._anyone_live(carry, done)  # results end with an evaluation

    def _rows(self, first: int) -> tuple[Row, Any]:
        if self._coming is None:
            self._coming = soon(self._prepare, range(first, self.horizon, self.span))
        return next(self._coming)

    def _prepare(self, first: int) -> tuple[Row, list[Block]]:
        numbers = np.arange(first, min(first + self.span, self.horizon))
        blocks = [ahead.take(len(numbers)) for ahead in self._ahead]
        for s, block in enumerate(blocks):
            if block.plan is not None:
                live = block.plan.live & (numbers < self.ran[s])
                blocks[s] = block._replace(plan=block.plan._replace(live=live))
        plans = [block.plan for block in blocks if block.plan is not None]
        return self._row([block.trace for block in blocks], plans, first), blocks

    def _take(self, record: Record, plans: Any, seen: Any, used: int, first: int) -> Passed:
        kept: Record = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :used], record)
        self._check(kept, first)
        columns = [self._take_seed(s, block, kept, first) for s, block in enumerate(plans)]
        stacked = {name: np.stack([one[name] for one in columns]) for name in columns[0]}
        ends = np.minimum(first + self.stretch * np.arange(1, 1 - (-used // self.stretch)), self.horizon)
        told = (ends % self.every == 0) | (ends == self.horizon)
        found = Evaluation(*(np.asarray(leaf)[:, : len(ends)][:, told] for leaf in seen))
        return Passed(kept.live, kept.update_norm, stacked, found)

    def _take_seed(self, s: int, block: Block, kept: Record, first: int) -> Columns:
        """One seed's rounds into its tally, held against what was planned and charged."""
        site, live = self.setup.sites[s], kept.live[s]
        stats = cut(kept.stats, s)
        plan, info = block.plan, block.info
        if plan is None:
            plan, info = (jax.tree.map(lambda leaf: leaf[s], part) for part in (kept.plan, kept.info))
            self._check_radiated(s, plan, live, first)
            self._link(plan._replace(live=live), block.trace, site, first)
        plan = plan._replace(live=live)
        check_silence(site.policy, site.message, plan, first)  # who is asked once more may answer otherwise
        released = self.checked_release(plan, block.trace, site, first)
        columns = self._tallies[s].add(plan, block.trace, released, stats, first)
        return columns | {f"info.{name}": value for name, value in scalars(info, axes=1).items()}

    # --- checkpoints and progress ------------------------------------------------------------------------------------

    def _state(self, carry: Carry) -> dict[str, np.ndarray]:
        own = {f"tally.{s}.{name}": v for s, tally in enumerate(self._tallies) for name, v in tally.arrays().items()}
        done = int(np.max(np.asarray(carry.round)))
        return {**super()._state(carry), **own, "tally.done": np.array(done)}

    def _restore(self, like: Carry, state: dict[str, np.ndarray]) -> Carry:
        for s, tally in enumerate(self._tallies):
            tally.restore(_of_seed(state, s))
            if state["tally.done"] < self.horizon:
                self._ahead[s].skip(int(state["tally.done"]), self.at_once)
        return super()._restore(like, state)

    def _fits(self, done: int, state: dict[str, Any], segments: list[dict[str, Any]], leaves: list[Any]) -> bool:
        carry = {name: value for name, value in state.items() if not name.startswith("tally.")}
        told = done // self.every + (done == self.horizon and done % self.every > 0)
        if "tally.done" not in state or int(state["tally.done"]) != done:
            return False
        return fits(done, carry, segments, leaves, told, REQUIRED) and all(
            tally.fits(_of_seed(state, s)) for s, tally in enumerate(self._tallies)
        )

    def _accuracy(self, chunk: Passed) -> float:
        if chunk.eval.right.shape[1]:
            self._said = super()._accuracy(chunk)
        return self._said

    def _count(self, chunk: Passed, first: int) -> float:
        convert = self.budget.counted.convert
        if convert is None:
            raise InputError(f"accountant {self.budget.accountant!r} needs every round")
        return float(convert(chunk.columns["rho_worst"][0, -1], self.budget.delta))

    # --- what is found -----------------------------------------------------------------------------------------------

    def findings(self, records: Passed) -> Findings:
        seeds, live, columns = self.experiment.seed_list, records.live, records.columns
        for ledger, tally, beside in zip(self.ledgers, self._tallies, self.releases):
            ledger.charge(tally.sums, each_round=beside)
        seen = self._seen(records)
        told = RoundColumns(**{name: columns[name] for name in RoundColumns._fields})
        rounds = rounds_table(told, records.update_norm, seen, seeds)
        rows = []
        for s, tally in enumerate(self._tallies):
            terms = tally.certified(*(columns[name][s] for name in ("bias", "dropped_weight", "noise")))
            rows.append(None if terms is None else self.certified(s, terms))
        energy = [tally.energy for tally in self._tallies]
        return Findings(
            seen=seen,
            rounds=rounds,
            evaluations=evaluations_table(seen, self.task, seeds, lambda s, n: self._eps_after(records, s, n)),
            devices=quantile_table(columns, live, seeds),
            devices_name="device_quantiles",
            energy=Energies(rounds.seed, columns["energy_mean"][live]),
            joules={"joules_mean": [float(e.mean()) for e in energy], "joules_max": [float(e.max()) for e in energy]},
            certificate=self.certificate(rows),
            observers=[],
            left_out=int(np.sum(columns["left_out"][live])),
            zeroed=int(np.sum(columns["zeroed"][live])),
        )

    def _seen(self, records: Passed) -> Seen:
        live = records.live
        info = {n.removeprefix("info."): value for n, value in records.columns.items() if n.startswith("info.")}
        return Seen(live, info, records.eval, evaluated_after(live, self.every, records.eval.loss.shape[1]))

    def _eps_after(self, records: Passed, s: int, rounds: np.ndarray) -> np.ndarray:
        """The worst client's eps after so many rounds; what an earlier run spent counts."""
        convert = self.budget.counted.convert
        assert convert is not None
        rho = np.concatenate([[self._tallies[s].opening], records.columns["rho_worst"][s]])
        return np.array([float(convert(rho[int(n)], self.budget.delta)) for n in rounds])


def _of_seed(state: dict[str, np.ndarray], s: int) -> dict[str, np.ndarray]:
    mark = f"tally.{s}."
    return {name.removeprefix(mark): value for name, value in state.items() if name.startswith(mark)}
