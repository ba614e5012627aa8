"""What a run leaves whose rounds were all kept, client by client: tables, ledgers, certificate."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otafl.bounds.sequence import SequenceCertificate
from otafl.core import uplink
from otafl.core.errors import RunError
from otafl.core.plan import Plan, Trace
from otafl.privacy import account, check_realised, eps_curve, events
from otafl.privacy.card import Observer
from otafl.privacy.eavesdropper import overheard
from otafl.runs.certificates import measured
from otafl.runs.folder.results import (
    Columns,
    Outcome,
    Seen,
    columns_of,
    devices_table,
    energy_per_device,
    evaluations_table,
    rounds_table,
)

if TYPE_CHECKING:
    from otafl.runs.execution import Execution


class Findings(NamedTuple):
    """All that `finish` writes down, however the rounds were kept."""

    seen: Outcome | Seen
    rounds: Columns
    evaluations: Columns
    devices: Columns  # "devices": one row per seed, round and client; "device_quantiles": over the clients
    devices_name: str
    energy: Columns  # "seed" and "energy", J: equally many entries of every round
    joules: dict[str, list[float]]  # of a whole run, per seed: mean over devices, and the largest
    certificate: dict[str, Any]
    observers: list[Observer]
    left_out: int
    zeroed: int


def kept(run: "Execution", records: dict[str, np.ndarray]) -> Findings:
    """The findings of records that hold every round of every client."""
    outcome = _outcome(run, records)
    for ledger, released, beside in zip(run.ledgers, outcome.events, run.releases):
        ledger.spend(released, each_round=beside)  # refuses, and so fails the run, if a closed loop had passed its cap
    seeds, live = run.experiment.seed_list, outcome.live
    devices = devices_table(outcome, run.setup, seeds)
    _check_energy(run, devices)
    eps_after = lambda s, rounds: eps_curve(outcome.events[s], rounds, run.budget, outcome.releases[s])  # noqa: E731
    return Findings(
        seen=outcome,
        rounds=rounds_table(columns_of(outcome, run.setup), outcome.info, live, seeds),
        evaluations=evaluations_table(outcome, run.task, seeds, eps_after),
        devices=devices,
        devices_name="devices",
        energy=devices,
        joules=energy_per_device(outcome, run.setup),
        certificate=_certificate(run, outcome),
        observers=_eavesdropper(run, outcome),
        left_out=int(np.sum(records["stats.left_out"][live])),
        zeroed=int(np.sum(records["stats.zeroed"][live])),
    )


def _certificate(run: "Execution", outcome: Outcome) -> dict[str, Any]:
    rows: list[SequenceCertificate | None] = []
    for s, site in enumerate(run.setup.sites):
        plan, live = Plan(*(leaf[s] for leaf in outcome.plans)), outcome.live[s]
        seen = measured(plan, outcome.events[s], live, site.trace.gain[: len(live)], site)
        rows.append(None if seen is None else run.certified(s, seen._replace(cost=seen.cost.sum(0))))
    return run.certificate(rows)


def _eavesdropper(run: "Execution", outcome: Outcome) -> list[Observer]:
    """The second receiver that the experiment declares, charged by the budget's accountant; the worst seed."""
    who = run.experiment.privacy.eavesdropper
    if who is None or run.uplink.name != "analog":
        return []
    if run.loop != "open":
        why = "not covered: a plan that was played is no guarantee"
        return [Observer("eavesdropper", "its own antennas", None, why)]
    budget = run.budget
    found = []
    for s, released in enumerate(outcome.events):
        heard = overheard(Plan(*(leaf[s] for leaf in outcome.plans)), released, who)
        found.append(account(budget.accountant, heard, budget.delta, adjacency=budget.adjacency).worst)
    sees = f"its own {who.antennas} antenna(s)" + (" and every model" if who.downlink else "")
    why = f"declared: gain at most {who.gain:g}, noise at least {who.noise_std:g}; no artificial noise counts"
    return [Observer("eavesdropper", sees, float(max(found)), why)]


def _outcome(run: "Execution", records: dict[str, np.ndarray]) -> Outcome:
    plans = Plan(**{name: records[f"plan.{name}"] for name in Plan._fields})
    live = records["live"]
    released = []
    for s, site in enumerate(run.setup.sites):
        plan = Plan(*(leaf[s] for leaf in plans))._replace(live=live[s])
        trace = Trace(*(leaf[: live.shape[1]] for leaf in site.trace))
        released.append(events(plan, trace, site.deployment, site.message))
        check_realised(released[-1], plan, trace)
    ran = np.cumsum(live, axis=1)
    ends = [min((e + 1) * run.every, live.shape[1]) - 1 for e in range(records["eval.loss"].shape[1])]
    info = {name.removeprefix("info."): value for name, value in records.items() if name.startswith("info.")}
    if run.plans:
        cut = live.shape[1]
        found = [scalars(one, axes=1) for one in run.infos]
        info = {name: np.stack([one[name][:cut] for one in found]) for name in found[0]}
    if run.uplink.decode != uplink.ANALOG.decode:
        info["refused"] = records["refused"].astype(float)
    return Outcome(
        plans=plans, events=released, releases=run.releases, live=live, norm=records["stats.norm"],
        raw_norm=records["stats.raw_norm"], sent=records["stats.sent"], update_norm=records["update_norm"], info=info,
        eval_round=ran[:, ends], right=records["eval.right"], total=records["eval.total"], loss=records["eval.loss"],
        penalty=records["eval.penalty"],
    )  # fmt: skip


def _check_energy(run: "Execution", devices: dict[str, np.ndarray]) -> None:
    """What was really sent: a bounded message never breaks its limit. A Poisson sum may in a round; its limit is one
    on the mean, which `energy.check_energy` holds its plans to."""
    over = devices["energy"] > devices["energy_limit"] * (1 + 1e-9)
    if np.isfinite(run.setup.sites[0].message.bound) and np.any(over):
        row = int(np.argmax(over))
        where = f"round {devices['round'][row]}, seed {devices['seed'][row]}: client {devices['client'][row]}"
        sent, limit = devices["energy"][row], devices["energy_limit"][row]
        raise RunError(f"{run.label}: {where} would radiate {sent:.6g} J, limit {limit:.6g} J")


def scalars(info: Any, axes: int) -> dict[str, np.ndarray]:
    """Per-round scalars of a policy's info, which have exactly so many axes: what a rounds table can hold."""
    fields = info._asdict() if hasattr(info, "_asdict") else {}
    return {name: np.asarray(value) for name, value in fields.items() if np.ndim(value) == axes}
