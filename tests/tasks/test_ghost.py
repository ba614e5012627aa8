"""Every sum and norm of the ghost against gradients formed one by one with `vmap(grad)`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.tasks import ghost as ghosts
from otafl.tasks import models
from otafl.tasks.layers import Groups, as_image, flatten, group_norm, max_pool, relu, residual, sequence, tanh
from otafl.tasks.linear import conv, dense

SMALL_RESIDUAL = sequence(
    conv(4, 3, pad=1, bias=False), group_norm(2), relu,
    residual(sequence(conv(8, 3, 2, pad=1, bias=False), group_norm(4), relu, conv(8, 3, pad=1), group_norm(2))),
    relu, flatten, dense(3),
)  # fmt: skip

SMALL_CNN = sequence(
    as_image, conv(6, 3, pad=1), tanh, conv(5, 3, pad=1), tanh, max_pool(2, 2), conv(16, 2), tanh, flatten, dense(4)
)

CASES = {
    "logistic": models.build("logistic", (6,), 3, init="he"),
    "binary-logistic": models.build("binary-logistic", (4, 4), 2, init="he"),
    "mlp-relu": models.build("mlp", (6,), 5, hidden=(9, 7)),
    "mlp-tanh": models.build("mlp", (5, 2), 3, hidden=(40,), activation="tanh", init="uniform"),
    "mlp-zero-output": models.build("mlp", (6,), 4, zero_output_init=True),
    "convolutions": models.from_layers("convolutions", SMALL_CNN, (8, 8, 3)),
    "residual": models.from_layers("residual", SMALL_RESIDUAL, (7, 7, 2)),
}
GROUPS, BATCH = 2, 3
PICKED = np.array([[4, 1], [0, 0], [5, 5]])  # samples out of order, one not used, one used twice
PICKED_WEIGHTS = np.array([[0.5, -2.0], [1.5, 0.0], [0.25, 1.0]], np.float32)


def batch(model, seed=0):
    """Parameters, K * B samples, labels and signed weights with a zero among them."""
    rng = np.random.default_rng(seed)
    # random everywhere, biases too: wrong gradients can look right at symmetric starting points
    shapes = jax.eval_shape(model.init, jax.random.key(seed))
    params = jax.tree.map(lambda p: jnp.asarray((0.3 * rng.standard_normal(p.shape)).astype(np.float32)), shapes)
    in_shape = {"logistic": (6,), "binary-logistic": (4, 4), "mlp-tanh": (5, 2),
                "convolutions": (8, 8, 3), "residual": (7, 7, 2)}.get(NAMES[id(model)], (6,))  # fmt: skip
    samples = GROUPS * BATCH
    x = jnp.asarray(rng.standard_normal((samples, *in_shape)).astype(np.float32))
    classes = jax.eval_shape(model.logits, params, x).shape[1]
    y = jnp.asarray(rng.integers(0, classes, samples).astype(np.int32))
    w = rng.standard_normal((GROUPS, BATCH)).astype(np.float32)
    w[0, 1] = 0
    return params, x, y, jnp.asarray(w)


NAMES = {id(model): name for name, model in CASES.items()}


def assert_trees_close(got, expected, rtol=1e-4):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected)):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5 * scale)


@pytest.fixture(params=CASES, scope="module")
def case(request):
    """(results of the ghost, results of the formed gradients) on the same batch, each as one jitted program."""
    model = CASES[request.param]
    params, x, y, w = batch(model)

    def results(ghost):
        def everything(params, x, y, w):
            saved = ghost.trace(params, x, y)
            return {
                "losses": saved.loss,
                "sq_norms": ghost.sq_norms(saved),
                "sums": ghost.sums(saved, Groups(w)),
                "picked sums": ghost.sums(saved, Groups(PICKED_WEIGHTS, PICKED)),
            }

        return jax.jit(everything)(params, x, y, w)

    return results(model.ghost), results(ghosts.materialised(model.loss))


@pytest.mark.parametrize("quantity", ["losses", "sq_norms", "sums", "picked sums"])
def test_ghost_equals_formed_gradients(case, quantity):
    got, expected = case
    assert_trees_close(got[quantity], expected[quantity])


def test_formed_gradients_equal_a_loop_of_single_gradients():
    model = CASES["mlp-relu"]
    params, x, y, w = batch(model)
    ghost = ghosts.materialised(model.loss)
    gradient = jax.jit(jax.grad(model.loss))
    loop = [gradient(params, x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
    weights = np.asarray(w).reshape(-1)
    expected = jax.tree.map(lambda *g: sum(wi * np.asarray(gi) for wi, gi in zip(weights, g)), *loop)
    got = jax.jit(lambda p, x, y, w: ghost.sums(ghost.trace(p, x, y), Groups(w[None])))(params, x, y, weights)
    assert_trees_close(jax.tree.map(lambda leaf: leaf[0], got), expected)


def test_mean_weights_give_the_gradient_of_the_mean_loss():
    model = CASES["mlp-tanh"]
    params, x, y, _ = batch(model)

    @jax.jit
    def mean(params, x, y):
        return model.ghost.sums(model.ghost.trace(params, x, y), Groups(jnp.full((1, len(x)), 1 / len(x))))

    got = jax.tree.map(lambda leaf: leaf[0], mean(params, x, y))
    assert_trees_close(got, jax.jit(jax.grad(model.loss))(params, x, y))


@pytest.mark.parametrize(("positions", "fan_in", "out"), [(1, 5, 4), (2, 5, 4), (3, 50, 40), (30, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_both_ways_to_the_norm_of_a_product(positions, fan_in, out, bias):
    """One row: the outer product; several: the gradient itself."""
    layer = conv(out, 1, bias=bias)((positions, 1, fan_in))
    rng = np.random.default_rng(1)
    a, e = rng.standard_normal((2, positions, 1, fan_in)), rng.standard_normal((2, positions, 1, out))
    kept = layer.keep(jnp.asarray(a, jnp.float32), jnp.asarray(e, jnp.float32))
    assert set(kept) == ({"w", "b"} if bias else {"w"}) if positions > 1 else {"act", "err"} == set(kept)
    gradients = np.einsum("bnzf,bnzo->bfo", a, e)
    expected = np.sum(gradients**2, (1, 2)) + bias * np.sum(e.sum((1, 2)) ** 2, 1)
    np.testing.assert_allclose(layer.sq_norms(kept), expected, rtol=1e-5)


def test_a_norm_is_not_short_where_the_errors_of_a_flat_image_cancel():
    """Norms from Gram matrices would lose what is left: a sample could be clipped too little, or not at all."""
    layer, rng = conv(32, 4, stride=2)((12, 12, 16)), np.random.default_rng(0)
    for rough in (1e-2, 1e-4):
        flat = rng.uniform(0.5, 1, (50, 1, 1, 1)) + rough * rng.standard_normal((50, 12, 12, 16))
        err = rng.standard_normal((50, *layer.shape))
        err -= (1 - rough) * err.mean((1, 2), keepdims=True)
        kept = layer.keep(jnp.asarray(flat, jnp.float32), jnp.asarray(err, jnp.float32))
        sent = layer.sums(kept, Groups(jnp.ones((50, 1), jnp.float32))).values()
        exact = sum(np.sum(np.square(np.asarray(leaf, float)).reshape(50, -1), 1) for leaf in sent)
        np.testing.assert_allclose(layer.sq_norms(kept), exact, rtol=1e-6)


@pytest.mark.parametrize("at_once", [1, 4, 5])
def test_a_batch_in_parts_is_the_whole_batch(monkeypatch, at_once):
    """Six samples in parts of one, of three, and of three again (five would leave a part of one)."""
    model = CASES["convolutions"]
    params, x, y, w = batch(model)

    def compute(params, x, y, w):
        saved = model.ghost.trace(params, x, y)
        return saved.loss, model.ghost.sq_norms(saved), model.ghost.sums(saved, Groups(w))

    whole = jax.jit(compute)(params, x, y, w)
    monkeypatch.setattr(ghosts, "samples_at_once", lambda footprint: at_once)
    parts = jax.jit(lambda *arguments: compute(*arguments))(params, x, y, w)
    assert_trees_close(parts, whole, rtol=1e-5)
    odd = jax.jit(lambda p, x, y: model.ghost.trace(p, x, y).loss)(params, x[:5], y[:5])
    np.testing.assert_allclose(odd, whole[0][:5], rtol=1e-5)


def test_vmapped_over_seeds_equals_seed_by_seed():
    model = CASES["mlp-relu"]
    batches = [batch(model, seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *batches)

    def norms(params, x, y, w):
        saved = model.ghost.trace(params, x, y)
        return model.ghost.sq_norms(saved), model.ghost.sums(saved, Groups(w))

    together, one = jax.jit(jax.vmap(norms))(*stacked), jax.jit(norms)
    alone = jax.tree.map(lambda *leaves: np.stack(leaves), *[one(*b) for b in batches])
    assert_trees_close(together, alone, rtol=1e-5)


def everything(model):
    def compute(key, params, x, y, w):
        saved = model.ghost.trace(params, x, y)
        return (model.init(key), saved.loss, model.ghost.sq_norms(saved), model.ghost.sums(saved, Groups(w)),
                model.ghost.sums(saved, Groups(PICKED_WEIGHTS, PICKED)),
                model.loss(params, x, y), model.logits(params, x))  # fmt: skip

    return compute


@pytest.mark.parametrize("name", CASES)
def test_float32_inside_an_x64_scope(name):
    model = CASES[name]
    arguments = (jax.random.key(3), *batch(model))
    with jax.enable_x64(True):
        results = jax.eval_shape(everything(model), *arguments)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(results)} == {"float32"}


@pytest.mark.released
def test_same_bits_inside_an_x64_scope():
    model = CASES["mlp-tanh"]
    arguments = (jax.random.key(3), *batch(model))
    outside = jax.jit(everything(model))(*arguments)
    with jax.enable_x64(True):
        inside = jax.jit(everything(model))(*arguments)
    for a, b in zip(jax.tree.leaves(inside), jax.tree.leaves(outside)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("cnn-mnist", (28, 28), {}),
        ("cnn-cifar", (16, 16, 3), {}),
        ("resnet", (14, 14), {"depth": 8, "width": 4, "groups": 2}),
    ],
)
def test_norms_and_sums_of_whole_image_models(name, shape, options):
    model = models.build(name, shape, 10, **options)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((4, *shape)), jnp.float32)
    y, w = jnp.asarray([3, 1, 4, 1], jnp.int32), jnp.asarray([[1.0, -2.0], [0.0, 0.5]], jnp.float32)
    arguments = jax.jit(model.init)(jax.random.key(0)), x, y, w

    def both(ghost):
        def compute(params, x, y, w):
            saved = ghost.trace(params, x, y)
            return ghost.sq_norms(saved), ghost.sums(saved, Groups(w))

        return jax.jit(compute)(*arguments)

    for got, expected in zip(both(model.ghost), both(ghosts.materialised(model.loss))):
        assert_trees_close(got, expected)
