"""What cannot fit into this machine's memory is refused before it is tried, with the numbers to change."""

import os

import jax

from otafl.core.errors import InputError
from otafl.runs.schema import Experiment
from otafl.runs.streamed.choice import goes_by, rounds_at_once

BYTES_PER_DEVICE_ROUND = 300  # per seed: trace 72, plan 48, events 50, records and tables about 130
BYTES_PER_ROUND = 600  # per seed: figures and quantiles, where rounds go by
COPIES_OF_MODEL = 4  # parameters, optimizer, the received sum and its update


def memory_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_traces(experiment: Experiment) -> None:
    """What is kept of rounds and clients: all of it, or of some rounds at a time with a few figures of each round."""
    seeds, rounds, clients = len(experiment.seed_list), experiment.rounds, experiment.task.clients
    if goes_by(experiment):
        check_kept(seeds, rounds_at_once(experiment), clients, besides=seeds * rounds * BYTES_PER_ROUND, of=rounds)
    else:
        check_kept(seeds, rounds, clients)


def check_kept(seeds: int, rounds: int, clients: int, besides: int = 0, of: int | None = None) -> None:
    """Channels, plans and records of so many rounds are in memory at a time."""
    needed = seeds * rounds * clients * BYTES_PER_DEVICE_ROUND + besides
    if needed > memory_bytes():
        raise InputError(
            f"seeds={seeds} x rounds={of or rounds} x clients={clients} need about {_gib(needed)} of memory, this "
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
