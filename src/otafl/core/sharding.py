"""Seeds and clients of one program over several devices of this machine: a mesh of (seed, client).

Every device computes the messages of its clients; `uplink.add` joins the contributions of a seed's devices, and the
noise, drawn once from the round's key, comes after the sum: the same round as on one device up to the order of the sum.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from otafl.core.messages import Seed, Stats
from otafl.core.plan import Link
from otafl.core.rounds import Record, Row

SEED, CLIENT = "seed", "client"
BY_SEED = P(SEED)


def mesh_of(devices: list[Any], seeds: int, clients: int) -> Mesh | None:
    """Seeds over as many devices as divide them, clients over the others; None where one device would do.

    `clients` is 1 where they must stay together.
    """
    rows = math.gcd(seeds, len(devices))
    columns = min(len(devices) // rows, clients)
    if rows * columns < 2:
        return None
    return Mesh(np.array(devices[: rows * columns]).reshape(rows, columns), (SEED, CLIENT))


def over(mesh: Mesh, chunk: Callable[..., Any]) -> Callable[..., Any]:
    """The chunk of `engine.make_engine` on this mesh; leaves keep their shapes.

    A number of clients that the devices do not divide is filled up with clients that never send.
    """
    split = mesh.shape[CLIENT] > 1
    by_client = P(SEED, None, CLIENT) if split else BY_SEED
    link = Link(by_client, by_client, BY_SEED, BY_SEED, BY_SEED)
    stats = Stats(**dict.fromkeys(Stats._fields, by_client))._replace(overflow=BY_SEED)
    record = _all(Record, BY_SEED)._replace(stats=stats)
    own = Seed(BY_SEED, P(SEED, CLIENT), P(SEED, CLIENT))

    def program(data: Any, held_out: Any, public: Any, seeds: Seed, carry: Any, rows: Row) -> Any:
        read = _all(Row, BY_SEED)._replace(link=link if isinstance(rows.link, Link) else BY_SEED)
        whole = (P(), P(), P(), own, BY_SEED, read)
        mapped = jax.shard_map(chunk, mesh=mesh, in_specs=whole, out_specs=(BY_SEED, record, BY_SEED), check_vma=False)
        return mapped(data, held_out, public, seeds, carry, rows)

    compiled = jax.jit(program)
    shared = _Once(lambda values: jax.device_put(values, NamedSharding(mesh, P())))

    def call(data: Any, held_out: Any, public: Any, seeds: Seed, carry: Any, rows: Row) -> Any:
        clients = seeds.sizes.shape[1]
        spare = -clients % mesh.shape[CLIENT]
        new, told, seen = compiled(*shared((data, held_out, public)), filled(seeds, spare), carry, silent(rows, spare))
        cut = told.stats._replace(**{n: getattr(told.stats, n)[..., :clients] for n in Stats._fields[:-1]})
        return new, told._replace(stats=cut), seen

    return call


def filled(seeds: Seed, spare: int) -> Seed:
    """So many clients more, each a copy of the first: they draw as it does, and never send."""
    if not spare:
        return seeds

    def more(leaf: Any) -> Any:
        return jnp.concatenate([leaf, jnp.repeat(leaf[:, :1], spare, axis=1)], axis=1)

    return Seed(seeds.key, *jax.tree.map(more, tuple(seeds[1:])))


def silent(rows: Row, spare: int) -> Row:
    """So many clients more that have no weight and are not to send."""
    if not spare or not isinstance(rows.link, Link):
        return rows
    wide = [(0, 0), (0, 0), (0, spare)]
    weight = np.pad(np.asarray(rows.link.weight), wide)
    max_norm = np.pad(np.asarray(rows.link.max_norm), wide, constant_values=-1)
    return rows._replace(link=rows.link._replace(weight=weight, max_norm=max_norm))


def _all(kind: Any, spec: P) -> Any:
    """The same layout for every field."""
    return kind(**dict.fromkeys(kind._fields, spec))


class _Once:
    """Data that are the same in every call are moved once."""

    def __init__(self, move: Callable[[Any], Any]):
        self._move = move
        self._last: tuple[Any, ...] = ()
        self._moved: Any = None

    def __call__(self, values: tuple[Any, ...]) -> Any:
        if not self._last or any(a is not b for a, b in zip(self._last, values)):
            self._last, self._moved = values, self._move(values)
        return self._moved
