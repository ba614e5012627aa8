"""A small experiment that the tests of the core share: few shapes, so that little is compiled."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from otafl.core.engine import Engine, make_engine
from otafl.core.messages import Data, Seed
from otafl.core.plan import Context, Deployment, Plan, Policy, Trace
from otafl.core.rounds import Carry, Row, make_round, plan_ahead, stack
from otafl.core.uplink import lower, to_float32
from otafl.tasks.models import Model, build

CLIENTS, SAMPLES, FEATURES, CLASSES = 4, 200, 6, 3


def model() -> Model:
    return build("mlp", (FEATURES,), CLASSES, hidden=(5,))


def data(seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((SAMPLES, FEATURES)).astype(np.float32)
    return Data(jnp.asarray(x), jnp.asarray(np.argmax(x[:, :CLASSES], axis=1), jnp.int32))


def seeds(keys: list[int], sizes: tuple[int, ...] = (20, 50, 60, 70)) -> Seed:
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.stack([np.minimum(start + np.arange(max(sizes)), SAMPLES - 1) for start in starts]).astype(np.int32)
    count = len(keys)
    return Seed(
        jax.vmap(jax.random.key)(jnp.asarray(keys, jnp.uint32)),
        jnp.asarray(np.broadcast_to(rows, (count, *rows.shape))),
        jnp.asarray(np.broadcast_to(np.asarray(sizes, np.int32), (count, len(sizes)))),
    )


def one_seed() -> Seed:
    return jax.tree.map(lambda leaf: leaf[0], seeds([0]))  # type: ignore[no-any-return]


def deployment(noise_std: float = 0.1, energy: float = 1.0, dim: int = 53, gain_error: float = 0.0) -> Deployment:
    weights = np.array([0.1, 0.25, 0.3, 0.35])
    return Deployment(np.full(CLIENTS, energy), noise_std**2, noise_std**2, weights, dim, gain_error)


def trace(rounds: int, seed: int = 0, clients: int = CLIENTS) -> Trace:
    rng = np.random.default_rng(seed)
    gain = (rng.standard_normal((rounds, clients)) + 1j * rng.standard_normal((rounds, clients))) / np.sqrt(2)
    one = np.ones((rounds, clients))
    return Trace(gain, gain, one, one, one, one, rng.random((rounds, clients)))


def rows_of(plans: list[Plan], traces: list[Trace], site: Deployment) -> Row:
    """Planned rounds of several seeds as what the engine reads."""
    links = stack([to_float32(lower(plan, one.gain, site)) for plan, one in zip(plans, traces)])
    return Row(links, (), np.ones(links.live.shape, bool))


@functools.cache
def engine_of(clients: Any, client_map: Any = "vmap", seed_map: Any = "vmap", step_size: float = 0.5) -> Engine:
    """Traced once for all tests of the same clients."""
    optimizer = optax.sgd(step_size)
    round_ = make_round(clients, optimizer, client_map)
    return make_engine(model().init, lambda p, held: jnp.zeros(()), round_, optimizer, seed_map)


def train(
    clients: Any,
    policies: list[Policy],
    traces: list[Trace],
    site: Deployment,
    keys: list[int],
    *,
    client_map: Any = "vmap",
    seed_map: Any = "vmap",
    step_size: float = 0.5,
    sizes: tuple[int, ...] = (20, 50, 60, 70),
) -> tuple[Carry, Any, list[Plan]]:
    """Plan ahead, run all rounds in one chunk, return (carry, records, plans)."""
    plans = [plan_ahead(policy, policy.init(None), one)[1] for policy, one in zip(policies, traces)]
    engine, batch = engine_of(clients, client_map, seed_map, step_size), seeds(keys, sizes)
    carry = engine.init(batch.key, jnp.zeros((len(keys), 0)))
    carry, records, _ = engine.chunk(data(), (), (), batch, carry, rows_of(plans, traces, site))
    return carry, records, plans


CONTEXT = Context(rounds=5, eps=10.0, delta=1e-5)
