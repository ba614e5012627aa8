"""The round, the chunk of rounds and the plan ahead of it. The heart of otafl.

    channel -> policy -> clients -> air -> server -> ledger

One round is the same for every scheme; only the policy's `Plan` differs. The compiled unit is a chunk of rounds:
scan over rounds, map over seeds, data passed as arguments. Everything that must touch the host (evaluation,
checkpoint, ledger, re-design) happens between chunks. All of it is traced and called inside one
`jax.enable_x64(True)` scope: policies and lowering in float64, learning in float32.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from otafl.air import ANALOG, Uplink, to_float32
from otafl.clients.base import ClientMap, Clients, Data, Drawn, Pytree, Seed, Stats, draw, fold
from otafl.plan import Array, Deployment, Link, Obs, Plan, Policy, Trace

SeedMap = Literal["threads", "map", "vmap"]  # a core for each seed, one seed after the other, all in one program
# (params, data, public, seed, key) -> () float64: what a policy inside the loop sees of the model before a round.
Measure = Callable[[Pytree, Data, Any, Seed, Array], Array]


class Carry(NamedTuple):
    """All that the next round needs, hence the checkpoint. Leading axis S outside the round."""

    params: Pytree  # float32
    opt: Pytree
    policy: Pytree  # () unless the policy runs inside the loop
    live: Array  # () bool
    round: Array  # () int32


class Row(NamedTuple):
    """What one round is given: its link if it was planned ahead, else the trace to plan from."""

    link: Link | tuple[()]
    trace: Trace | tuple[()]
    in_horizon: Array  # () bool: False pads the last chunk
    dice: "Dice | tuple[()]" = ()  # what was drawn ahead


class Dice(NamedTuple):
    """All chance of a round that does not look at the model."""

    drawn: Drawn
    air_key: Array


class Round(NamedTuple):
    """One round as pure functions: its chance, and what it does."""

    roll: Callable[[Seed, Array], Dice]  # seed, round
    run: Callable[..., tuple["Carry", "Packed"]]  # data, public, seed, carry, row


class Record(NamedTuple):
    """What one round leaves behind."""

    live: Array  # () bool: this round was run
    finite: Array  # () bool: every message was finite
    stats: Stats
    plan: Plan | tuple[()]  # realised plan of a policy inside the loop
    info: Any
    update_norm: Array  # () of what the server received, after division by rx_scale
    refused: Array  # () bool: the uplink saw that decoding failed


class Engine(NamedTuple):
    """Compiled parts of one experiment shape."""

    init: Callable[..., Carry]
    chunk: Callable[..., tuple[Carry, Record, Any]]


# --- planning ahead: host, float64 -------------------------------------------------------------------------------


def observe(policy: Policy, trace: Trace, round_: Any, metric: Any = np.nan) -> Obs:
    """One row (or several) of the trace as far as the policy's CSI level lets it see; the rest is NaN."""
    xp: Any = jnp if isinstance(trace.estimate, jax.Array) else np
    nan = xp.full_like(trace.rms_estimate, np.nan)
    statistical = policy.csi != "none"
    estimate = trace.estimate if policy.csi in ("own", "global") else nan + 0j
    rms = (trace.rms_estimate, trace.rms_low, trace.rms_high) if statistical else (nan, nan, nan)
    return Obs(round_, estimate, *rms, trace.coin, metric)


def plan_ahead(
    policy: Policy, state: Any, trace: Trace, first: int = 0, metric: float = np.nan
) -> tuple[Any, Plan, Any]:
    """Plans for the rounds of `trace` (T, K) of one seed, by a policy that does not run inside the loop.

    A stateless policy is one broadcast call; a state is carried from round to round.
    """
    rounds = trace.gain.shape[0]
    if state == ():
        state, plan, info = policy.step(state, observe(policy, trace, first + np.arange(rounds), metric))
        return state, _full_shape(plan, trace), info
    plans, infos = [], []
    for t in range(rounds):
        row = Trace(*(leaf[t] for leaf in trace))
        state, plan, info = policy.step(state, observe(policy, row, first + t, metric))
        plans.append(_full_shape(plan, row))
        infos.append(info)
    return state, stack(plans), stack(infos)


def _full_shape(plan: Plan, trace: Trace) -> Plan:
    """Broadcast what a policy wrote short (a scalar send_prob, say) to full shape, and check its finiteness."""
    per_client = trace.gain.shape
    full = Plan(
        tx=np.broadcast_to(np.asarray(plan.tx, complex), per_client),
        noise=np.broadcast_to(np.asarray(plan.noise, complex), per_client),
        max_norm=np.broadcast_to(np.asarray(plan.max_norm, float), per_client),
        rx_scale=np.broadcast_to(np.asarray(plan.rx_scale, float), per_client[:-1]),
        send_prob=np.broadcast_to(np.asarray(plan.send_prob, float), per_client),
        live=np.broadcast_to(np.asarray(plan.live, bool), per_client[:-1]),
    )
    used = full.live[..., None] & (full.max_norm >= 0)
    if not (
        np.all(np.isfinite(np.where(used, full.tx, 0)))
        and np.all(np.isfinite(full.noise))
        and np.all(full.rx_scale > 0)
    ):
        raise FloatingPointError(
            "a policy planned a non-finite transmit scale or noise, or a receive scale that is not > 0"
        )
    return full


def stack(items: list[Any]) -> Any:
    """Stack a list of equal pytrees of arrays along a new leading axis, on the host."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *items)


# --- the compiled round ------------------------------------------------------------------------------------------


def make_round(
    clients: Clients,
    optimizer: optax.GradientTransformation,
    client_map: ClientMap,
    policy: Policy | None = None,
    deployment: Deployment | None = None,
    measure: Measure | None = None,
    uplink: Uplink = ANALOG,
) -> Round:
    """The round of an experiment. `policy`, `deployment`, `measure` only where the policy runs inside the loop."""

    def source(data: Data, public: Any, seed: Seed, carry: Carry, row: Row) -> tuple[Any, Plan | tuple[()], Link, Any]:
        if policy is None or deployment is None:
            assert isinstance(row.link, Link)
            return carry.policy, (), row.link, ()
        assert isinstance(row.trace, Trace)
        key = jax.random.fold_in(jax.random.fold_in(seed.key, FEEDBACK_STREAM), carry.round)
        metric = np.nan if measure is None else measure(carry.params, data, public, seed, key)
        state, plan, info = policy.step(carry.policy, observe(policy, row.trace, carry.round, metric))
        return state, plan, to_float32(uplink.lower(plan, row.trace.gain, deployment)), info

    def roll(seed: Seed, number: Array) -> Dice:
        client_key, air_key = jax.random.split(jax.random.fold_in(seed.key, number))
        return Dice(draw(clients, seed, client_key, client_map), air_key)

    def run(data: Data, public: Any, seed: Seed, carry: Carry, row: Row) -> tuple[Carry, Packed]:
        state, plan, link, info = source(data, public, seed, carry, row)
        dice = row.dice if isinstance(row.dice, Dice) else roll(seed, carry.round)
        total, stats = fold(clients, carry.params, data, seed, dice.drawn, link, carry.round, client_map, uplink)
        received, refused = uplink.decode(total, link, dice.air_key)
        gradient = clients.lift(received, carry.params, seed, carry.round)
        change, opt = optimizer.update(gradient, carry.opt, carry.params)
        params = optax.apply_updates(carry.params, change)
        finite = jnp.all(jnp.isfinite(stats.raw_norm))
        live = carry.live & link.live & row.in_horizon & finite & ~stats.overflow
        new = Carry(params, opt, state, live, carry.round)
        # Stopped seeds stand still: select, never branch (a branch under vmap runs both sides).
        new = jax.tree.map(lambda n, o: jnp.where(live, n, o), new, carry)
        new = new._replace(
            live=jnp.where(row.in_horizon, live, carry.live), round=carry.round + row.in_horizon.astype(jnp.int32)
        )
        ran = carry.live & link.live & row.in_horizon
        return new, pack(Record(ran, finite, stats, plan, info, optax.global_norm(received), refused))

    return Round(roll, run)


class Packed(NamedTuple):
    """A record in few arrays: inside the loop every array costs an accelerator one more launch per round."""

    clients: Array  # (4, K) float32
    round: Array  # (5,) float32
    plan: Plan | tuple[()]
    info: Any


def pack(record: Record) -> Packed:
    stats, one = record.stats, jnp.float32
    clients = jnp.stack([stats.norm, stats.raw_norm, stats.sent.astype(one), stats.left_out.astype(one)])
    scalars = (record.live, record.finite, stats.overflow, record.update_norm, record.refused)
    return Packed(clients, jnp.stack([one(value) for value in scalars]), record.plan, record.info)


def unpack(packed: Packed) -> Record:
    norm, raw_norm, sent, left_out = (packed.clients[..., n, :] for n in range(4))
    live, finite, overflow, update_norm, refused = (packed.round[..., n] for n in range(5))
    stats = Stats(norm, raw_norm, sent > 0, left_out, overflow > 0)
    return Record(live > 0, finite > 0, stats, packed.plan, packed.info, update_norm, refused > 0)


def make_engine(
    init_params: Callable[[Array], Pytree],
    evaluate: Callable[[Pytree, Any], Any],
    round_: Round,
    optimizer: optax.GradientTransformation,
    seed_map: SeedMap = "vmap",
    evaluate_every: int | None = None,
) -> Engine:
    """The two compiled programs of an experiment: the start of all seeds, and a chunk of rounds with evaluations.

    A chunk has any multiple of `evaluate_every` rounds (None: the whole chunk, one evaluation at its end). Leaves of
    what it returns: records (S, rounds, ...), evaluations (S, evaluations, ...).
    """

    def start(keys: Array, policy_states: Pytree) -> Carry:
        def one(key: Array, state: Pytree) -> Carry:
            params = init_params(jax.random.fold_in(key, INIT_STREAM))
            return Carry(params, optimizer.init(params), state, jnp.asarray(True), jnp.asarray(0, jnp.int32))

        return jax.lax.map(lambda pair: one(*pair), (keys, policy_states))

    def chunk(
        data: Data, held_out: Any, public: Any, seeds: Seed, carry: Carry, rows: Row
    ) -> tuple[Carry, Record, Any]:
        num_seeds, rounds = rows.in_horizon.shape
        every = evaluate_every or rounds
        # One seed after the other saves memory and, on a CPU, time; an accelerator wants them together.
        together = num_seeds if seed_map == "vmap" and jax.default_backend() != "cpu" else 1

        def one(seed: Seed, state: Carry, some: Row) -> tuple[Carry, Packed]:
            if num_seeds * every * seed.rows.size <= most_ahead():
                numbers = state.round + jnp.arange(every, dtype=jnp.int32)
                some = some._replace(dice=jax.vmap(lambda n: round_.roll(seed, n))(numbers))
            return jax.lax.scan(lambda c, row: round_.run(data, public, seed, c, row), state, some)

        def stretch(state: Carry, some: Row) -> tuple[Carry, tuple[Packed, Any]]:
            args = (seeds, state, some)
            new, packed = jax.lax.map(lambda a: one(*a), args) if seed_map == "map" else jax.vmap(one)(*args)
            return new, (packed, jax.lax.map(lambda p: evaluate(p, held_out), new.params, batch_size=together))

        cut = jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(num_seeds, -1, every, *leaf.shape[2:]), 1, 0), rows)
        carry, (packed, seen) = jax.lax.scan(stretch, carry, cut)
        joined = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1).reshape(num_seeds, rounds, *leaf.shape[3:]), packed)
        return carry, unpack(joined), jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), seen)

    if seed_map == "threads":
        return Engine(_in_x64(jax.jit(start)), _a_core_for_each_seed(chunk))
    whole = jax.jit(chunk, donate_argnames="carry", compiler_options=_side_by_side())
    return Engine(_in_x64(jax.jit(start)), _in_x64(whole))


@functools.cache
def _side_by_side() -> dict[str, str] | None:
    """Kernels of a round that do not wait for each other may overlap on a GPU; None where that cannot be asked for."""
    wish = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
    if jax.default_backend() != "gpu":
        return None
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options=wish).lower().compile()
    except Exception:  # an XLA that knows no such option says so in several ways
        return None
    return wish


def _a_core_for_each_seed(chunk: Callable[..., Any]) -> Callable[..., Any]:
    """The chunk of all seeds by the program of one, on as many seeds at a time as there are cores.

    The products of a small network are too small for several cores to share. A seed's bits do not depend on the others.
    """

    def alone(n: Array, data: Data, held_out: Any, public: Any, *by_seed: Any) -> Any:
        own = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, n, 1), by_seed)
        return chunk(data, held_out, public, *own)

    compiled, put = _in_x64(jax.jit(alone)), _in_x64(jax.device_put)

    def call(*args: Any) -> Any:
        shared = put(args)
        seeds = range(shared[-1].in_horizon.shape[0])
        with ThreadPoolExecutor(cores()) as pool:
            parts = list(pool.map(lambda n: jax.tree.map(np.asarray, compiled(n, *shared)), seeds))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    return call


def most_ahead() -> int:
    """So many samples may stand for choice in the rounds that are drawn together: an accelerator saves launches."""
    return 0 if jax.default_backend() == "cpu" else 2**28


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


INIT_STREAM = 2**31 - 1  # keeps the initial model's key apart from every round's
FEEDBACK_STREAM = 2**31 - 2  # likewise the noise on what a policy is told


def _in_x64(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with jax.enable_x64(True):
            return function(*args)

    return call
