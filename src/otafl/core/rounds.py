"""The round, and the plan ahead of it. The heart of otafl.

    channel -> policy -> clients -> air -> server -> ledger

One round is the same for every scheme; only the policy's `Plan` differs. Policies and lowering work in float64,
learning in float32: all of it is traced inside one `jax.enable_x64(True)` scope. How rounds become a program is
`engine.py`.
"""

from collections.abc import Callable
from functools import reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import streams
from otafl.core.arrays import Array, Pytree
from otafl.core.authors import by_its_author
from otafl.core.errors import InputError
from otafl.core.messages import ClientMap, Clients, Data, Drawn, Seed, Stats, draw, fold
from otafl.core.plan import Deployment, Link, Obs, Plan, Policy, Trace, cut, frozen, ours
from otafl.core.uplink import ANALOG, Uplink, to_float32
from otafl.core.validate import first_place, masked

if TYPE_CHECKING:
    import optax

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
    rms = (trace.rms_estimate, trace.rms_low, trace.rms_high)
    return shown(policy, Obs(round_, trace.estimate, *rms, trace.coin, metric))


def shown(policy: Policy, obs: Obs) -> Obs:
    """The same without what lies above the policy's CSI level."""
    xp: Any = jnp if isinstance(obs.estimate, jax.Array) else np
    nan = xp.full_like(obs.rms, np.nan)
    estimate = obs.estimate if policy.csi in ("own", "global") else nan + 0j
    rms = (obs.rms, obs.rms_low, obs.rms_high) if policy.csi != "none" else (nan, nan, nan)
    return Obs(obs.round, estimate, *rms, obs.coin, obs.metric)


def plan_ahead(policy: Policy, state: Any, trace: Trace, first: int = 0) -> tuple[Any, Plan, Any]:
    """Plans for the rounds of `trace` (T, K) of one seed, by a policy that does not run inside the loop.

    `first` is the number of the first of them: a long run may be planned some rounds at a time.

    A policy of otafl's without a state, or one that spans rounds, is one call. Everybody else's is asked round by
    round, in order, also behind a wrapper of otafl's: in one call for all rounds it could read later channels off the
    rows below. The policy gets read-only copies, and what it returns is copied: neither the trace nor a plan can change
    behind the ledger's back.
    """
    rounds = trace.gain.shape[0]
    if ours(policy.step) and (policy.spans or (isinstance(state, tuple) and not state)):
        seen = frozen(observe(policy, trace, first + np.arange(rounds)))
        state, plan, info = ask(policy, state, seen, trace.gain.shape)
        return state, _numbers(policy, plan, first), info
    plans: list[Plan] = []
    infos: list[Any] = []
    for t in range(rounds):
        row = cut(trace, t)
        state, plan, info = ask(policy, state, frozen(observe(policy, row, first + t)), row.gain.shape)
        plans.append(_numbers(policy, plan, first + t))
        infos.append(info)
        if str(jax.tree.structure(info)) != str(jax.tree.structure(infos[0])):
            raise InputError(f"{policy.name}: info of round {first + t} has other fields than that of round {first}")
    return state, stack(plans), stack(infos)


KINDS = {"tx": "biufc", "noise": "biufc", "max_norm": "biuf", "rx_scale": "biuf", "send_prob": "biuf", "live": "b"}


def ask(policy: Policy, state: Any, obs: Obs, per_client: tuple[int, ...]) -> tuple[Any, Plan, Any]:
    """One step of a policy, its plan in full shape: a scalar send_prob, say, is written out. NumPy or traced JAX."""
    with by_its_author(policy.name, policy.step):
        answer = policy.step(state, obs)
    if not (isinstance(answer, tuple) and len(answer) == 3 and isinstance(answer[1], Plan)):
        raise InputError(f"{policy.name}: step must return (state, Plan, info), not {type(answer).__name__}")
    state, plan, info = answer
    xp: Any = jnp if isinstance(obs.coin, jax.Array) else np
    full = {}
    for name, value in plan._asdict().items():
        if masked(value):
            raise InputError(f"{policy.name}: plan.{name} has masked values; fill them")
        found = value if isinstance(value, jax.Array) else _copied(value)
        wanted = per_client[:-1] if name in ("rx_scale", "live") else per_client
        if found.dtype.kind not in KINDS[name]:
            what = {"b": "bool", "biuf": "real"}.get(KINDS[name], "numeric")
            raise InputError(f"{policy.name}: plan.{name} has dtype {found.dtype} but must be {what}")
        if found.ndim > len(wanted) or any(a not in (1, b) for a, b in zip(found.shape[::-1], wanted[::-1])):
            raise InputError(f"{policy.name}: plan.{name} has shape {found.shape} but must broadcast to {wanted}")
        full[name] = xp.asarray(found) if found.shape == wanted else xp.broadcast_to(found, wanted)
    return state, Plan(**full), info


def _copied(value: Any) -> Any:
    try:
        return np.array(value)
    except (TypeError, ValueError):  # ragged lists: no numbers
        return np.array(None)


def _numbers(policy: Policy, plan: Plan, round_: int = 0) -> Plan:
    """A plan of the host in double precision, its numbers checked."""
    precise = {"tx": complex, "noise": complex, "live": bool}
    plan = Plan(**{name: np.asarray(value, precise.get(name, float)) for name, value in plan._asdict().items()})
    sends = plan.live[..., None] & (plan.max_norm >= 0)
    problems = {
        "tx": ~np.isfinite(np.where(sends, plan.tx, 0)),
        "noise": ~np.isfinite(plan.noise),
        "rx_scale": ~(plan.rx_scale > 0),
    }
    for name, bad in problems.items():
        if np.any(bad):
            index = first_place(bad)
            place = (round_ + index[0], *index[1:]) if plan.live.ndim else (round_, *index)
            whose = f" for client {place[1]}" if name != "rx_scale" else ""
            rule = "must be > 0" if name == "rx_scale" else "must be finite"
            value = getattr(plan, name)[index]
            found = f"{name}={value}{whose} in round {place[0]}"
            if ours(policy.step):  # by numbers that somebody else gave
                raise FloatingPointError(f"{policy.name} planned {found}, which {rule}")
            blind = np.isnan(value) and policy.csi in ("none", "statistical")
            hint = f"; what csi={policy.csi!r} does not show of the channel is NaN" if blind else ""
            raise InputError(f"{policy.name}: plan.{found} {rule}{hint}")
    return plan


def stack(items: list[Any]) -> Any:
    """Stack a list of equal pytrees of arrays along a new leading axis, on the host."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *items)


# --- the compiled round ------------------------------------------------------------------------------------------


def make_round(
    clients: Clients,
    optimizer: "optax.GradientTransformation",
    client_map: ClientMap,
    policy: Policy | None = None,
    deployment: Deployment | None = None,
    measure: Measure | None = None,
    uplink: Uplink = ANALOG,
    client_axis: str | None = None,
) -> Round:
    """The round of an experiment. `policy`, `deployment`, `measure` only where the policy runs inside the loop.

    client_axis: the axis of a mesh over which clients are split; `link` and `seed` then hold those of one device.
    """
    import optax  # not before a round is made: plans do without it

    def source(data: Data, public: Any, seed: Seed, carry: Carry, row: Row) -> tuple[Any, Plan | tuple[()], Link, Any]:
        if policy is None or deployment is None:
            assert isinstance(row.link, Link)
            return carry.policy, (), row.link, ()
        assert isinstance(row.trace, Trace)
        key = jax.random.fold_in(jax.random.fold_in(seed.key, streams.Seed.FEEDBACK), carry.round)
        metric = np.nan if measure is None else measure(carry.params, data, public, seed, key)
        obs = observe(policy, row.trace, carry.round, metric)
        state, plan, info = ask(policy, carry.policy, obs, row.trace.gain.shape)
        return state, plan, to_float32(uplink.lower(plan, row.trace.gain, deployment)), info

    def roll(seed: Seed, number: Array) -> Dice:
        client_key, air_key = jax.random.split(jax.random.fold_in(seed.key, number))
        first = first_client(seed.sizes.shape[0], client_axis)
        return Dice(draw(clients, seed, client_key, client_map, first), air_key)

    def run(data: Data, public: Any, seed: Seed, carry: Carry, row: Row) -> tuple[Carry, Packed]:
        state, plan, link, info = source(data, public, seed, carry, row)
        dice = row.dice if isinstance(row.dice, Dice) else roll(seed, carry.round)
        total, stats = fold(clients, carry.params, data, seed, dice.drawn, link, carry.round, client_map, uplink)
        total, overflow = joined(total, uplink.add, client_axis), anywhere(stats.overflow, client_axis)
        stats = stats._replace(overflow=overflow)
        received, refused = uplink.decode(total, link, dice.air_key)
        gradient = clients.lift(received, carry.params, seed, carry.round)
        change, opt = optimizer.update(gradient, carry.opt, carry.params)
        params = optax.apply_updates(carry.params, change)
        finite = jnp.isfinite(optax.tree.norm(params))
        live = carry.live & link.live & row.in_horizon & finite & ~stats.overflow
        new = Carry(params, opt, state, live, carry.round)
        # Stopped seeds stand still: select, never branch (a branch under vmap runs both sides).
        new = jax.tree.map(lambda n, o: jnp.where(live, n, o), new, carry)
        new = new._replace(
            live=jnp.where(row.in_horizon, live, carry.live), round=carry.round + row.in_horizon.astype(jnp.int32)
        )
        ran = carry.live & link.live & row.in_horizon
        return new, pack(Record(ran, finite, stats, plan, info, optax.tree.norm(received), refused))

    return Round(roll, run)


def first_client(count: int, axis: str | None) -> Array:
    """The number of the first of the `count` clients on this device."""
    return 0 if axis is None else jax.lax.axis_index(axis).astype(jnp.int32) * count


def joined(total: Pytree, add: Callable[[Pytree, Pytree], Pytree], axis: str | None) -> Pytree:
    """The contributions of all devices of a seed, added up in the order of the devices."""
    if axis is None:
        return total
    every = jax.lax.all_gather(total, axis)
    first, *others = (jax.tree.map(itemgetter(n), every) for n in range(jax.lax.axis_size(axis)))
    return reduce(add, others, first)


def anywhere(flag: Array, axis: str | None) -> Array:
    """Whether a flag is raised on any device."""
    return flag if axis is None else jax.lax.psum(flag.astype(jnp.int32), axis) > 0


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
