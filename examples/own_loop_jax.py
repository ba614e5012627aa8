"""A training loop of your own, in JAX: messages are the gradients of a small network, a pytree like its parameters.

The scheme is CARES' bandit, which looks at the accuracy on public data after every round.

    python examples/own_loop_jax.py
"""

import jax
import jax.numpy as jnp

import otafl

keys = jax.random.split(jax.random.key(0), 4)
x = jax.random.normal(keys[0], (11, 60, 8))  # ten devices, and public data as the last
y = (jnp.sin(2 * x[..., 0]) + x[..., 1] > 0).astype(jnp.float32)
params = {"hidden": 0.5 * jax.random.normal(keys[1], (8, 16)), "out": 0.5 * jax.random.normal(keys[2], (16,))}


def logits(params: dict, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["hidden"]) @ params["out"]


def loss(params: dict, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.logaddexp(0, logits(params, x)) - y * logits(params, x))


def accuracy(params: dict) -> float:
    return float(jnp.mean((logits(params, x[10]) > 0) == y[10]))


gradient = jax.jit(jax.grad(loss))
air = otafl.Air(
    "cares-adaptive", site=10, like=params, clip_norm=1.0, channel="cares", eps=30.0, rounds=60, noise_std=0.1, seed=0,
)  # fmt: skip
air.reward(accuracy(params))  # of the model before the first round
for r in air:
    received = r.send({k: gradient(params, x[k], y[k]) for k in r.asked})
    params = jax.tree.map(lambda p, g: p - 0.5 * g, params, received)
    r.reward(accuracy(params))
print(air.card)
print(f"{air.rounds_charged} rounds, guarantee eps = {air.card.guarantee_eps:g}, accuracy {accuracy(params):.3f}")
