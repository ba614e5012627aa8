"""Clients that take several local SGD steps and send where they got to, in gradient units: the message of CDPB."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from otafl.clients.gradient import Batch, clipped_promise, draw_batch, mean_gradients
from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.messages import Clients, Data, Seed, identity_lift, none_left_out
from otafl.core.plan import Adjacency, Unit
from otafl.tasks.ghost import samples_at_once
from otafl.tasks.models import Model


@dataclass(frozen=True)
class LocalSGD:
    """`steps` local steps of size `local_step_size`; the message is (start - end) / local_step_size, clipped."""

    clip_norm: float = 1.0
    batch: int = 64
    steps: int = 5
    local_step_size: float = 0.1
    adjacency: Adjacency = "replace"
    unit: Unit = "client"


def local_sgd(config: LocalSGD, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`. Sensitivity: see `clipped_promise`: the clip bounds all that local steps do (CDPB E14)."""
    validate.norm_bound("clip_norm", config.clip_norm)
    validate.positive("local_step_size", config.local_step_size)
    validate.whole("batch", config.batch, 0)
    validate.whole("steps", config.steps)

    def draw(seed: Seed, keys: Array, ids: Array) -> tuple[Batch, Array]:
        def one(key: Array, client: Array) -> tuple[Batch, Array]:
            step_keys = jax.random.split(key, config.steps)
            return jax.vmap(lambda k: draw_batch(seed, k[None], client[None], config.batch, min_size))(step_keys)

        drawn, flags = jax.vmap(one)(keys, ids)
        return drawn, jnp.any(flags)

    def messages(params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array) -> tuple[Any, Array]:
        def one(own: Batch, client: Array) -> Any:
            def step(local: Any, batch: Batch) -> tuple[Any, None]:
                slope, *_ = mean_gradients(model, local, data, seed, batch, client[None])
                return jax.tree.map(lambda p, g: p - config.local_step_size * g[0], local, slope), None

            end, _ = jax.lax.scan(step, params, own, length=config.steps)
            return jax.tree.map(lambda p, q: (p - q) / config.local_step_size, params, end)

        most = seed.rows.shape[-1]
        samples = ids.size * min(config.batch or most, most)  # of one step
        if jax.default_backend() == "cpu" and samples > samples_at_once(model.footprint):
            # All steps of one client before those of the next: what it works on stays in the cache.
            return jax.lax.map(lambda own: one(*own), (drawn, ids)), none_left_out(ids)
        return jax.vmap(one)(drawn, ids), none_left_out(ids)

    promise = clipped_promise(model.num_params, config.clip_norm, config.adjacency, config.unit)
    return Clients(draw, messages, identity_lift, promise, config.clip_norm)
