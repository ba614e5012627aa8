"""What cannot fit into this machine's memory is refused before it is tried, with the numbers to change."""

import jax

from otafl.core.archives import in_gib, memory_bytes
from otafl.core.errors import InputError
from otafl.runs.schema import Experiment
from otafl.runs.streamed.choice import goes_by, rounds_at_once

BYTES_PER_DEVICE_ROUND = 300  # per seed: trace 72, plan 48, events 50, records and tables about 130
BYTES_PER_ANTENNA = 96  # and device, round, seed: true and estimated gains, what the charge makes of them
BYTES_PER_ROUND = 600  # per seed: figures and quantiles, where rounds go by
COPIES_OF_MODEL = 4  # parameters, optimizer, the received sum and its update


def check_traces(experiment: Experiment) -> None:
    """What is kept of rounds and clients: all of it, or of some rounds at a time with a few figures of each round."""
    seeds, rounds, clients = len(experiment.seed_list), experiment.rounds, experiment.task.clients
    antennas = experiment.channel.antennas
    if goes_by(experiment):
        besides = seeds * rounds * BYTES_PER_ROUND
        check_kept(seeds, rounds_at_once(experiment), clients, antennas, besides, of=rounds)
    else:
        check_kept(seeds, rounds, clients, antennas)


def check_kept(
    seeds: int, rounds: int, clients: int, antennas: int = 1, besides: int = 0, of: int | None = None
) -> None:
    """Channels, plans and records of so many rounds are in memory at a time."""
    each = BYTES_PER_DEVICE_ROUND + (BYTES_PER_ANTENNA * antennas if antennas > 1 else 0)
    needed = seeds * rounds * clients * each + besides
    if needed > memory_bytes():
        array = f" x antennas={antennas}" if antennas > 1 else ""
        raise InputError(
            f"seeds={seeds} x rounds={of or rounds} x clients={clients}{array} need about {in_gib(needed)} of "
            f"memory, this machine has {in_gib(memory_bytes())}; lower one of them or split the seeds over several runs"
        )


def check_message(num_params: int) -> None:
    """A sum and its noise, in float32."""
    if (needed := 8 * num_params) > memory_bytes():
        raise InputError(
            f"num_params={num_params} needs about {in_gib(needed)} of memory for a sum and its noise, this machine has "
            f"{in_gib(memory_bytes())}; send fewer numbers"
        )


def check_model(experiment: Experiment, parameters: int) -> None:
    """The models of all seeds, and on a CPU the messages of one client at least, must fit."""
    seeds = len(experiment.seed_list)
    needed = 4 * parameters * (COPIES_OF_MODEL * seeds + 1)
    if jax.default_backend() == "cpu" and needed > memory_bytes():
        raise InputError(
            f"task.model has {parameters} parameters; with seeds={seeds} it needs about {in_gib(needed)} of memory, "
            f"this machine has {in_gib(memory_bytes())}; choose a smaller model or fewer seeds"
        )
