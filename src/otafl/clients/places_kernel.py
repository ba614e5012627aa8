"""Where the first set bits of many words lie, by one kernel. JAX (Pallas), GPUs only: see `core.kernels`.

XLA makes a kernel of every step of the search.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from otafl.core.arrays import Array
from otafl.core.kernels import interpreted

BLOCK = 128  # places found by a program


def places(words: Array, ends: Array, room: int) -> Array:
    """(room,) as `coins.first_places`: words (W,) uint32, and the running count of their bits, `ends` (W,) int32."""
    most = words.shape[0]

    def kernel(words_ref: Any, ends_ref: Any, found_ref: Any) -> None:
        number = pl.program_id(0) * BLOCK + jax.lax.iota(jnp.int32, BLOCK)
        word = jnp.zeros(BLOCK, jnp.int32)  # so many words end at or before this number
        for step in _halves(1 << most.bit_length()):
            next_ = word + step
            end = triton.load(ends_ref.at[jnp.minimum(next_, most) - 1])
            word = jnp.where((next_ <= most) & (end <= number), next_, word)
        word = jnp.minimum(word, most - 1)
        left = triton.load(words_ref.at[word])
        rank = number - triton.load(ends_ref.at[word]) + jax.lax.population_count(left)
        place = word * 32
        for step in _halves(32):
            below = jax.lax.population_count(left & ((1 << step) - 1))
            above = rank >= below
            rank = jnp.where(above, rank - below, rank)
            left = jnp.where(above, jax.lax.shift_right_logical(left, jnp.full(BLOCK, step, jnp.int32)), left)
            place = jnp.where(above, place + step, place)
        found = jnp.where(number < ends_ref[most - 1], place, 0)
        triton.store(found_ref.at[number], found, mask=number < room)

    return pl.pallas_call(
        kernel, grid=(-(-room // BLOCK),), out_shape=jax.ShapeDtypeStruct((room,), jnp.int32), name="first_places",
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1), interpret=interpreted(),
    )(jax.lax.bitcast_convert_type(words, jnp.int32), ends)  # fmt: skip


def _halves(size: int) -> list[int]:
    """Powers of two below `size`, the largest first."""
    return [1 << n for n in range(size.bit_length() - 2, -1, -1)]
