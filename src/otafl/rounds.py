"""The round, and the plan ahead of it. The heart of otafl.

    channel -> policy -> clients -> air -> server -> ledger

One round is the same for every scheme; only the policy's `Plan` differs. Policies and lowering work in float64,
learning in float32: all of it is traced inside one `jax.enable_x64(True)` scope. How rounds become a program is
`engine.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from otafl.air import ANALOG, Uplink, to_float32
from otafl.clients.base import ClientMap, Clients, Data, Drawn, Pytree, Seed, Stats, draw, fold
from otafl.plan import Array, Deployment, Link, Obs, Plan, Policy, Trace

FEEDBACK_STREAM = 2**31 - 2  # keeps the noise on what a policy is told apart from every round's
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
    finite: Array  # () bool: the new model is finite, a function of what was received alone
    stats: Stats
    plan: Plan | tuple[()]  # realised plan of a policy inside the loop
    info: Any
    update_norm: Array  # () of what the server received, after division by rx_scale
    refused: Array  # () bool: the uplink saw that decoding failed


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
        finite = jnp.isfinite(optax.global_norm(params))
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

    clients: Array  # (5, K) float32
    round: Array  # (5,) float32
    plan: Plan | tuple[()]
    info: Any


def pack(record: Record) -> Packed:
    stats, one = record.stats, jnp.float32
    counts = (stats.sent, stats.left_out, stats.zeroed)
    clients = jnp.stack([stats.norm, stats.raw_norm, *(count.astype(one) for count in counts)])
    scalars = (record.live, record.finite, stats.overflow, record.update_norm, record.refused)
    return Packed(clients, jnp.stack([one(value) for value in scalars]), record.plan, record.info)


def unpack(packed: Packed) -> Record:
    norm, raw_norm, sent, left_out, zeroed = (packed.clients[..., n, :] for n in range(5))
    live, finite, overflow, update_norm, refused = (packed.round[..., n] for n in range(5))
    stats = Stats(norm, raw_norm, sent > 0, left_out, zeroed > 0, overflow > 0)
    return Record(live > 0, finite > 0, stats, packed.plan, packed.info, update_norm, refused > 0)
