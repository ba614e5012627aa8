"""A mechanism of mu = 1 that is small enough to be attacked thousands of times, and its parts to be broken."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.clients import Gradient, PerSample, gradient, per_sample
from otafl.core.messages import Seed
from otafl.core.plan import Deployment, Message, Plan, Trace
from otafl.core.uplink import ANALOG, Uplink, lower
from otafl.privacy import events, gaussian_eps
from otafl.runs.audit.canaries import gradient_is_x
from otafl.runs.audit.target import Records, Target
from otafl.tasks.models import build

DELTA = 1e-5


def seed_of(sizes: tuple[int, ...]) -> Seed:
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.stack([start + np.minimum(np.arange(max(sizes)), size - 1) for start, size in zip(starts, sizes)])
    return Seed(jax.random.key(0), jnp.asarray(rows, jnp.int32), jnp.asarray(sizes, jnp.int32))


def site(count: int, noise_var: float, dim: int, weights: Any = None) -> Deployment:
    shares = np.full(count, 1 / count) if weights is None else np.asarray(weights, float)
    return Deployment(np.full(count, np.inf), noise_var, noise_var, shares, dim)


def plan_of(rounds: int, weights: np.ndarray, max_norm: float = np.inf) -> tuple[Plan, Trace]:
    """Channel inversion over gains of one: client k arrives with amplitude weights_k."""
    shape = (rounds, len(weights))
    one = np.ones(shape)
    trace = Trace(one + 0j, one + 0j, one, one, one, one, np.full(shape, 0.5))
    tx = np.broadcast_to(weights, shape) + 0j
    return Plan(tx, 0j * one, max_norm * one, np.ones(rounds), one, np.ones(rounds, bool)), trace


def charged_eps(run: Any) -> np.ndarray:
    from otafl.privacy import inverse_square

    return np.asarray(gaussian_eps(inverse_square(run).sum(0) / 2, DELTA))


def message_target(
    rounds: int = 20, mu: float = 1.0, weights: tuple[float, ...] = (0.4, 0.4, 0.2), adjacency: Any = "replace",
    uplink: Uplink = ANALOG, unit: Any = "client",
) -> Target:  # fmt: skip
    """Gradient clients of clip norm 1; the loudest is charged mu in all."""
    model = build("logistic", (4,), 3)
    clients = gradient(Gradient(batch=0, adjacency=adjacency, unit=unit), model)
    sizes = (5,) * len(weights)
    message: Message = clients.promise(np.array(sizes))
    noise_std = max(weights) * float(np.max(message.sensitivity)) * np.sqrt(rounds) / mu
    deployment = site(len(weights), noise_std**2, message.dim, weights)
    plan, trace = plan_of(rounds, np.asarray(weights))
    run = events(plan, trace, deployment, message)
    template = jax.eval_shape(model.init, jax.random.key(0))
    return Target(
        "case", clients, template, uplink, lower(plan, trace.gain, deployment), message, run, seed_of(sizes),
        charged_eps(run), DELTA,
    )  # fmt: skip


def record_target(options: PerSample, rounds: int, multiplier: float, size: int, count: int = 1) -> Target:
    """Per-sample clients; noise is `multiplier` times what one record can move."""
    clients = per_sample(options, gradient_is_x(8), size - 1)
    sizes = (size,) * count
    message = clients.promise(np.array(sizes))
    noise_std = multiplier / count * float(np.max(message.sensitivity))
    deployment = site(count, noise_std**2, message.dim)
    plan, trace = plan_of(rounds, np.full(count, 1 / count))
    run = events(plan, trace, deployment, message)
    return Target(
        "case", clients, jax.ShapeDtypeStruct((8,), jnp.float32), ANALOG, lower(plan, trace.gain, deployment), message,
        run, seed_of(sizes), charged_eps(run), DELTA, records=Records(options.clip_norm, options.sampling == "poisson"),
    )  # fmt: skip
