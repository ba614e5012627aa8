"""The worlds that an audit tells apart, each played by the real compiled round. JAX, float32.

A world is what the clients are given; everything else is the round of `core.rounds` with the scheme's own links, keys
and uplink. What the server receives is caught before the optimizer and projected on the canaries' public directions,
which are orthonormal, so that one run tests many clients at once.

Message canaries put a vector far above its norm bound in the place of a client's message: clipping, silence, weights,
noise and decoding are the mechanism's. Record canaries put one record into a client's data whose gradient is a chosen
vector (`gradient_is_x`), turned by the model of the round: drawing, per-record clipping and the divisor are the
mechanism's too.
"""

import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from otafl.core.arrays import Array
from otafl.core.engine import cores
from otafl.core.errors import PrivacyViolation
from otafl.core.messages import (
    NORM_TOLERANCE,
    Clients,
    Data,
    Seed,
    fold,
    identity_lift,
    none_left_out,
    per_client,
)
from otafl.core.plan import Link
from otafl.core.rounds import Carry, Row, make_round
from otafl.core.uplink import Uplink, to_float32
from otafl.runs.device_mapping import choose_client_map
from otafl.tasks.models import Model, from_loss

LOUD = 8.0  # times the bound: the mechanism has to clip
AT_ONCE = {"cpu": 2**21}  # numbers received by the runs that are computed together
AT_ONCE_ELSEWHERE = 2**27


class Stage(NamedTuple):
    """The mechanism as a program: who is a canary, along which directions, and what every round is."""

    clients: Clients
    uplink: Uplink
    link: Link  # (T, K), float64
    params: Array  # (T, ...) the model that `clients` read in every round
    basis: Array  # (m + 1 or more, D) float32, orthonormal: the canaries' directions first
    number: int  # m
    parts: int = 1  # real numbers that the observer gets per coordinate


class World(NamedTuple):
    """What the clients have."""

    data: Any  # the first argument of `Clients.messages` after the model
    seed: Seed  # its key is replaced in every run


class Message(NamedTuple):
    """What message canaries read in the place of data."""

    amplitude: Array  # (T, K) float32
    directions: Any  # one message's pytree with leading axis m (+ 1)
    which: Array  # (K,) direction of each client


def message_stage(
    template: Any, clip_norm: float, uplink: Uplink, link: Link, canaries: Array, seed: int, by_leaf: bool = False
) -> Stage:
    """Clients that send given amplitudes along orthonormal directions; `template` is one message's pytree of shapes."""
    sizes = [int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(template)]
    count = min(len(canaries) + 1, sum(sizes))
    by_leaf = by_leaf and len(sizes) > 1 and max(sizes) >= count
    basis = within_leaves(sizes, count, seed) if by_leaf else orthonormal(count, sum(sizes), seed)
    said = Clients(_draw_nothing, _given_messages, identity_lift, _promise_nothing, clip_norm)
    return Stage(said, uplink, link, np.zeros(len(link.live), np.float32), basis, len(canaries))


def message_world(template: Any, stage: Stage, seed: Seed, canaries: Array, amplitude: Array) -> World:
    """Those that are no canaries send along one direction more where there is one, the same in both worlds."""
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), template)
    directions = jax.vmap(ravel_pytree(zero)[1])(jnp.asarray(stage.basis))
    which = np.full(amplitude.shape[1], len(stage.basis) - 1)
    which[canaries] = np.arange(len(canaries))
    return World(Message(jnp.asarray(amplitude, jnp.float32), directions, jnp.asarray(which)), seed)


# Functions of this module, not closures: whatever is attacked, one compiled program serves all equal shapes.


def _draw_nothing(seed: Seed, keys: Array, ids: Array) -> tuple[tuple[()], Array]:
    return (), jnp.zeros((), bool)


def _given_messages(
    params: Any, data: Message, seed: Seed, drawn: tuple[()], ids: Array, round_: Array
) -> tuple[Any, Array]:
    size = data.amplitude[round_, ids]
    chosen = jax.tree.map(lambda leaf: leaf[data.which[ids]], data.directions)
    return jax.tree.map(lambda leaf: per_client(size, leaf) * leaf, chosen), none_left_out(ids)


def _promise_nothing(sizes: np.ndarray) -> Any:
    raise NotImplementedError("canaries keep the promise of the clients whose place they take")


def orthonormal(count: int, dim: int, seed: int) -> np.ndarray:
    """(count, dim) public random directions, orthonormal."""
    drawn = np.random.default_rng(seed).standard_normal((dim, count))
    return np.linalg.qr(drawn)[0].T.astype(np.float32)


def within_leaves(sizes: list[int], count: int, seed: int) -> np.ndarray:
    """The same, all but the last within one leaf or two with opposite signs, small leaves first and all in turn.

    Hardly anything of a direction through all leaves lies in a small one, whose clip or noise may be missing; and noise
    that two leaves share cancels between them alone. Each direction has numbers of its own, hence they are orthogonal.
    """
    order, starts, rng = np.argsort(sizes, kind="stable"), np.cumsum([0, *sizes]), np.random.default_rng(seed)
    kinds = [order[n : n + many] for n in range(len(order)) for many in (1, 2) if n + many <= len(order)]
    basis = np.zeros((count, sum(sizes)), np.float32)
    for j in range(count - 1):
        fitting = [kind for kind in kinds if sizes[kind[0]] > j]
        leaves = fitting[j % len(fitting)]
        places = np.arange(j, sizes[leaves[0]], count - 1)
        drawn = rng.standard_normal(len(places))
        for leaf, sign in zip(leaves, (1, -1)):
            basis[j, starts[leaf] + places] = sign * drawn / np.linalg.norm(drawn) / np.sqrt(len(leaves))
    rest = rng.standard_normal(sum(sizes))
    for _ in range(2):  # once more for what rounding leaves
        rest -= (rest @ basis.T) @ basis
    basis[-1] = rest / np.linalg.norm(rest)
    return basis


def gradient_is_x(dim: int) -> Model:
    """A model of signs whose gradient at a record x (D,) is x with these signs."""
    return from_loss(
        lambda key: jnp.ones(dim, jnp.float32),
        lambda params, x, y: jnp.mean(x @ (jax.lax.stop_gradient(params) * params)),
        lambda params, x: (x @ params)[:, None],
        "gradient-is-x",
    )


def record_world(seed: Seed, canaries: Array, dim: int, own: float, others: float, gone: bool) -> World:
    """Canary j's last record has gradient `own` along coordinate j, its client's other records `others`.

    `gone`: the record is not there at all, its client is one smaller.
    """
    rows, sizes = np.asarray(seed.rows[np.arange(len(seed.sizes))]), np.array(seed.sizes)
    x = np.zeros((int(rows.max()) + 1, dim), np.float32)
    for j, client in enumerate(canaries):
        held = rows[client, : sizes[client]]
        x[held, j] = others
        x[held[-1], j] = own
    if gone:
        sizes[canaries] -= 1
    data = Data(jnp.asarray(x), jnp.zeros(len(x), jnp.int32))
    return World(data, seed._replace(rows=jnp.asarray(rows), sizes=jnp.asarray(sizes)))


# --- playing a world -------------------------------------------------------------------------------------------------


def _keep(received: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    return jax.tree.map(jnp.zeros_like, params), received


# An optimizer that changes nothing and keeps what the server received.
CATCH = optax.GradientTransformation(lambda params: (), _keep)


def play(stage: Stage, world: World, runs: int, first_key: int) -> Iterator[np.ndarray]:
    """Projections (some runs, T, parts, m) float64 of what the server received, until all runs are done."""
    batch = _at_once(stage, runs)
    starts = range(0, runs, batch)
    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, Row(to_float32(stage.link), (), np.ones(len(stage.link.live), bool)))
        keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(first_key), n))(jnp.arange(runs + batch))
        basis, params = jnp.asarray(stage.basis[: stage.number]), jnp.asarray(stage.params)

    def some(start: int) -> Any:
        with jax.enable_x64(True):  # of this thread
            own = keys[start : start + batch]
            seen = _runs(stage.clients, stage.uplink, stage.parts, rows, world, params, basis, own)
            return jax.tree.map(np.asarray, seen)

    with ThreadPoolExecutor(cores() if jax.default_backend() == "cpu" else 1) as pool:
        for start, (seen, norm, overflow) in zip(starts, pool.map(some, starts)):
            _check(stage, float(norm), bool(overflow))
            yield np.asarray(seen, np.float64)[: runs - start]


def _at_once(stage: Stage, runs: int) -> int:
    most = AT_ONCE.get(jax.default_backend(), AT_ONCE_ELSEWHERE)
    return int(np.clip(most // (stage.parts * stage.basis.shape[1]), 1, min(runs, 256)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _runs(
    clients: Clients, uplink: Uplink, parts: int, rows: Row, world: World, params: Array, basis: Array, keys: Array
) -> tuple[Array, Array, Array]:
    """Projections of runs with these keys, the largest message norm, and whether any batch did not fit."""
    assert isinstance(rows.link, Link)
    client_map = choose_client_map(rows.link.weight.shape[-1], basis.shape[1])
    round_ = make_round(clients, CATCH, client_map, uplink=uplink)
    first = jnp.asarray(0, jnp.int32)

    def received(seed: Seed, row: Row) -> Any:
        dice = round_.roll(seed, first)
        assert isinstance(row.link, Link)
        total, _ = fold(clients, params[0], world.data, seed, dice.drawn, row.link, first, client_map, uplink)
        return uplink.decode(total, row.link, dice.air_key)[0]

    def one(key: Array) -> tuple[Array, Array, Array]:
        seed = world.seed._replace(key=key)
        shapes = jax.eval_shape(received, seed, jax.tree.map(lambda leaf: leaf[0], rows))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def step(carry: Carry, at: tuple[Row, Array]) -> tuple[Carry, Any]:
            row, model = at
            carry, record = round_.run(world.data, (), seed, carry._replace(params=model), row)
            flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(carry.opt)])
            seen = flat.reshape(parts, basis.shape[1]) @ basis.T
            return carry, (seen, jnp.max(record.clients[0]), record.round[2] > 0)

        start = Carry(params[0], nothing, (), jnp.asarray(True), first)
        _, (seen, norms, overflow) = jax.lax.scan(step, start, (rows, params))
        return seen, jnp.max(norms), jnp.any(overflow)

    seen, norms, overflow = jax.vmap(one)(keys)
    return seen, jnp.max(norms), jnp.any(overflow)


def _check(stage: Stage, norm: float, overflow: bool) -> None:
    """What would stop a run stops an audit of it."""
    if norm > stage.clients.clip_norm * (1 + NORM_TOLERANCE):
        raise PrivacyViolation(f"a message of norm {norm:.6g} is above its declared bound {stage.clients.clip_norm:g}")
    if overflow:
        raise PrivacyViolation("a Poisson batch did not fit its fixed shape; lower clients.overflow_tail")
