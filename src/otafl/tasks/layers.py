"""Layers whose per-sample gradients have known norms. JAX, float32.

A gradient that is clipped sample by sample need not always be formed sample by sample. For a dense layer it is
a e^T, with a the row the layer read and e the errors that came back to its output; both are by-products of one
forward and one backward pass, and they give the norm of every sample's gradient and any weighted sum of gradients
("ghost clipping"). Where a sample has several rows (a convolution) the gradient itself is kept: norms from products of
rows cost more, and lose what is left where errors cancel. So a `Layer` knows, besides `init` and `forward`, three
things about a batch:

    keep(act, err)       what must be kept of every sample: its rows and errors, or its gradient
    sq_norms(kept)       the squared norm of every sample's gradient
    sums(kept, groups)   weighted sums of the samples' gradients, group by group

Sequences and residual blocks are layers too: their parameters, taps and activations are tuples of their parts'.

Images go through `predict`, the forward pass alone, with first and last axis exchanged: (C, height, width, B). A CPU
then copies and compares whole rows of samples, however few the channels and however wide the strides, and a convolution
is one product. Height and width stay where they are, so that most layers without parameters are one function.

The errors come from *taps*: zeros added to the output of each layer with parameters, by which the loss is
differentiated. Convolutions (`linear.py`) are strided slices and one product, pooling is a maximum of shifted slices:
XLA's own convolution is several times slower inside a compiled loop on a CPU. Initial values come from one array of
uniform numbers for the whole network: every separate use of the generator costs a second of compilation.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.errors import InputError

Shape = tuple[int, ...]
Activation = Literal["relu", "tanh"]


class Groups(NamedTuple):
    """Which samples of a batch are added up, and with which weights: K groups of at most B."""

    weights: jax.Array  # (K, B)
    slots: jax.Array | None = None  # (K, B) places in the batch, weight 0 where unused; None: group by group, all used

    def spread(self, leaf: jax.Array) -> jax.Array:
        """(samples, ...) -> (K, B, ...)."""
        return leaf.reshape(*self.weights.shape, *leaf.shape[1:]) if self.slots is None else leaf[self.slots]

    def mix(self, leaf: jax.Array) -> jax.Array:
        """(samples, ...) -> (K, ...), the weighted sums."""
        if self.slots is None:
            return jnp.einsum("kb,kb...->k...", self.weights, self.spread(leaf))
        # One product with the groups' weights on all samples beats copying the samples of each group together.
        return jnp.tensordot(self.placed(leaf.shape[0]), leaf, axes=1)

    def placed(self, samples: int) -> jax.Array:
        """(K, samples), the weights on all samples of the batch."""
        count, most = self.weights.shape
        slots = jnp.arange(samples).reshape(count, most) if self.slots is None else self.slots
        return jnp.zeros((count, samples), jnp.float32).at[jnp.arange(count)[:, None], slots].add(self.weights)


class Layer(NamedTuple):
    """One layer for one input shape. B samples; `params`, `tap`, `act`, `kept` are pytrees, () where nothing is."""

    shape: Shape  # of one sample's output
    draws: int  # random numbers that init takes
    footprint: int  # numbers that one sample occupies while the layer works, roughly
    init: Callable[[jax.Array], Any]  # (draws,), uniform in (-1, 1) -> params
    forward: Callable[[Any, jax.Array, Any], tuple[jax.Array, Any]]  # params, x (B, ...), tap -> y (B, *shape), act
    tap: Callable[[int], Any]  # batch size -> zeros
    keep: Callable[[Any, Any], Any]  # act, err -> kept, leaves (B, ...)
    sq_norms: Callable[[Any], jax.Array]  # kept -> (B,)
    sums: Callable[[Any, Groups], Any]  # kept, K groups -> like params with leading axis K
    predict: Callable[[Any, jax.Array], jax.Array]  # params, x -> y; first and last axis exchanged in both
    images: bool  # works on many positions of a sample: `predict` is the faster way on a CPU


Builder = Callable[[Shape], Layer]  # shape of one sample's input -> layer


def _plain(
    shape: Shape,
    function: Callable[[jax.Array], jax.Array],
    exchanged: Callable[[jax.Array], jax.Array] | None = None,
) -> Layer:
    """A layer without parameters; `exchanged` where the function is another with first and last axis exchanged."""
    return Layer(
        shape=shape,
        draws=0,
        footprint=math.prod(shape),
        init=lambda uniform: (),
        forward=lambda params, x, tap: (function(x), ()),
        tap=lambda batch: (),
        keep=lambda act, err: (),
        sq_norms=lambda kept: jnp.zeros((), jnp.float32),
        sums=lambda kept, groups: (),
        predict=lambda params, x: (exchanged or function)(x),
        images=False,
    )


def relu(shape: Shape) -> Layer:
    return _plain(shape, jax.nn.relu)


def tanh(shape: Shape) -> Layer:
    return _plain(shape, jnp.tanh)


ACTIVATIONS: dict[str, Builder] = {"relu": relu, "tanh": tanh}


def flatten(shape: Shape) -> Layer:
    size = math.prod(shape)
    return _plain((size,), lambda x: x.reshape(x.shape[0], size), lambda x: jnp.moveaxis(x, 0, -2).reshape(size, -1))


def as_image(shape: Shape) -> Layer:
    """(height, width) or (height, width, channels) -> (height, width, channels)."""
    if len(shape) not in (2, 3):
        raise InputError(f"a convolutional model needs images (height, width[, channels]) but got shape {shape}")
    if len(shape) == 3:
        return _plain(shape, lambda x: x)
    return _plain((*shape, 1), lambda x: x.reshape(*x.shape, 1), lambda x: jnp.swapaxes(x, 0, 1)[None])


def zero_logit(shape: Shape) -> Layer:
    """(1,) -> (2,): the class-0 logit is fixed at zero, so that two-class cross-entropy is the logistic loss."""
    return _plain(
        (2,),
        lambda x: jnp.concatenate([jnp.zeros_like(x), x], axis=-1),
        lambda x: jnp.concatenate([jnp.zeros_like(x), x], axis=0),
    )


def average_pool(shape: Shape) -> Layer:
    """Mean over height and width."""
    return _plain(shape[-1:], lambda x: x.mean(axis=(1, 2)))


def shifted(x: jax.Array, axis: int, size: int, stride: int) -> list[jax.Array]:
    """The `size` views of x along one axis that a sliding window sees, in the window's order."""
    last = x.shape[axis] - size + 1
    return [jax.lax.slice_in_dim(x, start, start + last, stride, axis) for start in range(size)]


def window_shape(shape: Shape, size: int, stride: int, pad: int, what: str) -> tuple[int, int]:
    height, width = ((extent + 2 * pad - size) // stride + 1 for extent in shape[:2])
    if len(shape) != 3 or height < 1 or width < 1:
        raise InputError(f"{what} with a {size}x{size} window does not fit an input of shape {shape}")
    return height, width


@jax.custom_vjp
def _gradient_written(x: jax.Array) -> jax.Array:
    """x, whose gradient is written once: a GPU would work it out anew in each of the windows that read it."""
    return x


_gradient_written.defvjp(
    lambda x: (x, None),
    lambda _, gradient: (gradient if jax.default_backend() == "cpu" else jax.lax.optimization_barrier(gradient),),
)


def max_pool(size: int, stride: int) -> Builder:
    def build(shape: Shape) -> Layer:
        def pool(x: jax.Array) -> jax.Array:
            for axis in (1, 2):
                x = _gradient_written(functools.reduce(jnp.maximum, shifted(x, axis, size, stride)))
            return x

        return _plain((*window_shape(shape, size, stride, 0, "pooling"), shape[2]), pool)

    return build


def tanh_pooled(size: int, stride: int) -> Builder:
    """`tanh`, then `max_pool`. The largest tanh is the tanh of the largest: pooled first, fewer numbers are left.

    A GPU trains faster in the written order.
    """

    def build(shape: Shape) -> Layer:
        pooled = max_pool(size, stride)(shape)

        def pooled_first(x: jax.Array) -> jax.Array:
            return jnp.tanh(pooled.predict((), x))

        def tanh_first(x: jax.Array) -> jax.Array:
            return pooled.predict((), jnp.tanh(x))

        trained = pooled_first if jax.default_backend() == "cpu" else tanh_first
        return _plain(pooled.shape, trained, pooled_first)

    return build


def uniform_draws(key: jax.Array, count: int) -> jax.Array:
    """float32 in the open interval (-1, 1), so that their normal quantiles are finite."""
    return jax.random.uniform(
        key, (count,), jnp.float32, minval=np.nextafter(np.float32(-1), np.float32(0)), maxval=1.0
    )


def square_above(rows: jax.Array) -> jax.Array:
    """(B,) squared norms of rows (B, n), not below the true ones though squares of tiny numbers count as zero.

    For a product of two norms, of which the other may be as large as this one is small.
    """
    lost = rows.shape[1] * np.finfo(np.float32).tiny  # processors take what lies below for zero
    return jnp.sum(rows * rows, axis=1) + np.float32(lost)


def sq_norms_of(gradients: dict[str, jax.Array]) -> jax.Array:
    """(B,) from gradients with leading axis B."""
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in gradients.values()]
    return sum((jnp.sum(leaf**2, axis=1) for leaf in flat), jnp.zeros((), jnp.float32))


def group_norm(groups: int, epsilon: float = 1e-5) -> Builder:
    """Each sample's channel groups to mean 0 and variance 1, then scale and shift per channel."""

    def build(shape: Shape) -> Layer:
        height, width, channels = shape
        if channels % groups:
            raise InputError(f"groups={groups} must divide the {channels} channels")

        def normalise(x: jax.Array, split: Shape, axes: tuple[int, ...]) -> jax.Array:
            parts = x.reshape(split)
            centred = parts - parts.mean(axis=axes, keepdims=True)
            variance = (centred**2).mean(axis=axes, keepdims=True)
            return (centred * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape)

        def forward(params: dict[str, jax.Array], x: jax.Array, tap: jax.Array) -> tuple[jax.Array, jax.Array]:
            normal = normalise(x, (-1, height, width, groups, channels // groups), (1, 2, 4))
            return normal * params["scale"] + params["shift"] + tap, normal

        def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
            normal = normalise(x, (groups, channels // groups, height, width, -1), (1, 2, 3))
            return normal * params["scale"].reshape(-1, 1, 1, 1) + params["shift"].reshape(-1, 1, 1, 1)

        def keep(act: jax.Array, err: jax.Array) -> dict[str, jax.Array]:
            return {"scale": jnp.sum(act * err, axis=(1, 2)), "shift": jnp.sum(err, axis=(1, 2))}

        return Layer(
            shape=shape,
            draws=0,
            footprint=2 * math.prod(shape),
            init=lambda uniform: {"scale": jnp.ones(channels, jnp.float32), "shift": jnp.zeros(channels, jnp.float32)},
            forward=forward,
            tap=lambda batch: jnp.zeros((batch, *shape), jnp.float32),
            keep=keep,
            sq_norms=sq_norms_of,
            sums=lambda kept, groups: jax.tree.map(groups.mix, kept),
            predict=predict,
            images=True,
        )

    return build


def sequence(*builders: Builder) -> Builder:
    """One layer after the other."""

    def build(shape: Shape) -> Layer:
        parts: list[Layer] = []
        for builder in builders:
            parts.append(builder(parts[-1].shape if parts else shape))

        ends = list(itertools.accumulate(part.draws for part in parts))

        def init(uniform: jax.Array) -> tuple[Any, ...]:
            return tuple(part.init(own) for part, own in zip(parts, jnp.split(uniform, ends[:-1])))

        def forward(params: Any, x: jax.Array, tap: Any) -> tuple[jax.Array, Any]:
            acts = []
            for part, own, own_tap in zip(parts, params, tap):
                x, act = part.forward(own, x, own_tap)
                acts.append(act)
            return x, tuple(acts)

        def predict(params: Any, x: jax.Array) -> jax.Array:
            for part, own in zip(parts, params):
                x = part.predict(own, x)
            return x

        return Layer(
            shape=parts[-1].shape,
            draws=ends[-1],
            footprint=max(part.footprint for part in parts),
            init=init,
            forward=forward,
            tap=lambda batch: tuple(part.tap(batch) for part in parts),
            keep=lambda act, err: tuple(part.keep(a, e) for part, a, e in zip(parts, act, err)),
            sq_norms=lambda kept: sum(
                (part.sq_norms(own) for part, own in zip(parts, kept)), jnp.zeros((), jnp.float32)
            ),
            sums=lambda kept, groups: tuple(part.sums(own, groups) for part, own in zip(parts, kept)),
            predict=predict,
            images=any(part.images for part in parts),
        )

    return build


def residual(body: Builder) -> Builder:
    """body(x) + shortcut(x); the shortcut has no parameters: subsample and append zero channels ("option A")."""

    def build(shape: Shape) -> Layer:
        inner = body(shape)
        stride, extra = math.ceil(shape[0] / inner.shape[0]), inner.shape[2] - shape[2]

        def forward(params: Any, x: jax.Array, tap: Any) -> tuple[jax.Array, Any]:
            y, act = inner.forward(params, x, tap)
            shortcut = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, extra)))
            return y + shortcut, act

        def predict(params: Any, x: jax.Array) -> jax.Array:
            shortcut = jnp.pad(x[:, ::stride, ::stride], ((0, extra), (0, 0), (0, 0), (0, 0)))
            return inner.predict(params, x) + shortcut

        return inner._replace(forward=forward, predict=predict)

    return build
