"""What cannot fit into this machine's memory is refused before it is tried, with the numbers to change."""

import os
from collections.abc import Sequence
from pathlib import Path

import jax

from otafl.core.errors import InputError
from otafl.runs.schema import Experiment

BYTES_PER_DEVICE_ROUND = 300  # per seed: trace 72, plan 48, events 50, records and tables about 130
COPIES_OF_MODEL = 4  # parameters, optimizer, the received sum and its update


def memory_bytes() -> int:
    """Physical memory of this machine, or what a container may have of it."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such thing here, or no limit ("max")
        return physical


def check_traces(seeds: Sequence[int], rounds: int, clients: int) -> None:
    """Channels, plans and records are kept for all seeds, rounds and clients."""
    needed = len(seeds) * rounds * clients * BYTES_PER_DEVICE_ROUND
    if needed > memory_bytes():
        raise InputError(
            f"seeds={len(seeds)} x rounds={rounds} x clients={clients} need about {_gib(needed)} of memory, this "
            f"machine has {_gib(memory_bytes())}; lower one of them or split the seeds over several runs"
        )


def check_model(experiment: Experiment, parameters: int) -> None:
    """The models of all seeds, and on a CPU the messages of one client at least, must fit."""
    seeds = len(experiment.seed_list)
    needed = 4 * parameters * (COPIES_OF_MODEL * seeds + 1)
    if jax.default_backend() == "cpu" and needed > memory_bytes():
        raise InputError(
            f"task.model has {parameters} parameters; with seeds={seeds} it needs about {_gib(needed)} of memory, this "
            f"machine has {_gib(memory_bytes())}; choose a smaller model or fewer seeds"
        )


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
