"""One federation, whole: Flower's own simulation beside `otafl.run`, from the start of a process to its end.

    python benchmarks/federation.py --json FILE [--quick]

The same model (MLP 64-128-10), data, batches of 64, one clipped step per client and round, FedAvg, one seed. Flower
runs in both of its arrangements: a client per core at a time, and one client at a time with all cores. Seconds per
round are without the first, in which both sides compile or start workers; memory is that of all processes together.
The larger federation is run in Flower's better arrangement alone.
Flower needs an environment of its own: `make bench` makes it, else OTAFL_BENCH_FLOWER names its Python.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from arrangements import CORES, HERE, Effort, together
from memory import Peak
from part import part

FLOWER = Path(os.environ.get("OTAFL_BENCH_FLOWER", HERE.parent / ".venv-bench-flower" / "bin" / "python"))
SIZES = {"mlp, one seed": (20, 20), "mlp, one seed, 100 clients": (100, 20)}  # case of engine.py: clients, rounds
OURS = """
import sys
import numpy as np
import otafl
clients, rounds, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = np.random.default_rng(0)
x, y = rng.standard_normal((60_000, 64), np.float32), rng.integers(0, 10, 60_000)
task = otafl.task(x, y, held_out=(x[:10_000], y[:10_000]), clients=clients, reward_fraction=0.0, weights="equal")
otafl.run(task=task, model={"name": "mlp", "hidden": [128]}, schemes=["fedavg"],
          clients={"kind": "gradient", "batch": 64},
          rounds=rounds, seeds=1, evaluate_every=10, step_size=0.1, out=folder)
"""


def whole(command: list[str], **more: str) -> tuple[str, float, float]:
    """What a process printed, its seconds, and the most memory that it and its children held."""
    began = time.perf_counter()
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=HERE, env={**os.environ, **more})
    with Peak([child.pid]) as peak:
        out, said = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{command[:3]}: exit code {child.returncode}\n{said[-2000:]}")
    return out, time.perf_counter() - began, peak.mib


def flower(clients: int, rounds: int, threads: int) -> dict[str, Any]:
    size = ["--clients", str(clients), "--rounds", str(rounds), "--threads", str(threads)]
    out, seconds, mib = whole([str(FLOWER), "flower_simulation.py", *size])
    told = json.loads(out.splitlines()[-1])
    return {"whole_s": seconds, "round_s": statistics.median(told["rounds_s"][1:]), "peak_mib": mib}


def ours(name: str, clients: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", OURS, str(clients), str(rounds), str(Path(folder) / "run")]
        _, seconds, mib = whole(command, OTAFL_CACHE=folder)  # nothing is compiled yet
    rate = together([sys.executable, "engine.py", name], 1, Effort())["per_s"]
    return {"whole_s": seconds, "round_s": 1 / rate, "peak_mib": mib}


def measure(quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ways = {"a client per core at a time": 1, "one client at a time": len(CORES)}
    if not FLOWER.exists():
        ways = {}
        print(f"{FLOWER} is not there: Flower's simulation is left out")
    for name, (clients, rounds) in {"mlp, one seed": (4, 3)}.items() if quick else SIZES.items():
        case: dict[str, Any] = {"clients": clients, "rounds": rounds, "ours": ours(name, clients, rounds), "Flower": {}}
        for way, threads in ways.items():
            case["Flower"][way] = flower(clients, rounds, threads)
        if ways:  # the larger federation takes the better of the two
            better = min(ways, key=lambda way: case["Flower"][way]["round_s"])
            ways = {better: ways[better]}
        found[f"{clients} clients"] = case
        print(json.dumps(case), flush=True)
    return found


if __name__ == "__main__":
    part(__doc__, measure)
