"""Zero-order clients against a naive loop, and the laws of their directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl.clients import ZeroOrder, zero_order
from otafl.clients.gradient import take
from otafl.clients.zero_order import draw_directions
from otafl.core.errors import InputError
from otafl.core.streams import Round
from otafl.tasks.models import build

MODEL = build("logistic", (small.FEATURES,), small.CLASSES)


def parts(seed=3):
    one = jax.tree.map(lambda leaf: leaf[0], small.seeds([seed]))
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), MODEL.init(one.key))
    keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.key(7), k))(jnp.arange(4))
    return one, params, keys


def softmax_loss(weights, bias, x, y):
    """Mean cross-entropy in float64, written out."""
    logits = x @ weights + bias
    logits = logits - logits.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]))


@pytest.mark.parametrize(("directions", "round_"), [(1, 0), (3, 15)])
def test_messages_and_update_equal_a_naive_loop(directions, round_):
    """Per client and direction: loss ahead minus loss behind on one minibatch; update sum_p received_p phi_p / P."""
    config = ZeroOrder(batch=8, directions=directions, radius=0.2, radius_decay=0.25, clip_norm=100.0)
    clients, (seed, params, keys) = zero_order(config, MODEL), parts()
    drawn, overflow = jax.jit(clients.draw)(seed, keys, jnp.arange(4))
    found, _ = jax.jit(clients.messages)(params, small.data(), seed, drawn, jnp.arange(4), jnp.int32(round_))
    x, y, _ = (np.asarray(part) for part in take(small.data(), seed, drawn, jnp.arange(4)))
    key = jax.random.fold_in(jax.random.fold_in(seed.key, round_), Round.DIRECTION)
    phi = [np.asarray(leaf, float) for leaf in jax.tree.leaves(draw_directions(key, params, "rademacher", directions))]
    theta = [np.asarray(leaf, float) for leaf in jax.tree.leaves(params)]
    radius = 0.2 * (1 + round_) ** -0.25
    named = dict(zip((leaf.ndim for leaf in theta), range(2)))  # the matrix and the bias, in whatever order

    def loss(sign, p, k):
        moved = [t + sign * radius * d[p] for t, d in zip(theta, phi)]
        return softmax_loss(moved[named[2]], moved[named[1]], x[k], y[k])

    naive = np.array([[loss(1, p, k) - loss(-1, p, k) for p in range(directions)] for k in range(4)])
    assert found.shape == (4, directions) and clients.promise(np.ones(4)).dim == directions and not bool(overflow)
    np.testing.assert_allclose(found, naive, atol=5e-6)
    received = np.linspace(-1, 2, directions).astype(np.float32)
    update = jax.jit(clients.lift)(received, params, seed, jnp.int32(round_))
    for leaf, d in zip(jax.tree.leaves(update), phi):
        np.testing.assert_allclose(leaf, np.einsum("p,p...->...", received, d) / directions, rtol=1e-5)


def test_the_difference_is_twice_the_radius_times_the_slope():
    """E[Phi Delta f] = 2 gamma grad f to first order: no division by 2 gamma (EEZOFL 3.6)."""
    radius = 1e-2
    clients = zero_order(ZeroOrder(batch=0, directions=2000, radius=radius, clip_norm=1e3), MODEL)
    seed, params, keys = parts()
    drawn, _ = jax.jit(clients.draw)(seed, keys, jnp.arange(4))
    scalars, _ = jax.jit(clients.messages)(params, small.data(), seed, drawn, jnp.arange(4), jnp.int32(0))
    update = jax.jit(clients.lift)(scalars[1], params, seed, jnp.int32(0))
    own = np.asarray(seed.rows[1])[: int(seed.sizes[1])]
    x, y = (np.asarray(part)[own] for part in small.data())
    slope = jax.jit(jax.grad(MODEL.loss))(params, x, y)
    found, wanted = ([np.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in (update, slope))
    error = [u / (2 * radius) - g for u, g in zip(found, wanted)]
    size = np.sqrt(sum(np.sum(np.square(g)) for g in wanted))
    # each coordinate is a mean of 2,000 terms of variance about |grad|^2: 5 standard errors
    assert max(np.max(np.abs(e)) for e in error) < 5 * size / np.sqrt(2000)


@pytest.mark.parametrize("law", ["rademacher", "gaussian", "sphere"])
def test_laws(law):
    like = {"a": jnp.zeros((30, 5)), "b": jnp.zeros(10), "c": jnp.zeros(10)}
    drawn = jax.jit(draw_directions, static_argnums=(2, 3))(jax.random.key(1), like, law, 400)
    flat = np.concatenate([np.asarray(leaf).reshape(400, -1) for leaf in jax.tree.leaves(drawn)], axis=1)
    assert abs(flat.mean()) < 5 * flat.std() / np.sqrt(flat.size)
    assert np.max(np.abs(np.triu(flat.T @ flat, 1))) < 6.5 * flat.var() * np.sqrt(400)  # no two coordinates go together
    if law == "rademacher":
        assert set(np.unique(flat)) == {-1.0, 1.0}
    elif law == "gaussian":
        assert abs(flat.var() - 1) < 5 * np.sqrt(2 / flat.size)
    else:
        np.testing.assert_allclose(np.linalg.norm(flat, axis=1), 1, rtol=1e-5)


def test_directions_are_shared_by_clients_and_new_in_every_round():
    clients, (seed, params, _) = zero_order(ZeroOrder(batch=4), MODEL), parts()
    one = jnp.ones(1)
    first, again, other = (clients.lift(one, params, seed, jnp.int32(t)) for t in (0, 0, 1))
    leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (first, again, other)]
    np.testing.assert_array_equal(leaves[0], leaves[1])
    assert np.any(leaves[0] != leaves[2])


@pytest.mark.parametrize("bad", [
    {"radius": 0.0}, {"directions": 0}, {"clip_norm": -1.0}, {"radius_decay": -0.1}, {"batch": -1}, {"law": "cauchy"},
])  # fmt: skip
def test_bad_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        zero_order(ZeroOrder(**bad), MODEL)


@pytest.mark.parametrize("hidden", [(), (5,), (6, 5)])
def test_a_network_and_its_loss_alone_give_the_same_messages(hidden):
    """A network's first layer reads samples once for all directions, here 7 at a time; other models one by one."""
    model = build("mlp", (small.FEATURES,), small.CLASSES, hidden=hidden, activation="tanh")
    config, found = ZeroOrder(batch=8, directions=2, clip_norm=100.0), []
    for one in (model._replace(footprint=2**17 // 7), model._replace(ghost=None, along=None)):
        clients, (seed, _, keys) = zero_order(config, one), parts()
        params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(seed.key))
        drawn, _ = jax.jit(clients.draw)(seed, keys, jnp.arange(4))
        found.append(jax.jit(clients.messages)(params, small.data(), seed, drawn, jnp.arange(4), jnp.int32(0))[0])
    np.testing.assert_allclose(*found, atol=1e-6)
