"""What tests of sweeps share: a small experiment, executors and boards to look into, and something that kills."""

import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from otafl.reports.sweep import run_and_write
from otafl.runs.board import Board
from otafl.runs.remote import Elsewhere
from otafl.runs.schema import load

TEXT = """
title = "Small"
rounds = 4
seeds = 2
evaluate_every = 2
channel = "cares"
[task]
data = "digits"
clients = 5
model = { name = "logistic" }
[privacy]
eps = 500.0
[engine]
checkpoint_seconds = 0
[[scheme]]
name = "constant"
rx_scale = 0.3
"""
LONG = TEXT.replace("rounds = 4", "rounds = 300").replace("eps = 500.0", "eps = 1e6")


class Here:
    """In this process, but whatever goes there and comes back is packed, as on its way to another."""

    def __init__(self):
        self.given = []

    def submit(self, function, argument, /):
        self.given.append(argument)
        future = Future()
        work, sent = pickle.loads(pickle.dumps((function, argument)))
        future.set_result(pickle.loads(pickle.dumps(work(sent))))
        return future


class Heard(Board):
    def __init__(self):
        self.lines, self.notes = [], []

    def told(self, name, outcome, done, of):
        self.lines.append((name, outcome.said, done, of))

    def note(self, text):
        self.notes.append(text)


def sweep(file, folder, axes, executor, live=None):
    return run_and_write(folder, axes, lambda values: load(file, values), Elsewhere(executor, live or Board()))


def content(folder):
    """Every file of a run but seconds and pages, which say how long it took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in ("timing.json", "report.html") and "plots" not in path.parts
    }


def at_a_checkpoint(
    folder: Path, workers: Callable[[], list[int]], kill: Callable[[int], None], killed: list[int]
) -> threading.Thread:
    """Kill one worker, once, while it holds a point that has a checkpoint; its number lands in `killed`."""

    def look() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            for saved in folder.glob("points/*/schemes/*/checkpoints/checkpoint-*"):
                for pid in workers():
                    if holds(pid, saved.parents[3]):
                        killed.append(pid)
                        kill(pid)
                        return
            time.sleep(0.002)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def holds(pid: int, folder: Path) -> bool:
    """Whether a process holds the lock of this run folder."""
    try:
        return any(os.path.realpath(place) == str(folder) for place in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
