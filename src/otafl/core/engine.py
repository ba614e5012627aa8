"""The engine: rounds as a compiled program, and where its seeds run.

The unit is a chunk of rounds: scan over rounds, map over seeds, data passed as arguments. Everything that must touch
the host (checkpoint, ledger, re-design) happens between chunks. Traced and called inside `jax.enable_x64(True)`.
"""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from otafl.core import kernels, streams
from otafl.core.arrays import Array, Pytree
from otafl.core.messages import Data, Seed
from otafl.core.rounds import Carry, Dice, Packed, Record, Round, Row, unpack
from otafl.core.sharding import over

SeedMap = Literal["threads", "map", "vmap"]  # a core for each seed, one seed after the other, all in one program


class Engine(NamedTuple):
    """Compiled parts of one experiment shape."""

    init: Callable[..., Carry]
    chunk: Callable[..., tuple[Carry, Record, Any]]


def make_engine(
    init_params: Callable[[Array], Pytree],
    evaluate: Callable[[Pytree, Any], Any],
    round_: Round,
    optimizer: optax.GradientTransformation,
    seed_map: SeedMap = "vmap",
    evaluate_every: int | None = None,
    mesh: Mesh | None = None,
) -> Engine:
    """The two compiled programs of an experiment: the start of all seeds, and a chunk of rounds with evaluations.

    A chunk has any multiple of `evaluate_every` rounds (None: the whole chunk, one evaluation at its end). Leaves of
    what it returns: records (S, rounds, ...), evaluations (S, evaluations, ...). With a mesh, each of its devices runs
    its part of the seeds, and of the clients where `round_` was made with a client axis.
    """

    if mesh is not None and seed_map == "threads":
        seed_map = "map"  # a device has its seeds to itself

    def start(keys: Array, policy_states: Pytree) -> Carry:
        def one(key: Array, state: Pytree) -> Carry:
            params = init_params(jax.random.fold_in(key, streams.Seed.INIT))
            return Carry(params, optimizer.init(params), state, jnp.asarray(True), jnp.asarray(0, jnp.int32))

        return jax.lax.map(lambda pair: one(*pair), (keys, policy_states))

    def chunk(
        data: Data, held_out: Any, public: Any, seeds: Seed, carry: Carry, rows: Row
    ) -> tuple[Carry, Record, Any]:
        num_seeds, rounds = rows.in_horizon.shape
        every = evaluate_every or rounds
        together = _evaluated_together(num_seeds, held_out) if seed_map == "vmap" else 1

        def one(seed: Seed, state: Carry, some: Row) -> tuple[Carry, Packed]:
            return jax.lax.scan(lambda c, row: round_.run(data, public, seed, c, row), state, some)

        def stretch(state: Carry, some: Row) -> tuple[Carry, tuple[Packed, Any]]:
            args = (seeds, state, some._replace(dice=_ahead(round_, seeds, state.round, every)))
            new, packed = jax.lax.map(lambda a: one(*a), args) if seed_map != "vmap" else jax.vmap(one)(*args)
            return new, (packed, jax.lax.map(lambda p: evaluate(p, held_out), new.params, batch_size=together))

        cut = jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(num_seeds, -1, every, *leaf.shape[2:]), 1, 0), rows)
        carry, (packed, seen) = jax.lax.scan(stretch, carry, cut)
        joined = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1).reshape(num_seeds, rounds, *leaf.shape[3:]), packed)
        return carry, unpack(joined), jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), seen)

    if mesh is not None:
        return Engine(_in_x64(jax.jit(start)), _in_x64(over(mesh, chunk)))
    if seed_map == "threads":
        return Engine(_in_x64(jax.jit(start)), _a_core_for_each_seed(chunk))
    whole = jax.jit(chunk, donate_argnames="carry", compiler_options=kernels.as_one_graph())
    return Engine(_in_x64(jax.jit(start)), _in_x64(whole))


def _a_core_for_each_seed(chunk: Callable[..., Any]) -> Callable[..., Any]:
    """The chunk of all seeds by the program of one, on as many seeds at a time as there are cores.

    The products of a small network are too small for several cores to share. A seed's bits do not depend on the others.
    """

    def alone(n: Array, data: Data, held_out: Any, public: Any, *by_seed: Any) -> Any:
        own = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, n, 1), by_seed)
        return chunk(data, held_out, public, *own)

    program, put = jax.jit(alone), _in_x64(jax.device_put)
    compiled, compile_ = _in_x64(program), _in_x64(lambda *args: program.lower(*args).compile())

    def call(*args: Any) -> Any:
        shared = put(args)
        compile_(0, *shared)  # by the caller: meanwhile the pool trains seeds of other programs
        seeds = range(shared[-1].in_horizon.shape[0])
        parts = list(_pool(cores()).map(lambda n: jax.tree.map(np.asarray, compiled(n, *shared)), seeds))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    return call


@functools.cache
def _pool(size: int) -> ThreadPoolExecutor:
    """One for all programs of this process, so that schemes which run at the same time share the cores."""
    return ThreadPoolExecutor(size, "seed")


def _evaluated_together(seeds: int, held_out: Any) -> int:
    """One seed after the other saves memory and, on a CPU, time; an accelerator wants them together.

    But not all of a thousand, whose activations would take gigabytes for no time saved.
    """
    if jax.default_backend() == "cpu":
        return 1
    return _share(seeds, 2**26 // sum(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(held_out)))


def _share(count: int, most: int) -> int:
    """So many of `count` at a time, at most `most`; if possible none are left over, who would be a second program."""
    most = min(count, max(1, most))
    return next((n for n in range(most, most // 2, -1) if count % n == 0), most)


def _ahead(round_: Round, seeds: Seed, first: Array, count: int) -> Dice | tuple[()]:
    """All chance of the next `count` rounds, (S, count, ...), as accelerators save launches so; () if it is too much.

    A few seeds at a time: XLA times its ways to compile a step at the step's full size.
    """
    num_seeds, choices = seeds.sizes.shape[0], count * math.prod(seeds.rows.shape[1:])

    def some(pair: tuple[Seed, Array]) -> Dice:
        seed, number = pair
        return jax.vmap(lambda n: round_.roll(seed, number + n))(jnp.arange(count, dtype=jnp.int32))

    if choices > most_ahead():
        return ()
    kept = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(lambda: jax.lax.map(some, (seeds, first)))))
    if kept > most_ahead():
        return ()
    return jax.lax.map(some, (seeds, first), batch_size=_share(num_seeds, 2**25 // choices))


def most_ahead() -> int:
    """So many samples may stand for choice, and so many numbers be kept, in the rounds that are drawn together."""
    return 0 if jax.default_backend() == "cpu" else 2**28


def cores() -> int:
    """How many this process may use; NPROC says it to XLA, too."""
    if (said := os.environ.get("NPROC", "")).isdecimal() and len(said) < 10 and int(said):
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_x64(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with jax.enable_x64(True):
            return function(*args)

    return call
