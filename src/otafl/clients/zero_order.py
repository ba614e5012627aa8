"""Clients that send two-point loss differences along shared random directions: the message of EEZOFL."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from otafl.clients.gradient import Batch, clipped_promise, draw_batch, take
from otafl.core import streams, validate
from otafl.core.arrays import Array
from otafl.core.draws import in_a_row
from otafl.core.messages import Clients, Data, Seed, none_left_out
from otafl.core.plan import Adjacency, Unit
from otafl.tasks.ghost import samples_at_once, some_at_a_time
from otafl.tasks.models import Model, losses_along


@dataclass(frozen=True)
class ZeroOrder:
    """`directions` scalars f(params + radius phi) - f(params - radius phi) per round, clipped as a vector."""

    clip_norm: float = 10.0
    batch: int = 128
    directions: int = 1
    law: Literal["rademacher", "gaussian", "sphere"] = "rademacher"
    radius: float = 0.05  # gamma_0
    radius_decay: float = 0.25  # gamma_k = gamma_0 (1 + k)^-decay
    adjacency: Adjacency = "replace"
    unit: Unit = "client"


def draw_directions(key: Array, params: Any, law: str, count: int) -> Any:
    """`count` directions like params (leading axis), one law; everyone draws the same from the round's shared key."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    each = jax.random.rademacher if law == "rademacher" else jax.random.normal
    ways = [in_a_row(each, k, (count, *leaf.shape), jnp.float32) for k, leaf in zip(keys, leaves)]
    if law == "sphere":
        square = sum(jnp.sum(d.reshape(count, -1) ** 2, axis=1) for d in ways)
        ways = [d / jnp.sqrt(square).reshape((count,) + (1,) * (d.ndim - 1)) for d in ways]
    return jax.tree.unflatten(tree, ways)


def zero_order(config: ZeroOrder, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`. The update is sum_p received_p phi_p / directions; no 1/(2 radius) (EEZOFL 3.6)."""
    validate.norm_bound("clip_norm", config.clip_norm)
    validate.positive("radius", config.radius)
    validate.not_negative("radius_decay", config.radius_decay)
    validate.whole("directions", config.directions)
    validate.whole("batch", config.batch, 0)
    validate.one_of("law", config.law, ("rademacher", "gaussian", "sphere"))

    def directions(seed: Seed, params: Any, round_: Array) -> Any:
        key = jax.random.fold_in(jax.random.fold_in(seed.key, round_), streams.Round.DIRECTION)
        return draw_directions(key, params, config.law, config.directions)

    def messages(params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array) -> tuple[Array, Array]:
        x, y, weights = take(data, seed, drawn, ids)
        radius = np.float32(config.radius) * (1 + round_.astype(jnp.float32)) ** np.float32(-config.radius_decay)
        ways = directions(seed, params, round_)

        def probe(x: Array, y: Array) -> Array:  # (samples, directions)
            losses = losses_along(model, params, x, y)
            return jax.lax.map(lambda way: losses(way, radius) - losses(way, -radius), ways).T

        flat = x.reshape(-1, *x.shape[2:]), y.reshape(-1)
        # Some at a time, so that what all directions read stays in the cache.
        each = some_at_a_time(probe, *flat, samples_at_once(8 * model.footprint))
        return jnp.sum(each.reshape(*weights.shape, -1) * weights[..., None], axis=1), none_left_out(ids)

    def lift(received: Array, params: Any, seed: Seed, round_: Array) -> Any:
        phi = directions(seed, params, round_)
        return jax.tree.map(lambda d: jnp.tensordot(received, d, axes=1) / config.directions, phi)

    promise = clipped_promise(config.directions, config.clip_norm, config.adjacency, config.unit)
    draw = partial(draw_batch, batch=config.batch, min_size=min_size)
    return Clients(draw, messages, lift, promise, config.clip_norm)
