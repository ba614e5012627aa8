"""The part of a round that all kinds of clients share: compute, clip, decide to send, add up."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.air import ANALOG, FLOAT32_SLACK, Uplink
from otafl.plan import Array, Link, Message

Pytree = Any
ClientMap = Literal["vmap", "map"] | int  # all clients at once, one by one, or chunks of n


class Data(NamedTuple):
    """Training samples of all clients, shared by all seeds."""

    x: Array  # (N, ...)
    y: Array  # (N,)


class Seed(NamedTuple):
    """What makes one seed: its key and who holds which samples."""

    key: Array
    rows: Array  # (K, n_max) int32 positions in `Data`, padded
    sizes: Array  # (K,) int32


class Stats(NamedTuple):
    """What the clients of one round report besides their messages (simulation records, not sent)."""

    norm: Array  # (K,) of the message that was (or would have been) sent, after clipping
    raw_norm: Array  # (K,) before clipping
    sent: Array  # (K,) bool
    overflow: Array  # () bool: a Poisson batch did not fit its fixed shape


class Clients(NamedTuple):
    """One kind of client.

    messages(params, data, seed, keys (n,), ids (n,), round) -> (pytree with leading axis n, overflow flag).
    lift(received, params, seed, round) -> gradient, a pytree like params.
    """

    messages: Callable[..., tuple[Pytree, Array]]
    lift: Callable[[Pytree, Pytree, Seed, Array], Pytree]
    promise: Callable[[np.ndarray], Message]  # sizes (K,) of one seed -> what its messages promise
    clip_norm: float  # bound that `fold` enforces on every message; inf where `messages` bounds its own parts


def identity_lift(received: Pytree, params: Pytree, seed: Seed, round_: Array) -> Pytree:
    return received


def per_client(vector: Array, leaf: Array) -> Array:
    """Reshape (n,) so that it multiplies a leaf (n, ...)."""
    return vector.reshape(vector.shape + (1,) * (leaf.ndim - 1))


def norms_of(messages: Pytree) -> Array:
    """(n,) L2 norms of messages (n, ...)."""
    squares = [jnp.sum(jnp.square(leaf.reshape(leaf.shape[0], -1)), axis=1) for leaf in jax.tree.leaves(messages)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def clip_factors(norms: Array, bound: float) -> Array:
    """Factor per message that makes its norm at most `bound`; a non-finite norm stays non-finite and stops the run."""
    limit = np.float32(bound * (1 - FLOAT32_SLACK))
    return jnp.where(norms > limit, limit / norms, jnp.where(jnp.isfinite(norms), np.float32(1), np.float32(np.nan)))


def fold(
    clients: Clients, params: Pytree, data: Data, seed: Seed, key: Array, link: Link, round_: Array,
    client_map: ClientMap, uplink: Uplink = ANALOG,
) -> tuple[Pytree, Stats]:  # fmt: skip
    """All clients' part of one round: the superposed messages and the records.

    A client sends iff the norm of its clipped message is at most `link.max_norm`; what it sends has norm at most the
    declared bound. Memory is that of one chunk of clients.
    """
    num_clients = link.weight.shape[0]

    def some(ids: Array) -> tuple[Pytree, Stats]:
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(ids)
        messages, overflow = clients.messages(params, data, seed, keys, ids, round_)
        raw = norms_of(messages)
        factor = clip_factors(raw, clients.clip_norm) if np.isfinite(clients.clip_norm) else jnp.ones_like(raw)
        norm = raw * factor
        sent = norm <= link.max_norm[ids]
        factor = jnp.where(jnp.isfinite(norm), factor, np.float32(np.nan))
        return uplink.combine(link, ids, sent, factor, messages), Stats(norm, raw, sent, overflow)

    ids = jnp.arange(num_clients, dtype=jnp.int32)
    size = {"vmap": num_clients, "map": 1}.get(client_map, client_map) if isinstance(client_map, str) else client_map
    if size >= num_clients:
        return some(ids)
    whole = num_clients - num_clients % size
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(some, ids[:size])[0])

    def step(total: Pytree, chunk: Array) -> tuple[Pytree, Stats]:
        part, stats = some(chunk)
        return uplink.add(total, part), stats

    total, stats = jax.lax.scan(step, zero, ids[:whole].reshape(-1, size))
    norm, raw_norm, sent = (leaf.reshape(-1) for leaf in stats[:3])
    flat = Stats(norm, raw_norm, sent, jnp.any(stats.overflow))
    if whole == num_clients:
        return total, flat
    part, rest = some(ids[whole:])
    norm, raw_norm, sent = (jnp.concatenate(pair) for pair in zip(flat[:3], rest[:3]))
    return uplink.add(total, part), Stats(norm, raw_norm, sent, flat.overflow | rest.overflow)
