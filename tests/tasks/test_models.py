"""Parameter counts, losses and gradients of the models."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from otafl.core.errors import InputError
from otafl.tasks import models
from otafl.tasks.layers import (
    as_image,
    average_pool,
    flatten,
    group_norm,
    max_pool,
    residual,
    sequence,
    tanh_pooled,
    uniform_draws,
    zero_logit,
)
from otafl.tasks.linear import conv, dense


def resnet_count(depth, width, classes, channels=3):
    """Weights of 3x3 convolutions without bias, two numbers per normalised channel, one dense layer."""
    blocks = (depth - 2) // 6
    layers = [(channels, width)]
    for stage in range(3):
        out = width * 2**stage
        layers += [(layers[-1][1], out)] + [(out, out)] * (2 * blocks - 1)
    return sum(9 * i * o + 2 * o for i, o in layers) + 4 * width * classes + classes


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "expected"),
    [
        ("cnn-mnist", (28, 28), 10, {}, 26010),
        ("cnn-cifar", (32, 32, 3), 10, {}, 550570),
        ("binary-logistic", (28, 28), 2, {}, 785),
        ("logistic", (28, 28), 10, {}, 7850),
        ("mlp", (64,), 10, {}, 9610),
        ("mlp", (128,), 62, {}, 24510),
        ("mlp", (28, 28), 10, {"hidden": (1024,)}, 814090),
        ("resnet", (32, 32, 3), 10, {}, 269722),
        ("resnet", (32, 32, 3), 10, {"depth": 32}, 464154),
        ("resnet", (32, 32, 3), 10, {}, resnet_count(20, 16, 10)),
        ("resnet", (28, 28), 7, {"depth": 14, "width": 8}, resnet_count(14, 8, 7, channels=1)),
    ],
)
def test_published_parameter_counts(name, shape, classes, options, expected):
    assert models.build(name, shape, classes, **options).num_params == expected


def test_num_params_is_what_init_makes():
    model = models.build("cnn-mnist", (28, 28), 10)
    assert sum(leaf.size for leaf in jax.tree.leaves(jax.jit(model.init)(jax.random.key(0)))) == model.num_params


def in_textbook_order(x, params, layers):
    """Convolutions as (stride, pad, pooling), each followed by tanh and then by pooling; two dense layers."""
    weights = iter([layer for layer in params if layer])
    for stride, pad, pooling in layers:
        layer = next(weights)
        x = jax.lax.conv_general_dilated(
            x, layer["w"], (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jnp.tanh(x + layer["b"])
        if pooling:
            size, step = pooling
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, step, step, 1), "VALID")
    hidden, last = weights
    return jnp.tanh(x.reshape(len(x), -1) @ hidden["w"] + hidden["b"]) @ last["w"] + last["b"]


@pytest.mark.parametrize(
    ("name", "shape", "layers"),
    [
        ("cnn-mnist", (28, 28, 1), [(2, 3, (2, 1)), (2, 0, (2, 1))]),
        ("cnn-cifar", (32, 32, 3), [(1, 1, None), (1, 1, (2, 2))] * 3),
    ],
)
def test_cnns_equal_those_of_the_textbook(name, shape, layers):
    model = models.build(name, shape, 10)
    params = jax.jit(model.init)(jax.random.key(0))
    x = np.random.default_rng(2).standard_normal((3, *shape), np.float32)
    expected = in_textbook_order(x, params, layers)
    np.testing.assert_allclose(jax.jit(model.logits)(params, x), expected, rtol=1e-4, atol=1e-4)


def test_tanh_and_pooling_are_one_function_in_either_order(monkeypatch):
    x = jnp.asarray(np.random.default_rng(2).standard_normal((3, 6, 6, 2), np.float32))
    answers = []
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        forward = tanh_pooled(2, 1)((6, 6, 2)).forward
        answers.append(jax.value_and_grad(lambda x, forward=forward: jnp.sum(forward((), x, ())[0] ** 2))(x))
    for one, other in zip(*answers):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("size", "stride", "pad", "shape"), [(8, 2, 3, (28, 28, 1)), (3, 1, 1, (5, 7, 3)), (4, 2, 0, (13, 13, 2))]
)
def test_convolution_equals_lax(size, stride, pad, shape):
    layer = conv(6, size, stride, pad)(shape)
    init = jax.jit(lambda key: layer.init(uniform_draws(key, layer.draws)))
    params = init(jax.random.key(0)) | {"b": jnp.arange(6.0)}
    x = np.random.default_rng(1).standard_normal((2, *shape), np.float32)
    expected = jax.lax.conv_general_dilated(
        x, params["w"], (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    got, _ = jax.jit(layer.forward)(params, x, layer.tap(2))
    np.testing.assert_allclose(got, expected + params["b"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("size", "stride", "shape"), [(2, 1, (14, 14, 3)), (2, 2, (8, 6, 2)), (3, 2, (7, 7, 1))])
def test_max_pool_equals_lax(size, stride, shape):
    layer = max_pool(size, stride)(shape)
    x = np.random.default_rng(1).standard_normal((2, *shape), np.float32)
    window, step = (1, size, size, 1), (1, stride, stride, 1)
    expected = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, step, "VALID")
    got, _ = jax.jit(layer.forward)((), x, ())
    assert got.shape[1:] == layer.shape
    np.testing.assert_array_equal(got, expected)


EXCHANGED = {
    "convolution": (conv(6, 3, stride=2, pad=1, init="uniform"), (5, 7, 3)),
    "convolution without bias": (conv(4, 4, bias=False), (5, 7, 1)),
    "pooled": (max_pool(3, 2), (7, 8, 2)),
    "normalised": (group_norm(2), (3, 4, 6)),
    "smaller and wider": (residual(conv(5, 3, stride=2, pad=1)), (5, 5, 2)),
    "flat": (sequence(as_image, flatten), (2, 3, 4)),
    "grey, flat": (sequence(as_image, flatten), (2, 3)),
    "two logits": (sequence(average_pool, dense(1, "uniform"), zero_logit), (3, 3, 4)),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_prediction_is_the_forward_pass_with_first_and_last_axis_exchanged(name):
    builder, shape = EXCHANGED[name]
    layer, rng = builder(shape), np.random.default_rng(2)
    params = jax.eval_shape(lambda: layer.init(jnp.zeros(layer.draws)))
    params = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), params)
    x = rng.standard_normal((3, *shape), np.float32)
    expected, _ = jax.jit(layer.forward)(params, x, layer.tap(3))
    got = jax.jit(layer.predict)(params, np.swapaxes(x, 0, -1))
    np.testing.assert_allclose(np.swapaxes(got, 0, -1), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "shape"), [("cnn-mnist", (28, 28)), ("resnet", (12, 12, 3)), ("logistic", (3, 2))])
def test_what_is_evaluated_is_what_is_trained(name, shape):
    """Logits against the loss of the training pass, at float32's accuracy."""
    model = models.build(name, shape, 10, **({"depth": 8, "width": 8} if name == "resnet" else {}))
    params = jax.jit(model.init)(jax.random.key(4))
    x, y = np.random.default_rng(5).standard_normal((3, *shape), np.float32), np.array([7, 0, 3], np.int32)
    evaluated, trained = jax.jit(lambda: (models.cross_entropy(model.logits(params, x), y), model.loss(params, x, y)))()
    np.testing.assert_allclose(evaluated.mean(), trained, rtol=1e-5)


def test_cross_entropy_against_the_definition():
    rng = np.random.default_rng(0)
    logits, y = 5 * rng.standard_normal((7, 4)), rng.integers(0, 4, 7)
    expected = -np.log(np.exp(logits)[np.arange(7), y] / np.exp(logits).sum(1))
    np.testing.assert_allclose(jax.jit(models.cross_entropy)(logits.astype(np.float32), y), expected, rtol=1e-5)


def test_binary_logistic_is_the_logistic_loss_from_zero():
    model = models.build("binary-logistic", (3,), 2)
    x = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    y = np.arange(9) % 2
    start = jax.jit(model.init)(jax.random.key(0))
    assert all(not leaf.any() for leaf in jax.tree.leaves(start))
    params = jax.tree.map(lambda leaf: np.arange(1, 1 + leaf.size, dtype=np.float32).reshape(leaf.shape), start)
    score = x @ np.array([1, 2, 3]) + 1
    expected = np.mean(np.log1p(np.exp(-(2 * y - 1) * score)))
    np.testing.assert_allclose(jax.jit(model.loss)(params, x, jnp.asarray(y)), expected, rtol=1e-5)


def test_zero_output_init_starts_at_log_classes():
    model = models.build("mlp", (6,), 7, zero_output_init=True)
    params = jax.jit(model.init)(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 6))
    np.testing.assert_allclose(jax.jit(model.loss)(params, x, jnp.arange(5)), np.log(7), rtol=1e-6)
    assert params[1]["w"].any()  # only the output layer starts at zero


@pytest.mark.parametrize(("init", "expected_std"), [("he", np.sqrt(2 / 400)), ("uniform", np.sqrt(1 / 3 / 400))])
def test_law_of_initial_weights(init, expected_std):
    """Kolmogorov-Smirnov against the stated law, at a level of 1e-4; neighbouring layers independent."""
    params = jax.jit(models.build("mlp", (400,), 10, hidden=(500, 500), init=init).init)(jax.random.key(0))
    weights = np.asarray(params[1]["w"]).ravel() / expected_std
    law = stats.norm() if init == "he" else stats.uniform(-np.sqrt(3), 2 * np.sqrt(3))
    assert stats.kstest(weights, law.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(params[1]["w"].ravel(), params[3]["w"].ravel()[:200_000])[0, 1]) < 4 / np.sqrt(200_000)
    assert params[1]["b"].any() == (init == "uniform")


def clients(model, shape, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 5, *shape)).astype(np.float32)
    y = rng.integers(0, 4, (3, 5)).astype(np.int32)
    w = rng.random((3, 5)).astype(np.float32)
    w[1, 3:] = 0
    return jax.jit(model.init)(jax.random.key(seed)), x, y, w


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("known_layers", [True, False])
def test_client_gradients_differentiate_the_whole_objective(l2, known_layers):
    model = models.build("mlp", (6,), 4, hidden=(5,), l2=l2)
    if not known_layers:
        model = models.from_loss(model.init, model.loss, model.logits, l2=l2)
        assert model.ghost is None
    params, x, y, w = clients(model, (6,))
    got = jax.jit(lambda *batch: models.client_gradients(model, *batch))(params, x, y, w)

    @jax.jit
    @jax.grad
    def objective_gradient(p, x, y, w):
        return jnp.sum(w * (models.cross_entropy(model.logits(p, x), y) + models.penalty(model, p)))

    for k in range(3):
        expected = objective_gradient(params, x[k], y[k], w[k])
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[k], b, rtol=1e-4, atol=1e-6), got, expected)


def test_penalty_is_half_l2_times_the_squared_norm():
    model = models.build("logistic", (2,), 3, init="he", l2=0.01)
    params = jax.jit(model.init)(jax.random.key(0))
    expected = 0.005 * sum(np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(models.penalty(model, params), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(model.loss)(params, jnp.zeros((1, 2)), jnp.zeros(1, int)), np.log(3), rtol=1e-6)


def test_any_function_of_any_pytree_becomes_a_model():
    def init(key):
        return {"slope": jax.random.normal(key, (3,), jnp.float32), "nested": [jnp.zeros((), jnp.float32)]}

    def loss(params, x, y):
        return jnp.mean((x @ params["slope"] + params["nested"][0] - y) ** 2)

    model = models.from_loss(init, loss, lambda p, x: (x @ p["slope"])[:, None], name="regression")
    assert model.num_params == 4
    params, x, y = init(jax.random.key(0)), jnp.ones((2, 3)), jnp.array([0.0, 1.0])
    ghost = models.per_sample(model)
    saved = ghost.trace(params, x, y)
    residual = 2 * (params["slope"].sum() - y)
    np.testing.assert_allclose(ghost.sq_norms(saved), 4 * residual**2, rtol=1e-5)
    np.testing.assert_allclose(saved.loss, residual**2 / 4, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("cnn", (28, 28), 10), "model='cnn' must be one of"),
        (lambda: models.build("binary-logistic", (3,), 10), "classes=10 must be 2"),
        (lambda: models.build("cnn-mnist", (64,), 10), "needs images"),
        (lambda: models.build("cnn-mnist", (4, 4), 10), "does not fit"),
        (lambda: models.build("resnet", (32, 32, 3), 10, depth=21), "depth=21 must be 6 n + 2"),
        (lambda: models.build("resnet", (32, 32, 3), 10, groups=5), "groups=5 must divide"),
        (lambda: models.build("mlp", (3,), 1), "classes=1 must be a whole number >= 2"),
        (lambda: models.build("mlp", (3,), 2, l2=-1.0), "l2=-1.0 must be finite and >= 0"),
        (
            lambda: models.from_loss(lambda key: jnp.zeros(3, jnp.int32), None, None),
            "must be float32 but init makes int32",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message.replace("+", r"\+")):
        call()


def test_every_kind_has_frozen_options():
    for kind in models.MODELS.values():
        assert dataclasses.is_dataclass(kind.options)
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind.options().l2 = 1.0
