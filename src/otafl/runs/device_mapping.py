"""How a run is laid out on the machine at hand: what is computed together and what in turn."""

import jax

from otafl.core.engine import SeedMap
from otafl.core.messages import ClientMap
from otafl.tasks.models import Model


def choose_client_map(clients: int, parameters: int) -> ClientMap:
    """All clients at once on an accelerator; on a CPU chunks that stay in cache."""
    if jax.default_backend() != "cpu":
        return "vmap" if clients * parameters <= 2**30 else max(1, 2**30 // parameters)
    return "vmap" if clients * parameters <= 2**20 else max(1, 2**20 // parameters)


def choose_seed_map(model: Model) -> SeedMap:
    """A core for each seed on a CPU; on an accelerator all seeds together, if their models are small."""
    if jax.default_backend() == "cpu":
        return "threads"
    return "map" if model.num_params >= 100_000 else "vmap"


def evaluations_per_call(every: int, parameters: int, checkpoint_seconds: float) -> int:
    """How many evaluation intervals one call into the compiled program covers: cheap rounds go by the hundred."""
    return 1 if checkpoint_seconds == 0 or parameters >= 100_000 else max(1, 100 // every)
