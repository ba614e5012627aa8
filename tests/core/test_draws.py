"""Draws in a row are the draws of a table, to the bit: streams stay what they were, and Air's noise the engine's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.core.draws import DRAWN_BY, WRITTEN_FOR, check_generator, in_a_row
from otafl.core.errors import InputError
from small_air import opened


@pytest.mark.released
@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize(
    ("law", "dtype"),
    [
        (jax.random.normal, jnp.float32),
        (jax.random.rademacher, jnp.float32),
        (jax.random.bits, jnp.uint8),
        (jax.random.bits, jnp.uint16),
    ],
)
def test_a_row_has_the_numbers_of_the_table(law: Any, dtype: Any, x64: bool) -> None:
    shapes = [(), (3,), (4, 5), (2, 3, 7)]
    with jax.enable_x64(x64):
        keys = jax.random.split(jax.random.key(5), 2)
        both = jax.jit(lambda key: [(in_a_row(law, key, shape, dtype), law(key, shape, dtype)) for shape in shapes])
        for row, table in both(keys[0]):
            assert row.shape == table.shape and row.dtype == table.dtype
            np.testing.assert_array_equal(row, table)
        many = jax.vmap(lambda key: in_a_row(law, key, (4, 5), dtype))(keys)
        np.testing.assert_array_equal(many[1], law(keys[1], (4, 5), dtype))


@pytest.mark.parametrize(
    ("name", "other"),
    [("jax_default_prng_impl", "rbg"), ("jax_threefry_partitionable", False), ("jax_random_seed_offset", 7)],
)
def test_a_generator_under_which_seeds_are_other_numbers_is_refused(name: str, other: Any) -> None:
    """A user's setting, or an environment variable: the noise of a seed, or of a resumed run, would be another."""
    check_generator()
    jax.config.update(name, other)
    try:
        with pytest.raises(InputError, match=f"^{name}={other!r}: seeds would draw other numbers; set it to "):
            opened()
    finally:
        jax.config.update(name, DRAWN_BY[name])


@pytest.mark.parametrize(
    ("name", "other"), [("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")]
)
def test_promotions_that_rounds_need_are_asked_for(name: str, other: str) -> None:
    jax.config.update(name, other)
    try:
        with pytest.raises(InputError, match=f"^{name}='{other}': rounds are not written for it; set it to "):
            opened()
    finally:
        jax.config.update(name, WRITTEN_FOR[name][0])
