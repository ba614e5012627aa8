"""Batches of fixed shape: drawn without replacement, and the room that Poisson batches need. JAX; shapes in NumPy.

A sampler returns positions in the client's own list and a mask of the slots that are in use; one whose shape may be too
small says so by a flag, and the run then stops: a batch is never silently truncated.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array

WORD = 32  # bits


def without_replacement(
    key: Array, size: Array, batch: int, max_size: int, min_size: int = 1
) -> tuple[Array, Array, Array]:
    """A uniform batch of min(batch, size) distinct positions below `size`. Returns (positions, mask, flag).

    `batch` < `max_size`; every size lies in [min_size, max_size], which decides what has to be compiled. Small clients
    sort random keys. Large ones keep the first `batch` distinct values of 2 * batch uniform draws, which has exactly
    the law of sampling without replacement; the flag is raised where so many draws hold too few distinct values
    (probability below 1e-20 at the sizes where this branch is used).
    """
    small = max(4 * batch, 256)  # up to this size all keys are sorted
    few_key, many_key = (key, key) if min_size > small or max_size <= small else jax.random.split(key)
    mask = jnp.arange(batch, dtype=jnp.int32) < jnp.minimum(batch, size)
    if min_size <= small:
        width = min(small, max_size)
        ranks = jax.random.uniform(few_key, (width,), jnp.float32)
        few = jnp.argsort(jnp.where(jnp.arange(width) < size, ranks, np.float32(2)))[:batch].astype(jnp.int32)
        if max_size <= small:
            return few, mask, jnp.zeros((), bool)
    draws = jax.random.randint(many_key, (2 * batch,), 0, jnp.maximum(size, 1), dtype=jnp.int32)
    many, enough = first_distinct(draws, batch)
    if min_size > small:
        return many, mask, ~enough
    return jnp.where(size > small, many, few), mask, (size > small) & ~enough


def first_distinct(draws: Array, count: int) -> tuple[Array, Array]:
    """The first `count` different values in the order they were drawn, and whether there are so many.

    Without a sort: an accelerator sorts slowly, and for a hundred draws comparing all pairs is cheap everywhere.
    """
    earlier = jnp.triu(jnp.ones((draws.shape[0],) * 2, bool), k=1)  # [i, j]: i was drawn before j
    new = ~jnp.any(earlier & (draws[:, None] == draws[None, :]), axis=0)
    so_far = jnp.cumsum(new, dtype=jnp.int32)
    place = jnp.searchsorted(so_far, jnp.arange(1, count + 1, dtype=jnp.int32), method="scan_unrolled")
    return draws[place], so_far[-1] >= count


def first_places(hit: Array, room: int) -> Array:
    """Places (room,) int32 of the first hits in a flat order, 0 where there are no more: `jnp.nonzero`, much faster.

    Bits are packed into words, so that the running count is 32 times shorter; a place is then found in its word by
    halving.
    """
    words = -(-hit.size // WORD)
    flat = jnp.pad(hit.reshape(-1), (0, words * WORD - hit.size)).reshape(words, WORD)
    powers = np.uint32(1) << np.arange(WORD, dtype=np.uint32)
    bits = jnp.sum(jnp.where(flat, powers, np.uint32(0)), axis=1, dtype=jnp.uint32)
    counts = jax.lax.population_count(bits).astype(jnp.int32)
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    number = jnp.arange(room, dtype=jnp.int32)
    word = jnp.minimum(jnp.searchsorted(ends, number, side="right").astype(jnp.int32), words - 1)
    rank, left, place = number - (ends[word] - counts[word]), bits[word], word * WORD
    for step in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(left & np.uint32((1 << step) - 1)).astype(jnp.int32)
        above = rank >= below
        rank = rank - jnp.where(above, below, 0)
        left = jnp.where(above, left >> np.uint32(step), left)
        place = place + jnp.where(above, step, 0)
    return jnp.where(number < ends[-1], place, 0).astype(jnp.int32)


def poisson_capacity(rates: np.ndarray, sizes: np.ndarray, tail: float = 1e-12) -> tuple[int, float]:
    """Slots that a joint Poisson batch of several clients overflows with probability at most `tail`.

    Chernoff's bound for a sum of independent indicators with the given mean: it holds for unequal rates, too.
    Returns (capacity, bound on the overflow probability per draw).
    """
    mean = float(np.sum(np.asarray(rates, float) * np.asarray(sizes, float)))
    most = int(np.sum(sizes))
    if mean == 0 or most == 0:
        return 1, 0.0

    def log_tail(count: int) -> float:  # P(X >= count) <= exp(-mean) (e mean / count)^count for count > mean
        return count - mean + count * math.log(mean / count)

    low, high = math.ceil(mean) + 1, most + 1
    if log_tail(high) > math.log(tail):
        return most, 0.0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if log_tail(middle) <= math.log(tail) else (middle + 1, high)
    capacity = min(low - 1, most)
    return capacity, 0.0 if capacity == most else math.exp(log_tail(capacity + 1))
