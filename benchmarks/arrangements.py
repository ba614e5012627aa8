"""One piece of work in both arrangements of a machine: one process with all cores, and a process per core.

A worker is a script that calls `serve`; the coordinator calls `both`. Workers get ready (imports, compilation, first
call), wait for each other, and then work at the same time: rates of processes that are added up were measured together.
Every process of the second arrangement is tied to its core and told to use one thread.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from memory import Peak

HERE = Path(__file__).resolve().parent
CORES = sorted(os.sched_getaffinity(0))


class Effort(NamedTuple):
    seconds: float = 2.0  # of one repetition
    repeats: int = 3


class Missing(Exception):
    """A worker's library is not installed here."""


def serve(work: Callable[[], float]) -> None:
    """In the worker: `work()` does some units and says how many; the first call compiles and fills caches."""
    out, sys.stdout = sys.stdout, sys.stderr  # nobody else may write between our lines

    def say(**told: Any) -> None:
        print(json.dumps(told), file=out, flush=True)

    began = time.perf_counter()
    work()
    say(first_call_s=time.perf_counter() - began)
    for line in sys.stdin:
        units, began = 0.0, time.perf_counter()
        while (spent := time.perf_counter() - began) < float(line):
            units += work()
        say(units=units, seconds=spent)


def both(command: list[str], effort: Effort) -> dict[str, dict[str, Any]]:
    """`together` in both arrangements, by name."""
    return {
        "one process": together(command, 1, effort),
        "a process per core": together(command, len(CORES), effort),
    }


def together(command: list[str], processes: int, effort: Effort) -> dict[str, Any]:
    """Units per second of so many workers at once: the best of several repetitions, and all of them."""
    workers = [_start(command, number, processes) for number in range(processes)]
    with Peak(worker.pid for worker in workers) as peak:
        try:
            ready = [_hear(worker) for worker in workers]
            rates = []
            for _ in range(effort.repeats):
                for worker in workers:
                    _tell(worker, f"{effort.seconds}\n")
                rates.append(sum(told["units"] / told["seconds"] for told in map(_hear, workers)))
        finally:
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.close()
                worker.wait()
    return {
        "processes": processes, "threads": len(CORES) // processes, "per_s": max(rates), "all_per_s": rates,
        "first_call_s": max(told["first_call_s"] for told in ready), "peak_mib": peak.mib,
    }  # fmt: skip


def _start(command: list[str], number: int, processes: int) -> "subprocess.Popen[str]":
    threads = len(CORES) // processes
    own = set(CORES) if processes == 1 else {CORES[number]}
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE,
        env={**os.environ, **dict.fromkeys(names, str(threads)), "BENCH_PROCESSES": str(processes)},
        preexec_fn=lambda: os.sched_setaffinity(0, own),
    )  # fmt: skip


def _tell(worker: "subprocess.Popen[str]", line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line)
    worker.stdin.flush()


def _hear(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"{' '.join(map(str, worker.args))}: ended early, exit code {worker.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found


def threads() -> int:
    """How many this worker was told to use."""
    return int(os.environ.get("NPROC", len(CORES)))


def processes() -> int:
    """How many workers share the machine with this one, itself included."""
    return int(os.environ.get("BENCH_PROCESSES", "1"))
