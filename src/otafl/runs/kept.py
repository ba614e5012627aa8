"""What a run leaves whose rounds were all kept, client by client: tables, ledgers, certificate."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otafl.bounds.sequence import SequenceCertificate
from otafl.core import uplink
from otafl.core.plan import cut
from otafl.privacy import account, eps_curve, release
from otafl.privacy.accountants import spend_of_sums
from otafl.privacy.card import Observer
from otafl.privacy.card_text import round_up
from otafl.privacy.eavesdropper import loudest, overheard
from otafl.runs.certificates import measured, without
from otafl.runs.folder.chunks import Chunk, scalars
from otafl.runs.folder.results import (
    Columns,
    Devices,
    Energies,
    Evaluations,
    Outcome,
    Rounds,
    Seen,
    columns_of,
    devices_table,
    energy_per_device,
    evaluated_after,
    evaluations_table,
    rounds_table,
)
from otafl.runs.planning.energy import check_sent

if TYPE_CHECKING:
    from otafl.runs.execution import Execution


class Findings(NamedTuple):
    """All that `finish` writes down, however the rounds were kept."""

    seen: Seen
    rounds: Rounds
    evaluations: Evaluations
    devices: Columns  # "devices": one row per seed, round and client; "device_quantiles": over the clients
    devices_name: str
    energy: Devices | Energies
    joules: dict[str, list[float]]  # of a whole run, per seed: mean over devices, and the largest
    certificate: dict[str, Any]
    observers: list[Observer]
    left_out: int
    zeroed: int


def kept(run: "Execution", records: Chunk) -> Findings:
    """The findings of records that hold every round of every client."""
    outcome = _outcome(run, records)
    before = [replace(ledger, parts=[*ledger.parts], releases=[*ledger.releases]) for ledger in run.ledgers]
    for ledger, released, beside in zip(run.ledgers, outcome.events, run.releases):
        ledger.spend(released, each_round=beside)  # refuses, and so fails the run, if a closed loop had passed its cap
    seeds, seen, energy = run.experiment.seed_list, outcome.seen, outcome.energy
    for s, (seed, site) in enumerate(zip(seeds, run.setup.sites)):
        check_sent(energy[s], records.live[s], site.deployment, site.message, f"{run.label}: seed {seed}")
    live, clients = records.live, energy.shape[-1]
    recorded = run.experiment.engine.record_devices

    def eps_after(s: int, rounds: np.ndarray) -> np.ndarray:
        return np.asarray(eps_curve(outcome.events[s], rounds, run.budget, outcome.releases[s], before[s]))

    return Findings(
        seen=seen,
        rounds=rounds_table(columns_of(outcome, run.setup), records.update_norm, seen, seeds),
        evaluations=evaluations_table(seen, run.task, seeds, eps_after),
        devices=devices_table(outcome, run.setup, seeds)._asdict() if recorded else {},
        devices_name="devices",
        energy=Energies(np.repeat(np.asarray(seeds)[np.nonzero(live)[0]], clients), energy[live].reshape(-1)),
        joules=energy_per_device(outcome),
        certificate=_certificate(run, outcome),
        observers=_eavesdropper(run, outcome),
        left_out=int(np.sum(records.stats.left_out[records.live])),
        zeroed=int(np.sum(records.stats.zeroed[records.live])),
    )


def _certificate(run: "Execution", outcome: Outcome) -> dict[str, Any]:
    rows: list[SequenceCertificate | None] = []
    for s, site in enumerate(run.setup.sites):
        plan = outcome.played.of_seed(s)
        trace = cut(site.trace, slice(len(plan.live)))
        known = None if without(site) else measured(plan, outcome.events[s], trace, site)
        rows.append(None if known is None else run.certified(s, known))
    return run.certificate(rows)


def _eavesdropper(run: "Execution", outcome: Outcome) -> list[Observer]:
    """The second receiver that the experiment declares, charged by the budget's accountant; the worst seed."""
    who = run.experiment.privacy.eavesdropper
    if who is None:
        return []
    models = "every model" if who.downlink else "what other devices' messages tell of the models"
    sees = f"its own {who.antennas} antenna(s) and {models}"
    if why := _not_overheard(run, outcome):
        return [Observer("eavesdropper", sees, None, f"not covered: {why}")]
    budget, orders = run.budget, {} if run.budget.order is None else {"orders": run.budget.orders}
    found = []
    for s, site in enumerate(run.setup.sites):
        plan = outcome.played.of_seed(s)
        everyone = np.ones(plan.tx.shape[-1], bool)  # two receivers may cancel artificial noise
        trace = cut(site.trace, slice(len(plan.live)))
        alone = release(run.uplink, plan, trace, site.deployment, site.message, everyone)
        heard = overheard(plan, alone, who)
        found.append(float(account(budget.accountant, heard, budget.delta, adjacency=budget.adjacency, **orders).worst))
    why = f"declared: gain at most {who.gain:g}, noise at least {who.noise_std:g}; no artificial noise counts"
    if run.loop == "open":
        return [Observer("eavesdropper", sees, max(found), why)]
    horizon = run.experiment.horizon(run.scheme)
    sites = [loudest(site.deployment, site.message, horizon, who) for site in run.setup.sites]
    most = budget.zcdp + float(np.max(sites))  # (O2)
    cap = spend_of_sums(budget.accountant, np.array([most]), False, budget.delta, "none", budget.orders)
    why = f"{why}; the cap, and {horizon} rounds at full energy; the plan that was played: {round_up(max(found))}"
    return [Observer("eavesdropper", sees, float(cap.worst), why)]


def _not_overheard(run: "Execution", outcome: Outcome) -> str:
    """Why nothing is proved about a second receiver; empty where it is charged."""
    if run.uplink.name == "perfect":
        return "an ideal uplink is no radio"
    if run.uplink.name != "analog" or run.uplink.outside:
        return f"what the uplink {run.uplink.name!r} tells it is not counted here"
    if run.loop != "open" and not np.isfinite(run.budget.eps):
        return "a closed loop without a cap promises nothing"
    if run.loop != "open" and not np.isfinite(run.setup.sites[0].message.bound):
        return "a closed loop may send messages without a norm bound at any amplitude"
    if run.loop != "open" and run.foreign:  # one path without artificial noise says nothing of the others
        return "what somebody else's closed loop sends where it sees something else is not known"
    if run.loop != "open" and np.any(outcome.played.plan.noise[outcome.played.live]):
        return "the cap of a closed loop counts artificial noise, which two receivers may take out"
    if run.experiment.privacy.already_spent is not None:
        return "what it heard of the earlier run is not declared"
    return ""


def _outcome(run: "Execution", records: Chunk) -> Outcome:
    live, info = records.live, records.info
    released = []
    for s, site in enumerate(run.setup.sites):
        plan = records.of_seed(s)
        trace = cut(site.trace, slice(live.shape[1]))
        released.append(run.checked_release(plan, trace, site))
    if run.plans:
        until = live.shape[1]
        found = [scalars(one, axes=1) for one in run.infos]
        info = {name: np.stack([one[name][:until] for one in found]) for name in found[0]}
    after = evaluated_after(live, run.every, records.eval.loss.shape[1])
    if run.uplink.decode != uplink.ANALOG.decode:
        info = {**info, "refused": records.refused.astype(float)}
    stats, dim = records.stats, run.setup.sites[0].message.dim
    energy = run.uplink.energy(records.plan, stats.norm, stats.sent, dim)
    return Outcome(records._replace(info=info), released, run.releases, energy, after)
