"""The sum in the air: scaled, silenced, added up, noise added, decoded. What `core.messages.fold` and an uplink do.

The analog sum is formed block by block in place, so that a round of a million parameters costs two passes over each
message: in float32 as the engine does, or, where no seed makes it a simulation, in float64 and rounded under its noise
(`on_grid`). Other uplinks (encrypted ones) go through their own compiled functions.
"""

import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy, saxpy

from otafl.core.arrays import Array, Bools, Floats
from otafl.core.draws import in_a_row
from otafl.core.errors import PrivacyViolation
from otafl.core.messages import NORM_TOLERANCE
from otafl.core.plan import Link
from otafl.core.uplink import FAINTEST, FLOAT32_SLACK, Uplink, is_analog
from otafl.runs.air.trees import BLOCK, Flat, Form, digest, square_norm

Shapes = tuple[tuple[int, ...], ...]
GRID_BITS = 6  # answers are rounded to 2^-6 of their noise's standard deviation or finer: 2e-5 more variance at most


class Sum(NamedTuple):
    """What enters the air in one round, before any noise."""

    parts: dict[int, list[Any]]  # all that the answer depends on: analog, the sum itself; encrypted, every message
    norm: Floats  # (K,) of the clipped messages; 0 where there was none
    sent: Bools  # (K,)
    factor: NDArray[np.float32]  # (K,) clip factors


class Heard(NamedTuple):
    """What came out of the air in one round."""

    flat: Flat
    norm: Floats  # (K,) of the clipped messages; 0 where there was none
    sent: Bools  # (K,)
    refused: bool  # the uplink saw that decoding failed


def air_key(seed: int | None, number: int) -> Any:
    """The key of a round's air: the engine's for a seed; without one, fresh from the operating system, never kept."""
    if seed is None:
        return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(secrets.token_bytes(8), np.uint32)))
    return jax.random.split(jax.random.fold_in(jax.random.key(jnp.uint32(seed)), number))[1]


def clip_factor(norm: float, bound: float) -> np.float32:
    """As `core.messages.clip_factors`: a finite norm is brought to 4e-6 below the bound at most."""
    if not np.isfinite(bound):
        return np.float32(1)
    limit = np.float32(bound * (1 - FLOAT32_SLACK))
    return np.float32(limit / np.float32(norm)) if np.float32(norm) > limit else np.float32(1)


def on_grid(values: Array, noise_std: float) -> Array:
    """Double-precision values under noise of this standard deviation, rounded to a power of two well below it.

    Noise of finite precision leaves gaps, and where they lie tells what is under it (Mironov 2012): in float32 one
    number in seven was impossible for another message. A step here holds 2^40 values of the noise and more.
    """
    step = 2.0 ** (np.frexp(noise_std)[1] - 1 - GRID_BITS)
    return np.rint(values * (1 / step)) * step


class Medium:
    """The air of one uplink. `seed` None: noise from the operating system."""

    def __init__(self, uplink: Uplink, seed: int | None):
        self.uplink, self.seed = uplink, seed
        self.analog = is_analog(uplink)
        self._normals = jax.jit(_normals, static_argnums=1)
        self._aside = ThreadPoolExecutor(1, "otafl-noise")
        self._opened = jax.jit(self._through_uplink)

    def add_up(
        self, messages: dict[int, Flat], norms: dict[int, float], link: Link, shapes: Shapes, bound: float
    ) -> Sum:
        """All messages of a round, clipped, silenced, scaled. `shapes` of the leaves; `link` in float32, one round."""
        count = len(link.weight)
        factor, norm = np.ones(count, np.float32), np.zeros(count)
        for client, value in norms.items():
            factor[client] = clip_factor(value, bound)
            norm[client] = np.float32(value) * factor[client]
        sent = norm.astype(np.float32) <= np.asarray(link.max_norm)
        there = np.isin(np.arange(count), list(messages))
        if not self.analog:
            messages = {client: [leaf.copy() for leaf in flat] for client, flat in messages.items()}
            _check_unchanged({client: square_norm(flat) for client, flat in messages.items()}, norms)
            return Sum(messages, norm, sent & there, factor)
        weight = np.asarray(link.weight) * factor
        weight = np.where(sent & there & (np.abs(weight) >= FAINTEST), weight, np.float32(0))  # as in the engine
        precise = np.float64 if self.seed is None else np.float32
        heard = {client: flat for client, flat in messages.items() if weight[client]}
        total = [np.zeros(int(np.prod(shape)), precise) for shape in shapes]
        squares = np.zeros(len(heard))
        for place, leaf in enumerate(total):
            squares += _add(leaf, [flat[place] for flat in heard.values()], [weight[client] for client in heard])
        _check_unchanged(dict(zip(heard, squares)), norms)
        return Sum({0: total}, norm, sent & there, factor)

    def mark(self, form: Form | None, entered: Sum) -> list[Any]:
        """What tells the sum of a round from another: its hash, or itself where no file will ever hold that."""
        if self.analog and self.seed is None:
            return entered.parts[0]
        return [digest(form, entered.parts)]

    def hear(self, entered: Sum, link: Link, shapes: Shapes, number: int, drawn: Sequence[Any]) -> Heard:
        """What the server reads of it: under the noise that was drawn, decoded."""
        if not self.analog:
            values, refused = self._encrypted(entered.parts, link, entered.factor, entered.sent, shapes, number)
            return Heard(values, entered.norm, entered.sent, refused)
        total: list[Any] = entered.parts[0]
        std = np.float32(link.noise_std)
        if self.seed is not None:
            for leaf, part in zip(total, drawn):
                _add(leaf, [part.reshape(-1)], [std])
        elif std:
            total = [_rounded(leaf, part, std) for leaf, part in zip(total, drawn)]
        else:
            total = [leaf.astype(np.float32) for leaf in total]
        return Heard(total, entered.norm, entered.sent, False)

    def drawn(self, link: Link, shapes: Shapes, number: int) -> Future[Sequence[Any]]:
        """`draw`, beside whatever else is going on: noise depends on no message, and the devices take their time."""
        return self._aside.submit(self.draw, link, shapes, number)

    def draw(self, link: Link, shapes: Shapes, number: int) -> Sequence[Any]:
        """Standard normals, one per coordinate: the engine's for a seed, else float64 by Philox under 128 fresh bits.

        Faster generators than Philox exist, but they can be run backwards from a few outputs, and whoever knows one
        message knows some of the noise. Encrypted uplinks draw their own.
        """
        if not self.analog or not link.noise_std:
            return []
        if self.seed is not None:
            return [np.asarray(leaf) for leaf in self._normals(air_key(self.seed, number), shapes)]
        source = np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
        return [source.standard_normal(int(np.prod(shape))) for shape in shapes]

    def _encrypted(
        self, messages: dict[int, Flat], link: Link, factor: np.ndarray, sent: np.ndarray, shapes: Shapes, number: int
    ) -> tuple[Flat, bool]:
        """Everyone takes part: who has nothing to say, or has retired, encrypts zero."""
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        stacked = np.zeros((len(factor), ends[-1]), np.float32)
        for client, flat in messages.items():
            stacked[client] = np.concatenate(flat)
        with jax.enable_x64(True):
            given = jax.tree.map(jnp.asarray, (stacked, link, factor, sent))
            values, refused = self._opened(*given, air_key(self.seed, number))
        return np.split(np.array(values, np.float32), ends[:-1]), bool(refused)

    def _through_uplink(self, stacked: Any, link: Link, factor: Any, sent: Any, key: Any) -> tuple[Any, Any]:
        ids = jnp.arange(stacked.shape[0], dtype=jnp.int32)
        return self.uplink.decode(self.uplink.combine(link, ids, sent, factor, stacked), link, key)


def _normals(key: Any, shapes: Shapes) -> list[Any]:
    """The draws of `uplink.add_noise`, leaf by leaf."""
    keys = jax.random.split(key, len(shapes))
    return [in_a_row(jax.random.normal, k, shape, jnp.float32) for k, shape in zip(keys, shapes)]


def _rounded(total: NDArray[np.float64], noise: NDArray[np.float64], std: np.float32) -> NDArray[np.float32]:
    """A vector under its noise, `on_grid`; a block at a time so that it stays in the cache. The vector itself stays."""
    found = np.empty(total.size, np.float32)
    for start in range(0, total.size, BLOCK):
        block = slice(start, start + BLOCK)
        found[block] = on_grid(daxpy(noise[block], total[block].copy(), a=std), float(std))
    return found


def _add(total: NDArray[Any], parts: Sequence[NDArray[Any]], weights: Sequence[np.float32]) -> Floats:
    """total += sum of weight * part, in place, in this order; a block of the total stays in the cache meanwhile.

    Returns the sum of squares of each part as it was added: every number is read once, into a block of our own.
    """
    add, squares = saxpy if total.dtype == np.float32 else daxpy, np.zeros(len(parts))
    own = np.empty(BLOCK, np.float32)
    for start in range(0, total.size, BLOCK):
        block = slice(start, start + BLOCK)
        size = min(BLOCK, total.size - start)
        for n, (part, weight) in enumerate(zip(parts, weights)):
            own[:size] = part[block]
            squares[n] += float(np.dot(own[:size], own[:size]))
            add(own[:size], total[block], a=weight)
    return squares


def _check_unchanged(squares: dict[int, float], norms: dict[int, float]) -> None:
    """A message that somebody writes into while it is sent may be longer than what was measured, and clipped."""
    for client, square in squares.items():
        if not np.sqrt(square) <= norms[client] * (1 + NORM_TOLERANCE):
            raise PrivacyViolation(
                f"client {client}: its message changed while it was sent; nothing was sent, bring one that stays"
            )
