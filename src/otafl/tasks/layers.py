"""Layers whose per-sample gradients have known norms. JAX, float32.

A gradient that is clipped sample by sample need not be formed sample by sample. For a linear layer it is
A^T E, with A the rows the layer read and E the errors that came back to its output; both are by-products of one
forward and one backward pass, and they give the norm of every sample's gradient and any weighted sum of gradients
("ghost clipping"). So a `Layer` knows, besides `init` and `forward`, two things about a batch whose errors are
already weighted:

    total(act, err)    the sum of the samples' gradients
    sq_norm(act, err)  the squared norm of that sum, by the cheaper of two ways

A batch of one sample gives per-sample norms, a batch of one client's samples gives per-client norms: `ghost.py`.
Sequences and residual blocks are layers too: their parameters, taps and activations are tuples of their parts'.

The errors come from *taps*: zeros added to the output of each layer with parameters, by which the loss is
differentiated. Convolutions are strided slices and one product, pooling is a maximum of shifted slices: XLA's own
convolution is several times slower inside a compiled loop on a CPU. Initial values come from one array of uniform
numbers for the whole network: every separate use of the generator costs a second of compilation.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl import validate
from otafl.errors import InputError

Array = jax.Array
Shape = tuple[int, ...]
Init = Literal["he", "uniform", "zero"]
Activation = Literal["relu", "tanh"]


class Layer(NamedTuple):
    """One layer for one input shape. B samples; `params`, `tap` and `act` are pytrees, () where there is nothing."""

    shape: Shape  # of one sample's output
    draws: int  # random numbers that init takes
    init: Callable[[Array], Any]  # (draws,), uniform in (-1, 1) -> params
    forward: Callable[[Any, Array, Any], tuple[Array, Any]]  # params, x (B, ...), tap -> y (B, *shape), act
    tap: Callable[[int], Any]  # batch size -> zeros
    total: Callable[[Any, Any], Any]  # act, err -> like params
    sq_norm: Callable[[Any, Any], Array]  # act, err -> ()


Builder = Callable[[Shape], Layer]  # shape of one sample's input -> layer


def _plain(shape: Shape, function: Callable[[Array], Array]) -> Layer:
    """A layer without parameters."""
    return Layer(
        shape=shape,
        draws=0,
        init=lambda uniform: (),
        forward=lambda params, x, tap: (function(x), ()),
        tap=lambda batch: (),
        total=lambda act, err: (),
        sq_norm=lambda act, err: jnp.zeros((), jnp.float32),
    )


def relu(shape: Shape) -> Layer:
    return _plain(shape, jax.nn.relu)


def tanh(shape: Shape) -> Layer:
    return _plain(shape, jnp.tanh)


ACTIVATIONS: dict[str, Builder] = {"relu": relu, "tanh": tanh}


def flatten(shape: Shape) -> Layer:
    size = math.prod(shape)
    return _plain((size,), lambda x: x.reshape(x.shape[0], size))


def as_image(shape: Shape) -> Layer:
    """(height, width) or (height, width, channels) -> (height, width, channels)."""
    if len(shape) not in (2, 3):
        raise InputError(f"a convolutional model needs images (height, width[, channels]) but got shape {shape}")
    full = (*shape, 1) if len(shape) == 2 else shape
    return _plain(full, lambda x: x.reshape(x.shape[0], *full))


def zero_logit(shape: Shape) -> Layer:
    """(1,) -> (2,): the class-0 logit is fixed at zero, so that two-class cross-entropy is the logistic loss."""
    return _plain((2,), lambda x: jnp.concatenate([jnp.zeros_like(x), x], axis=-1))


def average_pool(shape: Shape) -> Layer:
    """Mean over height and width."""
    return _plain(shape[-1:], lambda x: x.mean(axis=(1, 2)))


def _shifted(x: Array, axis: int, size: int, stride: int) -> list[Array]:
    """The `size` views of x along one axis that a sliding window sees, in the window's order."""
    last = x.shape[axis] - size + 1
    return [jax.lax.slice_in_dim(x, start, start + last, stride, axis) for start in range(size)]


def _window_shape(shape: Shape, size: int, stride: int, pad: int, what: str) -> tuple[int, int]:
    height, width = ((extent + 2 * pad - size) // stride + 1 for extent in shape[:2])
    if len(shape) != 3 or height < 1 or width < 1:
        raise InputError(f"{what} with a {size}x{size} window does not fit an input of shape {shape}")
    return height, width


def max_pool(size: int, stride: int) -> Builder:
    def build(shape: Shape) -> Layer:
        def pool(x: Array) -> Array:
            for axis in (1, 2):
                x = functools.reduce(jnp.maximum, _shifted(x, axis, size, stride))
            return x

        return _plain((*_window_shape(shape, size, stride, 0, "pooling"), shape[2]), pool)

    return build


def uniform_draws(key: Array, count: int) -> Array:
    """float32 in the open interval (-1, 1), so that their normal quantiles are finite."""
    return jax.random.uniform(
        key, (count,), jnp.float32, minval=np.nextafter(np.float32(-1), np.float32(0)), maxval=1.0
    )


def _start(init: Init, uniform: Array, weight_shape: Shape, bias: bool) -> dict[str, Array]:
    """Weights and bias of a linear layer from as many draws as it needs."""
    fan_in, out = math.prod(weight_shape[:-1]), weight_shape[-1]
    weights, rest = jnp.split(uniform, [fan_in * out]) if init != "zero" else (uniform, uniform)
    if init == "he":
        w = math.sqrt(4 / fan_in) * jax.lax.erf_inv(weights)  # normal, variance 2 / fan_in
    elif init == "uniform":
        w = weights / math.sqrt(fan_in)
    else:
        w = jnp.zeros(fan_in * out, jnp.float32)
    params = {"w": w.reshape(weight_shape)}
    if bias:
        params["b"] = rest / math.sqrt(fan_in) if init == "uniform" else jnp.zeros(out, jnp.float32)
    return params


def _product_sq_norm(rows: Array, err: Array, bias: bool) -> Array:
    """Squared norm of rows^T err, and of the column sums of err if there is a bias. rows (n, F), err (n, O).

    Either directly, n F O multiplications, or from Gram matrices, n^2 (F + O):
    |sum_i a_i e_i^T|^2 = sum_ij (a_i . a_j)(e_i . e_j).
    """
    (n, fan_in), out = rows.shape, err.shape[1]
    if n == 1:
        return jnp.sum(err**2) * (jnp.sum(rows**2) + bias)
    if n * (fan_in + out) < fan_in * out:
        return jnp.sum((rows @ rows.T + bias) * (err @ err.T))
    direct = jnp.sum((rows.T @ err) ** 2)
    return direct + jnp.sum(err.sum(0) ** 2) if bias else direct


def _linear(shape: Shape, weight_shape: Shape, init: Init, bias: bool, rows: Callable[[Array], Array]) -> Layer:
    """y = rows(x) w + b, where `rows` lays out what each output position reads: (B, ...) -> (B * positions, F)."""
    fan_in, out = math.prod(weight_shape[:-1]), weight_shape[-1]

    def forward(params: dict[str, Array], x: Array, tap: Array) -> tuple[Array, Array]:
        y = rows(x) @ params["w"].reshape(fan_in, out)
        y = y + params["b"] if bias else y
        return y.reshape(-1, *shape) + tap, x

    def total(act: Array, err: Array) -> dict[str, Array]:
        flat = err.reshape(-1, out)
        grad = {"w": (rows(act).T @ flat).reshape(weight_shape)}
        if bias:
            grad["b"] = flat.sum(0)
        return grad

    return Layer(
        shape=shape,
        draws={"he": fan_in * out, "uniform": (fan_in + bias) * out, "zero": 0}[init],
        init=lambda uniform: _start(init, uniform, weight_shape, bias),
        forward=forward,
        tap=lambda batch: jnp.zeros((batch, *shape), jnp.float32),
        total=total,
        sq_norm=lambda act, err: _product_sq_norm(rows(act), err.reshape(-1, out), bias),
    )


def dense(units: int, init: Init = "he", bias: bool = True) -> Builder:
    """Fully connected. `he`: normal, variance 2/fan_in, bias 0; `uniform`: +-1/sqrt(fan_in), bias too; `zero`."""
    validate.whole("units", units)

    def build(shape: Shape) -> Layer:
        if len(shape) != 1:
            raise InputError(f"a dense layer needs flat inputs but got shape {shape}")
        return _linear((units,), (shape[0], units), init, bias, rows=lambda x: x)

    return build


def conv(channels: int, size: int, stride: int = 1, pad: int = 0, init: Init = "he", bias: bool = True) -> Builder:
    """Convolution of (height, width, channels) images; weights (size, size, in, out)."""

    def build(shape: Shape) -> Layer:
        height, width = _window_shape(shape, size, stride, pad, "convolution")
        fan_in = size * size * shape[2]

        def patches(x: Array) -> Array:
            padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
            by_row = jnp.stack(_shifted(padded, 1, size, stride), axis=3)  # (B, H', W, size, C)
            return jnp.stack(_shifted(by_row, 2, size, stride), axis=4).reshape(-1, fan_in)

        return _linear((height, width, channels), (size, size, shape[2], channels), init, bias, patches)

    return build


def group_norm(groups: int, epsilon: float = 1e-5) -> Builder:
    """Each sample's channel groups to mean 0 and variance 1, then scale and shift per channel."""

    def build(shape: Shape) -> Layer:
        height, width, channels = shape
        if channels % groups:
            raise InputError(f"groups={groups} must divide the {channels} channels")

        def normalise(x: Array) -> Array:
            split = x.reshape(-1, height, width, groups, channels // groups)
            centred = split - split.mean(axis=(1, 2, 4), keepdims=True)
            variance = (centred**2).mean(axis=(1, 2, 4), keepdims=True)
            return (centred * jax.lax.rsqrt(variance + epsilon)).reshape(x.shape)

        def forward(params: dict[str, Array], x: Array, tap: Array) -> tuple[Array, Array]:
            normal = normalise(x)
            return normal * params["scale"] + params["shift"] + tap, normal

        def total(act: Array, err: Array) -> dict[str, Array]:
            return {"scale": jnp.sum(act * err, axis=(0, 1, 2)), "shift": jnp.sum(err, axis=(0, 1, 2))}

        def sq_norm(act: Array, err: Array) -> Array:
            grad = total(act, err)
            return jnp.sum(grad["scale"] ** 2) + jnp.sum(grad["shift"] ** 2)

        return Layer(
            shape=shape,
            draws=0,
            init=lambda uniform: {"scale": jnp.ones(channels, jnp.float32), "shift": jnp.zeros(channels, jnp.float32)},
            forward=forward,
            tap=lambda batch: jnp.zeros((batch, *shape), jnp.float32),
            total=total,
            sq_norm=sq_norm,
        )

    return build


def sequence(*builders: Builder) -> Builder:
    """One layer after the other."""

    def build(shape: Shape) -> Layer:
        parts: list[Layer] = []
        for builder in builders:
            parts.append(builder(parts[-1].shape if parts else shape))

        ends = list(itertools.accumulate(part.draws for part in parts))

        def init(uniform: Array) -> tuple[Any, ...]:
            return tuple(part.init(own) for part, own in zip(parts, jnp.split(uniform, ends[:-1])))

        def forward(params: Any, x: Array, tap: Any) -> tuple[Array, Any]:
            acts = []
            for part, own, own_tap in zip(parts, params, tap):
                x, act = part.forward(own, x, own_tap)
                acts.append(act)
            return x, tuple(acts)

        return Layer(
            shape=parts[-1].shape,
            draws=ends[-1],
            init=init,
            forward=forward,
            tap=lambda batch: tuple(part.tap(batch) for part in parts),
            total=lambda act, err: tuple(part.total(a, e) for part, a, e in zip(parts, act, err)),
            sq_norm=lambda act, err: sum(
                (part.sq_norm(a, e) for part, a, e in zip(parts, act, err)), jnp.zeros((), jnp.float32)
            ),
        )

    return build


def residual(body: Builder) -> Builder:
    """body(x) + shortcut(x); the shortcut has no parameters: subsample and append zero channels ("option A")."""

    def build(shape: Shape) -> Layer:
        inner = body(shape)
        stride, extra = math.ceil(shape[0] / inner.shape[0]), inner.shape[2] - shape[2]

        def forward(params: Any, x: Array, tap: Any) -> tuple[Array, Any]:
            y, act = inner.forward(params, x, tap)
            shortcut = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (0, extra)))
            return y + shortcut, act

        return inner._replace(forward=forward)

    return build
