"""`make bench`: everything is measured in one run, into one JSON, and the page of the documentation is filled from it.

    python benchmarks/run.py                   all parts, benchmarks.json, docs/performance.md and its plots
    python benchmarks/run.py --quick --out F   smallest sizes into F, no page: does everything run?
    python benchmarks/run.py --only scale      one part again, the others stay as they are in the JSON

Peers that are not installed are left out and said so; `make bench` installs them into environments of their own.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import page
from arrangements import CORES
from federation import FLOWER

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "benchmarks.json"
PARTS = (
    "rounds", "federation", "encryption", "crypto", "scale", "accounting", "biasvar", "adascale", "flower_overhead",
)  # fmt: skip
QUICK = ("rounds", "encryption", "scale", "accounting")  # one of each kind
IN_FLOWER = ("flower_overhead",)
PACKAGES = ("otafl", "jax", "numpy", "torch", "opacus", "tenseal", "python-flint", "dp-accounting")


def facts() -> dict[str, Any]:
    """The machine and the versions that the numbers belong to."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    if FLOWER.exists():
        asked = "from importlib.metadata import version as v; print(v('flwr'), v('ray'))"
        said = subprocess.run([str(FLOWER), "-c", asked], capture_output=True, text=True, check=True).stdout.split()
        versions |= dict(zip(("flwr", "ray"), said))
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "date": time.strftime("%Y-%m-%d"), "cores": len(CORES), "processor": model, "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0], "versions": versions,
    }  # fmt: skip


def run(part: str, quick: bool) -> dict[str, Any]:
    """One part as a process of its own, in the environment that has its peer."""
    python = str(FLOWER) if part in IN_FLOWER and FLOWER.exists() else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [python, str(HERE / f"{part}.py"), "--json", str(out), *(["--quick"] if quick else [])]
        began = time.perf_counter()
        done = subprocess.run(command, check=False)
        seconds = time.perf_counter() - began
        if done.returncode:
            return {"failed": f"exit code {done.returncode}", "seconds": seconds}
        return {"found": json.loads(out.read_text()), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure these parts, keep the others")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    told = json.loads(args.out.read_text()) if args.only and args.out.exists() else {"parts": {}}
    told["facts"] = facts()
    for part in args.only or (QUICK if args.quick else PARTS):
        print(f"\n=== {part}", flush=True)
        told["parts"][part] = {**run(part, args.quick), "date": told["facts"]["date"]}
        args.out.write_text(json.dumps(told, indent=1) + "\n")  # after every part: an interrupted run keeps its numbers
    spent = {name: found["seconds"] for name, found in told["parts"].items()}
    each = ", ".join(f"{name} {value:.0f}" for name, value in spent.items())
    print(f"\nseconds: {each}; together {sum(spent.values()):.0f}")
    if not args.quick:
        page.fill(told)
    if failed := [name for name, found in told["parts"].items() if "failed" in found]:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
