"""The kernel, interpreted on whatever runs the tests, against gradients formed one by one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.core.messages import Data, norms_of
from otafl.tasks import one_kernel
from otafl.tasks.models import Model, build

CLIENTS, CLASSES = 3, 5


class Batch(NamedTuple):
    data: Data
    rows: jax.Array  # (K, B)
    share: jax.Array  # (K,)


def samples(batch: int, width: int) -> Batch:
    rng = np.random.default_rng(0)
    held = 3 * batch
    data = Data(rng.standard_normal((held, width)).astype(np.float32), rng.integers(0, CLASSES, held).astype(np.int32))
    rows = jnp.asarray(rng.integers(0, held, (CLIENTS, batch)), jnp.int32)
    return Batch(jax.tree.map(jnp.asarray, data), rows, jnp.asarray(rng.random(CLIENTS), jnp.float32))


def one_by_one(model: Model, params, batch: Batch, clip: float = np.inf, counts=None):
    """Sums of clipped gradients, each formed by itself; what is not finite counts as zero if clipped."""

    def one(a, b, w):
        grad = jax.grad(model.loss)(params, a[None], b[None])
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(grad)))
        factor = w * jnp.where(jnp.isfinite(norm), jnp.minimum(1, clip / norm), 0)
        return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(norm), factor * leaf, 0), grad)

    used = jnp.arange(batch.rows.shape[1]) < (batch.rows.shape[1] if counts is None else counts[:, None])
    each = jax.vmap(jax.vmap(one))(*batch.data.at(batch.rows), batch.share[:, None] * used)
    return jax.tree.map(lambda leaf: leaf.sum(1), each)


@pytest.mark.parametrize(
    ("hidden", "activation", "batch"), [((), "relu", 32), ((7,), "relu", 40), ((20, 16), "tanh", 5)]
)
def test_the_kernel_has_the_sums_of_gradients_formed_one_by_one(hidden, activation, batch):
    model = build("mlp", (6,), CLASSES, hidden=hidden, activation=activation)
    params, drawn = model.init(jax.random.key(1)), samples(batch, 6)
    at_once = one_kernel.of_dense((6, *hidden, CLASSES), activation, batch)
    for clip in (None, 0.5):
        with jax.enable_x64(True):  # as rounds are traced
            found, left_out, norms = at_once(params, *drawn, None, clip)
        assert jax.tree.structure(found) == jax.tree.structure(params)
        close(found, one_by_one(model, params, drawn, clip or np.inf))
        np.testing.assert_allclose(norms, norms_of(found), rtol=1e-6)
        assert not left_out.any()


def close(found, wanted) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)


class Brought(NamedTuple):
    """Samples that are no arrays."""

    data: Data

    def at(self, rows):
        return self.data.at(rows)


def test_samples_that_are_brought_from_elsewhere_are_the_same():
    model = build("mlp", (2, 3), CLASSES, hidden=(7,))
    params, (data, rows, share) = model.init(jax.random.key(1)), samples(9, 6)
    data = data._replace(x=data.x.reshape(-1, 2, 3))
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 9)
    here, elsewhere = (at_once(params, some, rows, share, None, 0.5) for some in (data, Brought(data)))
    jax.tree.map(np.testing.assert_array_equal, here, elsewhere)


def test_a_share_may_be_one_number_for_all():
    model = build("mlp", (6,), CLASSES, hidden=(7,))
    params, (data, rows, _) = model.init(jax.random.key(1)), samples(9, 6)
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 9)
    alike, each = (at_once(params, data, rows, share, None, None) for share in (0.25, jnp.full(CLIENTS, 0.25)))
    jax.tree.map(np.testing.assert_array_equal, alike, each)


def test_slots_out_of_use_are_not_looked_at_and_a_sample_that_is_not_finite_is_left_out():
    model = build("mlp", (6,), CLASSES, hidden=(7,))
    params, (data, _, share) = model.init(jax.random.key(1)), samples(70, 6)
    rows = jnp.arange(3 * 70).reshape(3, 70)
    counts = jnp.array([70, 33, 0], jnp.int32)
    x = data.x.at[rows[0, 3], 2].set(np.nan).at[rows[0, 40], 1].set(np.inf)
    drawn = Batch(Data(x.at[rows[1, 50]].set(np.nan), data.y), rows, share)  # the last one is out of use
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 70)
    found, left_out, norms = at_once(params, *drawn, counts, 0.5)
    close(found, one_by_one(model, params, drawn, 0.5, counts))
    np.testing.assert_array_equal(left_out, [2, 0, 0])
    assert norms[2] == 0


@pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((7,), "relu"), ((20, 16), "tanh")])
def test_the_kernel_has_the_networks_logits(hidden, activation):
    model = build("mlp", (6,), CLASSES, hidden=hidden, activation=activation)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(1), 2))
    x = samples(100, 6).data.x  # 300, which fill no whole number of programs
    with jax.enable_x64(True):
        found = jax.vmap(lambda own: one_kernel.logits([q for q in own if q], activation, x))(params)
    wanted = jax.vmap(lambda own: model.logits(own, x))(params)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_seeds_are_mapped_over():
    model = build("mlp", (6,), CLASSES, hidden=(7,))
    keys = jax.random.split(jax.random.key(2), 2)
    params = jax.vmap(model.init)(keys)
    drawn = samples(20, 6)
    at_once = one_kernel.of_dense((6, 7, CLASSES), "relu", 20)
    both = jax.vmap(lambda own: at_once(own, *drawn, None, 1.0))(params)
    alone = [at_once(own, *drawn, None, 1.0) for own in (model.init(key) for key in keys)]
    wanted = jax.tree.map(lambda *leaves: np.stack(leaves), *alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), both, wanted)


def test_what_does_not_fit_has_no_kernel():
    assert one_kernel.of_dense((64, 128, 10), "relu", 64)
    assert one_kernel.of_dense((784, 128, 10), "relu", 64) is None
    assert one_kernel.of_dense((64, 128, 10), "relu", 6_000) is None
