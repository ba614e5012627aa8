"""After the last round of a scheme: tables, ledgers, certificate, privacy card, model. The marker "done" comes last."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from otafl import __version__, systems
from otafl.core import uplink
from otafl.core.errors import RunError
from otafl.core.files import to_json
from otafl.core.plan import cut
from otafl.core.rounds import Carry
from otafl.privacy import PrivacyCard, account, attack_success, check_release, make_card, release
from otafl.privacy.card import Observer
from otafl.privacy.eavesdropper import overheard
from otafl.runs import build
from otafl.runs.certificates import certificate
from otafl.runs.feedback import in_words
from otafl.runs.folder.chunks import Chunk, scalars
from otafl.runs.folder.results import (
    Devices,
    Outcome,
    devices_table,
    energy_per_device,
    evaluations_table,
    rounds_table,
    signal_of,
    stop_reasons,
    summarise,
    uncertified,
)
from otafl.runs.folder.sealed import npz
from otafl.runs.folder.store import RunFolder, parquet

if TYPE_CHECKING:
    from otafl.runs.execution import Execution


HINDSIGHT = "hindsight: this scheme was told the whole channel before the first round, which no server is"
SILENCE = (
    "silence is visible (energy detection) and depends on the norm of the client's message here: what it tells about "
    "that norm is not covered by eps"
)


def finish(run: "Execution", records: Chunk, carry: Carry, seconds: float) -> None:
    """Tables, ledger, card, model; the marker that the scheme is done is written last."""
    outcome = _outcome(run, records)
    for ledger, released, beside in zip(run.ledgers, outcome.events, run.releases):
        ledger.spend(released, each_round=beside)  # refuses, and so fails the run, if a closed loop had passed its cap
    seeds = run.experiment.seed_list
    rounds = rounds_table(outcome, run.setup, seeds)
    devices = devices_table(outcome, run.setup, seeds)
    evaluations = evaluations_table(outcome, run.task, seeds, run.budget)
    _check_energy(run, devices)
    target = run.experiment.privacy.eps or np.inf
    summary = summarise(evaluations, rounds, devices, target, run.every, run.task.metric)
    worst = int(np.argmax([ledger.spent().worst for ledger in run.ledgers]))
    attacks = [attack_success(ledger) for ledger in run.ledgers]
    remarks = [*([HINDSIGHT] if run.hindsight else []), *uncertified(outcome), *run.uplink.remarks]
    card = _card(run, worst, remarks, outcome)
    left_out = int(np.sum(records.stats.left_out[records.live]))
    if left_out:
        run.reporter.note(f"{run.label}: {left_out} sample gradients were not finite and counted as zero")
    zeroed = int(np.sum(records.stats.zeroed[records.live]))
    if zeroed:
        run.reporter.note(f"{run.label}: {zeroed} messages were not finite and counted as zero")
    summary |= {
        **{name: [getattr(attack, name) for attack in attacks] for name in ("mu", "tpr_at_1pct", "advantage")},
        "left_out": left_out,
        "zeroed": zeroed,
        **energy_per_device(outcome, run.setup),
        **signal_of(rounds, run.setup, run.budget, seeds),
        "stopped_by": stop_reasons(outcome, run.experiment.horizon(run.scheme)),
        "remarks": remarks,
        "least_eps": run.least,
    }
    files: dict[str, bytes | str] = {
        "rounds.parquet": parquet(rounds.columns()),
        "evaluations.parquet": parquet(evaluations.columns(run.task.metric)),
        "certificate.json": to_json({**_certificate(run, outcome), "remarks": remarks}),
        "card.json": card.to_json(),
        "card.md": card.to_markdown(),
        "model.npz": npz({f"leaf{n:04d}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(carry.params))}),
        "summary.json": to_json({"label": run.label, "scheme": run.scheme.name, **_facts(run), **summary}),
    }
    files |= {f"ledger-{seed}.bin": ledger.to_bytes() for seed, ledger in zip(seeds, run.ledgers)}
    if run.experiment.engine.record_devices:
        files["devices.parquet"] = parquet(devices._asdict())
    timing = {"seconds": seconds, "rounds": int(np.sum(outcome.played.live))}
    run.folder.finish(files, int(np.max(np.sum(outcome.played.live, 1))), timing)


def _facts(run: "Execution") -> dict[str, Any]:
    first = run.setup.sites[0]
    return {"csi": "hindsight" if run.hindsight else first.policy.csi, "hindsight": run.hindsight,
            "uplink": run.uplink.name, "alarm": run.uplink.alarm, "loop": run.loop,
            "unit": first.message.unit, "adjacency": first.message.adjacency, "delta": run.budget.delta,
            "accountant": run.budget.accountant, "target_eps": run.experiment.privacy.eps, "capped": run.capped,
            "channel_uses": first.message.dim, "clients": len(first.deployment.weights),
            "private": systems.SCHEMES[run.scheme.name].private,
            "every": run.every}  # fmt: skip


def _certificate(run: "Execution", outcome: Outcome) -> dict[str, Any]:
    server, kind = (
        build.server_of(run.experiment, run.scheme),
        (run.scheme.clients or run.experiment.clients).kind,
    )
    known = run.experiment.channel.pilots is None
    return certificate(outcome, run.setup, run.task, server, run.budget.delta, kind=kind, known=known)


def _card(run: "Execution", worst: int, remarks: list[str], outcome: Outcome) -> PrivacyCard:
    site = run.setup.sites[worst]
    insecure = [text for text in run.uplink.remarks if text.startswith("insecure")]
    alarms = [*([run.uplink.alarm] if run.uplink.alarm else []), *insecure]
    alarms += [SILENCE] if site.policy.gate == "message" else []
    alarms += [] if run.affordable else [run.unaffordable]
    known = [] if site.message.adjacency == "add-remove" else ["sizes"]
    said = [text for text in remarks if text not in alarms]
    return make_card(
        run.ledgers[worst],
        site.message,
        outside=[*known, "simulation-trace", *run.task.notes, *run.experiment.outside, *said],
        alarms=alarms,
        assumptions=[*run.uplink.assumed, *_retirement(run, worst)],
        observers=_eavesdropper(run, outcome),
        reward=in_words(site, run.releases[worst], int(np.sum(outcome.played.live[worst]))),
        identity=_identity(run),
        units=None if site.message.unit == "client" else int(np.sum(run.task.partitions[worst].sizes)),
        simulated=True,
    )


def _retirement(run: "Execution", worst: int) -> list[str]:
    """What the card says where clients retire at their own cap."""
    if run.experiment.privacy.stop == "worst" or not run.capped:
        return []
    last = run.plans[worst].max_norm[np.flatnonzero(run.plans[worst].live)[-1:]]
    noise = "keep sending artificial noise" if run.experiment.privacy.retired_noise else "send nothing"
    count = f"{int(np.sum(last < 0))} of {last.shape[-1]} are silent in the last round"
    return [f"clients retire at their own cap, by a public plan: {count}; retired clients {noise}"]


def _eavesdropper(run: "Execution", outcome: Outcome) -> list[Observer]:
    """The second receiver that the experiment declares, charged by the budget's accountant; the worst seed."""
    who = run.experiment.privacy.eavesdropper
    if who is None:
        return []
    sees = f"its own {who.antennas} antenna(s)" + (" and every model" if who.downlink else "")
    if why := _not_overheard(run):
        return [Observer("eavesdropper", sees, None, f"not covered: {why}")]
    budget = run.budget
    found = []
    for s, site in enumerate(run.setup.sites):
        plan = outcome.played.of_seed(s)
        everyone = np.ones(plan.tx.shape[-1], bool)  # two receivers may cancel artificial noise
        trace = cut(site.trace, slice(len(plan.live)))
        alone = release(run.uplink, plan, trace, site.deployment, site.message, everyone)
        heard = overheard(plan, alone, who)
        found.append(account(budget.accountant, heard, budget.delta, adjacency=budget.adjacency).worst)
    why = f"declared: gain at most {who.gain:g}, noise at least {who.noise_std:g}; no artificial noise counts"
    return [Observer("eavesdropper", sees, float(max(found)), why)]


def _not_overheard(run: "Execution") -> str:
    """Why nothing is proved about a second receiver; empty where it is charged."""
    if run.uplink.name == "perfect":
        return "an ideal uplink is no radio"
    if run.uplink.name != "analog":
        return f"what the symbols of the uplink {run.uplink.name!r} tell it rests on encryption, not on noise"
    if run.loop != "open":
        return "a plan that was played is no guarantee"
    if run.experiment.privacy.already_spent is not None:
        return "what it heard of the earlier run is not declared"
    return ""


def _identity(run: "Execution") -> dict[str, Any]:
    """What was run, for the head of the card."""
    manifest = RunFolder.open(run.folder.path.parents[1]).manifest
    return {
        "scheme": run.label if run.label == run.scheme.name else f"{run.label} ({run.scheme.name})",
        "data": " ".join([run.task.sources["name"], run.task.sources["sha256"][:12]]),
        "model": f"{_model_name(run)}, {run.task.model.num_params} parameters",
        "seeds": run.experiment.seed_list,
        "date": manifest.get("created", "unknown"),
        "version": __version__,
        "config_sha256": manifest["config_sha256"],
        "clip_norm": float((run.scheme.clients or run.experiment.clients).clip_norm),
    }


def _model_name(run: "Execution") -> str:
    named = run.experiment.task.model.name
    return f"{run.task.model.name} {run.task.sources['model_sha256'][:12]}" if named == "own" else str(named)


def _outcome(run: "Execution", records: Chunk) -> Outcome:
    live, info = records.live, records.info
    released = []
    for s, site in enumerate(run.setup.sites):
        plan = records.of_seed(s)
        trace = cut(site.trace, slice(live.shape[1]))
        released.append(run.released(plan, trace, site))
        check_release(run.uplink, released[-1], plan, trace, site.deployment, site.message)
    ran = np.cumsum(live, axis=1)
    ends = [min((e + 1) * run.every, live.shape[1]) - 1 for e in range(records.eval.loss.shape[1])]
    if run.plans:
        until = live.shape[1]
        found = [scalars(one, axes=1) for one in run.infos]
        info = {name: np.stack([one[name][:until] for one in found]) for name in found[0]}
    if run.uplink.decode != uplink.ANALOG.decode:
        info = {**info, "refused": records.refused.astype(float)}
    return Outcome(records._replace(info=info), released, run.releases, ran[:, ends])


def _check_energy(run: "Execution", devices: Devices) -> None:
    """What was really sent: a bounded message never breaks its limit. A Poisson sum may in a round; its limit is one
    on the mean, which `energy.check_energy` holds its plans to."""
    over = devices.energy > devices.energy_limit * (1 + 1e-9)
    if np.isfinite(run.setup.sites[0].message.bound) and np.any(over):
        row = int(np.argmax(over))
        where = f"round {devices.round[row]}, seed {devices.seed[row]}: client {devices.client[row]}"
        sent, limit = devices.energy[row], devices.energy_limit[row]
        raise RunError(f"{run.label}: {where} would radiate {sent:.6g} J, limit {limit:.6g} J")
