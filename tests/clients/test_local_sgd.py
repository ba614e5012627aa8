"""Local SGD: the message against a naive NumPy loop, and its sensitivity against adversarial data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl.clients import LocalSGD, local_sgd
from otafl.core.messages import Data, draw, fold
from otafl.core.plan import Link
from otafl.tasks.ghost import samples_at_once
from otafl.tasks.models import build

CLIP, STEPS, SIZE = 0.7, 4, 0.2
SIZES = np.array([20, 50, 60, 70])
MODEL = build("logistic", (small.FEATURES,), small.CLASSES)
SEED = jax.tree.map(lambda leaf: leaf[0], small.seeds([0]))
IDS = jnp.arange(4, dtype=jnp.int32)


def vector(tree, lead=()) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, float).reshape(*lead, -1) for leaf in jax.tree.leaves(tree)], axis=-1)


def naive(params, x, y, rows_of_step) -> np.ndarray:
    """(start - end) / step of softmax regression, gradient by hand, one step after the other."""
    flat, rebuild = jax.flatten_util.ravel_pytree(params)
    start = np.asarray(flat, float)
    point = start.copy()
    for rows in rows_of_step:
        tree = jax.tree.map(np.asarray, rebuild(jnp.asarray(point, jnp.float32)))
        weight = next(leaf for leaf in jax.tree.leaves(tree) if np.ndim(leaf) == 2).astype(float)
        bias = next(leaf for leaf in jax.tree.leaves(tree) if np.ndim(leaf) == 1).astype(float)
        logits = x[rows] @ weight + bias
        odds = np.exp(logits - logits.max(1, keepdims=True))
        error = odds / odds.sum(1, keepdims=True) - np.eye(small.CLASSES)[y[rows]]
        slope = jax.tree.map(
            lambda leaf, e=error, r=rows: x[r].T @ e / len(r) if np.ndim(leaf) == 2 else e.mean(0), tree
        )
        point = point - SIZE * vector(slope)
    return (start - point) / SIZE


@pytest.mark.parametrize("batch", [0, 6])
def test_messages_are_those_of_a_naive_loop(batch):
    clients = local_sgd(LocalSGD(CLIP, batch, STEPS, SIZE), MODEL)
    params = jax.tree.map(lambda p: p + 0.1, MODEL.init(jax.random.key(3)))
    keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.key(8), k))(IDS)
    drawn, flag = clients.draw(SEED, keys, IDS)
    messages, left_out = clients.messages(params, small.data(), SEED, drawn, IDS, jnp.int32(0))
    x, y = (np.asarray(leaf) for leaf in small.data())
    for client in range(4):
        own = np.asarray(SEED.rows[client, : SIZES[client]])
        steps = [own] * STEPS if batch == 0 else np.asarray(drawn.rows)[client].reshape(STEPS, batch)
        assert all(set(rows) <= set(own) and len(set(rows)) == len(rows) for rows in steps)
        np.testing.assert_allclose(vector(messages, (4,))[client], naive(params, x.astype(float), y, steps), atol=2e-5)
    assert not flag and not np.any(left_out)


def test_clients_whose_samples_do_not_fit_the_cache_together_take_turns_and_send_the_same():
    """Batches of 20 by four clients of a convolution; alone, each fits."""
    model = build("cnn-mnist", (28, 28), small.CLASSES)
    rng = np.random.default_rng(5)
    data = Data(jnp.asarray(rng.standard_normal((200, 28, 28)), jnp.float32), jnp.asarray(rng.integers(0, 3, 200)))
    clients, params = local_sgd(LocalSGD(CLIP, 20, STEPS, SIZE), model), model.init(jax.random.key(3))
    drawn, _ = clients.draw(SEED, jax.vmap(jax.random.key)(IDS.astype(jnp.uint32)), IDS)
    assert 20 <= samples_at_once(model.footprint) < 80

    def told(*some):
        return clients.messages(params, data, SEED, *some, jnp.int32(0))[0]

    assert "[4,20,28,28" not in str(jax.make_jaxpr(told)(drawn, IDS))  # no images of all clients
    together = vector(jax.jit(told)(drawn, IDS), (4,))
    for client in range(4):
        own = jax.tree.map(lambda leaf, k=client: leaf[k : k + 1], (drawn, IDS))
        np.testing.assert_allclose(together[client], vector(jax.jit(told)(*own), (1,))[0], rtol=1e-4, atol=1e-5)


@jax.jit
def sent(params, x, y, number):
    """(K, d) what each client puts on the air, and the norms that the round records."""
    clients = local_sgd(LocalSGD(CLIP, 0, STEPS, SIZE), MODEL)
    drawn = draw(clients, SEED, jax.random.key(number), "vmap")
    norms, found = None, []
    for client in range(4):
        alone = (jnp.arange(4) == client).astype(jnp.float32)
        link = Link(alone, jnp.full(4, jnp.inf), jnp.zeros(()), jnp.asarray(True))
        total, stats = fold(clients, params, Data(x, y), SEED, drawn, link, jnp.int32(0), "vmap")
        norms = stats.norm
        found.append(jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(total)]))
    return jnp.stack(found), norms


def spoilt(rng, client: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """One client's samples replaced by huge, equal ones of one label; nobody else's change."""
    x, y = (np.array(leaf) for leaf in small.data())
    rows = np.asarray(SEED.rows[client, : SIZES[client]])
    x[rows] = scale * rng.standard_normal(small.FEATURES)
    y[rows] = rng.integers(small.CLASSES)
    return x, y


def test_no_change_of_one_clients_data_moves_more_than_the_promise():
    """Client 3 alone holds its rows. Random attacks, and the antipodal pair that nearly reaches 2 clip_norm."""
    promise = local_sgd(LocalSGD(CLIP, 0, STEPS, SIZE), MODEL).promise(SIZES)
    params, rng = MODEL.init(jax.random.key(1)), np.random.default_rng(2)
    worlds = [spoilt(rng, 3, scale) for scale in (1e-2, 1.0, 1e3, 1e6, 1e12) for _ in range(3)]
    x, y = worlds[6]
    opposed = x.copy()
    opposed[np.asarray(SEED.rows[3, :70])] *= -1
    worlds.append((opposed, y))
    found, norms = zip(*(sent(params, jnp.asarray(x), jnp.asarray(y), 0) for x, y in worlds))
    found, norms = np.asarray(found, float), np.asarray(norms, float)
    assert norms.max() <= CLIP and np.linalg.norm(found, axis=-1).max() <= CLIP
    gaps = np.linalg.norm(found[:, None, 3] - found[None, :, 3], axis=-1)
    assert 1.9 * CLIP < gaps.max() <= promise.sensitivity[3] == 2 * CLIP
    assert np.ptp(found[:, :2], axis=0).max() == 0  # nobody else moved


def test_the_clip_is_enforced_and_small_messages_pass_unchanged():
    x, y = (np.asarray(leaf) for leaf in small.data())
    params = MODEL.init(jax.random.key(1))
    clients = local_sgd(LocalSGD(CLIP, 0, STEPS, SIZE), MODEL)
    drawn, _ = clients.draw(SEED, jax.vmap(jax.random.key)(IDS.astype(jnp.uint32)), IDS)
    for scale in (1e-3, 1e4):
        raw, _ = clients.messages(params, Data(jnp.asarray(scale * x), jnp.asarray(y)), SEED, drawn, IDS, jnp.int32(0))
        raw = vector(raw, (4,))
        length = np.linalg.norm(raw, axis=1, keepdims=True)
        got, _ = sent(params, jnp.asarray(scale * x), jnp.asarray(y), 0)
        np.testing.assert_allclose(got, raw * np.minimum(1, CLIP * (1 - 4e-6) / length), rtol=2e-5, atol=1e-7)
    assert length.min() > CLIP
