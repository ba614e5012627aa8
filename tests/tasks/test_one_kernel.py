"""The kernel, interpreted on whatever runs the tests, against gradients formed one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.tasks import one_kernel
from otafl.tasks.models import Model, build

CLIENTS, CLASSES = 3, 5


def samples(batch: int, width: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((CLIENTS, batch, width)), jnp.float32)
    y = jnp.asarray(rng.integers(0, CLASSES, (CLIENTS, batch)), jnp.int32)
    return x, y, jnp.asarray(rng.random((CLIENTS, batch)), jnp.float32)


def one_by_one(model: Model, params, x, y, weights, clip: float = np.inf):
    """Weighted sums of clipped gradients, each formed by itself; what is not finite counts as zero if clipped."""

    def one(a, b, w):
        grad = jax.grad(model.loss)(params, a[None], b[None])
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(grad)))
        factor = w * jnp.where(jnp.isfinite(norm), jnp.minimum(1, clip / norm), 0)
        return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(norm), factor * leaf, 0), grad)

    each = jax.vmap(jax.vmap(one))(x, y, weights)
    return jax.tree.map(lambda leaf: leaf.sum(1), each)


@pytest.mark.parametrize(
    ("hidden", "activation", "batch"), [((), "relu", 32), ((7,), "relu", 40), ((20, 16), "tanh", 5)]
)
def test_the_kernel_has_the_sums_of_gradients_formed_one_by_one(hidden, activation, batch):
    model = build("mlp", (6,), CLASSES, hidden=hidden, activation=activation)
    params, (x, y, weights) = model.init(jax.random.key(1)), samples(batch, 6)
    at_once = one_kernel.of_dense((6, *hidden, CLASSES), activation, batch)
    with jax.enable_x64(True):  # as rounds are traced
        plain, _ = at_once(params, x, y, weights, None, None)
        clipped, left_out = at_once(params, x, y, weights, None, 0.5)
    assert jax.tree.structure(plain) == jax.tree.structure(params)
    for found, wanted in (
        (plain, one_by_one(model, params, x, y, weights)),
        (clipped, one_by_one(model, params, x, y, weights, 0.5)),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)
    assert not left_out.any()


def test_slots_out_of_use_are_not_looked_at_and_a_sample_that_is_not_finite_is_left_out():
    model = build("mlp", (6,), CLASSES, hidden=(7,))
    params, (x, y, weights) = model.init(jax.random.key(1)), samples(70, 6)
    counts = jnp.array([70, 33, 0], jnp.int32)
    used = jnp.arange(70) < counts[:, None]
    x = x.at[0, 3, 2].set(np.nan).at[0, 40, 1].set(np.inf).at[1, 50].set(np.nan)  # the last one is out of use
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 70)
    found, left_out = at_once(params, x, y, weights * used, counts, 0.5)
    wanted = one_by_one(model, params, x, y, weights * used, 0.5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)
    np.testing.assert_array_equal(left_out, [2, 0, 0])


@pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((7,), "relu"), ((20, 16), "tanh")])
def test_the_kernel_has_the_networks_logits(hidden, activation):
    model = build("mlp", (6,), CLASSES, hidden=hidden, activation=activation)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(1), 2))
    x = samples(100, 6)[0].reshape(-1, 6)  # 300, which fill no whole number of programs
    with jax.enable_x64(True):
        found = jax.vmap(lambda own: one_kernel.logits([q for q in own if q], activation, x))(params)
    wanted = jax.vmap(lambda own: model.logits(own, x))(params)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_seeds_are_mapped_over():
    model = build("mlp", (6,), CLASSES, hidden=(7,))
    keys = jax.random.split(jax.random.key(2), 2)
    params = jax.vmap(model.init)(keys)
    x, y, weights = samples(20, 6)
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 20)
    both, _ = jax.vmap(lambda own: at_once(own, x, y, weights, None, 1.0))(params)
    alone = [at_once(own, x, y, weights, None, 1.0)[0] for own in (model.init(key) for key in keys)]
    wanted = jax.tree.map(lambda *leaves: np.stack(leaves), *alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), both, wanted)


def test_what_does_not_fit_has_no_kernel():
    assert one_kernel.of_dense((64, 128, 10), "relu", 64)
    assert one_kernel.of_dense((784, 128, 10), "relu", 64) is None
    assert one_kernel.of_dense((64, 128, 10), "relu", 6_000) is None
