"""One scheme of an experiment: planned and charged (`runs.planning`), then run chunk by chunk with checkpoints."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from otafl.bounds.sequence import Measured, SequenceCertificate
from otafl.core import uplink
from otafl.core.engine import Engine, make_engine
from otafl.core.errors import Diverged, Interrupted, PrivacyViolation
from otafl.core.messages import NORM_TOLERANCE, ClientMap, Seed
from otafl.core.plan import Plan, Trace, check_silence, cut
from otafl.core.rounds import Carry, Record, Row, make_round, stack
from otafl.core.sharding import CLIENT
from otafl.core.validate import first_place
from otafl.privacy.accountants import round_costs
from otafl.runs import build, certificates
from otafl.runs.device_mapping import choose_client_map, choose_mesh, choose_seed_map, evaluations_per_call
from otafl.runs.evaluation import evaluator
from otafl.runs.feedback import measure_of
from otafl.runs.finish import finish
from otafl.runs.folder.checkpoints import fits, leaf_name
from otafl.runs.folder.chunks import Chunk, Evaluation, merge, scalars
from otafl.runs.folder.store import SchemeFolder
from otafl.runs.interrupts import StopFlag
from otafl.runs.kept import Findings, kept
from otafl.runs.planning.channel_risk import statistics_known
from otafl.runs.planning.planned import Planned
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment
from otafl.runs.server import with_numbers
from otafl.runs.sites import OTHER_LAW, rayleigh
from otafl.runs.workbench import End


class Execution(Planned):
    """One scheme from its plan to its tables."""

    records: Any = Chunk  # what is kept of rounds

    def __init__(self, experiment: Experiment, scheme: Any, task: build.Task, folder: SchemeFolder, reporter: Reporter):
        super().__init__(experiment, scheme, task)
        self.task, self.folder, self.reporter = task, folder, reporter
        self.counted: Any = None  # (K,) cost of the first seed so far
        self.end: list[End] | None = None  # kept where the same rounds are asked for again
        wanted = experiment.horizon(scheme)
        self.horizon = max(1, *self.ran) if self.ran else wanted
        # Not what the budget leaves of the horizon: schemes share one program.
        self.every = min(experiment.evaluate_every, experiment.rounds)
        calls = evaluations_per_call(self.every, task.model.num_params, experiment.engine.checkpoint_seconds)
        self.span = self.every * min(calls, -(-wanted // self.every))
        self.stretch = self.every  # rounds between two evaluations of the compiled program

    # --- the rounds ------------------------------------------------------------------------------------------------

    def run(self, stop: StopFlag, engines: dict[Any, Engine]) -> None:
        """All rounds, from the last whole checkpoint if there is one."""
        self.folder.prepare()
        engine = engines.get(self.program) or self._engine()
        if self._shareable:
            engine = engines.setdefault(self.program, engine)  # whoever comes at the same time takes the same one
        seeds, carry = self._begin(engine)
        done, state, saved_parts, damages = self.folder.latest(
            lambda round_, state, segments: (
                round_ <= self.horizon and self._fits(round_, state, segments, jax.tree.leaves(carry))
            )
        )
        for warning in damages:
            self.reporter.note(f"{self.label}: {warning}")
        if self.end:
            done, state, saved_parts = self.end[0]
            self.reporter.note(f"{self.label}: without privacy it is trained once, for the first target")
        segments = [self.records.read(part) for part in saved_parts]
        if state:
            carry = self._restore(carry, state)
            self._count(merge(segments), 0)
        pending: list[Any] = []
        if self.uplink.alarm:
            self.reporter.note(f"{self.label}: {self.uplink.alarm}")
        self.reporter.start(self.label, self.horizon, done)
        began, saved, before = time.monotonic(), time.monotonic(), done
        chunks = self._chunks(engine, seeds, carry, done)
        for done, carry, chunk in chunks:
            pending.append(chunk)
            self._tick(chunk, done, (done - before) / max(time.monotonic() - began, 1e-9))
            if stop.requested or time.monotonic() - saved >= self.experiment.engine.checkpoint_seconds:
                self._checkpoint(done, carry, pending)
                segments, pending, saved = [*segments, merge(pending)], [], time.monotonic()
            if stop.requested and done < self.horizon:
                raise Interrupted(f"checkpoint {self.folder.checkpoint(done)}")
        records = merge([*segments, *pending])
        if self.end is not None:
            self.end[:] = [(done, self._state(carry), [records.arrays()])]
        finish(self, records, carry, time.monotonic() - began)

    def _begin(self, engine: Engine) -> tuple[Seed, Carry]:
        seeds = build.seeds_of(self.experiment, self.task)
        carry = engine.init(seeds.key, self._loop_states())
        return seeds, carry._replace(opt=with_numbers(carry.opt, self.setup.server))

    def _chunks(self, engine: Engine, seeds: Seed, carry: Carry, done: int) -> Iterator[tuple[int, Carry, Any]]:
        """The rounds from `done` on, as long as a seed is live: how many are done then, the state, what they left."""
        task, public = self.task, self.task.public if self.loop == "round" else ()
        while done < self.horizon and self._anyone_live(carry, done):
            first, done = done, min(done + self.span, self.horizon)
            rows, plans = self._rows(first)
            carry, record, seen = engine.chunk(task.data, task.held_out, public, seeds, carry, rows)
            task.data.check()
            yield done, carry, self._take(record, plans, seen, done - first, first)

    @property
    def _shareable(self) -> bool:
        """Whether the program holds nothing of this scheme: no policy inside the loop, no uplink of its own."""
        return uplink.is_analog(self.uplink) and self.loop != "round"

    @property
    def program(self) -> Any:
        """What distinguishes compiled programs of one run; step sizes and links are arguments."""
        choice, server = self.experiment.client_choice(self.scheme), self.setup.server
        return (
            "planned" if self._shareable else self.label,
            choice.model_dump_json(),
            server.momentum > 0,
            server.weight_decay > 0,
            server.step_decay,
            self.stretch,
        )

    def _engine(self) -> Engine:
        evaluate = evaluator(self.task.model, self.task.classes, self.task.metric)
        policy, inside = self.setup.sites[0].policy, {}
        if self.loop == "round":
            measure = measure_of(policy.feedback, self.task.model, evaluate)
            inside = {"policy": policy, "deployment": self.setup.sites[0].deployment, "measure": measure}
        mesh = self._mesh()
        split = mesh is not None and mesh.shape[CLIENT] > 1
        round_ = make_round(
            self.setup.clients, self.setup.optimizer, self._client_map(mesh), uplink=self.uplink,
            client_axis=CLIENT if split else None, **inside,  # type: ignore[arg-type]
        )  # fmt: skip
        return make_engine(
            self.task.model.init,
            evaluate,
            round_,
            self.setup.optimizer,
            self.seed_map,
            evaluate_every=self.stretch,
            mesh=mesh,
        )

    def _mesh(self) -> Mesh | None:
        """Seeds over several devices; clients too, where no policy or uplink inside the loop needs all of them.

        Poisson batches have one room for all clients, whose overflow is charged: they stay together.
        """
        wanted = self.experiment.engine
        if wanted.seed_map == "threads":
            return None
        apart = self.loop != "round" and self.uplink.combine == uplink.ANALOG.combine
        apart = apart and np.isfinite(self.setup.sites[0].message.bound)
        seeds, clients = len(self.setup.sites), self.experiment.task.clients
        return choose_mesh(wanted.devices, seeds, clients if apart else 1)

    def _client_map(self, mesh: Mesh | None) -> ClientMap:
        chosen = self.experiment.engine.client_map
        clients = -(-self.experiment.task.clients // (1 if mesh is None else mesh.shape[CLIENT]))
        occupies, numbers = self.setup.clients.occupies, self.task.model.num_params
        if occupies is not None and self.uplink.combine == uplink.ANALOG.combine:
            numbers = occupies(max(int(sizes.max()) for sizes in self.task.sizes))
        return choose_client_map(clients, numbers) if chosen == "auto" else chosen

    @property
    def seed_map(self) -> Any:
        chosen = self.experiment.engine.seed_map
        return choose_seed_map(self.task.model) if chosen == "auto" else chosen

    def _loop_states(self) -> Any:
        if self.loop == "round":
            return stack(self.states)
        return np.zeros((len(self.setup.sites), 0), np.float32)

    def _anyone_live(self, carry: Carry, done: int) -> bool:
        return bool(np.any(carry.live)) if done else True

    def _rows(self, first: int) -> tuple[Row, Any]:
        """What the next chunk reads, and the plans in it that were made ahead."""
        rounds = slice(first, min(first + self.span, self.horizon))
        traces = [cut(site.trace, rounds) for site in self.setup.sites]
        plans = [cut(plan, rounds) for plan in self.plans]
        return self._row(traces, plans, first), plans

    def _row(self, traces: list[Trace], plans: list[Plan], first: int) -> Row:
        """Rounds of all seeds from `first` on, padded to a full chunk so that nothing is compiled twice."""
        count = len(traces[0].gain)
        in_horizon = np.broadcast_to(np.arange(self.span) < count, (len(traces), self.span))

        def stacked(parts: Iterable[Any]) -> Any:
            return stack([padded(part, self.span - count) for part in parts])

        if self.loop == "round":
            return Row((), stacked(traces), in_horizon)
        each = zip(plans, traces, self.setup.sites)
        return Row(stacked(uplink.to_float32(self._link(*one, first)) for one in each), (), in_horizon)

    def _take(self, record: Record, plans: Any, seen: Any, used: int, first: int) -> Any:
        """A chunk's records on the host, checked against what was promised."""
        kept = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :used], record)
        self._check(kept, first)
        plan = kept.plan if self.loop == "round" else stack(plans)
        if self.loop == "round":
            for s in range(len(self.setup.sites)):
                self._check_radiated(s, cut(plan, s), kept.live[s], first)
            policy, message = self.setup.sites[0].policy, self.setup.sites[0].message
            check_silence(policy, message, plan._replace(live=kept.live), first)
            self._check_played(plan._replace(live=kept.live), first)
        stats, info = kept.stats._replace(overflow=()), scalars(kept.info, axes=2)
        found = Evaluation(*(np.asarray(leaf)[:, : -(-used // self.every)] for leaf in seen))
        return Chunk(plan, stats, kept.live, kept.update_norm, kept.refused, info, found)

    def _check_played(self, plans: Plan, first: int) -> None:
        """What a closed loop played (S, T, K), through the uplink once more on the host."""
        for s, site in enumerate(self.setup.sites):
            plan = cut(plans, s)
            trace = cut(site.trace, slice(first, first + len(plan.live)))
            self._link(plan, trace, site, first)
            if first == 0:
                self._try_uplink(plan, trace, site)

    def _check(self, record: Record, first: int) -> None:
        """Promises that are broken stop the run with the round and the client."""
        bound = self.setup.sites[0].message.bound

        def where(seed: int, round_: int) -> str:
            return f"round {first + round_}, seed {self.experiment.seed_list[seed]}"

        if np.any(over := record.stats.norm > bound * (1 + NORM_TOLERANCE)):
            seed, round_, client = first_place(over)
            raise PrivacyViolation(
                f"{self.label}: {where(seed, round_)}: client {client}'s message is above its declared norm bound "
                f"{bound:g}"
            )
        if np.any(lost := ~record.finite & record.live):
            seed, round_ = first_place(lost)
            said = f"{self.label}: {where(seed, round_)}: the model is not finite; lower server.step_size"
            raise Diverged(said, self.label)
        if np.any(record.stats.overflow):
            seed, round_ = first_place(record.stats.overflow)
            raise PrivacyViolation(
                f"{self.label}: {where(seed, round_)}: a Poisson batch did not fit its fixed shape; nothing was "
                "truncated, the run stopped (lower clients.overflow_tail)"
            )

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def _checkpoint(self, done: int, carry: Carry, pending: list[Any]) -> None:
        self.folder.save(done, self._state(carry), merge(pending).arrays())

    def _state(self, carry: Carry) -> dict[str, np.ndarray]:
        return {leaf_name(n): np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(carry))}

    def _fits(self, done: int, state: dict[str, Any], segments: list[dict[str, Any]], leaves: list[Any]) -> bool:
        return fits(done, state, segments, leaves, -(-done // self.every))

    def _restore(self, like: Carry, state: dict[str, np.ndarray]) -> Carry:
        leaves, tree = jax.tree.flatten(like)
        loaded = [state[leaf_name(n)] for n in range(len(leaves))]
        with jax.enable_x64(True):  # outside this scope float64 would silently become float32
            restored: Carry = jax.tree.unflatten(tree, [jnp.asarray(leaf) for leaf in loaded])
        return restored

    # --- what is found -----------------------------------------------------------------------------------------------

    def findings(self, records: Any) -> Findings:
        """Tables and all else that is written down after the last round."""
        return kept(self, records)

    def certified(self, s: int, seen: Measured) -> SequenceCertificate:
        """The certificate of one seed's rounds."""
        at, server, known = self.setup.sites[s], self.setup.server, statistics_known(self.experiment)
        return certificates.concluded(seen, self.ledgers[s], at, self.task, server, known)

    def certificate(self, rows: list[SequenceCertificate | None]) -> dict[str, Any]:
        """The certificates of all seeds as they are written down."""
        site, sent = self.setup.sites[0], self.experiment.client_choice(self.scheme)
        found = certificates.certificate(rows, site, self.task, self.setup.server, self.budget.holds_at, sent.kind)
        return found if rayleigh(self.experiment) else found | {"notes": [*found["notes"], OTHER_LAW]}

    # --- progress ----------------------------------------------------------------------------------------------------

    def _tick(self, chunk: Any, done: int, pace: float) -> None:
        accuracy = self._accuracy(chunk)
        eps = self._count(chunk, done - chunk.live.shape[1])
        cap, metric = float(self.budget.eps), self.task.metric
        self.reporter.tick(Tick(self.label, done, self.horizon, accuracy, eps, cap, pace, metric))

    def _accuracy(self, chunk: Any) -> float:
        return float(np.mean(chunk.eval.right[:, -1].sum(-1) / chunk.eval.total[:, -1].sum(-1)))

    def _count(self, chunk: Any, first: int) -> float:
        """The first seed's eps after these rounds, for the live line; NaN where costs do not simply add."""
        convert = self.budget.counted.convert
        if convert is None:
            return float("nan")
        self.counted = self.ledgers[0].zcdp() if self.counted is None else self.counted
        site, live, plan = self.setup.sites[0], chunk.live[0], chunk.of_seed(0)
        trace = cut(site.trace, slice(first, first + len(live)))
        released = self.released(plan, trace, site)
        beside = sum((r.square(len(self.counted)) / 2 for r in self.releases[0]), np.zeros(len(self.counted)))
        self.counted = self.counted + round_costs(released, self.budget.accounting).sum(0) + beside * np.sum(live)
        return float(np.max(convert(self.counted, self.budget.delta)))


def padded(tree: Any, pad: int) -> Any:
    """Repeat the last row so that a short last chunk has the shape of the others."""
    if pad == 0:
        return tree
    return jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(np.asarray(leaf)[-1:], pad, axis=0)]), tree)
