"""Draws of any shape by one key, counted along one axis: the same numbers, compiled in a tenth of the time.

A counter-based generator gives every number its place; XLA takes seconds over the places in a table of odd width, and
none over those in a row.
"""

import math
from collections.abc import Callable
from typing import Any

import jax

from otafl.core.arrays import Array
from otafl.core.errors import InputError

DRAWN_BY = {"jax_default_prng_impl": "threefry2x32", "jax_threefry_partitionable": True, "jax_random_seed_offset": 0}
WRITTEN_FOR = {"jax_numpy_rank_promotion": ("allow", "warn"), "jax_numpy_dtype_promotion": ("standard",)}


def check_generator() -> None:
    """Refuse settings of JAX under which seeds stand for other numbers: a resumed run would go on with another noise.

    And those under which what is written here, by us or in a library, is no program.

    >>> with jax.default_prng_impl("rbg"):
    ...     check_generator()
    Traceback (most recent call last):
    otafl.core.errors.InputError: jax_default_prng_impl='rbg': seeds would draw other numbers; set it to 'threefry2x32'
    """
    for name, value in DRAWN_BY.items():
        found = getattr(jax.config, name, value)
        if found != value:
            raise InputError(f"{name}={found!r}: seeds would draw other numbers; set it to {value!r}")
    for name, able in WRITTEN_FOR.items():
        found = getattr(jax.config, name, able[0])
        found = getattr(found, "value", found)
        if found not in able:
            raise InputError(f"{name}={found!r}: rounds are not written for it; set it to {able[0]!r}")


def in_a_row(law: Callable[..., Array], key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """`law(key, shape, dtype)` for a law of `jax.random`, to the bit.

    >>> import jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> bool(jnp.all(in_a_row(jax.random.normal, key, (3, 5), "f") == jax.random.normal(key, (3, 5), "f")))
    True
    """
    return law(key, (math.prod(shape),), dtype).reshape(shape)
