"""Running an experiment: schemes one after the other, chunk by chunk, with checkpoints, a ledger and a report.

The same config and seeds give the same bytes, whether or not the run was interrupted in between.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl import air, policies
from otafl.clients.base import ClientMap
from otafl.errors import BudgetExceeded, Infeasible, InputError, Interrupted, PrivacyViolation, RunError
from otafl.experiments import build, doctor, limits
from otafl.experiments.certificates import certificate
from otafl.experiments.earlier import eps_left, open_ledger
from otafl.experiments.interrupts import StopFlag, graceful_stop
from otafl.experiments.progress import Reporter, Tick
from otafl.experiments.results import (
    CONVERSIONS,
    Outcome,
    devices_table,
    evaluations_table,
    rounds_table,
    stop_reasons,
    summarise,
    uncertified,
)
from otafl.experiments.schema import Experiment, load, resolved
from otafl.experiments.store import RunFolder, SchemeFolder, npz, storage
from otafl.files import to_json, write_atomic
from otafl.plan import Events, Plan, Trace
from otafl.privacy import Budget, Ledger, check_realised, events, make_card
from otafl.privacy.accountants import round_costs
from otafl.rounds import Carry, Engine, Record, Row, make_engine, make_round, plan_ahead, stack

NORM_TOLERANCE = 1e-5  # a message above its bound by more than this is a broken promise (CARES section 6)


def default_folder(name: str) -> Path:
    """runs/<name>, or the first free runs/<name>-2, -3, ..."""
    folder, number = Path("runs") / name, 1
    while (folder / "manifest.json").exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def start(experiment: Experiment, path: Path, reporter: Reporter | None = None) -> Path:
    """Run an experiment into a new folder; returns the folder. All schemes are planned before the folder is made."""
    folder, config, reporter = RunFolder(RunFolder.free(path)), resolved(experiment), reporter or Reporter()
    task, executions = _prepare(experiment, folder, reporter)
    manifest = {
        "title": experiment.title,
        "schemes": experiment.labels,
        "seeds": experiment.seed_list,
        "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
        "data": task.sources,
        "parameters": task.model.num_params,
        "versions": doctor.versions(),
        "machine": doctor.machine(),
    }
    RunFolder.create(path, config, manifest)
    return _run(folder, executions, reporter)


def resume(path: Path, reporter: Reporter | None = None) -> Path:
    """Continue a run to the same bytes as if it had never stopped."""
    folder, reporter = RunFolder.open(path), reporter or Reporter()
    experiment = load(folder.path / "config.toml")
    if hashlib.sha256(resolved(experiment).encode()).hexdigest() != folder.manifest["config_sha256"]:
        raise RunError(f"{path}/config.toml: was changed since the run began; start a new run instead")
    return _run(folder, _prepare(experiment, folder, reporter)[1], reporter)


def _prepare(experiment: Experiment, folder: RunFolder, reporter: Reporter) -> tuple[build.Task, list["Execution"]]:
    """Data and plans of all schemes that are not finished: whatever is to be refused is refused here."""
    limits.check_traces(experiment)
    task = build.build_task(experiment)
    limits.check_model(experiment, task.model.num_params)
    executions = []
    for scheme in experiment.scheme:
        place = folder.scheme(scheme.label or scheme.name)
        if place.finished:
            place.clear_work()
        else:
            executions.append(Execution(experiment, scheme, task, place, reporter))
    return task, executions


def _run(folder: RunFolder, executions: list["Execution"], reporter: Reporter) -> Path:
    from otafl.report import write_report

    use_compilation_cache()
    engines: dict[Any, Engine] = {}  # schemes that are planned ahead differ only in their links: one program serves all
    try:
        with graceful_stop() as stop:
            for execution in executions:
                if stop.requested:
                    raise Interrupted(f"interrupted between two schemes; continue with: otafl run --resume {folder.path}")
                execution.run(stop, engines)
    finally:
        reporter.close()
    with storage(folder.path):
        write_report([folder.path])
    return folder.path


def use_compilation_cache() -> None:
    """Compiled programs are kept between runs, unless the user has set a cache of their own."""
    from otafl.tasks.datasets import cache_folder

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


class Execution:
    """One scheme from its plan to its tables."""

    def __init__(self, experiment: Experiment, scheme: Any, task: build.Task, folder: SchemeFolder, reporter: Reporter):
        self.experiment, self.scheme, self.task, self.folder, self.reporter = experiment, scheme, task, folder, reporter
        self.label = scheme.label or scheme.name
        private = policies.SCHEMES[scheme.name].private
        self.eps_left = eps_left(experiment.privacy, experiment.task.clients) if private else experiment.privacy.eps
        with self._planning():
            self.setup = build.build_scheme(self._with_target(self.eps_left), scheme, task)
        first = self.setup.sites[0]
        self.loop, self.uplink = first.policy.loop, air.uplink_of(first.policy)
        self.capped = experiment.privacy.eps is not None and scheme.stop_at_budget and private
        self.budget = Budget(
            eps=experiment.privacy.eps if self.capped else np.inf,
            delta=experiment.privacy.delta,
            accountant=experiment.privacy.accountant,
            accounting=experiment.privacy.accounting,
            adjacency=first.message.adjacency,
            adaptive=self.loop != "open",
            order=None,
        )
        earlier, count = experiment.privacy.already_spent, experiment.task.clients
        self.ledgers = [open_ledger(self.budget, count, site.message, earlier) for site in self.setup.sites]
        self.plans: list[Plan] = []
        self.infos: list[Any] = []
        with self._planning():
            self.states = [site.policy.init(seed) for site, seed in zip(self.setup.sites, experiment.seed_list)]
            if self.loop == "open":
                self._plan_everything()
        self.counted = self.ledgers[0].zcdp()  # (K,) cost of the first seed so far
        self.horizon = self._horizon()
        self.every = min(experiment.evaluate_every, experiment.rounds)  # not the own horizon: schemes share one program
        self.span = self.every * evaluations_per_call(self.every, task.model.num_params, experiment.engine.checkpoint_seconds)

    # --- before the first round ---------------------------------------------------------------------------------

    def _with_target(self, eps: float | None) -> Experiment:
        """The experiment as policies see it: they plan with what an earlier run left, while the ledgers cap the whole."""
        privacy = self.experiment.privacy.model_copy(update={"eps": eps})
        return self.experiment.model_copy(update={"privacy": privacy})

    @contextmanager
    def _planning(self) -> Iterator[None]:
        """Whatever goes wrong while planning is said with the scheme's label."""
        privacy = self.experiment.privacy
        try:
            yield
        except Infeasible as refusal:
            if self.eps_left == privacy.eps:
                raise Infeasible(f"{self.label}: {refusal}", refusal.report) from None
            raise BudgetExceeded(f"{self.label}: {privacy.already_spent} left eps={self.eps_left:.4g}: {refusal}") from None
        except InputError as refusal:
            raise InputError(f"{self.label}: {refusal}") from None
        except (ArithmeticError, np.linalg.LinAlgError) as problem:
            raise RunError(f"{self.label}: planning failed numerically ({problem}); look for extreme numbers") from None

    def _plan_everything(self) -> None:
        """An open loop is planned, charged and cut before a single gradient is computed."""
        for site, state, ledger in zip(self.setup.sites, self.states, self.ledgers):
            _, plan, info = plan_ahead(site.policy, state, site.trace)
            plan = self._charge(plan, site, site.trace, ledger)
            if self.capped and not np.any(plan.live):
                raise BudgetExceeded(
                    f"{self.label}: not one round is affordable within eps={self.budget.eps:g}, delta={self.budget.delta:g} "
                    f"({self.budget.accountant}); raise privacy.eps or the noise, or lower the receive scaling"
                )
            self.plans.append(plan)
            self.infos.append(info)

    def _charge(self, plan: Plan, site: build.Site, trace: Trace, ledger: Ledger) -> Plan:
        """Clear `live` from the first round on that the budget does not cover."""
        released = events(plan, trace, site.deployment, site.message)
        check_realised(released, plan, trace)
        return plan._replace(live=ledger.affordable(released)) if self.capped else plan._replace(live=released.live)

    def _horizon(self) -> int:
        if self.loop != "open":
            return self.experiment.horizon(self.scheme)
        return max(1, max(int(np.sum(plan.live)) for plan in self.plans))

    # --- the rounds ------------------------------------------------------------------------------------------------

    def run(self, stop: StopFlag, engines: dict[Any, Engine]) -> None:
        """All rounds, from the last whole checkpoint if there is one."""
        self.folder.prepare()
        reward = self.loop == "round"
        engine = engines.get(self._program) or self._engine()
        if not reward:
            engines[self._program] = engine
        seeds = build.seeds_of(self.experiment, self.task)
        public = self.task.public if reward else ()
        carry = engine.init(seeds.key, self._loop_states(), public)
        carry = carry._replace(opt=build.with_numbers(carry.opt, build.server_of(self.experiment, self.scheme)))
        done, state, segments, warnings = self.folder.latest()
        for warning in warnings:
            self.reporter.note(f"{self.label}: {warning}")
        if state:
            carry = self._restore(carry, state)
            self._count(merge(segments), 0)
        pending: list[dict[str, np.ndarray]] = []
        self.reporter.start(self.label, self.horizon, done)
        began, saved, fresh = time.monotonic(), time.monotonic(), done
        while done < self.horizon and self._anyone_live(carry, done):
            rows, plans = self._rows(done)
            carry, record, seen = engine.chunk(self.task.data, self.task.held_out, public, seeds, carry, rows)
            chunk = self._take(record, plans, seen, min(self.span, self.horizon - done), done)
            pending.append(chunk)
            done = min(done + self.span, self.horizon)
            self._tick(chunk, done, (done - fresh) / max(time.monotonic() - began, 1e-9))
            if stop.requested or time.monotonic() - saved >= self.experiment.engine.checkpoint_seconds:
                self._checkpoint(done, carry, pending)
                segments, pending, saved = [*segments, merge(pending)], [], time.monotonic()
            if stop.requested and done < self.horizon:
                where, run_folder = self.folder.checkpoint(done), self.folder.path.parent.parent
                raise Interrupted(f"interrupted; checkpoint {where}; continue with: otafl run --resume {run_folder}")
        self._finish(merge([*segments, *pending]), carry, time.monotonic() - began)

    @property
    def _program(self) -> Any:
        """What distinguishes compiled programs of one run; step sizes and links are arguments."""
        choice, server = self.scheme.clients or self.experiment.clients, build.server_of(self.experiment, self.scheme)
        same = self.uplink.combine == air.ANALOG.combine and self.uplink.decode == air.ANALOG.decode
        kind = "planned" if same and self.loop != "round" else self.label
        return kind, choice.model_dump_json(), server.momentum > 0, server.weight_decay > 0, server.step_decay, self.every

    def _engine(self) -> Engine:
        evaluate = build.evaluator(self.task.model, self.task.classes)
        reward = build.accuracy_reward(evaluate) if self.loop == "round" else None
        first = self.setup.sites[0]
        inside = {"policy": first.policy, "deployment": first.deployment, "reward": reward} if self.loop == "round" else {}
        round_ = make_round(self.setup.clients, self.setup.optimizer, self._client_map(), uplink=self.uplink, **inside)  # type: ignore[arg-type]
        return make_engine(
            self.task.model.init, evaluate, round_, self.setup.optimizer, reward, self._seed_map(), evaluate_every=self.every
        )

    def _client_map(self) -> ClientMap:
        chosen = self.experiment.engine.client_map
        return choose_client_map(self.experiment.task.clients, self.task.model.num_params) if chosen == "auto" else chosen

    def _seed_map(self) -> Any:
        chosen = self.experiment.engine.seed_map
        return ("vmap" if self.task.model.num_params < 100_000 else "map") if chosen == "auto" else chosen

    def _loop_states(self) -> Any:
        if self.loop == "round":
            return stack(self.states)
        return jnp.zeros((len(self.setup.sites), 0))

    def _anyone_live(self, carry: Carry, done: int) -> bool:
        return bool(np.any(carry.live)) if done else True

    def _rows(self, first: int) -> tuple[Row, list[Plan]]:
        """What the next chunk reads, padded to a full chunk so that nothing is compiled twice."""
        stop = min(first + self.span, self.horizon)
        pad = self.span - (stop - first)
        in_horizon = np.broadcast_to(np.arange(self.span) < stop - first, (len(self.setup.sites), self.span))
        traces = [Trace(*(leaf[first:stop] for leaf in site.trace)) for site in self.setup.sites]
        if self.loop == "round":
            return Row((), stack([padded(trace, pad) for trace in traces]), in_horizon), []
        plans = [Plan(*(leaf[first:stop] for leaf in plan)) for plan in self.plans] if self.plans else self._plan_chunk(traces, first)
        links = [
            air.to_float32(air.uplink_of(site.policy).lower(plan, trace.gain, site.deployment))
            for plan, trace, site in zip(plans, traces, self.setup.sites)
        ]
        return Row(stack([padded(link, pad) for link in links]), (), in_horizon), plans

    def _plan_chunk(self, traces: list[Trace], first: int) -> list[Plan]:
        raise RunError(f"{self.label}: no scheme with loop='chunk' is registered")

    def _take(self, record: Record, plans: list[Plan], seen: Any, used: int, first: int) -> dict[str, np.ndarray]:
        """A chunk's records as arrays, checked against what was promised."""
        kept = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :used], record)
        self._check(kept, first)
        plan = kept.plan if self.loop == "round" else stack(plans)
        out = {f"plan.{name}": value for name, value in plan._asdict().items()}
        out |= {f"stats.{name}": value for name, value in kept.stats._asdict().items() if name != "overflow"}
        out |= {"live": kept.live, "update_norm": kept.update_norm, "refused": kept.refused}
        out |= {f"info.{name}": value for name, value in scalars(kept.info, axes=2).items()}
        return out | {f"eval.{name}": np.asarray(value)[:, : -(-used // self.every)] for name, value in seen.items()}

    def _check(self, record: Record, first: int) -> None:
        """Promises that are broken stop the run with the round and the client."""
        bound = self.setup.sites[0].message.bound
        problems = (
            (~np.isfinite(record.stats.raw_norm) & record.live[..., None], "message is not finite", RunError),
            (record.stats.norm > bound * (1 + NORM_TOLERANCE), f"message is above its declared norm bound {bound:g}", PrivacyViolation),
        )
        for bad, text, kind in problems:
            if np.any(bad):
                seed, round_, client = (int(i) for i in np.argwhere(bad)[0])
                raise kind(f"{self.label}: round {first + round_}, seed {self.experiment.seed_list[seed]}: client {client}'s {text}")
        if np.any(record.stats.overflow):
            seed, round_ = (int(i) for i in np.argwhere(record.stats.overflow)[0])
            raise PrivacyViolation(
                f"{self.label}: round {first + round_}, seed {self.experiment.seed_list[seed]}: a Poisson batch did not fit its "
                "fixed shape; nothing was truncated, the run stopped (lower clients.overflow_tail)"
            )

    # --- checkpoints -----------------------------------------------------------------------------------------------

    def _checkpoint(self, done: int, carry: Carry, pending: list[dict[str, np.ndarray]]) -> None:
        state = {f"leaf{n:04d}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(carry))}
        self.folder.save(done, state, merge(pending))

    def _restore(self, like: Carry, state: dict[str, np.ndarray]) -> Carry:
        leaves, tree = jax.tree.flatten(like)
        loaded = [state[f"leaf{n:04d}"] for n in range(len(leaves))]
        for old, new in zip(leaves, loaded):
            if old.dtype != new.dtype or old.shape != new.shape:
                raise RunError(f"{self.label}: checkpoint does not fit this version ({new.dtype}{new.shape}, expected {old.dtype}{old.shape})")
        with jax.enable_x64(True):  # outside this scope float64 would silently become float32
            restored: Carry = tree.unflatten([jnp.asarray(leaf) for leaf in loaded])
        return restored

    # --- after the last round ----------------------------------------------------------------------------------------

    def _tick(self, chunk: dict[str, np.ndarray], done: int, pace: float) -> None:
        accuracy = float(np.mean(chunk["eval.right"][:, -1].sum(-1) / chunk["eval.total"][:, -1].sum(-1)))
        eps = self._count(chunk, done - chunk["live"].shape[1])
        self.reporter.tick(Tick(self.label, done, self.horizon, accuracy, eps, float(self.budget.eps), pace))

    def _count(self, records: dict[str, np.ndarray], first: int) -> float:
        """The first seed's eps after these rounds, for the live line; NaN where costs do not simply add."""
        if self.budget.accountant not in CONVERSIONS:
            return float("nan")
        site, live = self.setup.sites[0], records["live"][0]
        plan = Plan(**{name: records[f"plan.{name}"][0] for name in Plan._fields})._replace(live=live)
        trace = Trace(*(leaf[first : first + len(live)] for leaf in site.trace))
        released = events(plan, trace, site.deployment, site.message)
        self.counted = self.counted + round_costs(released, self.budget.accounting).sum(0)
        return float(np.max(CONVERSIONS[self.budget.accountant](self.counted, self.budget.delta)))

    def _finish(self, records: dict[str, np.ndarray], carry: Carry, seconds: float) -> None:
        """Tables, ledger, card, model; the marker that the scheme is done is written last."""
        outcome = self._outcome(records)
        for ledger, released in zip(self.ledgers, outcome.events):
            ledger.spend(released)  # refuses, and so fails the run, if a closed loop had passed its cap
        seeds = self.experiment.seed_list
        rounds = rounds_table(outcome, self.setup, seeds)
        devices = devices_table(outcome, self.setup, seeds)
        evaluations = evaluations_table(outcome, self.task, seeds, self.budget)
        self._check_energy(devices)
        target = self.experiment.privacy.eps or np.inf
        summary = summarise(evaluations, rounds, devices, target, self.every)
        self.folder.table("rounds", rounds)
        if self.experiment.engine.record_devices:
            self.folder.table("devices", devices)
        self.folder.table("evaluations", evaluations)
        worst = int(np.argmax([np.max(ledger.zcdp()) for ledger in self.ledgers]))
        remarks = [*uncertified(outcome), *self.uplink.remarks]
        card = self._card(worst, remarks)
        summary |= {"stopped_by": stop_reasons(outcome, self.experiment.horizon(self.scheme)), "remarks": remarks}
        files: dict[str, bytes | str] = {
            "certificate.json": to_json({**self._certificate(outcome), "remarks": remarks}),
            "card.json": card.to_json(),
            "card.md": card.to_markdown(),
            "model.npz": npz({f"leaf{n:04d}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(carry.params))}),
            "summary.json": to_json({"label": self.label, "scheme": self.scheme.name, **self._facts(), **summary}),
        }
        files |= {f"ledger-{seed}.bin": ledger.to_bytes() for seed, ledger in zip(seeds, self.ledgers)}
        files["timing.json"] = to_json({"seconds": seconds, "rounds": int(np.sum(outcome.live))})
        files["done.json"] = to_json({"rounds": int(np.max(np.sum(outcome.live, 1)))})
        with storage(self.folder.path):
            for name, content in files.items():
                write_atomic(self.folder.path / name, content)
        self.folder.clear_work()

    def _facts(self) -> dict[str, Any]:
        first = self.setup.sites[0]
        return {"csi": first.policy.csi, "uplink": self.uplink.name, "loop": self.loop, "unit": first.message.unit,
                "adjacency": first.message.adjacency, "delta": self.budget.delta, "accountant": self.budget.accountant,
                "target_eps": self.experiment.privacy.eps, "capped": self.capped, "channel_uses": first.message.dim,
                "private": policies.SCHEMES[self.scheme.name].private, "every": self.every}  # fmt: skip

    def _certificate(self, outcome: Outcome) -> dict[str, Any]:
        server, kind = build.server_of(self.experiment, self.scheme), (self.scheme.clients or self.experiment.clients).kind
        known = self.experiment.channel.pilots is None
        return certificate(outcome, self.setup, self.task, server, self.budget.delta, kind=kind, known=known)

    def _card(self, worst: int, remarks: list[str]) -> Any:
        outside = ["sizes", "simulation-trace", *self.task.notes, *self.experiment.outside, *remarks]
        return make_card(self.ledgers[worst], self.setup.sites[worst].message, outside=outside)

    def _outcome(self, records: dict[str, np.ndarray]) -> Outcome:
        plans = Plan(**{name: records[f"plan.{name}"] for name in Plan._fields})
        live = records["live"]
        released = []
        for s, site in enumerate(self.setup.sites):
            plan = Plan(*(leaf[s] for leaf in plans))._replace(live=live[s])
            trace = Trace(*(leaf[: live.shape[1]] for leaf in site.trace))
            released.append(events(plan, trace, site.deployment, site.message))
        ran = np.cumsum(live, axis=1)
        ends = [min((e + 1) * self.every, live.shape[1]) - 1 for e in range(records["eval.loss"].shape[1])]
        info = {name.removeprefix("info."): value for name, value in records.items() if name.startswith("info.")}
        if self.plans:
            cut = live.shape[1]
            found = [scalars(one, axes=1) for one in self.infos]
            info = {name: np.stack([one[name][:cut] for one in found]) for name in found[0]}
        if self.uplink.decode != air.ANALOG.decode:
            info["refused"] = records["refused"].astype(float)
        return Outcome(
            plans=plans, events=released, live=live, norm=records["stats.norm"], raw_norm=records["stats.raw_norm"],
            sent=records["stats.sent"], update_norm=records["update_norm"], info=info, eval_round=ran[:, ends],
            right=records["eval.right"], total=records["eval.total"], loss=records["eval.loss"], penalty=records["eval.penalty"],
        )  # fmt: skip

    def _check_energy(self, devices: dict[str, np.ndarray]) -> None:
        """A bounded message never breaks its limit; a Poisson sum may in a round, its limit is one on the mean."""
        over = devices["energy"] > devices["energy_limit"] * (1 + 1e-9)
        if np.isfinite(self.setup.sites[0].message.bound) and np.any(over):
            row = int(np.argmax(over))
            where = f"round {devices['round'][row]}, seed {devices['seed'][row]}: client {devices['client'][row]}"
            raise RunError(f"{self.label}: {where} would radiate {devices['energy'][row]:.6g} J, limit {devices['energy_limit'][row]:.6g} J")


def choose_client_map(clients: int, parameters: int) -> ClientMap:
    """All clients at once on an accelerator; on a CPU chunks that stay in cache."""
    if jax.default_backend() != "cpu":
        return "vmap" if clients * parameters <= 2**30 else max(1, 2**30 // parameters)
    return "vmap" if clients * parameters <= 2**20 else max(1, 2**20 // parameters)


def evaluations_per_call(every: int, parameters: int, checkpoint_seconds: float) -> int:
    """How many evaluation intervals one call into the compiled program covers: cheap rounds go by the hundred."""
    return 1 if checkpoint_seconds == 0 or parameters >= 100_000 else max(1, 100 // every)


def padded(tree: Any, pad: int) -> Any:
    """Repeat the last row so that a short last chunk has the shape of the others."""
    if pad == 0:
        return tree
    return jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(np.asarray(leaf)[-1:], pad, axis=0)]), tree)


def scalars(info: Any, axes: int) -> dict[str, np.ndarray]:
    """Per-round scalars of a policy's info, which have exactly so many axes: what a rounds table can hold."""
    fields = info._asdict() if hasattr(info, "_asdict") else {}
    return {name: np.asarray(value) for name, value in fields.items() if np.ndim(value) == axes}


def merge(chunks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join record chunks along the round axis."""
    return {name: np.concatenate([chunk[name] for chunk in chunks], axis=1) for name in chunks[0]} if chunks else {}


__all__ = ["Events", "default_folder", "resume", "start"]
