"""After the last round of a scheme: tables, ledgers, certificate, privacy card, model. The marker "done" comes last."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from otafl import __version__, systems
from otafl.core.files import to_json
from otafl.core.plan import Policy
from otafl.core.rounds import Carry
from otafl.core.uplink import Uplink
from otafl.privacy import PrivacyCard, attack_success, make_card
from otafl.privacy.participation import CERTIFIED
from otafl.runs.feedback import in_words
from otafl.runs.folder.results import signal_of, stop_reasons, summarise, uncertified
from otafl.runs.folder.sealed import npz
from otafl.runs.folder.store import RunFolder, parquet
from otafl.runs.kept import Findings
from otafl.runs.planning import retirement
from otafl.runs.planning.channel_risk import said_of_channel
from otafl.runs.planning.prior_spend import said_of_earlier
from otafl.runs.sites import OTHER_LAW, rayleigh
from otafl.runs.traffic import traffic

if TYPE_CHECKING:
    from otafl.runs.execution import Execution


HINDSIGHT = "hindsight: this scheme was told the whole channel before the first round, which no server is"
SILENCE = (
    "silence is visible (energy detection) and depends on the norm of the client's message here: what it tells about "
    "that norm is not covered by eps"
)


def finish(run: "Execution", records: Any, carry: Carry, seconds: float) -> None:
    """Tables, ledger, card, model; the marker that the scheme is done is written last."""
    found = run.findings(records)
    seeds, live, rounds = run.experiment.seed_list, found.seen.live, found.rounds
    target = run.experiment.privacy.eps or np.inf
    summary = summarise(found.evaluations, rounds, found.energy, target, run.every, run.task.metric)
    worst = int(np.argmax([ledger.worst() for ledger in run.ledgers]))
    attacks = [attack_success(ledger) for ledger in run.ledgers]
    remarks = remarks_of(run.hindsight, found.seen.info, live, run.uplink)
    if (accounting := run.experiment.privacy.accounting) not in CERTIFIED and not rayleigh(run.experiment):
        remarks.append(f"accounting={accounting!r}: {OTHER_LAW}")
    retired = retired_at_end(run, carry)
    card = _card(run, worst, remarks, found, retired)
    if found.left_out:
        run.reporter.note(f"{run.label}: {found.left_out} sample gradients were not finite and counted as zero")
    if found.zeroed:
        run.reporter.note(f"{run.label}: {found.zeroed} messages were not finite and counted as zero")
    summary |= {
        **{name: [getattr(attack, name) for attack in attacks] for name in ("mu", "tpr_at_1pct", "advantage")},
        "left_out": found.left_out,
        "zeroed": found.zeroed,
        **found.joules,
        **signal_of(rounds, run.setup, run.budget, seeds),
        "stopped_by": stop_reasons(found.seen, run.experiment.horizon(run.scheme)),
        "remarks": remarks,
        "least_eps": run.least,
        "retired": retired,
    }
    files: dict[str, bytes | str] = {
        "rounds.parquet": parquet(rounds.columns()),
        "evaluations.parquet": parquet(found.evaluations.columns(run.task.metric)),
        "certificate.json": to_json({**found.certificate, "remarks": remarks}),
        "card.json": card.to_json(),
        "card.md": card.to_markdown(),
        "model.npz": npz({f"leaf{n:04d}": np.asarray(leaf) for n, leaf in enumerate(jax.tree.leaves(carry.params))}),
        "summary.json": to_json({"label": run.label, "scheme": run.scheme.name, **_facts(run), **summary}),
    }
    files |= {f"ledger-{seed}.bin": ledger.to_bytes() for seed, ledger in zip(seeds, run.ledgers)}
    if run.experiment.engine.record_devices:
        files[f"{found.devices_name}.parquet"] = parquet(found.devices)
    timing = {"seconds": seconds, "rounds": int(np.sum(live))}
    run.folder.finish(files, int(np.max(np.sum(live, 1))), timing)


def _facts(run: "Execution") -> dict[str, Any]:
    first = run.setup.sites[0]
    return {"csi": run.csi, "hindsight": run.hindsight,
            "uplink": run.uplink.name, "radio": run.uplink.radio, "alarm": run.uplink.alarm, "loop": run.loop,
            "unit": first.message.unit, "adjacency": first.message.adjacency, "delta": run.budget.holds_at,
            "accountant": run.budget.accountant, "accounting": run.budget.accounting,
            "target_eps": run.experiment.privacy.eps, "capped": run.capped,
            "channel_uses": _uses(run), "run_energy": run.run_energy, **traffic(run),
            "clients": len(first.deployment.weights),
            "unweighted": not systems.SCHEMES[run.scheme.name].weighs and bool(np.ptp(first.deployment.weights) > 1e-9),
            "private": systems.SCHEMES[run.scheme.name].private,
            "every": run.every}  # fmt: skip


def _uses(run: "Execution") -> float:
    """Channel uses per round, mean over rounds and seeds; a whole number where all are alike."""
    if not run.plans:
        return int(run.setup.sites[0].message.dim)
    of = zip(run.plans, run.setup.sites)
    mean = float(np.mean([run.uplink.uses(plan, site.trace, site.deployment) for plan, site in of]))
    return int(mean) if mean.is_integer() else mean


def retired_at_end(run: "Execution", carry: Carry) -> list[int] | None:
    """Clients of each seed who had reached their own cap when the run ended; None where nobody retires."""
    if not run.retires:
        return None
    return run.retired if run.loop == "open" else np.sum(~np.asarray(carry.policy.active), axis=-1).tolist()


def remarks_of(hindsight: bool, info: dict[str, Any], live: np.ndarray, uplink: Uplink) -> list[str]:
    """What must stand on every output: hindsight, rounds without a certificate, what the uplink says of itself."""
    return [*([HINDSIGHT] if hindsight else []), *uncertified(info, live), *uplink.remarks]


def alarms_of(uplink: Uplink, policy: Policy) -> list[str]:
    """What stands on top of a card whatever was run: what the uplink says aloud, and silence that tells of messages."""
    insecure = [text for text in uplink.remarks if text.startswith("insecure")]
    return [*([uplink.alarm] if uplink.alarm else []), *insecure, *([SILENCE] if policy.gate == "message" else [])]


def _card(run: "Execution", worst: int, remarks: list[str], found: Findings, retired: list[int] | None) -> PrivacyCard:
    site, clients, keep_noise = run.setup.sites[worst], run.ledgers[0].clients, run.experiment.privacy.retired_noise
    alarms = [*alarms_of(run.uplink, site.policy), *([] if run.affordable else [run.unaffordable])]
    known = [] if site.message.adjacency == "add-remove" else ["sizes"]
    known += ["other-runs"] if len(run.ledgers) * len(run.experiment.scheme) > 1 else []
    return make_card(
        run.ledgers[worst],
        site.message,
        outside=[*known, "simulation-trace", "data-hash", *run.task.notes, *run.experiment.outside, *remarks],
        alarms=alarms,
        assumptions=[
            *run.uplink.assumed,
            *said_of_earlier(run.experiment.privacy.already_spent),
            *([] if retired is None else [retirement.in_words(run.loop, retired[worst], clients, keep_noise)]),
            *said_of_channel(run.experiment),
        ],
        observers=found.observers,
        reward=in_words(site, run.releases[worst], int(np.sum(found.seen.live[worst]))),
        identity=_identity(run),
        units=_units(run, worst),
        simulated=True,
        trusted=run.uplink.trusted,
    )


def _units(run: "Execution", worst: int) -> int | None:
    """Records there are, as far as that is public; None: so many units as clients.

    Where sizes are secret a card must not tell their sum, nor change with it: of each client the largest size is public
    where `size_max` says it, else that it has a record at all.
    """
    message, sizes = run.setup.sites[worst].message, run.task.partitions[worst].sizes
    if message.unit == "client":
        return None
    if message.adjacency != "add-remove":
        return int(np.sum(sizes))
    return len(sizes) * (getattr(run.experiment.client_choice(run.scheme), "size_max", None) or 1)


def _identity(run: "Execution") -> dict[str, Any]:
    """What was run, for the head of the card: nothing that reads the data, which a hash of them does."""
    manifest = RunFolder.open(run.folder.path.parents[1]).manifest
    return {
        "scheme": run.label if run.label == run.scheme.name else f"{run.label} ({run.scheme.name})",
        "data": run.task.sources["name"],
        "model": f"{_model_name(run)}, {run.task.model.num_params} parameters",
        "seeds": run.experiment.seed_list,
        "date": manifest.get("created", "unknown"),
        "version": __version__,
        "config_sha256": manifest["config_sha256"],
        "clip_norm": float(run.experiment.client_choice(run.scheme).clip_norm),
    }


def _model_name(run: "Execution") -> str:
    named = run.experiment.task.model.name
    return f"{run.task.model.name} {run.task.sources['model_sha256'][:12]}" if named == "own" else str(named)
