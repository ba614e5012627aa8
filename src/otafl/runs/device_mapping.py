"""How a run is laid out on the machine at hand: what is computed together and what in turn."""

import jax
from jax.sharding import Mesh

from otafl.core.engine import SeedMap
from otafl.core.errors import InputError
from otafl.core.messages import ClientMap
from otafl.core.sharding import mesh_of
from otafl.tasks.models import Model

SMALL_MODEL = 100_000  # parameters, below which rounds are so cheap that several things go together


def choose_client_map(clients: int, numbers: int) -> ClientMap:
    """All clients at once on an accelerator; on a CPU chunks that stay in cache. `numbers` are those of one client."""
    if jax.default_backend() != "cpu":
        return "vmap" if clients * numbers <= 2**30 else max(1, 2**30 // numbers)
    return "vmap" if clients * numbers <= 2**20 else max(1, 2**20 // numbers)


def choose_mesh(devices: int | None, seeds: int, clients: int) -> Mesh | None:
    """Seeds and clients over the local devices: all of them, or so many as are asked for; None: one device alone.

    A CPU is one device, whose cores take a seed each (`seed_map` "threads"), unless JAX was told to make it several.
    """
    found = jax.local_devices()
    if devices is not None and devices > len(found):
        raise InputError(f"engine.devices={devices} is more than the {len(found)} devices of this machine")
    return mesh_of(found if devices is None else found[:devices], seeds, clients)


def choose_seed_map(model: Model) -> SeedMap:
    """A core for each seed on a CPU; on an accelerator all seeds together, if their models are small."""
    if jax.default_backend() == "cpu":
        return "threads"
    return "vmap" if model.num_params < SMALL_MODEL else "map"


def evaluations_per_call(every: int, parameters: int, checkpoint_seconds: float) -> int:
    """How many evaluation intervals one call into the compiled program covers: cheap rounds go by the hundred."""
    return max(1, 100 // every) if checkpoint_seconds and parameters < SMALL_MODEL else 1
