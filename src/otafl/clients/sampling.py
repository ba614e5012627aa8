"""Batches of fixed shape: drawn without replacement, and the room that Poisson batches need. JAX; shapes in NumPy.

A sampler returns positions in the client's own list and a mask of the slots that are in use; one whose shape may be too
small says so by a flag, and the run then stops: a batch is never silently truncated.
"""

import math
from bisect import bisect_left

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from otafl.core import kernels
from otafl.core.arrays import Array


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
        few = jax.lax.top_k(jnp.where(jnp.arange(width) < size, -ranks, np.float32(-2)), batch)[1]
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
    if kernels.compiled_here():
        from otafl.clients import distinct_kernel

        if draws.shape[0] <= distinct_kernel.MOST_DRAWS:
            return distinct_kernel.first_distinct(draws, count)
    earlier = jnp.triu(jnp.ones((draws.shape[0],) * 2, bool), k=1)  # [i, j]: i was drawn before j
    new = ~jnp.any(earlier & (draws[:, None] == draws[None, :]), axis=0)
    rank = jnp.cumsum(new, dtype=jnp.int32) - 1
    place = new[:, None] & (rank[:, None] == jnp.arange(count, dtype=jnp.int32))
    return jnp.sum(jnp.where(place, draws[:, None], 0), axis=0, dtype=jnp.int32), rank[-1] >= count - 1


def poisson_capacity(rates: np.ndarray, sizes: np.ndarray, tail: float = 1e-12) -> tuple[int, float]:
    """Slots that a joint Poisson batch of several clients overflows with probability at most `tail`.

    Above its mean a sum of independent coins exceeds anything most often if all rates are equal (Hoeffding 1956,
    Theorem 5), so that a binomial tail holds for unequal rates, too.
    Returns (capacity, bound on the overflow probability per draw).
    """
    most = int(np.sum(sizes))
    mean = float(np.sum(np.asarray(rates, float) * np.asarray(sizes, float)))
    if mean == 0 or most == 0:
        return 1, 0.0

    def above(count: int) -> float:
        return float(scipy.special.bdtrc(count, most, mean / most))

    least = min(math.ceil(mean), most)
    slots = least + bisect_left(range(least, most), True, key=lambda count: above(count) <= tail)
    return slots, above(slots) if slots < most else 0.0
