"""The page of a loop over the air that somebody else's training drives: the same page as that of a run.

A row of `rounds` is one round as its federation remembers it: "asked", "silent" (devices), "snr-db", "energy-j" (of
every device), "evaluated" ({name: number} on public data). A lost round has none of these. "eps" and "mu" are
`recounted`.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.files import plain
from otafl.privacy import attack_success, eps_curve
from otafl.reports.data import NUMBERS, by_seed, differences, long_names, short_card, tradeoff
from otafl.reports.devices import read_devices
from otafl.reports.page import render
from otafl.reports.tables import footer
from otafl.runs import doctor
from otafl.runs.air import Air
from otafl.runs.folder.results import Devices, Evaluations, Rounds, summarise
from otafl.runs.folder.sealed import digest
from otafl.runs.folder.store import parquet
from otafl.runs.planning.afford import without_rounds
from otafl.systems import in_hindsight
from otafl.tasks.losses import METRICS

Row = dict[str, Any]
PRIVATE = (
    "Who was silent, clipped or not finite, SNR and energies are told of the messages themselves: no ε covers them. "
    "They are for whoever runs the federation, not for publication."
)
Columns = dict[str, NDArray[Any]]


def recounted(air: Air, rounds: Sequence[Row]) -> list[Row]:
    """The rows with eps and mu of the loop's own ledger: what a federation remembers beside it is under no seal."""
    if not rounds:
        return []
    after = np.minimum([*range(1, len(rounds)), air.rounds_charged], air.rounds_charged)
    eps = eps_curve(air.ledger.parts[-1], after, air.job.budget, air.job.releases, air.job.ledger)
    sampled = bool(np.any(np.asarray(air.job.message.rate) < 1))  # mu says nothing there
    mu = [None if sampled else attack_success(air.ledger_after(int(own))).mu for own in after]
    return [{**row, "eps": float(e), "mu": m} for row, e, m in zip(rounds, eps, mu)]


def federation_page(air: Air, rounds: Sequence[Row], title: str, name: str, config: str) -> str:
    """An HTML page that stands on its own. `config`: what the federation was asked for, as text."""
    seed = air.settings.seed or 0
    metric = _metric(rounds)
    evaluations, per_round = _evaluations(rounds, seed, metric), _rounds(air, rounds, seed)
    devices = _devices(air, rounds, seed)
    table = io.BytesIO(parquet(devices._asdict()))
    label = air.settings.scheme.name
    target, attack = air.settings.privacy["eps"], attack_success(air.ledger)
    told = {
        "label": label, "csi": air.job.policy.csi, "uplink": air.job.uplink.name, "alarm": air.job.uplink.alarm,
        "hindsight": in_hindsight(label, air.settings.scheme.config), "private": bool(np.isfinite(air.eps)),
        "loop": air.job.policy.loop, "capped": air.job.capped, "target_eps": target,
        "delta": air.job.budget.holds_at, "unit": air.job.message.unit,
        "adjacency": air.job.message.adjacency, "accountant": air.job.budget.accountant,
        "accounting": air.job.budget.accounting,
        "mu": [attack.mu], "tpr_at_1pct": [attack.tpr_at_1pct],
        **summarise(evaluations, per_round, devices, np.inf if target is None else target, 1, metric),
    }  # fmt: skip
    scheme = {
        "id": 0, "label": label, "run": name, "finished": True, "summary": told, "seconds": None,
        "card": short_card(air.card.to_dict()), "certificate": None,
        "tradeoff": tradeoff(told),
        "evaluations": by_seed(_known(evaluations.columns(metric)), NUMBERS // 4),
        "rounds": by_seed(_known(per_round.columns()), NUMBERS),
        "devices": read_devices(table, air.num_clients, len(rounds)) if len(devices.client) else None,
    }  # fmt: skip
    run = {
        "name": name, "title": title, "seeds": [] if air.settings.seed is None else [seed],
        "config_sha256": digest(config.encode()), "data": {"name": "with the devices"},
        "parameters": air.settings.num_params, "versions": doctor.versions(), "machine": doctor.machine(),
        "config": config,
    }  # fmt: skip
    named = long_names(metric)
    return render(plain({
        "title": title, "runs": [run], "schemes": [scheme], "metric": metric, "metrics": named,
        "differences": differences([scheme], named), "footer": footer([told]), "notes": _notes(air, rounds, told),
    }))  # fmt: skip


def _metric(rounds: Sequence[Row]) -> str:
    """What the federation evaluated; accuracy, then without numbers, where it did not."""
    said = [name for row in rounds for name in row.get("evaluated", {}) if name in METRICS and name != "loss"]
    return said[0] if said else "accuracy"


def _evaluations(rounds: Sequence[Row], seed: int, metric: str) -> Evaluations:
    """One row per round that was run, NaN where nobody evaluated."""
    told = [row.get("evaluated", {}) for row in rounds]
    nothing = np.full(max(len(rounds), 1), np.nan)
    return Evaluations(
        seed=np.full(len(nothing), seed),
        round=np.arange(len(nothing)) + bool(len(rounds)),
        score=np.array([float(one.get(metric, np.nan)) for one in told]) if told else nothing,
        worst_client=nothing,
        loss=np.array([float(one.get("loss", np.nan)) for one in told]) if told else nothing,
        penalty=nothing,
        eps=np.array([float(row["eps"]) for row in rounds]) if told else np.zeros(1),
    )


def _known(columns: Columns) -> Columns:
    """Without the columns that have no number, where there are rounds."""
    empty = {name for name, column in columns.items() if column.size and np.all(np.isnan(column.astype(float)))}
    return {name: column for name, column in columns.items() if name not in empty}


def _answered(rounds: Sequence[Row]) -> list[int]:
    return [number for number, row in enumerate(rounds) if "energy-j" in row]


def _rounds(air: Air, rounds: Sequence[Row], seed: int) -> Rounds:
    """One row per round that was answered: a lost one was heard by nobody."""
    numbers = _answered(rounds)
    weights, limit = np.asarray(air.job.deployment.weights), np.asarray(air.job.deployment.energy)
    heard = [air.link(number) for number in numbers]
    sent = np.array([1 - weights[rounds[n]["silent"]].sum() for n in numbers])
    unknown = np.full(len(numbers), np.nan)  # what only a simulation sees
    return Rounds(
        seed=np.full(len(numbers), seed),
        round=np.array(numbers, int),
        rx_scale=np.array([float(air.plan(n).rx_scale) for n in numbers]),
        noise_std=np.array([float(link.noise_std) for link in heard]),
        update_norm=unknown,
        sent=np.array([air.num_clients - len(rounds[n]["silent"]) for n in numbers]),
        sent_weight=sent,
        heard_weight=np.array([np.delete(link.weight, rounds[n]["silent"]).sum() for n, link in zip(numbers, heard)]),
        snr=np.array([10 ** (float(rounds[n]["snr-db"]) / 10) for n in numbers]),
        energy_share=np.array([np.max(np.asarray(rounds[n]["energy-j"]) / limit) for n in numbers]),
        clipped_share=unknown,
        info={},
    )


def _devices(air: Air, rounds: Sequence[Row], seed: int) -> Devices:
    """One row per round that was answered and device."""
    numbers, count = _answered(rounds), air.num_clients
    sent = np.ones((len(numbers), count), bool)
    for row, number in enumerate(numbers):
        sent[row, rounds[number]["silent"]] = False
    unknown = np.full(sent.size, np.nan)
    return Devices(
        seed=np.full(sent.size, seed),
        round=np.repeat(np.array(numbers, int), count),
        client=np.tile(np.arange(count), len(numbers)),
        sent=sent.reshape(-1),
        norm=unknown,
        raw_norm=unknown,
        energy=np.array([rounds[number]["energy-j"] for number in numbers], float).reshape(-1),
        energy_limit=np.tile(np.asarray(air.job.deployment.energy, float), len(numbers)),
        noise_multiplier=unknown,
    )


def _notes(air: Air, rounds: Sequence[Row], told: Row) -> list[str]:
    """What a reader must know: faults, lost rounds, remarks of the air."""
    lost = [str(number + 1) for number, row in enumerate(rounds) if row.get("lost")]
    said = [f"Lost and charged: round {', '.join(lost)}."] if lost else []
    counts = ", ".join(f"{kind} {count}" for kind, count in air.state.faults.items())
    said += [f"Faults of replies (each changed its own part of a sum and no charge): {counts}."] if counts else []
    none = without_rounds(told)
    said += [PRIVATE] if _answered(rounds) else []
    return [*said, *([f"{told['label']}: {none}."] if none else []), *air.summary["remarks"]]
