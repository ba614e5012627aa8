"""Four small clients whose messages count their samples: what a batch held can be read off what was sent."""

import jax
import jax.numpy as jnp
import numpy as np

import small
from otafl.clients.per_sample import PerSample, per_sample
from otafl.core import uplink
from otafl.tasks.models import from_loss

SIZES = np.array([20, 50, 60, 70])
BATCH = 8
IDS = jnp.arange(4, dtype=jnp.int32)


def counting_model():
    """Every sample's gradient is the number 1, so that a message times the batch size counts its samples."""
    loss = lambda params, x, y: params["c"][0] + 0 * jnp.mean(x)  # noqa: E731
    return from_loss(lambda key: {"c": jnp.zeros(1, jnp.float32)}, loss, lambda params, x: jnp.zeros((len(x), 2)))


def counts_of(rounds: int, batch: int, **options) -> tuple[np.ndarray, np.ndarray]:
    """Samples per round and client, and the flags, of many independent rounds."""
    clients, data, seed = per_sample(PerSample(1.0, batch, **options), counting_model()), small.data(), small.one_seed()

    def one(number):
        keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.fold_in(jax.random.key(7), number), k))(IDS)
        drawn, overflow = clients.draw(seed, keys, IDS)
        messages, _ = clients.messages({"c": jnp.zeros(1)}, data, seed, drawn, IDS, number)
        return messages["c"][:, 0], overflow

    sums, overflow = jax.jit(lambda numbers: jax.lax.map(one, numbers, batch_size=100))(jnp.arange(rounds))
    scaled = np.asarray(sums, float) * batch / (1 - uplink.FLOAT32_SLACK)
    assert np.abs(scaled - np.round(scaled)).max() < 1e-3
    return np.round(scaled).astype(int), np.asarray(overflow)
