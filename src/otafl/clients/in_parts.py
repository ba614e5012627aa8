"""Sums over the batches of several clients, a few samples of one client at a time. JAX.

What a network keeps of a sample while it works should never leave the cache, and a loop over parts ends with the last
sample that was drawn: room for a larger batch costs nothing.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from otafl.core.arrays import Array, Pytree
from otafl.tasks.ghost import samples_at_once
from otafl.tasks.models import Model

IN_CACHE = 2**18  # numbers


def part_size(model: Model, batch: float, samples: int) -> int:
    """How many samples go together, of clients that take some `batch` each; 0: all, in room for so many `samples`.

    In parts on a CPU, if all do not fit the cache and a part is more work than adding its sum to the client's.
    """
    size = max(1, min(IN_CACHE // model.footprint, int(batch) // 3))
    if jax.default_backend() != "cpu" or model.ghost is None or samples <= samples_at_once(model.footprint):
        return 0
    return size if size * model.footprint >= 4 * model.num_params else 0


def by_parts(sums: Callable[[Array, Array], Pytree], slots: Array, weights: Array, counts: Array, size: int) -> Pytree:
    """Totals (K, ...) of `sums(slots (size,), weights (size,))` over the first counts[k] samples of each client (K, B).

    The last part of a client may reach beyond its count, where weights must be zero.
    """
    extra = -slots.shape[1] % size
    slots, weights = (jnp.pad(leaf, ((0, 0), (0, extra))) for leaf in (slots, weights))
    parts = -(-counts // size)
    ends = jnp.cumsum(parts, dtype=jnp.int32)

    def step(state: tuple[Array, Pytree]) -> tuple[Array, Pytree]:
        number, totals = state
        client = jnp.searchsorted(ends, number, side="right").astype(jnp.int32)
        start = (client, (number - ends[client] + parts[client]) * size)
        own = (jax.lax.dynamic_slice(leaf, start, (1, size))[0] for leaf in (slots, weights))
        return number + 1, jax.tree.map(lambda total, part: total.at[client].add(part), totals, sums(*own))

    shapes = jax.eval_shape(sums, slots[0, :size], weights[0, :size])
    zero = jax.tree.map(lambda leaf: jnp.zeros((slots.shape[0], *leaf.shape), leaf.dtype), shapes)
    return jax.lax.while_loop(lambda state: state[0] < ends[-1], step, (jnp.zeros((), jnp.int32), zero))[1]
