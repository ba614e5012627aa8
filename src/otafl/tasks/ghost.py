"""Norms and weighted sums of per-sample gradients, with as few gradients formed as possible. JAX, float32.

`trace` runs one forward and one backward pass; everything else reads what it saved. Weights come *after* the
norms, so clipping is `w = min(1, C / norm)` between two calls:

    saved = ghost.trace(params, x, y)
    clipped = ghost.sums(saved, Groups(jnp.minimum(1, C / jnp.sqrt(ghost.sq_norms(saved)))[None]))

The functions of a `Ghost` are pure and may be jitted and vmapped; all floats stay float32, also inside
`jax.enable_x64(True)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from otafl.tasks.layers import Groups, Layer

Array = jax.Array
Loss = Callable[[Any, Array, Array], Array]


class Saved(NamedTuple):
    """What a trace keeps of B samples."""

    kept: Any  # what each layer keeps, leaves (B, ...)
    loss: Array  # (B,)


class Ghost(NamedTuple):
    """Per-sample gradients g_i of a batch, seen only through sums and norms."""

    trace: Callable[[Any, Array, Array], Saved]  # params, x (B, ...), y (B,)
    sq_norms: Callable[[Saved], Array]  # (B,) norm(g_i)^2
    sums: Callable[[Saved, Groups], Any]  # K groups -> sum_i w_i g_i of each, like params with leading axis K


def samples_at_once(footprint: int) -> int:
    """How many samples to push through a network together: on a CPU what stays in cache, else what fits in memory."""
    return max(1, (2**20 if jax.default_backend() == "cpu" else 2**30) // footprint)


def of_network(network: Layer, sample_loss: Callable[[Array, Array], Array]) -> Ghost:
    """The ghost of a network of layers under `sample_loss(outputs (B, ...), y (B,)) -> (B,)`."""

    def part(params: Any, x: Array, y: Array) -> Saved:
        def summed(tap: Any) -> tuple[Array, tuple[Any, Array]]:
            outputs, act = network.forward(params, x, tap)
            losses = sample_loss(outputs, y)
            return losses.sum(), (act, losses)

        err, (act, losses) = jax.grad(summed, has_aux=True)(network.tap(x.shape[0]))
        return Saved(network.keep(act, err), losses)

    def trace(params: Any, x: Array, y: Array) -> Saved:
        samples = x.shape[0]
        parts = -(-samples // samples_at_once(network.footprint))
        if parts == 1:
            return part(params, x, y)
        size = -(-samples // parts)

        def cut(leaf: Array) -> Array:
            padding = [(0, parts * size - samples)] + [(0, 0)] * (leaf.ndim - 1)
            return jnp.pad(leaf, padding).reshape(parts, size, *leaf.shape[1:])

        saved = jax.lax.map(lambda pair: part(params, *pair), (cut(x), cut(y)))
        return jax.tree.map(lambda leaf: leaf.reshape(parts * size, *leaf.shape[2:])[:samples], saved)

    return Ghost(
        trace=trace,
        sq_norms=lambda saved: network.sq_norms(saved.kept),
        sums=lambda saved, groups: network.sums(saved.kept, groups),
    )


def materialised(loss: Loss) -> Ghost:
    """The same interface for any differentiable `loss(params, x, y)`, a mean over the batch: keeps every gradient."""

    def trace(params: Any, x: Array, y: Array) -> Saved:
        one = jax.value_and_grad(lambda p, a, b: loss(p, a[None], b[None]))
        losses, gradients = jax.vmap(one, in_axes=(None, 0, 0))(params, x, y)
        return Saved(gradients, losses)

    def sq_norms(saved: Saved) -> Array:
        squares = [jnp.sum(leaf**2, axis=range(1, leaf.ndim)) for leaf in jax.tree.leaves(saved.kept)]
        return sum(squares, jnp.zeros((), jnp.float32))

    return Ghost(trace, sq_norms, lambda saved, groups: jax.tree.map(groups.mix, saved.kept))
