"""Layers that are a matrix product: dense, and convolution as patches times weights. JAX, float32."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.tasks.layers import Builder, Groups, Layer, Shape, sq_norms_of, square_above, window_shape
from otafl.tasks.windows import Windows

Init = Literal["he", "uniform", "zero"]


def _start(init: Init, uniform: jax.Array, weight_shape: Shape, bias: bool) -> dict[str, jax.Array]:
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


def settled(x: jax.Array) -> jax.Array:
    """x, on a CPU in this layout: XLA would move what follows into the product that makes it."""
    return jax.lax.optimization_barrier(x) if jax.default_backend() == "cpu" else x


class Reads(NamedTuple):
    """What each output position reads: F numbers."""

    rows: Callable[[jax.Array], jax.Array]  # (B, ...) -> (B * positions, F), laid out for one product
    times: Callable[[jax.Array, jax.Array], jax.Array]  # x (B, ...), weights -> (B, ..., O)
    last: Callable[[jax.Array, jax.Array], jax.Array]  # x (..., B), weights -> (O, positions * B)


def _products(read: jax.Array, err: jax.Array) -> jax.Array:
    """(K, n, F), (K, n, O) -> (K, F, O)."""
    count, fan_in, out = read.shape[0], read.shape[2], err.shape[2]
    if out >= fan_in:
        return jnp.einsum("knf,kno->kfo", read, err)
    # The faster product on a CPU has the longer side last; flat, so that XLA keeps it there.
    flat = settled(jnp.einsum("kno,knf->kof", err, read).reshape(count, -1))
    return jnp.swapaxes(flat.reshape(count, out, fan_in), 1, 2)


def _linear(shape: Shape, weight_shape: Shape, init: Init, bias: bool, reads: Reads) -> Layer:
    """y = rows(x) w + b."""
    rows = reads.rows
    fan_in, out, positions = math.prod(weight_shape[:-1]), weight_shape[-1], math.prod(shape[:-1])
    formed = positions > 1  # one row: the gradient is a e^T, its norm |a| |e|

    def forward(params: dict[str, jax.Array], x: jax.Array, tap: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = reads.times(x, params["w"])
        return (y + params["b"] if bias else y) + tap, x

    def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        y = reads.last(x, params["w"])
        y = y + params["b"][:, None] if bias else y
        return y.reshape(out, *shape[:-1], x.shape[-1])

    def keep(act: jax.Array, err: jax.Array) -> dict[str, jax.Array]:
        if not formed:
            return {"act": act, "err": err}
        by_position = err.reshape(-1, positions, out)
        # The same `rows` as in the forward pass, so that they are laid out once; (B, O, F) is the faster product.
        kept = {"w": jnp.einsum("bno,bnf->bof", by_position, rows(act).reshape(-1, positions, fan_in))}
        return kept | {"b": by_position.sum(1)} if bias else kept

    def sq_norms(kept: dict[str, jax.Array]) -> jax.Array:
        if formed:
            return sq_norms_of(kept)
        read, err = rows(kept["act"]), kept["err"].reshape(-1, out)
        return square_above(err) * (square_above(read) + bias)

    def sums(kept: dict[str, jax.Array], groups: Groups) -> dict[str, jax.Array]:
        count, most = groups.weights.shape
        if formed:
            mixed: dict[str, jax.Array] = jax.tree.map(groups.mix, kept)
            return mixed | {"w": jnp.swapaxes(mixed["w"], 1, 2).reshape(count, *weight_shape)}
        act = groups.spread(kept["act"])
        read = rows(act.reshape(-1, *act.shape[2:])).reshape(count, most, fan_in)
        err = groups.spread(kept["err"]).reshape(count, most, out) * groups.weights[:, :, None]
        grad = {"w": _products(read, err).reshape(count, *weight_shape)}
        if not bias:
            return grad
        # A GPU would gather the errors anew for their sum; on a CPU they are at hand.
        at_hand = jax.default_backend() == "cpu"
        return grad | {"b": err.sum(1) if at_hand else groups.mix(kept["err"].reshape(-1, out))}

    return Layer(
        shape=shape,
        draws={"he": fan_in * out, "uniform": (fan_in + bias) * out, "zero": 0}[init],
        footprint=positions * (fan_in + out),
        init=lambda uniform: _start(init, uniform, weight_shape, bias),
        forward=forward,
        tap=lambda batch: jnp.zeros((batch, *shape), jnp.float32),
        keep=keep,
        sq_norms=sq_norms,
        sums=sums,
        predict=predict,
        images=len(shape) > 1,
    )


def dense(units: int, init: Init = "he", bias: bool = True) -> Builder:
    """Fully connected. `he`: normal, variance 2/fan_in, bias 0; `uniform`: +-1/sqrt(fan_in), bias too; `zero`."""
    validate.whole("units", units)

    def build(shape: Shape) -> Layer:
        if len(shape) != 1:
            raise InputError(f"a dense layer needs flat inputs but got shape {shape}")
        reads = Reads(lambda x: x, lambda x, w: x @ w, lambda x, w: w.T @ x)
        return _linear((units,), (shape[0], units), init, bias, reads)

    return build


def conv(channels: int, size: int, stride: int = 1, pad: int = 0, init: Init = "he", bias: bool = True) -> Builder:
    """Convolution of (height, width, channels) images; weights (size, size, in, out)."""

    def build(shape: Shape) -> Layer:
        height, width = window_shape(shape, size, stride, pad, "convolution")
        fan_in = size * size * shape[2]
        windows = Windows(shape, size, stride, pad)

        def last(x: jax.Array, w: jax.Array) -> jax.Array:
            if jax.default_backend() == "cpu":
                return w.reshape(fan_in, channels).T @ windows.columns(x)
            return windows.convolved(x, w).reshape(channels, -1)

        weight_shape = (size, size, shape[2], channels)
        reads = Reads(windows.rows(), windows.times(height, width), last)
        return _linear((height, width, channels), weight_shape, init, bias, reads)

    return build
