"""Gradients of clients with one sample each: added up unformed, the same sums as of formed ones."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl.clients import Gradient, gradient
from otafl.clients.gradient import draw_batch, take
from otafl.core.messages import Data, Seed, draw, fold
from otafl.core.plan import Link
from otafl.core.uplink import ANALOG
from otafl.tasks.models import build

CLIENTS, FEATURES, CLASSES, CLIP = 9, 6, 3, 0.5
MODELS = {
    "logistic": build("logistic", (FEATURES,), CLASSES),
    "mlp": build("mlp", (FEATURES,), CLASSES, hidden=(5,), activation="tanh"),
}


def parts(model, width=1):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((CLIENTS * width, FEATURES)).astype(np.float32)
    data = Data(jnp.asarray(x), jnp.asarray(rng.integers(CLASSES, size=len(x)), jnp.int32))
    rows = jnp.arange(CLIENTS * width, dtype=jnp.int32).reshape(CLIENTS, width)
    seed = Seed(jax.random.key(0), rows, jnp.full(CLIENTS, width, jnp.int32))
    params = jax.tree.map(lambda p: p + 0.3 * rng.standard_normal(p.shape).astype(np.float32), model.init(seed.key))
    return params, data, seed


def link(weight):
    return Link(jnp.asarray(weight, jnp.float32), jnp.full(CLIENTS, jnp.inf), jnp.float32(0), jnp.asarray(True))


def added(clients, params, data, seed, air, client_map="vmap", uplink=ANALOG):
    """The sum in the air and what each client did."""

    @functools.partial(jax.jit, static_argnums=0)
    def run(client_map, params, data, seed, air):
        drawn = draw(clients, seed, jax.random.key(1), client_map)
        return fold(clients, params, data, seed, drawn, air, jnp.int32(0), client_map, uplink)

    return run(client_map, params, data, seed, air)


def forming(clients):
    """The same clients, each message formed."""

    def messages(*given):
        unformed, left_out, _ = clients.messages(*given)
        return unformed.form(), left_out

    return clients._replace(messages=messages)


def flat(tree):
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("client_map", ["vmap", 4])
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_formed_messages(name, client_map):
    """With clients that are silent, clipped, not heard, not finite; whole or in chunks with a rest."""
    clients = gradient(Gradient(clip_norm=CLIP, batch=0), MODELS[name])
    params, data, seed = parts(MODELS[name])
    x = np.array(data.x)
    x[1], x[2], x[4, 0] = 1e3, np.nan, np.inf
    data = data._replace(x=jnp.asarray(x))
    air = link(np.r_[np.linspace(-1, 2, CLIENTS - 1), 0.0])
    air = air._replace(max_norm=air.max_norm.at[5].set(-1.0).at[6].set(1e-3))
    total, seen = added(clients, params, data, seed, air, client_map)
    formed, told = added(forming(clients), params, data, seed, air, client_map)
    np.testing.assert_allclose(flat(total), flat(formed), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(seen.sent, told.sent)
    np.testing.assert_array_equal(seen.zeroed, told.zeroed)
    assert np.flatnonzero(seen.zeroed).tolist() == [2, 4] and not seen.sent[5] and not seen.sent[6]
    np.testing.assert_allclose(seen.norm, told.norm, rtol=1e-5, atol=1e-7)


def test_no_gradient_of_one_client_is_formed(monkeypatch):
    """Nor may one be left unformed whose norm needs several samples."""
    clients = gradient(Gradient(clip_norm=CLIP, batch=0), MODELS["mlp"])

    def formed(*given):
        raise AssertionError("formed")

    monkeypatch.setattr(sys.modules["otafl.clients.gradient"], "client_gradients", formed)
    total, _ = added(clients, *parts(MODELS["mlp"]), link(np.ones(CLIENTS)))
    assert np.linalg.norm(flat(total)) > 0
    with pytest.raises(AssertionError, match="formed"):
        added(clients, *parts(MODELS["mlp"], width=2), link(np.ones(CLIENTS)))


@pytest.mark.parametrize("k", range(CLIENTS))
def test_each_contribution_keeps_the_bound_and_faint_ones_their_digits(k):
    """Weights near the least float32, errors near e^-20, inputs of 1e15: what is heard is what is charged."""
    model = MODELS["logistic"]
    clients = gradient(Gradient(clip_norm=CLIP, batch=0), model)
    params, data, seed = parts(model)
    far = jax.tree.map(lambda p: jnp.zeros_like(p) + (p.ndim == 1) * jnp.asarray([20.0, 0.0, 0.0]), params)
    data = Data(data.x * np.float32(1e15), jnp.zeros_like(data.y))  # all are right, and nearly sure
    weight = np.zeros(CLIENTS)
    weight[k] = 1e-32
    total, seen = added(clients, far, data, seed, link(weight))
    assert float(seen.raw_norm[k]) > 1e5 and float(seen.norm[k]) <= CLIP
    assert np.linalg.norm(flat(total)) == pytest.approx(1e-32 * CLIP, rel=1e-5)
    assert np.linalg.norm(flat(total)) <= 1e-32 * CLIP


def test_who_looks_at_single_messages_gets_them():
    """An uplink of another kind: the largest coordinate of each."""
    clients = gradient(Gradient(clip_norm=CLIP, batch=0), MODELS["mlp"])
    air = ANALOG._replace(combine=lambda link, ids, sent, factor, messages: jax.tree.map(jnp.max, messages))
    found, seen = added(clients, *parts(MODELS["mlp"]), link(np.ones(CLIENTS)), uplink=air)
    formed, told = added(forming(clients), *parts(MODELS["mlp"]), link(np.ones(CLIENTS)), uplink=air)
    np.testing.assert_array_equal(flat(found), flat(formed))
    np.testing.assert_array_equal(seen.raw_norm, told.raw_norm)


def test_what_a_client_occupies():
    model = MODELS["mlp"]
    one, two = (gradient(Gradient(), model).occupies(samples) for samples in (1, 2))
    assert (one, two) == (model.footprint, model.num_params)
    regular = build("logistic", (FEATURES,), CLASSES, l2=0.1)  # the norm that is clipped has the l2 term
    assert gradient(Gradient(), regular).occupies(1) == regular.num_params


@pytest.mark.parametrize("batch", [0, 1, 30, 69, 70])
def test_a_batch_is_so_many_of_ones_own_samples_each_once_and_equally(batch):
    """Of 70 samples, of 20, which may be less than the batch."""
    seed, ids, numbers = small.one_seed(), jnp.arange(4), jnp.arange(small.SAMPLES)
    drawn, overflow = draw_batch(seed, jax.random.split(jax.random.key(1), 4), ids, batch, min_size=20)
    x, _, weight = map(np.asarray, take(Data(numbers, numbers), seed, drawn, ids))
    assert not bool(overflow)
    for k, size in enumerate(map(int, seed.sizes)):
        used, count = x[k][weight[k] > 0], min(batch or size, size)
        assert len(set(used)) == len(used) == count
        assert set(used) <= set(np.asarray(seed.rows[k][:size]).tolist())
        np.testing.assert_array_equal(weight[k][weight[k] > 0], np.float32(1) / np.float32(count))
