"""Whole commands: `otafl run` from start to report, its time, its memory, client updates per second.

    python benchmarks/scale.py --json FILE [--quick]       cost against clients, seeds, parameters and rounds
    python benchmarks/scale.py --clients 1000000 --rounds 20          one run of this size

Every run is a process of its own, on the digits that clients share; peak memory is that of the process and its
children, on the host. "rounds" is the time of the rounds with compilation, the rest is start-up, planning, tables and
pictures. Slopes are those of a line through the last two points on logarithmic axes: 1 is linear.
"""

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from memory import Peak

HERE = Path(__file__).parent


class Size(NamedTuple):
    """A logistic model has 650 parameters; more come from a hidden layer."""

    clients: int = 100
    seeds: int = 1
    hidden: int = 0
    rounds: int = 100
    stream: bool = False  # rounds go by in blocks, as they do by default above 2^23 clients x rounds


SWEEPS: dict[str, list[Size]] = {
    "clients": [Size(clients=n, rounds=10, stream=True) for n in (10_000, 100_000, 1_000_000)],
    "seeds": [Size(seeds=n) for n in (4, 32, 256)],
    "parameters": [Size(hidden=n) for n in (32, 256, 2048)],
    "rounds": [Size(clients=1_000, rounds=n, stream=True) for n in (100, 1_000, 10_000)],
}
QUICK = {"clients": [Size(clients=n, rounds=10) for n in (50, 100)]}


def experiment(size: Size, per_client: int) -> str:
    model = f'{{ name = "mlp", hidden = [{size.hidden}] }}' if size.hidden else '{ name = "logistic" }'
    return f"""title = "scale"
rounds = {size.rounds}
seeds = {size.seeds}
evaluate_every = 10

[task]
clients = {size.clients}
data = "digits"
partition = {{ kind = "shared", per_client = {per_client} }}
model = {model}

[clients]
kind = "gradient"
batch = 0

[radio]
noise_std = 0.05

[privacy]
eps = 1e6
delta = 1e-8

[engine]
stream = {str(size.stream).lower()}

[[scheme]]
name = "constant"
rx_scale = 0.3
"""


def measure(size: Size, per_client: int, overrides: list[str]) -> dict[str, Any]:
    """One command in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        folder, file = Path(place) / "run", Path(place) / "scale.toml"
        file.write_text(experiment(size, per_client))
        command = [sys.executable, "-m", "otafl.cli", "run", str(file), "--out", str(folder), "--json-log"]
        command += [part for one in overrides for part in ("--set", one)]
        path = f"{HERE.parent / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": path, "OTAFL_CACHE": str(Path(place) / "cache")}  # a cold one
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        with Peak([child.pid]) as peak:
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {child.returncode}")
        scheme = folder / "schemes" / "constant"
        timing = json.loads((scheme / "timing.json").read_text())
        summary = json.loads((scheme / "summary.json").read_text())
        parameters = json.loads((folder / "manifest.json").read_text())["parameters"]
        written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if timing["rounds"] != size.rounds * size.seeds:
        raise SystemExit(f"{size}: {timing['rounds']} rounds of all seeds were run; a budget must not end a benchmark")
    updates = size.clients * timing["rounds"]  # of all seeds
    return {
        **size._asdict(), "parameters": parameters, "seconds": seconds, "rounds_seconds": timing["seconds"],
        "cpu_seconds": used.ru_utime + used.ru_stime, "peak_mib": max(peak.mib, used.ru_maxrss / 1024),
        "folder_mib": written / 2**20,
        "updates_per_s": updates / seconds, "updates_per_s_of_rounds": updates / timing["seconds"],
        "final_accuracy": summary["final_accuracy"][0],
    }  # fmt: skip


HEAD = ("clients", "seeds", "parameters", "rounds", "s", "of them rounds", "CPU s", "peak MiB", "folder MiB",
        "client updates/s")  # fmt: skip


def row(found: dict[str, Any]) -> list[str]:
    whole = [f"{found[name]:,}" for name in ("clients", "seeds", "parameters", "rounds")]
    times = [f"{found[name]:.1f}" for name in ("seconds", "rounds_seconds", "cpu_seconds")]
    return [*whole, *times, f"{found['peak_mib']:.0f}", f"{found['folder_mib']:.2f}", f"{found['updates_per_s']:,.0f}"]


def show(rows: list[list[str]]) -> None:
    widths = [max(len(line[n]) for line in [list(HEAD), *rows]) for n in range(len(HEAD))]
    for line in [list(HEAD), *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)), flush=True)


def slope(points: list[dict[str, Any]], axis: str, what: str) -> float:
    before, last = points[-2:]
    return math.log(last[what] / before[what]) / math.log(last[axis] / before[axis])


COSTS = {"rounds_seconds": "s of rounds", "seconds": "s of the command", "peak_mib": "MiB"}


def sweeps(wanted: dict[str, list[Size]]) -> dict[str, Any]:
    """Every axis in turn; a size that two axes share is run once."""
    once = functools.cache(lambda size: measure(size, 5, []))
    swept = {}
    for axis, sizes in wanted.items():
        print(f"\nagainst {axis}", flush=True)
        swept[axis] = [once(size) for size in sizes]
        show([row(found) for found in swept[axis]])
    slopes = {axis: {name: slope(points, axis, name) for name in COSTS} for axis, points in swept.items()}
    for axis, each in slopes.items():
        print(f"slope against {axis}: " + ", ".join(f"{COSTS[name]} {value:.2f}" for name, value in each.items()))
    return {"points": swept, "slopes": slopes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, help="one run with so many clients instead of the sweeps")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--per-client", type=int, default=5, help="samples of each client")
    parser.add_argument("--set", action="append", default=[], help="override a key of the experiment")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does everything run?")
    args = parser.parse_args()
    if args.clients:
        large = args.clients * args.rounds > 2**23
        found = measure(Size(args.clients, args.seeds, 0, args.rounds, large), args.per_client, args.set)
        show([row(found)])
    else:
        found = sweeps(QUICK if args.quick else SWEEPS)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
