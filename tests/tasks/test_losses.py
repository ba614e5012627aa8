"""Losses and metrics as an accelerator computes them, class by class, against rows reduced as a whole."""

import jax
import jax.numpy as jnp
import numpy as np

from otafl.tasks import losses


def both_ways(monkeypatch, function):
    found = []
    for by_columns in (False, True):
        monkeypatch.setattr(losses, "by_columns", lambda outputs, answer=by_columns: answer)
        found.append(function())
    return found


def test_cross_entropy_and_its_gradient_are_the_same_class_by_class(monkeypatch):
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(0, 30, (50, 7)), jnp.float32)  # so large that a plain exponential overflows
    y, weights = jnp.asarray(rng.integers(0, 7, 50)), jnp.asarray(rng.random(50), jnp.float32)

    def weighted(logits):
        return jnp.dot(weights, losses.cross_entropy(logits, y))

    rows, columns = both_ways(monkeypatch, lambda: jax.jit(jax.value_and_grad(weighted))(logits))
    np.testing.assert_allclose(columns[0], rows[0], rtol=1e-6)
    np.testing.assert_allclose(columns[1], rows[1], atol=1e-6)


def test_the_first_of_equal_outputs_is_the_largest(monkeypatch):
    outputs = jnp.array([[0.0, 1.0, 1.0], [2.0, 1.0, 2.0], [-1.0, -2.0, -3.0], [5.0, 5.0, 5.0]])
    outputs, y = jnp.tile(outputs, (3, 1)), jnp.repeat(jnp.arange(3), 4)
    rows, columns = both_ways(monkeypatch, lambda: losses.right(outputs, y))
    np.testing.assert_array_equal(columns, rows)
    assert rows.sum() == 4
