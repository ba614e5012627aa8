"""Norms and weighted sums of per-sample gradients, without forming the gradients. JAX, float32.

`trace` runs one forward and one backward pass; everything else reads what it saved. Weights come *after* the
norms, so clipping is `w = min(1, C / norm)` between two calls:

    saved = ghost.trace(params, x, y)
    clipped = ghost.weighted(saved, jnp.minimum(1, C / jnp.sqrt(ghost.sq_norms(saved))))

The functions of a `Ghost` are pure and may be jitted and vmapped; all floats stay float32, also inside
`jax.enable_x64(True)`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from otafl.tasks.layers import Layer

Array = jax.Array
Loss = Callable[[Any, Array, Array], Array]


class Saved(NamedTuple):
    """What a trace keeps of B samples."""

    act: Any  # what each layer read, leaves (B, ...)
    err: Any  # derivative of each sample's own loss by each layer's output, leaves (B, ...)
    loss: Array  # (B,)


class Ghost(NamedTuple):
    """Per-sample gradients g_i of B samples (or K groups of B, laid flat), seen only through sums and norms."""

    trace: Callable[[Any, Array, Array], Saved]  # params, x (B, ...), y (B,)
    sq_norms: Callable[[Saved], Array]  # (B,) norm(g_i)^2
    weighted: Callable[[Saved, Array], Any]  # w (B,) -> sum_i w_i g_i, like params
    group_sums: Callable[[Saved, Array], Any]  # w (K, B), saved of K * B samples -> the same per group, leading axis K
    group_sq_norms: Callable[[Saved, Array], Array]  # w (K, B) -> (K,) squared norm of each group's weighted sum


def _grouped(tree: Any, groups: int) -> Any:
    return jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), tree)


def _scaled(tree: Any, w: Array) -> Any:
    """Multiply the sample axis (or axes) of every leaf by w."""
    return jax.tree.map(lambda leaf: leaf * w.reshape(w.shape + (1,) * (leaf.ndim - w.ndim)), tree)


def of_network(network: Layer, sample_loss: Callable[[Array, Array], Array]) -> Ghost:
    """The ghost of a network of layers under `sample_loss(outputs (B, ...), y (B,)) -> (B,)`."""

    def trace(params: Any, x: Array, y: Array) -> Saved:
        def summed(tap: Any) -> tuple[Array, tuple[Any, Array]]:
            outputs, act = network.forward(params, x, tap)
            losses = sample_loss(outputs, y)
            return losses.sum(), (act, losses)

        err, (act, losses) = jax.grad(summed, has_aux=True)(network.tap(x.shape[0]))
        return Saved(act, err, losses)

    def sq_norms(saved: Saved) -> Array:
        samples = saved.loss.shape[0]
        return jax.vmap(network.sq_norm)(_grouped(saved.act, samples), _grouped(saved.err, samples))

    def weighted(saved: Saved, w: Array) -> Any:
        return network.total(saved.act, _scaled(saved.err, w))

    def group_sums(saved: Saved, w: Array) -> Any:
        groups = w.shape[0]
        return jax.vmap(network.total)(_grouped(saved.act, groups), _scaled(_grouped(saved.err, groups), w))

    def group_sq_norms(saved: Saved, w: Array) -> Array:
        groups = w.shape[0]
        return jax.vmap(network.sq_norm)(_grouped(saved.act, groups), _scaled(_grouped(saved.err, groups), w))

    return Ghost(trace, sq_norms, weighted, group_sums, group_sq_norms)


def _tree_sq_norm(tree: Any) -> Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros((), jnp.float32))


def materialised(loss: Loss) -> Ghost:
    """The same interface for any differentiable `loss(params, x, y)`, a mean over the batch: forms every gradient.

    Costs B times the memory of the parameters. `err` of what it saves are the gradients themselves.
    """

    def trace(params: Any, x: Array, y: Array) -> Saved:
        one = jax.value_and_grad(lambda p, a, b: loss(p, a[None], b[None]))
        losses, gradients = jax.vmap(one, in_axes=(None, 0, 0))(params, x, y)
        return Saved((), gradients, losses)

    def weighted(saved: Saved, w: Array) -> Any:
        return jax.tree.map(lambda leaf: jnp.tensordot(w, leaf, axes=1), saved.err)

    def group_sums(saved: Saved, w: Array) -> Any:
        return jax.vmap(lambda gradients, own: weighted(Saved((), gradients, own), own))(
            _grouped(saved.err, w.shape[0]), w
        )

    return Ghost(
        trace=trace,
        sq_norms=lambda saved: jax.vmap(_tree_sq_norm)(saved.err),
        weighted=weighted,
        group_sums=group_sums,
        group_sq_norms=lambda saved, w: jax.vmap(_tree_sq_norm)(group_sums(saved, w)),
    )
