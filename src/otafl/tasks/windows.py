"""What a convolution's windows see, laid out for a product, in the way that suits the machine. JAX, float32.

A CPU copies runs of numbers; a GPU, whose every copy is a kernel, gathers number by number in one. XLA's own
convolution, which a GPU has in many kinds, serves where no gradient is asked for, and where windows are many: copying
them would take longer.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.tasks.layers import Shape, shifted

SAMPLES_LAST = ("CHWN", "HWIO", "CHWN")  # axes of images, weights and images of a convolution
SAMPLES_FIRST = ("NHWC", "HWIO", "NHWC")
MANY = 2**15  # numbers that the windows of an image hold
ENOUGH_CHANNELS = 16


class Windows(NamedTuple):
    """The windows of size x size that slide over images (height, width, C) by `stride`, `pad` zeros around these."""

    image: Shape
    size: int
    stride: int
    pad: int

    def padded(self, x: jax.Array) -> jax.Array:
        """x (., height, width, .)."""
        return jnp.pad(x, ((0, 0), (self.pad, self.pad), (self.pad, self.pad), (0, 0)))

    def times(self, down: int, across: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """x (B, height, width, C), w (size, size, C, O) -> (B, down, across, O), with a gradient."""
        fan_in, rows = self.size**2 * self.image[2], self.rows()
        if jax.default_backend() == "cpu" or down * across * fan_in < MANY:
            return lambda x, w: (rows(x) @ w.reshape(fan_in, -1)).reshape(-1, down, across, w.shape[-1])
        strides, around = (self.stride, self.stride), [(self.pad, self.pad)] * 2
        return lambda x, w: jax.lax.conv_general_dilated(x, w, strides, around, dimension_numbers=SAMPLES_FIRST)

    def rows(self) -> Callable[[jax.Array], jax.Array]:
        """(B, height, width, C) -> (B * positions, size * size * C)."""
        if jax.default_backend() == "cpu":
            return self._in_runs
        gathered, wide = self._gathered(), self.size**2 * self.image[2]
        return lambda x: gathered(self.padded(x)).reshape(-1, wide)

    def columns(self, x: jax.Array) -> jax.Array:
        """(C, height, width, B) -> (size * size * C, positions * B)."""
        by_row = jnp.stack(shifted(self.padded(x), 1, self.size, self.stride))  # (size, C, H', W, B)
        both = jnp.stack(shifted(by_row, 3, self.size, self.stride), axis=1)
        return both.reshape(self.size**2 * self.image[2], -1)

    def convolved(self, x: jax.Array, w: jax.Array) -> jax.Array:
        """x (C, height, width, B), w (size, size, C, O) -> (O, H', W', B).

        XLA's convolution is slow with few channels, so that what a stride steps over becomes channels where it can.
        """
        x, stride = self.padded(x), self.stride
        (channels, *extents, _), (size, *_, out) = x.shape, w.shape
        if stride == 1 or size % stride or channels >= ENOUGH_CHANNELS:
            return jax.lax.conv_general_dilated(x, w, (stride, stride), "VALID", dimension_numbers=SAMPLES_LAST)
        rest = [-extent % stride for extent in extents]
        x = jnp.pad(x, ((0, 0), (0, rest[0]), (0, rest[1]), (0, 0)))
        x = jnp.concatenate([x[:, down::stride, across::stride] for down, across in np.ndindex(stride, stride)])
        w = w.reshape(size // stride, stride, size // stride, stride, channels, out).transpose(0, 2, 1, 3, 4, 5)
        w = w.reshape(size // stride, size // stride, -1, out)
        height, width = ((extent - size) // stride + 1 for extent in extents)
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=SAMPLES_LAST)[:, :height, :width]

    def _in_runs(self, x: jax.Array) -> jax.Array:
        windows = jnp.stack(shifted(self.padded(x), 2, self.size, self.stride), axis=3)  # (B, H, W', size, C)
        # What a position reads of a row is one run now; the other way round every number would be copied alone.
        both = jnp.stack(shifted(windows, 1, self.size, self.stride), axis=3)
        return both.reshape(-1, self.size**2 * self.image[2])

    def _gathered(self) -> Callable[[jax.Array], jax.Array]:
        """Padded images -> (B, positions * size * size, C).

        The gradient gathers, too: every place of an image adds up what the windows that read it send back.
        """
        tall, wide, channels = (self.image[0] + 2 * self.pad, self.image[1] + 2 * self.pad, self.image[2])
        down, across = (
            self.stride * np.arange((extent - self.size) // self.stride + 1)[:, None] + np.arange(self.size)
            for extent in (tall, wide)
        )  # (positions, size) along each axis
        places = (wide * down[:, None, :, None] + across[:, None]).reshape(-1)
        readers = _who_reads(places, tall * wide)

        @jax.custom_vjp
        def gathered(x: jax.Array) -> jax.Array:
            return _at(x, places)

        def back(_: None, gradient: jax.Array) -> tuple[jax.Array]:
            total = functools.reduce(jnp.add, (_at(gradient, own) for own in readers.T))
            return (total.reshape(-1, tall, wide, channels),)

        gathered.defvjp(lambda x: (gathered(x), None), back)
        return gathered


def _who_reads(places: np.ndarray, count: int) -> np.ndarray:
    """(count, most) the numbers i with places[i] = n, for each n < count; -1 where there are no more."""
    own: list[list[int]] = [[] for _ in range(count)]
    for reader, place in enumerate(places):
        own[place].append(reader)
    most = max(map(len, own))
    return np.array([readers + [-1] * (most - len(readers)) for readers in own])


def _at(x: jax.Array, which: np.ndarray) -> jax.Array:
    """x (B, ..., C) -> (B, len(which), C), places counted over all axes between; zero where `which` is negative."""
    places = math.prod(x.shape[1:-1])
    index = jnp.arange(x.shape[0], dtype=jnp.int32)[:, None] * places + np.maximum(which, 0).astype(np.int32)
    found = x.reshape(-1, x.shape[-1]).at[index].get(mode="promise_in_bounds")
    return jnp.where((which >= 0)[:, None], found, 0) if np.any(which < 0) else found
