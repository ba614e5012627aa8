"""Run an experiment again and again in child processes that are killed at random: FILE FOLDER KILLS SEED.

This process imports everything but computes nothing, so a fork is as good as a new process and starts at once.
Prints the folders of the runs that were finished in spite of it all.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

import otafl.reports
from otafl import cli
from otafl.runs import runner
from otafl.tasks import datasets

assert runner and datasets  # imported here, once, for all children


def otafl_run(file: Path, folder: Path) -> int:
    """Fork a process that starts or resumes the run, and return its number."""
    if child := os.fork():
        return child
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    begun = (folder / "manifest.json").exists()
    sys.argv = ["otafl", "run", *(["--resume", str(folder)] if begun else [str(file), "--out", str(folder)])]
    try:
        cli.main()
    except SystemExit as stop:
        os._exit(stop.code if isinstance(stop.code, int) else 1)
    os._exit(0)


def wait_for_a_write(folder: Path, child: int) -> None:
    """Return when a file appears or vanishes in the folder, or when the child is gone."""
    seen = sorted(folder.rglob("*"))
    while (
        sorted(folder.rglob("*")) == seen and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.002)


def main(file: Path, base: Path, kills: int, seed: int) -> None:
    # Here and not above: pytest imports every module in search of doctests, and must not be changed by this one.
    jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[2] / ".cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    otafl.reports.write_report = lambda runs, out_file=None: []
    rng = random.Random(seed)
    runs: list[str] = []
    killed, longest, folder = 0, 2.0, base / "run-0"
    while killed < kills or not runs:
        began = time.monotonic()
        child = otafl_run(file, folder)
        if killed < kills and rng.random() < 0.5:
            time.sleep(rng.uniform(0, longest))
        elif killed < kills:
            for _ in range(rng.randrange(1, 6)):
                wait_for_a_write(folder, child)
            time.sleep(rng.uniform(0, 0.01))
        if killed < kills:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
            continue
        if os.WEXITSTATUS(status) != 0:
            sys.exit(f"a run ended with exit code {os.WEXITSTATUS(status)}")
        longest = max(longest, time.monotonic() - began)
        runs.append(str(folder))
        folder = base / f"run-{len(runs)}"
    print(json.dumps({"kills": killed, "runs": runs}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
