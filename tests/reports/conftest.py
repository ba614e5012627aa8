"""A run store without any training, for the tests of the report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from otafl.core.files import to_json
from otafl.core.plan import Events
from otafl.privacy import Budget, Ledger, attack_success
from otafl.privacy.card_text import markdown
from otafl.runs.folder.store import RunFolder, parquet

CONFIG = """rounds = 30
[task]
clients = 6
[channel]
kind = "rayleigh"
"""
EVERY = 10  # rounds an evaluation


def _ledger(rounds: int, clients: int, rng: Any, private: bool) -> Ledger:
    """Rounds under receiver noise, or under none."""
    one = np.ones((rounds, clients))
    noise, live = np.full(rounds, float(private)), np.ones(rounds, bool)
    played = Events(rng.random(one.shape), 0 * one, one > 0, one, noise, live, np.ones(clients), np.full(clients, 0.2))
    budget = Budget(50.0 if private else np.inf, 1e-5, adjacency="replace", unit="client")
    return Ledger(budget, clients, [played])


class _Made(NamedTuple):
    """Rounds of one scheme as they may have been: who sent in which, and with how much."""

    seeds: list[int]
    lengths: list[int]  # rounds of each seed
    sent: np.ndarray  # (rows, clients), all seeds one after the other
    energy: np.ndarray
    rng: Any
    how: dict[str, Any]

    @property
    def clients(self) -> int:
        return self.sent.shape[1]

    @property
    def seed(self) -> np.ndarray:
        return np.repeat(self.seeds, self.lengths)

    @property
    def round(self) -> np.ndarray:
        return np.concatenate([np.arange(length) for length in self.lengths])


def _made(seeds: list[int], rounds: int, clients: int, rng: Any, how: dict[str, Any]) -> _Made:
    lengths = [rounds - n * how.get("shorter", 0) for n in range(len(seeds))]
    sent = rng.random((sum(lengths), clients)) > how.get("silence", 0.2)
    return _Made(seeds, lengths, sent, rng.exponential(0.01, sent.shape) * sent, rng, how)


def _rounds(made: _Made) -> dict[str, Any]:
    rng, rows, how = made.rng, len(made.sent), made.how
    return {
        "seed": made.seed, "round": made.round, "rx_scale": rng.random(rows), "noise_std": rng.random(rows),
        "update_norm": rng.random(rows).astype(np.float32), "sent": made.sent.sum(1),
        "sent_weight": made.sent.mean(1), "heard_weight": made.sent.mean(1),
        "snr": np.full(rows, np.inf) if how.get("noiseless") else rng.random(rows),
        "energy_share": made.energy.max(1),
        "clipped_share": np.full(rows, np.nan) if how.get("fused") else rng.random(rows),
        **({"info_queue": rng.random(rows).cumsum()} if how.get("queue") else {}),
    }  # fmt: skip


def _devices(made: _Made) -> dict[str, Any]:
    rows, clients, one = *made.sent.shape, np.ones(made.sent.size, np.float32)
    return {
        "seed": np.repeat(made.seed, clients), "round": np.repeat(made.round, clients), "sent": made.sent.ravel(),
        "client": np.tile(np.arange(clients), rows), "norm": one, "raw_norm": one, "energy": made.energy.ravel(),
        "energy_limit": one.astype(float), "noise_multiplier": one.astype(float),
    }  # fmt: skip


def _evaluations(made: _Made, ledgers: list[Ledger]) -> dict[str, np.ndarray]:
    ends = [np.unique([*range(EVERY, length + 1, EVERY), length]) for length in made.lengths]
    rng, count = made.rng, sum(map(len, ends))
    return {
        "seed": np.repeat(made.seeds, [len(end) for end in ends]), "round": np.concatenate(ends),
        "accuracy": rng.random(count), "worst_client": rng.random(count) / 2, "loss": 2 * rng.random(count),
        "penalty": np.full(count, made.how.get("penalty", 0.0)),
        "eps": np.concatenate([ledger.worst() * (end / end[-1]) for ledger, end in zip(ledgers, ends)]),
    }  # fmt: skip


def _summary(label: str, made: _Made, ledgers: list[Ledger], evaluations: dict[str, np.ndarray]) -> dict[str, Any]:
    private, count = made.how.get("private", True), len(made.seeds)
    attacks = [attack_success(ledger) for ledger in ledgers]
    last = {name: [column[evaluations["seed"] == s][-1] for s in made.seeds] for name, column in evaluations.items()}
    return {
        "label": label, "scheme": "constant", "uplink": "analog", "unit": "client", "adjacency": "replace",
        "delta": 1e-5, "accountant": "zcdp", "target_eps": 50.0, "capped": private, "private": private, "csi": "own",
        "loop": "open", "every": EVERY, "clients": made.clients, "channel_uses": 10, "seeds": made.seeds,
        "final_accuracy": last["accuracy"], "best_accuracy": last["accuracy"], "worst_client": last["worst_client"],
        "final_loss": last["loss"], "final_eps": last["eps"],
        "mu": [found.mu for found in attacks], "tpr_at_1pct": [found.tpr_at_1pct for found in attacks],
        "rounds": [float(n) for n in made.lengths],
        "accuracy_at_eps": [np.nan] * count, "worst_client_at_eps": [np.nan] * count, "mean_rx_scale": [0.5] * count,
        "silent_weight": [0.2] * count,
        "energy_per_round": [0.01 if made.how.get("devices", True) else np.nan] * count,
    }  # fmt: skip


def _card(made: _Made, ledgers: list[Ledger]) -> dict[str, Any]:
    eps = max(ledgers, key=Ledger.worst).spent().eps.tolist()
    return {
        "unit": "client", "adjacency": "replace", "delta": 1e-5, "clients": made.clients, "rounds": made.lengths[0],
        "guarantee": {"eps": max(eps), "is_cap": False},
        "cap": {"eps": 50.0 if made.how.get("private", True) else np.inf, "accountant": "zcdp"},
        "spent": [{"accounting": "none", "certified": True, "worst_client": 0, "notes": ["a note"],
                   "accountant": "zcdp", "eps_worst": max(eps), "eps_mean": float(np.mean(eps)), "eps": eps}],
        "not_applicable": {"pld": "no <reason>"}, "trusted_noise": "none", "sampling": "every round",
        "assumptions": ["noise is Gaussian"], "outside_the_guarantee": ["sizes"],
    }  # fmt: skip


def _scheme(run: RunFolder, label: str, made: _Made) -> None:
    """Files of one scheme: random, but of the shape, type and range that a run writes."""
    place, how = run.scheme(label), made.how
    place.path.mkdir(parents=True)
    contents: dict[str, bytes | str] = {"rounds.parquet": parquet(_rounds(made))}
    if how.get("devices", True):
        contents["devices.parquet"] = parquet(_devices(made))
    ledgers = [_ledger(length, made.clients, made.rng, how.get("private", True)) for length in made.lengths]
    contents |= {f"ledger-{seed}.bin": ledger.to_bytes() for seed, ledger in zip(made.seeds, ledgers)}
    evaluations, card = _evaluations(made, ledgers), _card(made, ledgers)
    contents["evaluations.parquet"] = parquet(evaluations)
    contents |= {"summary.json": to_json(_summary(label, made, ledgers, evaluations)), "card.json": to_json(card)}
    if how.get("certificate"):
        contents["certificate.json"] = to_json(how["certificate"])
    contents["card.md"] = markdown(json.loads(str(contents["card.json"])))
    place.finish(contents, made.lengths[0], {"seconds": 1.5, "rounds": len(made.sent)})


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """make_run("name", {"label": {options}}, seeds=, rounds=, clients=): a finished run folder."""

    def make(name: str, schemes: dict[str, dict[str, Any]], seeds: Any = (0, 1, 2), rounds: int = 30, clients: int = 6,
             title: str = "A run", config: str = CONFIG) -> Path:  # fmt: skip
        manifest = {"title": title, "schemes": list(schemes), "seeds": list(seeds),
                    "data": {"name": "digits", "sha256": "beef"}, "versions": {"jax": "1"}, "machine": {"cores": "2"},
                    "parameters": 10}  # fmt: skip
        named = "".join(f'[[scheme]]\nname = "constant"\nlabel = {json.dumps(label)}\n' for label in schemes)
        run = RunFolder.create(tmp_path / name, f"seeds = {list(seeds)}\n{config}\n{named}", manifest)
        rng = np.random.default_rng(len(name))
        for label, how in schemes.items():
            if how.get("finished", True):
                _scheme(run, label, _made(list(seeds), rounds, clients, rng, how))
            else:
                run.scheme(label).prepare()
                (run.scheme(label).checkpoints / "checkpoint-0000020").write_bytes(b"")
        return run.path

    return make
