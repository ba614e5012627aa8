"""Losses and metrics by name: what a model of outputs and targets is trained on, and what its results are told in.

Both are functions of the outputs (B, ...) and the targets y (B, ...) that give one number per sample, (B,); what is
reported is the mean over held-out samples. JAX, float32.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

MOST_COLUMNS = 32
PerSample = Callable[[jax.Array, jax.Array], jax.Array]  # outputs (B, ...), y (B, ...) -> (B,)


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """(B, C), (B,) -> (B,), in nats."""
    if by_columns(logits):
        return _cross_entropy_by_columns(logits, y)
    return jax.nn.logsumexp(logits, axis=1) - jnp.sum(jnp.where(_hot(logits, y), logits, 0), axis=1)


def _hot(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """(B, C) bool, by a comparison: gathers are slow to differentiate."""
    return y[:, None] == jnp.arange(outputs.shape[1], dtype=y.dtype)


def by_columns(outputs: jax.Array) -> bool:
    """Whether to go over the classes one by one: an accelerator reduces short rows slowly."""
    return jax.default_backend() != "cpu" and outputs.shape[1] <= MOST_COLUMNS


def _columns(step: Callable[[jax.Array, jax.Array], jax.Array], rows: jax.Array) -> jax.Array:
    """(B, C) -> (B,)."""
    return functools.reduce(step, (rows[:, n] for n in range(rows.shape[1])))


@jax.custom_vjp
def _cross_entropy_by_columns(logits: jax.Array, y: jax.Array) -> jax.Array:
    top = _columns(jnp.maximum, logits)
    total = _columns(jnp.add, jnp.exp(logits - top[:, None]))
    return jnp.log(total) + top - _columns(jnp.add, jnp.where(_hot(logits, y), logits, 0))


def _forward(logits: jax.Array, y: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _cross_entropy_by_columns(logits, y), (logits, y)


def _backward(saved: tuple[jax.Array, jax.Array], error: jax.Array) -> tuple[jax.Array, None]:
    """Softmax less label; what autodiff makes of columns is not fused."""
    logits, y = saved
    power = jnp.exp(logits - _columns(jnp.maximum, logits)[:, None])
    return (power / _columns(jnp.add, power)[:, None] - _hot(logits, y)) * error[:, None], None


_cross_entropy_by_columns.defvjp(_forward, _backward)


def binary_cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """One logit per sample, (B,) or (B, 1), labels 0 and 1; in nats."""
    logit = logits.reshape(y.shape)
    return jax.nn.softplus(jnp.where(y > 0, -logit, logit))


def _errors(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """(B, m): a target that is one number may meet outputs of shape (B, 1)."""
    return (outputs.reshape(y.shape) - y).reshape(y.shape[0], -1)


def squared_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(_errors(outputs, y) ** 2, axis=1)


def absolute_error(outputs: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.abs(_errors(outputs, y)), axis=1)


def huber(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Quadratic up to an error of one, then linear: no gradient with respect to an output is above one."""
    size = jnp.abs(_errors(outputs, y))
    return jnp.mean(jnp.where(size < 1, size**2 / 2, size - 0.5), axis=1)


def right(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """1 where the largest output is that of the label; one output alone says class 1 where it is positive."""
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return (outputs.reshape(y.shape) > 0) == (y > 0)
    if not by_columns(outputs):
        return jnp.argmax(outputs, axis=1) == y
    hot = _hot(outputs, y)
    own = _columns(jnp.add, jnp.where(hot, outputs, 0))[:, None]
    before = jnp.arange(outputs.shape[1], dtype=y.dtype) < y[:, None]  # the first of equals is the largest
    return _columns(jnp.logical_and, hot | jnp.where(before, outputs < own, outputs <= own))


class LossKind(NamedTuple):
    summary: str
    of: PerSample
    metric: str  # told where none is asked for


class Metric(NamedTuple):
    summary: str
    of: PerSample | None  # None: the loss itself
    larger_is_better: bool


LOSSES: dict[str, LossKind] = {
    "cross-entropy": LossKind("of C logits and integer labels", cross_entropy, "accuracy"),
    "binary-cross-entropy": LossKind("of one logit and labels 0 and 1", binary_cross_entropy, "accuracy"),
    "mse": LossKind("squared error, mean over a sample's outputs", squared_error, "mse"),
    "mae": LossKind("absolute error", absolute_error, "mae"),
    "huber": LossKind("squared error up to one, then linear", huber, "mae"),
}
METRICS: dict[str, Metric] = {
    "accuracy": Metric("share of samples whose label has the largest output", right, True),
    "mse": Metric("mean squared error", squared_error, False),
    "mae": Metric("mean absolute error", absolute_error, False),
    "loss": Metric("the loss that is trained on", None, False),
}
