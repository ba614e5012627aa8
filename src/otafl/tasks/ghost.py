"""Norms and weighted sums of per-sample gradients, with as few gradients formed as possible. JAX, float32.

`trace` runs one forward and one backward pass; everything else reads what it saved. Weights come *after* the
norms, so clipping is `w = min(1, C / norm)` between two calls:

    saved = ghost.trace(params, x, y)
    clipped = ghost.sums(saved, Groups(jnp.minimum(1, C / jnp.sqrt(ghost.sq_norms(saved)))[None]))

The functions of a `Ghost` are pure and may be jitted and vmapped; all floats stay float32, also inside
`jax.enable_x64(True)`.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from otafl.core.messages import Data
from otafl.tasks.layers import Groups, Layer

Loss = Callable[[Any, jax.Array, jax.Array], jax.Array]
# params, samples, their rows (K, B), share (K,) or one for all, counts (K,) of slots in use or None for all, longest
# gradient or None -> share_k sum_i g_ki of each client, each g_ki clipped or, if not finite, left out; how many were
# left out (K,); the norms of these sums (K,).
AtOnce = Callable[[Any, Data, jax.Array, Any, jax.Array | None, float | None], tuple[Any, jax.Array, jax.Array]]

LANES = 16  # float32 numbers of the widest vectors of a CPU


class Saved(NamedTuple):
    """What a trace keeps of B samples."""

    kept: Any  # what each layer keeps, leaves (B, ...); zeros in place of a sample leave it out
    loss: jax.Array  # (B,)
    params: Any = ()  # where the gradients were taken, if they are formed again


class Ghost(NamedTuple):
    """Per-sample gradients g_i of a batch, seen only through sums and norms."""

    trace: Callable[[Any, jax.Array, jax.Array], Saved]  # params, x (B, ...), y (B,)
    sq_norms: Callable[[Saved], jax.Array]  # (B,) norm(g_i)^2
    sums: Callable[[Saved, Groups], Any]  # K groups -> sum_i w_i g_i of each, like params with leading axis K
    at_once: Callable[[int], AtOnce | None] = lambda slots: None  # all in one step, if this machine can for such B


def samples_at_once(footprint: int) -> int:
    """How many samples to push through a network together: on a CPU what stays in cache, else what fits in memory."""
    return max(1, (2**20 if jax.default_backend() == "cpu" else 2**30) // footprint)


def evaluated_at_once(footprint: int) -> int:
    """The same for evaluation: on a CPU whole vectors of samples, and twice as many where they are few."""
    most = samples_at_once(footprint)
    if jax.default_backend() != "cpu":
        return most
    return max(LANES, max(most, min(2 * most, 256)) // LANES * LANES)


def of_network(network: Layer, sample_loss: Callable[[jax.Array, jax.Array], jax.Array]) -> Ghost:
    """The ghost of a network of layers under `sample_loss(outputs (B, ...), y (B,)) -> (B,)`."""

    def part(params: Any, x: jax.Array, y: jax.Array) -> Saved:
        def summed(tap: Any) -> tuple[jax.Array, tuple[Any, jax.Array]]:
            outputs, act = network.forward(params, x, tap)
            losses = sample_loss(outputs, y)
            return losses.sum(), (act, losses)

        err, (act, losses) = jax.grad(summed, has_aux=True)(network.tap(x.shape[0]))
        # Norms, sums and biases all read the errors: they are written once, and by the product that makes them.
        return Saved(network.keep(act, jax.lax.optimization_barrier(err)), losses)

    def trace(params: Any, x: jax.Array, y: jax.Array) -> Saved:
        return some_at_a_time(partial(part, params), x, y, samples_at_once(network.footprint))

    return Ghost(
        trace=trace,
        sq_norms=lambda saved: network.sq_norms(saved.kept),
        sums=lambda saved, groups: network.sums(saved.kept, groups),
    )


def some_at_a_time(function: Callable[[jax.Array, jax.Array], Any], x: jax.Array, y: jax.Array, most: int) -> Any:
    """function(x, y), leaves (B, ...), of at most so many samples at once."""
    samples = x.shape[0]
    parts = -(-samples // most)
    if parts == 1:
        return function(x, y)
    size = -(-samples // parts)
    found = jax.lax.map(lambda pair: function(*pair), (_cut(x, parts, size), _cut(y, parts, size)))
    return jax.tree.map(lambda leaf: leaf.reshape(parts * size, *leaf.shape[2:])[:samples], found)


def _cut(leaf: jax.Array, parts: int, size: int) -> jax.Array:
    """(samples, ...) -> (parts, size, ...), filled up with zeros."""
    padding = [(0, parts * size - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, padding).reshape(parts, size, *leaf.shape[1:])


def gradients_at_once(params: Any) -> int:
    """How many whole gradients to form together: half a GiB of them, on an accelerator four."""
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    return int(max(1, (2**27 if jax.default_backend() == "cpu" else 2**30) // max(size, 1)))


def materialised(loss: Loss) -> Ghost:
    """The same interface for any differentiable `loss(params, x, y)`, a mean over the batch.

    Every gradient is kept where all of them fit; otherwise they are formed twice, a part at a time: once for their
    norms, once for the sums. Parts of other sizes are other programs, which may round a sample that is close to the
    edge of something to another gradient: in the sums none is longer than it was measured.
    """
    one = jax.value_and_grad(lambda p, a, b: loss(p, a[None], b[None]))
    each = jax.vmap(one, in_axes=(None, 0, 0))

    def trace(params: Any, x: jax.Array, y: jax.Array) -> Saved:
        most = gradients_at_once(params)
        if x.shape[0] <= most:
            losses, gradients = each(params, x, y)
            return Saved({"gradients": gradients}, losses)

        def sample(pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            value, gradient = one(params, *pair)
            return value, sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)), jnp.zeros((), jnp.float32))

        losses, squares = jax.lax.map(sample, (x, y), batch_size=most)
        counts = jnp.ones(x.shape[0], jnp.float32)
        return Saved({"x": x, "y": y, "square": squares, "counts": counts}, losses, params)

    def squares_of(gradients: Any) -> jax.Array:
        each = [jnp.sum(leaf**2, axis=range(1, leaf.ndim)) for leaf in jax.tree.leaves(gradients)]
        return sum(each, jnp.zeros((), jnp.float32))

    def sq_norms(saved: Saved) -> jax.Array:
        return saved.kept["square"] if "square" in saved.kept else squares_of(saved.kept)

    def sums(saved: Saved, groups: Groups) -> Any:
        if "square" not in saved.kept:
            return jax.tree.map(groups.mix, saved.kept["gradients"])
        kept, most = saved.kept, gradients_at_once(saved.params)
        samples = kept["counts"].shape[0]
        parts = -(-samples // most)
        weights = groups.placed(samples)

        def add(total: Any, part: tuple[jax.Array, ...]) -> tuple[Any, None]:
            x, y, counts, measured, own = part  # own (most, K)
            _, gradients = each(saved.params, x, y)
            found = squares_of(gradients)
            use = (counts > 0) & jnp.isfinite(found)
            own = own * jnp.where(found > measured, jnp.sqrt(measured / found), 1)[:, None]

            def plus(sum_: jax.Array, leaf: jax.Array) -> jax.Array:
                sound = jnp.where(use.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)  # 0 times NaN is NaN
                return sum_ + jnp.tensordot(own, sound, axes=(0, 0))

            return jax.tree.map(plus, total, gradients), None

        zero = jax.tree.map(lambda leaf: jnp.zeros((weights.shape[0], *leaf.shape), leaf.dtype), saved.params)
        read = (*(kept[name] for name in ("x", "y", "counts", "square")), weights.T)
        each_part = tuple(_cut(leaf, parts, most) for leaf in read)
        return jax.lax.scan(add, zero, each_part)[0]

    return Ghost(trace, sq_norms, sums)
