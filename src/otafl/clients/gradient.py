"""Clients that send their mini-batch gradient, clipped as a whole: the message of CARES and bias-variance."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from otafl import validate
from otafl.clients.base import Clients, Data, Seed, identity_lift
from otafl.clients.sampling import without_replacement
from otafl.plan import Array, Message
from otafl.tasks.models import Model, client_gradients


@dataclass(frozen=True)
class Gradient:
    """Mean gradient over a batch without replacement, clipped to `clip_norm`."""

    clip_norm: float = 1.0
    batch: int = 64  # per client; 0 takes all its samples
    adjacency: Literal["replace", "zero-out"] = "replace"


def client_promise(dim: int, clip_norm: float, adjacency: str) -> Any:
    """Any change of one client's data moves its message by at most 2 clip_norm (replace) or clip_norm (zero-out)."""
    factor = 2.0 if adjacency == "replace" else 1.0

    def promise(sizes: np.ndarray) -> Message:
        ones = np.ones(len(sizes))
        return Message(dim, clip_norm, clip_norm**2 * ones, factor * clip_norm * ones, ones, "client", adjacency)  # type: ignore[arg-type]

    return promise


def draw_batch(
    data: Data, seed: Seed, keys: Array, ids: Array, batch: int, min_size: int
) -> tuple[Array, Array, Array, Array]:
    """Batches of a few clients: x (n, B, ...), y (n, B), weights (n, B) that average over real samples, flag."""
    rows, sizes = seed.rows[ids], seed.sizes[ids]
    max_size = rows.shape[1]
    if batch == 0 or batch >= max_size:
        positions = jnp.broadcast_to(jnp.arange(max_size, dtype=jnp.int32), rows.shape)
        mask, flag = positions < sizes[:, None], jnp.zeros((), bool)
    else:
        positions, mask, short = jax.vmap(lambda k, n: without_replacement(k, n, batch, max_size, min_size))(
            keys, sizes
        )
        flag = jnp.any(short)
    index = jnp.take_along_axis(rows, positions, axis=1)
    count = jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1)
    return data.x[index], data.y[index], mask.astype(jnp.float32) / count.astype(jnp.float32), flag


def gradient(config: Gradient, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`, each with at least `min_size` samples.

    Sensitivity: unit client, see `client_promise`; every round sees every client.
    """
    validate.positive("clip_norm", config.clip_norm)
    validate.whole("batch", config.batch, 0)

    def messages(params: Any, data: Data, seed: Seed, keys: Array, ids: Array, round_: Array) -> tuple[Any, Array]:
        x, y, weights, flag = draw_batch(data, seed, keys, ids, config.batch, min_size)
        return client_gradients(model, params, x, y, weights), flag

    promise = client_promise(model.num_params, config.clip_norm, config.adjacency)
    return Clients(messages, identity_lift, promise, config.clip_norm)
