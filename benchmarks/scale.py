"""Rounds per second and peak memory at 10 to 10,000 clients, in chunks of clients: time linear, memory flat.

    python benchmarks/scale.py [--chunk 50]

Each size runs in a process of its own, so that peak memory is its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

SIZES = (10, 100, 1_000, 10_000)


def measure(num_clients: int, chunk: int, rounds: int) -> dict[str, float]:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    from otafl.clients import Gradient, gradient
    from otafl.core.engine import make_engine
    from otafl.core.messages import Data, Seed
    from otafl.core.plan import Link
    from otafl.core.rounds import Row, make_round
    from otafl.tasks.models import build

    rng, own = np.random.default_rng(0), 100
    model = build("mlp", (64,), 10, hidden=(128,))
    data = Data(
        jnp.asarray(rng.standard_normal((20_000, 64), np.float32)), jnp.asarray(rng.integers(0, 10, 20_000), jnp.int32)
    )
    rows = rng.integers(0, 20_000, (1, num_clients, own)).astype(np.int32)
    seeds = Seed(jax.random.split(jax.random.key(0), 1), jnp.asarray(rows), jnp.full((1, num_clients), own, jnp.int32))
    shape = (1, rounds, num_clients)
    weight, max_norm = np.full(shape, 1 / num_clients, np.float32), np.full(shape, np.inf, np.float32)
    link = Link(weight, max_norm, np.full(shape[:2], 0.01, np.float32), np.ones(shape[:2], bool))
    optimizer = optax.sgd(0.1)
    engine = make_engine(
        model.init,
        lambda p, h: jnp.zeros(()),
        make_round(gradient(Gradient(batch=32), model, own), optimizer, chunk),
        optimizer,
    )
    carry = engine.init(seeds.key, jnp.zeros((1, 0)))
    row = Row(link, (), np.ones(shape[:2], bool))
    carry, _, _ = engine.chunk(data, (), (), seeds, carry, row)
    jax.block_until_ready(carry)
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        carry, _, _ = engine.chunk(data, (), (), seeds, carry, row)
        jax.block_until_ready(carry)
        best = min(best, time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "clients": num_clients,
        "rounds_per_s": rounds / best,
        "us_per_client_round": best / rounds / num_clients * 1e6,
        "peak_mib": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--one", type=int, help="measure this number of clients in this process")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.chunk, max(2, 2000 // args.one))))
        return
    print(f"chunks of {args.chunk} clients")
    print(f"{'clients':>8} {'rounds/s':>10} {'us per client-round':>20} {'peak MiB':>9}")
    for size in SIZES:
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(size), "--chunk", str(args.chunk)],
            capture_output=True,
            text=True,
            check=True,
        )
        r = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"{r['clients']:>8} {r['rounds_per_s']:>10.2f} {r['us_per_client_round']:>20.1f} {r['peak_mib']:>9.0f}")


if __name__ == "__main__":
    main()
