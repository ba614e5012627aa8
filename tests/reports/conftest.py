"""A run store without any training, for the tests of the report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl.core.files import to_json
from otafl.core.plan import Events
from otafl.privacy import Budget, Ledger
from otafl.privacy.card_text import markdown
from otafl.runs.folder.store import RunFolder, parquet

CONFIG = """rounds = 30
[task]
clients = 6
[channel]
kind = "rayleigh"
"""


def _ledger(rounds: int, clients: int, rng: Any, private: bool) -> Ledger:
    """Rounds under receiver noise, or under none."""
    one = np.ones((rounds, clients))
    noise, live = np.full(rounds, float(private)), np.ones(rounds, bool)
    played = Events(rng.random(one.shape), 0 * one, one > 0, one, noise, live, np.ones(clients), np.full(clients, 0.2))
    budget = Budget(50.0 if private else np.inf, 1e-5, adjacency="replace", unit="client")
    return Ledger(budget, clients, [played])


def _scheme(run: RunFolder, label: str, seeds: list[int], rounds: int, clients: int, rng: Any, **how: Any) -> None:
    """Tables of one scheme: random, but of the shape, type and range that a run writes."""
    place, private, every = run.scheme(label), how.get("private", True), 10
    place.path.mkdir(parents=True)
    contents: dict[str, bytes | str] = {}
    lengths = [rounds - n * how.get("shorter", 0) for n in range(len(seeds))]
    seed = np.concatenate([np.full(length, s) for s, length in zip(seeds, lengths)])
    round_ = np.concatenate([np.arange(length) for length in lengths])
    rows = len(seed)
    sent = rng.random((rows, clients)) > how.get("silence", 0.2)
    energy = rng.exponential(0.01, (rows, clients)) * sent
    contents["rounds.parquet"] = parquet({
        "seed": seed, "round": round_, "rx_scale": rng.random(rows), "noise_std": rng.random(rows),
        "update_norm": rng.random(rows).astype(np.float32), "sent": sent.sum(1), "sent_weight": sent.mean(1),
        "heard_weight": sent.mean(1),
        "snr": np.full(rows, np.inf) if how.get("noiseless") else rng.random(rows), "energy_share": energy.max(1),
        "clipped_share": np.full(rows, np.nan) if how.get("fused") else rng.random(rows),
        **({"info_queue": rng.random(rows).cumsum()} if how.get("queue") else {}),
    })  # fmt: skip
    if how.get("devices", True):
        contents["devices.parquet"] = parquet({
            "seed": np.repeat(seed, clients), "round": np.repeat(round_, clients), "sent": sent.ravel(),
            "client": np.tile(np.arange(clients), rows), "norm": np.ones(sent.size, np.float32),
            "raw_norm": np.ones(sent.size, np.float32), "energy": energy.ravel(), "energy_limit": np.ones(sent.size),
            "noise_multiplier": np.ones(sent.size),
        })  # fmt: skip
    ledgers = [_ledger(length, clients, rng, private) for length in lengths]
    contents |= {f"ledger-{s}.bin": ledger.to_bytes() for s, ledger in zip(seeds, ledgers)}
    ends = [np.unique([*range(every, length + 1, every), length]) for length in lengths]
    count = sum(map(len, ends))
    evaluations = {
        "seed": np.concatenate([np.full(len(end), s) for s, end in zip(seeds, ends)]), "round": np.concatenate(ends),
        "accuracy": rng.random(count), "worst_client": rng.random(count) / 2, "loss": 2 * rng.random(count),
        "penalty": np.full(count, how.get("penalty", 0.0)),
        "eps": np.concatenate([ledger.worst() * (end / end[-1]) for ledger, end in zip(ledgers, ends)]),
    }  # fmt: skip
    contents["evaluations.parquet"] = parquet(evaluations)
    last = {s: {k: v[evaluations["seed"] == s][-1] for k, v in evaluations.items()} for s in seeds}
    per_seed = {
        "final_accuracy": [last[s]["accuracy"] for s in seeds], "best_accuracy": [last[s]["accuracy"] for s in seeds],
        "worst_client": [last[s]["worst_client"] for s in seeds], "final_loss": [last[s]["loss"] for s in seeds],
        "final_eps": [last[s]["eps"] for s in seeds], "rounds": [float(n) for n in lengths],
        "accuracy_at_eps": [np.nan] * len(seeds), "worst_client_at_eps": [np.nan] * len(seeds),
        "mean_rx_scale": [0.5] * len(seeds), "silent_weight": [0.2] * len(seeds),
        "energy_per_round": [0.01 if how.get("devices", True) else np.nan] * len(seeds),
    }  # fmt: skip
    spend = {"accounting": "none", "certified": True, "worst_client": 0, "notes": ["a note"], "accountant": "zcdp"}
    eps = max(ledgers, key=Ledger.worst).spent().eps.tolist()
    files = {
        "summary": {"label": label, "scheme": "constant", "uplink": "analog", "unit": "client", "adjacency": "replace",
                    "delta": 1e-5, "accountant": "zcdp", "target_eps": 50.0, "capped": private, "private": private,
                    "csi": "own", "loop": "open", "every": every, "clients": clients, "channel_uses": 10,
                    "seeds": seeds, **per_seed},
        "card": {"unit": "client", "adjacency": "replace", "delta": 1e-5, "clients": clients, "rounds": rounds,
                 "guarantee": {"eps": max(eps), "is_cap": False},
                 "cap": {"eps": 50.0 if private else np.inf, "accountant": "zcdp"},
                 "spent": [{**spend, "eps_worst": max(eps), "eps_mean": float(np.mean(eps)), "eps": eps}],
                 "not_applicable": {"pld": "no <reason>"}, "trusted_noise": "none", "sampling": "every round",
                 "assumptions": ["noise is Gaussian"], "outside_the_guarantee": ["sizes"]},
    }  # fmt: skip
    if how.get("certificate"):
        files["certificate"] = how["certificate"]
    contents |= {f"{name}.json": to_json(content) for name, content in files.items()}
    contents["card.md"] = markdown(json.loads(str(contents["card.json"])))
    place.finish(contents, rounds, {"seconds": 1.5, "rounds": rows})


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
                _scheme(run, label, list(seeds), rounds, clients, rng, **how)
            else:
                run.scheme(label).prepare()
                (run.scheme(label).checkpoints / "checkpoint-0000020").write_bytes(b"")
        return run.path

    return make
