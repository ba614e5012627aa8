"""The part of a round that all kinds of clients share: compute, clip, decide to send, add up."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array, Pytree
from otafl.core.plan import Link, Message
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, Unformed, Uplink, superpose

ClientMap = Literal["vmap", "map"] | int  # all clients at once, one by one, or chunks of n
NORM_TOLERANCE = 1e-5  # a message above its bound by more than this is a broken promise (CARES section 6)


class Data(NamedTuple):
    """Training samples of all clients, shared by all seeds. Other pytrees with `at` and `check` may take its place."""

    x: Array  # (N, ...)
    y: Array  # (N,)

    def at(self, rows: Array) -> tuple[Array, Array]:
        """The samples of these numbers: x (*rows.shape, ...), y (*rows.shape, ...)."""
        return self.x[rows], self.y[rows]

    def check(self) -> None:
        """Called on the host after every chunk of rounds; raises where samples could not be brought."""


@partial(jax.tree_util.register_dataclass, data_fields=["first"], meta_fields=["width"])
@dataclass(frozen=True)
class Consecutive:
    """Rows of clients whose samples follow each other: as an array (K, width), without keeping one."""

    first: Array  # (K,) int32; (S, K) of all seeds
    width: int

    def __getitem__(self, ids: Array) -> Array:
        return jnp.asarray(self.first)[ids][..., None] + jnp.arange(self.width, dtype=jnp.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.first.shape, self.width)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Seed(NamedTuple):
    """What makes one seed: its key and who holds which samples."""

    key: Array
    rows: Array  # (K, n_max) int32 positions in `Data`, padded; or `Consecutive`
    sizes: Array  # (K,) int32


class Stats(NamedTuple):
    """What the clients of one round report besides their messages (simulation records, not sent)."""

    norm: Array  # (K,) of the message that was (or would have been) sent, after clipping
    raw_norm: Array  # (K,) before clipping
    sent: Array  # (K,) bool
    left_out: Array  # (K,) samples that count as zero because their gradient was not finite
    zeroed: Array  # (K,) bool: the whole message was not finite and counts as zero
    overflow: Array  # () bool: a Poisson batch did not fit its fixed shape


class Clients(NamedTuple):
    """One kind of client.

    draw(seed, keys (n,), ids (n,)) -> (which samples they take, whether that did not fit its fixed shape).
    messages(params, data, seed, drawn, ids (n,), round) -> (pytree with leading axis n or `Unformed`, samples left out
    (n,)), and the messages' norms (n,) as a third where they are known already.
    lift(received, params, seed, round) -> gradient, a pytree like params.
    """

    draw: Callable[[Seed, Array, Array], tuple[Pytree, Array]]
    messages: Callable[..., tuple[Pytree, ...]]
    lift: Callable[[Pytree, Pytree, Seed, Array], Pytree]
    promise: Callable[[np.ndarray], Message]  # sizes (K,) of one seed -> what its messages promise
    clip_norm: float  # bound that `fold` enforces on every message; inf where `messages` bounds its own parts
    occupies: Callable[[int], int] | None = None  # samples of a client -> numbers it takes in a sum; None: a message


def none_left_out(ids: Array) -> Array:
    return jnp.zeros(ids.shape, jnp.int32)


def identity_lift(received: Pytree, params: Pytree, seed: Seed, round_: Array) -> Pytree:
    return received


def per_client(vector: Array, leaf: Array) -> Array:
    """Reshape (n,) so that it multiplies a leaf (n, ...)."""
    return vector.reshape(vector.shape + (1,) * (leaf.ndim - 1))


def norms_of(messages: Pytree) -> Array:
    """(n,) L2 norms of messages (n, ...)."""
    squares = [jnp.sum(jnp.square(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(messages)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def clip_factors(norms: Array, bound: float, slack: float = FLOAT32_SLACK) -> Array:
    """Factor per message that makes its finite norm at most `bound`, less what rounding may add to it."""
    limit = np.float32(bound * (1 - slack))
    return jnp.where(norms > limit, limit / norms, np.float32(1))


def zero_unless_finite(messages: Pytree, norms: Array | None = None) -> tuple[Pytree, Array, Array]:
    """Messages with the non-finite ones set to zero, their norms (n,), and which were set to zero (n,).

    A message without a finite float32 norm counts as non-finite. Stopping the run for it would publish what one
    client's data did, outside every epsilon; zero is within every norm bound and charged like any other message.
    """
    norms = norms_of(messages) if norms is None else norms
    sound = jnp.isfinite(norms)
    if isinstance(messages, Unformed):
        kept: Pytree = messages._replace(mix=lambda weights: messages.mix(jnp.where(sound, weights, np.float32(0))))
    else:
        kept = jax.tree.map(lambda leaf: jnp.where(per_client(sound, leaf), leaf, 0), messages)
    return kept, jnp.where(sound, norms, 0), ~sound


class Drawn(NamedTuple):
    """What all clients drew for one round: chunk after chunk, and the clients that fill no chunk."""

    whole: Pytree  # leading axis: chunks; () if there are none
    rest: Pytree
    overflow: Array  # ()


def in_chunks(num_clients: int, client_map: ClientMap) -> tuple[Array, Array]:
    """Ids (chunks, size) and the ids left over; all of them are left over where one chunk would do."""
    ids = jnp.arange(num_clients, dtype=jnp.int32)
    size = {"vmap": num_clients, "map": 1}[client_map] if isinstance(client_map, str) else client_map
    whole = num_clients - num_clients % size if size < num_clients else 0
    return ids[:whole].reshape(-1, size), ids[whole:]


def draw(clients: Clients, seed: Seed, key: Array, client_map: ClientMap, first: Array = 0) -> Drawn:
    """Every client's samples of one round: nothing here looks at the model, so rounds may be drawn ahead.

    `first` is the number of the first of these clients where others are on other devices: keys follow the numbers.
    """

    def some(ids: Array) -> tuple[Pytree, Array]:
        return clients.draw(seed, jax.vmap(lambda k: jax.random.fold_in(key, k))(first + ids), ids)

    chunks, left = in_chunks(seed.sizes.shape[0], client_map)
    whole, in_whole = jax.lax.map(some, chunks) if chunks.shape[0] else ((), jnp.zeros((), bool))
    rest, in_rest = some(left) if left.shape[0] else ((), jnp.zeros((), bool))
    return Drawn(whole, rest, jnp.any(in_whole) | in_rest)


def fold(
    clients: Clients, params: Pytree, data: Data, seed: Seed, drawn: Drawn, link: Link, round_: Array,
    client_map: ClientMap, uplink: Uplink = ANALOG,
) -> tuple[Pytree, Stats]:  # fmt: skip
    """All clients' part of one round: the superposed messages and the records.

    A client sends iff the norm of its clipped message is at most `link.max_norm`; what it sends has norm at most the
    declared bound, and is zero where its message was not finite. Memory is that of one chunk of clients.
    """

    def some(ids: Array, own: Pytree) -> tuple[Pytree, tuple[Array, ...]]:
        messages, left_out, *norms = clients.messages(params, data, seed, own, ids, round_)
        if isinstance(messages, Unformed) and uplink.combine is not superpose:  # somebody looks at one of them
            messages, norms = messages.form(), []
        messages, raw, zeroed = zero_unless_finite(messages, *norms)
        factor = clip_factors(raw, clients.clip_norm) if np.isfinite(clients.clip_norm) else jnp.ones_like(raw)
        norm = raw * factor
        sent = norm <= link.max_norm[ids]
        return uplink.combine(link, ids, sent, factor, messages), (norm, raw, sent, left_out, zeroed)

    chunks, left = in_chunks(link.weight.shape[0], client_map)
    if not chunks.shape[0]:
        total, seen = some(left, drawn.rest)
        return total, Stats(*seen, drawn.overflow)  # type: ignore[call-arg]
    first = jax.tree.map(lambda leaf: leaf[0], (chunks, drawn.whole))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(some, *first)[0])

    def step(total: Pytree, chunk: tuple[Array, Pytree]) -> tuple[Pytree, tuple[Array, ...]]:
        part, seen = some(*chunk)
        return uplink.add(total, part), seen

    total, by_chunk = jax.lax.scan(step, zero, (chunks, drawn.whole))
    seen = tuple(leaf.reshape(-1) for leaf in by_chunk)
    if left.shape[0]:
        part, others = some(left, drawn.rest)
        total, seen = uplink.add(total, part), tuple(jnp.concatenate(pair) for pair in zip(seen, others))
    return total, Stats(*seen, drawn.overflow)  # type: ignore[call-arg]
