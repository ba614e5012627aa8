"""Draws in a row are the draws of a table, to the bit: streams stay what they were, and Air's noise the engine's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.core.draws import in_a_row


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
