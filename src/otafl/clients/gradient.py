"""Clients that send their mini-batch gradient, clipped as a whole: the message of CARES and bias-variance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.clients.sampling import without_replacement
from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.messages import Clients, Data, Seed, identity_lift, none_left_out
from otafl.core.plan import Adjacency, Message, Unit
from otafl.tasks.models import Model, client_gradients


@dataclass(frozen=True)
class Gradient:
    """Mean gradient over a batch without replacement, clipped to `clip_norm`."""

    clip_norm: float = 1.0
    batch: int = 64  # per client; 0 takes all its samples
    adjacency: Adjacency = "replace"
    unit: Unit = "client"


def clipped_promise(dim: int, clip_norm: float, adjacency: Adjacency, unit: Unit) -> Callable[[np.ndarray], Message]:
    """What messages promise that are clipped as a whole, to G = `clip_norm`.

    Unit client: replacing its data moves its message by 2 G, a message that becomes zero by G. Unit record: 2 G
    whatever the adjacency, because one record may turn the whole message.
    """
    if unit == "client" and adjacency == "add-remove":
        raise InputError("adjacency='add-remove' needs unit='record': the roster is published; use 'zero-out'")
    factor = 1.0 if unit == "client" and adjacency == "zero-out" else 2.0

    def promise(sizes: np.ndarray) -> Message:
        ones = np.ones(len(sizes))
        known = "sizes stay secret" if adjacency == "add-remove" else published_sizes(sizes)
        said = (f"{adjacency}: {changed_unit(adjacency, unit)}; {known}",)
        return Message(dim, clip_norm, clip_norm**2 * ones, factor * clip_norm * ones, ones, unit, adjacency, said)

    return promise


def changed_unit(adjacency: Adjacency, unit: Unit) -> str:
    """What happens to one unit between two adjacent worlds, for the privacy card."""
    if adjacency == "add-remove":
        return f"a {unit} comes or goes"
    if adjacency == "replace":
        return f"a {unit}'s data become any other"
    if unit == "client":
        return "a client's message becomes zero"
    return "a record becomes an empty one that keeps its place"


def published_sizes(sizes: np.ndarray) -> str:
    low, high = int(np.min(sizes)), int(np.max(sizes))
    return f"sizes {low}…{high} are published" if low < high else f"sizes, all {low}, are published"


class Batch(NamedTuple):
    """Samples of a few clients; () stands for what needs no drawing."""

    rows: Array | tuple[()]  # (n, B) positions in the data; (): all samples of each client
    weights: Array | tuple[()]  # (n, B) that average over real samples; (): all slots are real


def draw_batch(seed: Seed, keys: Array, ids: Array, batch: int, min_size: int) -> tuple[Batch, Array]:
    """Batches without replacement of a few clients with at least `min_size` samples each, and the sampler's flag."""
    rows, sizes = seed.rows[ids], seed.sizes[ids]
    max_size = rows.shape[1]
    if batch == 0 or batch >= max_size:
        return Batch((), ()), jnp.zeros((), bool)
    positions, mask, short = jax.vmap(lambda k, n: without_replacement(k, n, batch, max_size, min_size))(keys, sizes)
    weights = () if min_size >= batch else averaging(mask)
    return Batch(jnp.take_along_axis(rows, positions, axis=1), weights), jnp.any(short)


def averaging(mask: Array) -> Array:
    """Weights (n, B) that average over the slots in use."""
    count = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
    return mask.astype(jnp.float32) / count.astype(jnp.float32)


def take(data: Data, seed: Seed, drawn: Batch, ids: Array) -> tuple[Array, Array, Array]:
    """The samples themselves: x (n, B, ...), y (n, B), weights (n, B)."""
    if isinstance(drawn.rows, tuple):
        rows = seed.rows[ids]
        weights = averaging(jnp.arange(rows.shape[1], dtype=jnp.int32) < seed.sizes[ids][:, None])
        return (*data.at(rows), weights)
    full = np.float32(1) / np.float32(drawn.rows.shape[1])
    weights = jnp.full(drawn.rows.shape, full) if isinstance(drawn.weights, tuple) else drawn.weights
    return (*data.at(drawn.rows), weights)


def gradient(config: Gradient, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`, each with at least `min_size` samples.

    Sensitivity: see `clipped_promise`; every round sees every client.
    """
    validate.norm_bound("clip_norm", config.clip_norm)
    validate.whole("batch", config.batch, 0)

    def draw(seed: Seed, keys: Array, ids: Array) -> tuple[Batch, Array]:
        return draw_batch(seed, keys, ids, config.batch, min_size)

    def messages(params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array) -> tuple[Any, Array]:
        return client_gradients(model, params, *take(data, seed, drawn, ids)), none_left_out(ids)

    promise = clipped_promise(model.num_params, config.clip_norm, config.adjacency, config.unit)
    return Clients(draw, messages, identity_lift, promise, config.clip_norm)
