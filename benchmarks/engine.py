"""The engine's rounds: 20 clients, MLP 64-128-10, batch 64, and the CNN of 26,010 parameters, 10 clients, batch 60.

    python benchmarks/engine.py CASE                        worker of `rounds.py`: a unit is a round of a seed
    python benchmarks/engine.py CASE --beside OTHER         time of CASE over OTHER's, both taking turns in one process
    python benchmarks/engine.py --device                    all cases in one process, also at 1,000 seeds
    python benchmarks/engine.py CASE --device [--kernels]   one of them [and what its kernels take]

An evaluation on 10,000 samples every 10 rounds is included; compilation is not.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from arrangements import processes, serve
from otafl.clients import Clients, Gradient, PerSample, gradient, per_sample
from otafl.core.engine import make_engine
from otafl.core.messages import Data, Seed
from otafl.core.plan import Link
from otafl.core.rounds import Row, make_round
from otafl.runs.device_mapping import choose_client_map, choose_seed_map
from otafl.runs.evaluation import blocks, evaluator
from otafl.tasks.ghost import evaluated_at_once
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


class Case(NamedTuple):
    """A round that is measured."""

    model: Callable[[], Model]
    clients: Callable[[Model], Clients]
    shape: tuple[int, ...]  # of a sample
    num_clients: int
    seeds: int  # on a CPU; a process per core has its share of them
    rounds: int
    equal: bool = False  # clients of one size, for the CNN's published setting


def mlp() -> Model:
    return build("mlp", (64,), 10, hidden=(128,))


def clipped(model: Model) -> Clients:
    return gradient(Gradient(batch=BATCH), model, min_size=300)


def fixed(model: Model) -> Clients:
    return per_sample(PerSample(batch=BATCH, sampling="without-replacement"), model, min_size=300)


CASES = {
    "mlp": Case(mlp, clipped, (64,), CLIENTS, 10, 20),
    "mlp, one seed": Case(mlp, clipped, (64,), CLIENTS, 1, 20),
    "mlp, one seed, 100 clients": Case(mlp, clipped, (64,), 100, 1, 20),
    "mlp per sample": Case(mlp, fixed, (64,), CLIENTS, 10, 20),
    "mlp per sample, Poisson": Case(
        mlp, lambda m: per_sample(PerSample(batch=BATCH, sampling="poisson"), m), (64,), CLIENTS, 10, 20
    ),
    "cnn per sample, Poisson": Case(
        lambda: build("cnn-mnist", (28, 28), 10), lambda m: per_sample(PerSample(batch=60, sampling="poisson"), m),
        (28, 28), 10, 1, 10, equal=True,
    ),
}  # fmt: skip


def prepared(case: Case, seeds: int, rounds: int) -> Callable[[], float]:
    """A stretch of rounds of all seeds, as users run it; says how many rounds of a seed that was."""
    x, y = data(case.shape)
    rows, sizes = partition(case.num_clients)
    if case.equal:
        rows = np.arange(SAMPLES, dtype=np.int32).reshape(case.num_clients, -1)
        sizes = np.full(case.num_clients, rows.shape[1], np.int32)
    shape = (seeds, rounds, case.num_clients)
    link = Link(np.full(shape, 1 / case.num_clients, np.float32), np.full(shape, np.inf, np.float32),
                np.full(shape[:2], 0.01, np.float32), np.ones(shape[:2], bool))  # fmt: skip
    row = jax.device_put(Row(link, (), np.ones(shape[:2], bool)))
    model, optimizer = case.model(), optax.sgd(0.1)
    held = blocks(x[:HELD_OUT], y[:HELD_OUT], min(10_000, evaluated_at_once(model.footprint)))
    client_map = choose_client_map(case.num_clients, model.num_params)
    round_ = make_round(case.clients(model), optimizer, client_map)
    seed_map = choose_seed_map(model)
    engine = make_engine(model.init, evaluator(model, 10), round_, optimizer, seed_map, evaluate_every=10)
    batch = Seed(jax.random.split(jax.random.key(0), seeds), jnp.broadcast_to(jnp.asarray(rows), (seeds, *rows.shape)),
                 jnp.broadcast_to(jnp.asarray(sizes), (seeds, case.num_clients)))  # fmt: skip
    train = Data(jnp.asarray(x), jnp.asarray(y))
    carry, sound = engine.init(batch.key, jnp.zeros((seeds, 0))), False

    def work() -> float:
        nonlocal carry, sound
        carry, record, accuracy = engine.chunk(train, held, (), batch, carry, row)
        jax.block_until_ready((carry, accuracy))
        # Looked at once: on an accelerator the look would cost as much as some rounds.
        sound = sound or (bool(jnp.all(record.stats.sent)) and not bool(jnp.any(record.stats.overflow)))
        assert sound
        return float(seeds * rounds)

    return work


def beside(name: str, other: str, turns: int = 15) -> dict[str, float]:
    """Least time of one case over another's: what else the machine does, and how fast it is today, meets both alike."""
    works = [prepared(CASES[case], CASES[case].seeds, CASES[case].rounds) for case in (name, other)]
    taken = [[_timed(work) for work in works] for _ in range(turns + 1)][1:]  # the first compiles
    (one, units), (two, others) = (min(column) for column in zip(*taken))
    return {"turns": turns, "time_over_other": (one / units) / (two / others)}


def on_device(names: Iterable[str], kernels: bool = False) -> dict[str, Any]:
    """Times of cases on this machine's accelerator, all seeds in one batch."""
    found = {}
    for name in names:
        case = CASES[name]
        for seeds, rounds in ((case.seeds, 100), (1000, 20)) if case.seeds > 1 else ((1, 100),):
            work = prepared(case, seeds, rounds)
            first, *times = (_timed(work) for _ in range(9))
            best = min(seconds for seconds, _ in times)
            label, units = f"{name}, {seeds} seeds", first[1]
            found[label] = {"us_per_seed_round": best / units * 1e6, "compile_s": first[0] - best}
            print(f"{label:<44} {best / units * 1e3:9.4f} ms; compiled in {first[0] - best:.1f} s", flush=True)
            if kernels:
                print_kernels(work, rounds)
    return found


def print_kernels(work: Callable[[], float], rounds: int) -> None:
    """What the profiler sees on the accelerator, per round of all seeds; kernels may overlap."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            work()
        seen = jax.profiler.ProfileData.from_file(str(next(Path(folder).rglob("*.xplane.pb"))))
    taken: dict[str, list[float]] = defaultdict(list)
    for plane in seen.planes:
        for line in plane.lines if plane.name.startswith("/device:GPU") else ():
            for event in line.events if line.name.startswith("Stream") else ():
                taken[event.name].append(event.duration_ns / 1e3)
    for name, times in sorted(taken.items(), key=lambda pair: -sum(pair[1])):
        print(f"    {sum(times) / rounds:9.2f} us  x {len(times) / rounds:5.2f}  {name[:90]}")


def _timed(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds, and the seed-rounds done in them."""
    began = time.perf_counter()
    units = work()
    return time.perf_counter() - began, units


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", choices=CASES)
    parser.add_argument("--beside", choices=CASES, help="print the time over that of this case")
    parser.add_argument("--device", action="store_true", help="ours alone, with the sizes of an accelerator")
    parser.add_argument("--kernels", action="store_true", help="with --device: what each kernel takes, by the profiler")
    parser.add_argument("--json", type=Path, help="with --device: write the numbers here")
    args = parser.parse_args()
    if args.beside:
        print(json.dumps(beside(args.case, args.beside)))
        return
    if not args.device:
        case = CASES[args.case]
        serve(prepared(case, max(1, case.seeds // processes()), case.rounds))
        return
    facts = {"device": str(jax.devices()[0]), "jax": jax.__version__, "date": time.strftime("%Y-%m-%d")}
    print(facts)
    found = on_device([args.case] if args.case else CASES, args.kernels)
    if args.json:
        args.json.write_text(json.dumps({"facts": facts, "ours": found}, indent=2))


if __name__ == "__main__":
    main()
