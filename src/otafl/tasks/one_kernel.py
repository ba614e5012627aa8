"""Small dense networks by one kernel that keeps activations on the chip. JAX (Pallas), GPUs only: see `core.kernels`.

A round of such a network is some twenty kernels of a few microseconds, most of which write what the next one reads.
Here a program for each client goes forward, clips its samples if asked to, goes backward and adds up, a tile of samples
at a time; evaluation is the first part of it.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from otafl.core.kernels import interpreted, padded
from otafl.core.messages import Data
from otafl.tasks.ghost import AtOnce
from otafl.tasks.layers import Activation, square_above

TILE, WARPS = 32, 4  # samples, and warps of a program
MOST_NUMBERS = 2**14  # of a tile's activations, and of the weights: what a program's registers hold
TILES_EVALUATED = 4  # by a program, which reads the weights once
MOST_INDEXED = 2**31 - 1  # numbers: a kernel's pointers count by int32
MOST_SLOTS = 512  # of a client, whose samples go through one program: with more, products of matrices are faster
SLOPES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": lambda a: (a > 0).astype(jnp.float32),
    "tanh": lambda a: 1 - a * a,
}


class Sums(NamedTuple):
    weights: list[jax.Array]  # (K, in, out) of each layer
    biases: list[jax.Array]  # (K, out)
    left_out: jax.Array  # (K,) int32 samples whose gradient is not finite
    squares: jax.Array  # (K,) squared norms of the sums


def fits(widths: Sequence[int], slots: int) -> bool:
    """Whether a network of so many inputs, hidden units and outputs, and a client's samples, suit one program."""
    sides = [padded(width) for width in widths]
    most = max(TILE * sum(sides), sum(a * b for a, b in itertools.pairwise(sides)))
    return slots <= MOST_SLOTS and most <= MOST_NUMBERS


def of_dense(widths: tuple[int, ...], activation: Activation, slots: int) -> AtOnce | None:
    """The kernel of a dense network under cross-entropy, for so many samples of a client; None if it does not fit."""
    if not fits(widths, slots):
        return None

    def at_once(
        params: Any, data: Data, rows: jax.Array, share: Any, counts: jax.Array | None, clip: float | None
    ) -> tuple[Any, jax.Array, jax.Array]:
        if not isinstance(data, Data) or data.x.size > MOST_INDEXED:  # brought from elsewhere, or too many to point to
            x, y = data.at(rows)
            data, rows = Data(x.reshape(rows.size, -1), y.reshape(-1)), jnp.arange(rows.size).reshape(rows.shape)
        samples = Data(data.x.reshape(data.x.shape[0], -1), data.y)
        found = sums([own for own in params if own], activation, samples, rows, share, counts, clip)
        pairs = ({"w": w, "b": b} for w, b in zip(found.weights, found.biases))
        return tuple(next(pairs) if own else () for own in params), found.left_out, jnp.sqrt(found.squares)

    return at_once


def sums(
    layers: Sequence[dict[str, jax.Array]], activation: Activation, samples: Data, rows: jax.Array, share: Any,
    counts: jax.Array | None = None, clip: float | None = None,
) -> Sums:  # fmt: skip
    """share times the sums of the cross-entropy's gradients over each client's rows (K, B) of samples (N, F).

    share: (K,) or a number; counts (K,): so many slots of a client are in use, the others are not looked at; None: all.
    clip: the longest that a sample's gradient may be; one that is not finite then counts as zero.
    """
    clients, batch = rows.shape
    sides = [layers[0]["w"].shape[0], *(layer["w"].shape[1] for layer in layers)]
    weights, biases = [layer["w"] for layer in layers], [layer["b"] for layer in layers]

    def result(dtype: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct((clients, *shape), dtype)

    out: Any = Sums(
        [result(jnp.float32, *w.shape) for w in weights], [result(jnp.float32, *b.shape) for b in biases],
        result(jnp.int32), result(jnp.float32),
    )  # fmt: skip
    # A number is a part of the program: an array of it would be written anew in every round.
    fixed, each = (None, share) if np.ndim(share) else (np.float32(share), None)
    kernel = _Kernel(sides, activation, batch, fixed, np.float32(np.inf if clip is None else clip))
    return pl.pallas_call(
        kernel.run, grid=(clients,), out_shape=out, name="client_sums",
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1), interpret=interpreted(),
    )(_Given(*samples, rows.astype(np.int32), each, counts, weights, biases))  # fmt: skip


def logits(layers: Sequence[dict[str, jax.Array]], activation: Activation, x: jax.Array) -> jax.Array:
    """Outputs (B, C) of x (B, F)."""
    sides = [layers[0]["w"].shape[0], *(layer["w"].shape[1] for layer in layers)]

    def kernel(*refs: Any) -> None:
        x_ref, *params, out = refs
        weights, biases = _params(params, sides)
        first = pl.program_id(0) * TILES_EVALUATED

        def step(number: Any, _: None) -> None:
            rows = (first + number) * TILE + jax.lax.iota(jnp.int32, TILE)
            index, real = _places((TILE, sides[0]))
            tile = triton.load(x_ref.at[rows[:, None], index[1]], mask=real & (rows < x.shape[0])[:, None], other=0.0)
            found = _forward(tile, weights, biases, activation)[1]
            index, real = _places((TILE, sides[-1]))
            triton.store(out.at[rows[:, None], index[1]], found, mask=real & (rows < x.shape[0])[:, None])

        jax.lax.fori_loop(0, TILES_EVALUATED, step, None)

    return pl.pallas_call(
        kernel, grid=(-(-x.shape[0] // (TILE * TILES_EVALUATED)),), name="logits",
        out_shape=jax.ShapeDtypeStruct((x.shape[0], sides[-1]), jnp.float32),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1), interpret=interpreted(),
    )(x, *(layer["w"] for layer in layers), *(layer["b"] for layer in layers))  # fmt: skip


class _Given(NamedTuple):
    """References to what the kernel reads."""

    x: Any  # (N, F)
    y: Any  # (N,)
    rows: Any  # (K, B)
    share: Any  # (K,); None: the same for all
    counts: Any  # (K,); None: every slot is in use
    weights: Any
    biases: Any


class _Kernel(NamedTuple):
    """The program of a client."""

    sides: list[int]
    activation: Activation
    batch: int
    share: np.float32 | None
    limit: np.float32  # inf: samples are not clipped

    def run(self, given: _Given, *results: Any) -> None:
        out, client = Sums(*results), pl.program_id(0)
        weights, biases = _params((*given.weights, *given.biases), self.sides)
        count = self.batch if given.counts is None else given.counts[client]

        def step(number: Any, totals: Any) -> Any:
            return jax.tree.map(jnp.add, totals, self.part(given, client, count, number, weights, biases))

        if given.counts is None and self.batch <= TILE:
            totals = self.part(given, client, count, 0, weights, biases)
        else:
            zero = jax.tree.map(jnp.zeros_like, (weights, biases, jnp.int32(0)))
            totals = jax.lax.fori_loop(0, (count + TILE - 1) // TILE, step, zero)
        *sums, left_out = totals
        sums = jax.tree.map(lambda total: total * (given.share[client] if self.share is None else self.share), sums)
        for ref, total in zip((*out.weights, *out.biases), jax.tree.leaves(sums)):
            _write(ref, client, total)
        out.left_out[client] = left_out
        out.squares[client] = sum((jnp.sum(total * total) for total in jax.tree.leaves(sums)), jnp.float32(0))

    def part(self, given: _Given, client: Any, count: Any, number: Any, weights: Any, biases: Any) -> Any:
        slots = number * TILE + jax.lax.iota(jnp.int32, TILE)
        used = slots < count
        place = triton.load(given.rows.at[client, slots], mask=used, other=0)
        columns = jax.lax.iota(jnp.int32, padded(self.sides[0]))
        inside = used[:, None] & (columns < self.sides[0])[None]
        x = triton.load(given.x.at[place[:, None], columns[None]], mask=inside, other=0).astype(jnp.float32)
        y = triton.load(given.y.at[place], mask=used, other=0)
        factor = used.astype(jnp.float32)
        acts, logits = _forward(x, weights, biases, self.activation)
        errors = [self.error(logits, y)]
        for weight, act in zip(weights[:0:-1], acts[:0:-1]):
            errors.insert(0, jnp.dot(errors[0], weight.T) * SLOPES[self.activation](act))
        left_out = jnp.int32(0)
        if self.limit < np.inf:
            squares = sum((square_above(e) * (square_above(a) + 1) for a, e in zip(acts, errors)), jnp.float32(0))
            sound = squares < np.inf
            norms = jnp.sqrt(jnp.where(sound, squares, 0))
            left_out = jnp.sum(jnp.where(sound | ~used, 0, 1), dtype=jnp.int32)
            factor *= jnp.where(norms > self.limit, self.limit / norms, 1)
            acts, errors = ([jnp.where(sound[:, None], part, 0) for part in parts] for parts in (acts, errors))
        errors = [part * factor[:, None] for part in errors]
        return [jnp.dot(a.T, e) for a, e in zip(acts, errors)], [jnp.sum(e, 0) for e in errors], left_out

    def error(self, logits: jax.Array, y: jax.Array) -> jax.Array:
        """The gradient of the cross-entropy by the logits."""
        classes = jax.lax.iota(jnp.int32, logits.shape[1])[None]
        logits = jnp.where(classes < self.sides[-1], logits, -np.inf)
        power = jnp.exp(logits - jnp.max(logits, axis=1)[:, None])
        return power / jnp.sum(power, axis=1)[:, None] - (classes == y[:, None]).astype(jnp.float32)


def _places(shape: tuple[int, ...]) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Indices of an array whose sides are filled up to powers of two, and which of them are real."""
    sides = [jax.lax.iota(jnp.int32, padded(size)) for size in shape]
    if len(sides) == 1:
        return (sides[0],), sides[0] < shape[0]
    index = (sides[0][:, None], sides[1][None])
    return index, (index[0] < shape[0]) & (index[1] < shape[1])


def _params(refs: Any, sides: Sequence[int]) -> tuple[list[jax.Array], list[jax.Array]]:
    depth = len(sides) - 1
    weights = [_read(ref, shape) for ref, shape in zip(refs[:depth], itertools.pairwise(sides))]
    return weights, [_read(ref, (width,)) for ref, width in zip(refs[depth:], sides[1:])]


def _forward(
    x: jax.Array, weights: Sequence[jax.Array], biases: Sequence[jax.Array], activation: Activation
) -> tuple[list[jax.Array], jax.Array]:
    """What each layer reads, and the logits."""
    acts = [x]
    for weight, bias in zip(weights[:-1], biases[:-1]):
        z = jnp.dot(acts[-1], weight) + bias[None]
        acts.append(jnp.maximum(z, 0) if activation == "relu" else jnp.tanh(z))
    return acts, jnp.dot(acts[-1], weights[-1]) + biases[-1][None]


def _read(ref: Any, shape: tuple[int, ...]) -> jax.Array:
    index, real = _places(shape)
    return triton.load(ref.at[index], mask=real, other=0.0)


def _write(ref: Any, client: Any, total: jax.Array) -> None:
    index, real = _places(ref.shape[1:])
    triton.store(ref.at[(client, *index)], total, mask=real)
