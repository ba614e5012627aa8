"""The engine against its peers: K=20 clients, MLP 64-128-10, batch 64, and the 26,010-parameter CNN.

    python benchmarks/engine.py                 ours, and torch / torch.func / Opacus where installed, in one process
    python benchmarks/engine.py --device        ours alone, also at 1,000 seeds (for an accelerator)

Times are wall time per round and seed, compilation shown apart, an evaluation on 10,000 samples every 10 rounds
included, best of several repetitions. On a CPU read the ratios, not the times.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from otafl.clients import Gradient, PerSample, gradient, per_sample
from otafl.core.engine import make_engine
from otafl.core.messages import Data, Seed
from otafl.core.plan import Link
from otafl.core.rounds import Row, make_round
from otafl.runs.build import blocks, evaluator
from otafl.runs.device_mapping import choose_seed_map
from otafl.tasks.ghost import samples_at_once
from otafl.tasks.models import Model, build

CLIENTS, BATCH, SAMPLES, HELD_OUT = 20, 64, 60_000, 10_000


def data(shape: tuple[int, ...], classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((SAMPLES, *shape), np.float32), rng.integers(0, classes, SAMPLES).astype(np.int32)


def partition(clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet sizes, as in the experiments."""
    rng = np.random.default_rng(1)
    sizes = np.maximum(rng.multinomial(SAMPLES - 300 * clients, rng.dirichlet(np.full(clients, 3.0))) + 300, 1)
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.stack([np.minimum(start + np.arange(sizes.max()), SAMPLES - 1) for start in starts])
    return rows.astype(np.int32), sizes.astype(np.int32)


def ours(
    model: Model,
    clients: Any,
    x: np.ndarray,
    y: np.ndarray,
    num_clients: int,
    seeds: int,
    rounds: int,
    repeat: int,
    client_map: Any,
    equal: bool = False,
) -> dict[str, float]:
    """Seconds per round and seed of the engine as users run it."""
    rows, sizes = partition(num_clients)
    if equal:
        share = SAMPLES // num_clients
        rows, sizes = (
            np.arange(SAMPLES, dtype=np.int32).reshape(num_clients, share),
            np.full(num_clients, share, np.int32),
        )
    shape = (seeds, rounds, num_clients)
    link = Link(np.full(shape, 1 / num_clients, np.float32), np.full(shape, np.inf, np.float32),
                np.full(shape[:2], 0.01, np.float32), np.ones(shape[:2], bool))  # fmt: skip
    row = jax.device_put(Row(link, (), np.ones(shape[:2], bool)))
    optimizer = optax.sgd(0.1)
    held = blocks(x[:HELD_OUT], y[:HELD_OUT], min(10_000, samples_at_once(model.footprint)))
    evaluate = evaluator(model, 10)
    round_ = make_round(clients, optimizer, client_map)
    engine = make_engine(model.init, evaluate, round_, optimizer, choose_seed_map(model), evaluate_every=10)
    batch = Seed(jax.random.split(jax.random.key(0), seeds), jnp.broadcast_to(jnp.asarray(rows), (seeds, *rows.shape)),
                 jnp.broadcast_to(jnp.asarray(sizes), (seeds, num_clients)))  # fmt: skip
    train = Data(jnp.asarray(x), jnp.asarray(y))
    carry = engine.init(batch.key, jnp.zeros((seeds, 0)))
    began = time.perf_counter()
    carry, record, accuracy = engine.chunk(train, held, (), batch, carry, row)
    jax.block_until_ready(accuracy)
    first, best = time.perf_counter() - began, np.inf
    for _ in range(repeat):
        began = time.perf_counter()
        carry, record, accuracy = engine.chunk(train, held, (), batch, carry, row)
        jax.block_until_ready((carry, accuracy))
        best = min(best, time.perf_counter() - began)
    assert bool(jnp.all(record.stats.sent)) and not bool(jnp.any(record.stats.overflow))
    return {"ms_per_seed_round": best / seeds / rounds * 1e3, "compile_s": first - best}


def mlp_cases(seeds: int, rounds: int, repeat: int, maps: list[Any]) -> dict[str, Any]:
    x, y = data((64,))
    model = build("mlp", (64,), 10, hidden=(128,))
    kinds = {
        "gradient": gradient(Gradient(batch=BATCH), model, min_size=300),
        "per-sample": per_sample(PerSample(batch=BATCH, sampling="without-replacement"), model, min_size=300),
        "per-sample poisson": per_sample(PerSample(batch=BATCH, sampling="poisson"), model),
    }
    out = {}
    for name, clients in kinds.items():
        for client_map in maps:
            out[f"mlp {name}, {client_map}"] = ours(model, clients, x, y, CLIENTS, seeds, rounds, repeat, client_map)
    return out


def cnn_cases(repeat: int, maps: list[Any], seeds: int = 1) -> dict[str, Any]:
    x, y = data((28, 28))
    model = build("cnn-mnist", (28, 28), 10)
    clients = per_sample(PerSample(batch=60, sampling="poisson"), model)
    return {
        f"cnn per-sample poisson, {m}, {seeds} seeds": ours(model, clients, x, y, 10, seeds, 10, repeat, m, equal=True)
        for m in maps
    }


def show(results: dict[str, Any], peers: dict[str, float] | None = None) -> None:
    for name, value in results.items():
        print(f"{name:<44} {value['ms_per_seed_round']:9.4f} ms   compile {value.get('compile_s', 0):5.1f} s")
    for name, value in (peers or {}).items():
        print(f"{name:<44} {value:9.4f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="store_true", help="ours alone, with the sizes of an accelerator")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    args = parser.parse_args()
    facts = {
        "backend": jax.default_backend(),
        "device": str(jax.devices()[0]),
        "jax": jax.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
    print(facts)
    if args.device:
        results = (
            mlp_cases(10, 100, 5, ["vmap"])
            | {f"{k} (1000 seeds)": v for k, v in mlp_cases(1000, 20, 3, ["vmap"]).items()}
            | cnn_cases(5, ["vmap"])
        )
        show(results)
        peers: dict[str, float] = {}
    else:
        from peers import peer_times  # torch lives in the benchmark's own environment

        results = mlp_cases(10, 20, 12, ["vmap", "map"]) | cnn_cases(5, ["vmap", "map"])
        peers = peer_times()
        show(results, peers)
        ratios(results, peers)
    if args.json:
        args.json.write_text(json.dumps({"facts": facts, "ours": results, "peers": peers}, indent=2))


def ratios(results: dict[str, Any], peers: dict[str, float]) -> None:
    """Peers' time over ours, the best of our client mappings."""
    pairs = {
        "mlp gradient": ("torch loop over clients", "torch.func vmap"),
        "mlp per-sample,": ("opacus mlp",),
        "mlp per-sample poisson": ("opacus mlp",),
        "cnn": ("opacus cnn",),
    }
    for prefix, names in pairs.items():
        best = min(v["ms_per_seed_round"] for k, v in results.items() if k.startswith(prefix))
        for peer in names:
            if peer in peers:
                print(f"{peer} / ours ({prefix.rstrip(',')}): {peers[peer] / best:.1f}x")


if __name__ == "__main__":
    main()
