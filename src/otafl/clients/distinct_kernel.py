"""The first distinct ones of a client's draws by one kernel. JAX (Pallas), GPUs only: see `core.kernels`.

XLA compares all pairs of a thousand seeds' draws far from the chip's speed, and tries for a minute how to.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from otafl.core.arrays import Array
from otafl.core.kernels import interpreted, padded

MOST_DRAWS = 128  # their pairs are held in the registers of one program


def first_distinct(draws: Array, count: int) -> tuple[Array, Array]:
    """As `sampling.first_distinct`."""
    total = draws.shape[0]

    def kernel(draws_ref: Any, found_ref: Any, enough_ref: Any) -> None:
        number = jax.lax.iota(jnp.int32, padded(total))
        slot = jax.lax.iota(jnp.int32, padded(count))
        values = triton.load(draws_ref.at[number], mask=number < total, other=-1)
        again = (values[:, None] == values[None, :]) & (number[:, None] < number[None, :])
        new = (jnp.sum(again.astype(jnp.int32), axis=0) == 0) & (number < total)
        rank = jnp.cumsum(new.astype(jnp.int32), axis=0) - 1
        place = new[:, None] & (rank[:, None] == slot[None, :])
        found = jnp.sum(jnp.where(place, values[:, None], 0), axis=0, dtype=jnp.int32)
        triton.store(found_ref.at[slot], found, mask=slot < count)
        enough_ref[...] = (jnp.sum(new.astype(jnp.int32), dtype=jnp.int32) >= count).astype(jnp.int32)

    found, enough = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((count,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpreted(),
        name="first_distinct",
    )(draws)
    return found, enough > 0
