"""The attack on one scheme whose plan is fixed: worlds, scores, and what they show about the charge."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.messages import Clients, Seed
from otafl.core.plan import Array, Events, Link, Message
from otafl.core.uplink import FLOAT32_SLACK, Uplink
from otafl.privacy import audit, participation, scores
from otafl.privacy.by_pld import distinct_rows
from otafl.runs import canaries as worlds

MOST = 16  # canaries at a time
WIDTH = 8  # least number of coordinates that record canaries are sent in
Tick = Callable[[int], None]  # so many runs more are done


class Records(NamedTuple):
    """How a record gets into its client's message, where single records are clipped."""

    clip_norm: float
    poisson: bool


class Target(NamedTuple):
    """One scheme as it is attacked: what is played in every round, and what was charged for it."""

    label: str
    clients: Clients  # for `records`: those of the model `canaries.gradient_is_x(width)`
    template: Any  # shapes of one message
    uplink: Uplink
    link: Link  # (T, K) float64, live rounds alone
    message: Message
    events: Events  # (T, K) of the same rounds
    seed: Seed  # who holds how many records
    eps: Array  # (K,) charged, by the run's accountant
    delta: float
    accounting: str = "none"
    records: Records | None = None  # None: whole messages are clipped
    gain: Array = None  # (T, R, K) and (T, R, R): what an observer of both parts gets; None: the server's real part
    noise: Array = None
    notes: tuple[str, ...] = ()


class Canary(NamedTuple):
    """One client, one pattern, all runs."""

    client: int
    pattern: str
    absent: Array  # (n,) scores
    present: Array
    finding: audit.Finding


class Trial(NamedTuple):
    """Two worlds and how to tell them apart."""

    pattern: str
    stage: worlds.Stage
    absent: worlds.World
    present: worlds.World
    score: Callable[[Array], Array]  # (runs, T, R, m) -> (runs, m)
    normal: Array  # (m,) bool: scores are normal


# --- who is a canary ---------------------------------------------------------------------------------------------


def squares(target: Target) -> Array:
    """(T, K) 1/z^2 that was charged; accountings that are no certificates count in full."""
    accounting = target.accounting if target.accounting in participation.CERTIFIED else "none"
    return participation.charged(target.events, accounting)


def chosen(target: Target, width: int) -> np.ndarray:
    """Clients that are attacked: all if they are few, else the dearest and those that are heard loudest for it."""
    charged = squares(target).sum(0)
    count = int(min(MOST, len(charged), max(1, width - 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        heard = np.nansum((target.link.weight / target.link.noise_std[:, None]) ** 2, axis=0)
        ratio = np.where(heard > 0, heard / charged, 0.0)
    order = [*np.argsort(-charged, kind="stable")[: -(-count // 2)], *np.argsort(-ratio, kind="stable")]
    return np.array(list(dict.fromkeys(int(k) for k in order))[:count])


# --- message canaries --------------------------------------------------------------------------------------------


def message_trials(target: Target, seed: int) -> list[Trial]:
    """A client at its bound against its opposite or against nothing, always and in turn."""
    width = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(target.template))
    who = chosen(target, width)
    clip_norm = target.clients.clip_norm
    stage = worlds.message_stage(target.template, clip_norm, target.uplink, target.link, who, seed)
    parts = 1 if target.gain is None else target.gain.shape[1]
    stage = stage._replace(parts=parts)
    gain = target.link.weight[:, None] if target.gain is None else target.gain
    noise = (target.link.noise_std**2)[:, None, None] if target.noise is None else target.noise
    opposite = -1.0 if target.message.unit == "record" or target.message.adjacency == "replace" else 0.0
    sent, arrived = _sizes(target)
    world = functools.partial(worlds.message_world, target.template, stage, target.seed, who)
    trials = []
    for name, sign in _patterns(arrived > 0).items():
        frozen = np.ones(sent.shape)
        ours, theirs = frozen.copy(), frozen.copy()
        ours[:, who], theirs[:, who] = sign[:, who], opposite * sign[:, who]
        loud = (arrived * ours)[:, who], (arrived * theirs)[:, who]
        trials.append(
            Trial(
                f"client, {name}",
                stage,
                world(sent * theirs),
                world(sent * ours),
                lambda seen, loud=loud: scores.gaussian_score(seen, gain[..., who], noise, *loud),  # type: ignore[misc]
                np.ones(len(who), bool),
            )
        )
    return trials


def _sizes(target: Target) -> tuple[Array, Array]:
    """(T, K) what canaries put in and what is left of it: as loud as clipping and a gate that looks allow."""
    bound, limit = target.message.bound, np.asarray(target.link.max_norm)
    gated = (limit >= 0) & (limit < bound)
    sent = np.where(gated, np.maximum(limit, 0) * (1 - 1e-5), worlds.LOUD * bound)
    arrived = np.where(limit < 0, 0.0, np.where(gated, sent, bound * (1 - FLOAT32_SLACK)))
    return sent, arrived


def _patterns(sends: Array) -> dict[str, Array]:
    """(T, K) signs. Noise that is used again hides a constant sign better, and cancels where the signs add to zero."""
    number = np.cumsum(sends, axis=0)
    turns = np.where(number % 2 == 1, 1.0, -1.0)
    odd = (number == number[-1]) & (number[-1] % 2 == 1)  # the last one has no partner
    alternating = np.where(odd, 0.0, turns)
    one = {"constant": np.ones(sends.shape)}
    return one | ({"alternating": alternating} if np.any(number[-1] >= 2) else {})


# --- record canaries ---------------------------------------------------------------------------------------------


def record_trials(target: Target) -> list[Trial]:
    """A record of each client present against nulled, replaced or gone; gone also among others that oppose it."""
    assert target.records is not None
    width = int(target.template.shape[0])
    who = chosen(target, width)
    basis, params = np.eye(width, dtype=np.float32), jnp.zeros(width, jnp.float32)
    stage = worlds.Stage(target.clients, target.uplink, target.link, params, basis, len(who))
    loud = worlds.LOUD * target.records.clip_norm
    there, gone = _facts(target, who, 0), _facts(target, who, 1 if target.message.adjacency == "add-remove" else 0)
    normal = there.rate == 1

    def make(own: float, others: float, away: bool) -> worlds.World:
        return worlds.record_world(target.seed, who, width, own, others, away)

    def trial(name: str, absent: worlds.World, present: worlds.World, score: Any, linear: Array) -> Trial:
        return Trial(f"record, {name}", stage, absent, present, score, linear)

    if target.message.adjacency == "replace":
        score = _record_score(target, there, scores.replaced_score)
        found = [trial("replaced", make(-loud, 0, False), make(loud, 0, False), score, normal)]
        if np.all(normal) and (other := _gate(target, who)) is not None:
            score, size = _gate_score(target, who, other)
            found.append(trial("at the gate", make(-loud, size, False), make(loud, size, False), score, normal))
        return found
    plain = _record_score(target, there, scores.sampled_score)
    if target.message.adjacency == "zero-out":
        return [trial("nulled", make(0, 0, False), make(loud, 0, False), plain, normal)]
    crowd = _crowd_score(target, there, gone)
    return [
        trial("removed", make(0, 0, True), make(loud, 0, False), plain, normal),
        trial("removed from a crowd", make(0, -loud, True), make(loud, -loud, False), crowd, np.zeros(len(who), bool)),
    ]


class _Facts(NamedTuple):
    """What everyone knows of the canaries' clients in one world."""

    size: Array  # (T, m) what one record becomes at the server
    rate: Array  # (m,) chance of a record to be in a round
    held: Array  # (m,) records


def _facts(target: Target, who: Array, fewer: int) -> _Facts:
    assert target.records is not None
    sizes = np.array(target.seed.sizes)
    sizes[who] -= fewer
    promise = target.clients.promise(sizes)
    poisson = target.records.poisson
    factor = 2.0 if promise.adjacency == "replace" or (promise.adjacency == "add-remove" and not poisson) else 1.0
    share = promise.sensitivity / factor
    rate = promise.rate if poisson else np.minimum(target.records.clip_norm / share / sizes, 1.0)
    return _Facts((target.link.weight * share)[:, who] * (1 - FLOAT32_SLACK), rate[who], sizes[who])


def _record_score(target: Target, facts: _Facts, ratio: Any) -> Callable[[Array], Array]:
    variance = target.link.noise_std**2

    def score(seen: Array) -> Array:
        return np.asarray(ratio(seen[:, :, 0], facts.size, variance, facts.rate))

    return score


def _gate(target: Target, who: Array) -> float | None:
    """Size of the other records that lets one record decide whether its client sends; None where no gate looks."""
    limit = np.asarray(target.link.max_norm)[:, who]
    looks = (limit >= 0) & (limit < target.message.bound)
    if not np.any(looks):
        return None
    return float(np.median(limit[looks]))


def _gate_score(target: Target, who: Array, limit: float) -> tuple[Callable[[Array], Array], float]:
    """The score of a record that may switch its client off, and the size of the others that brings it there."""
    assert target.records is not None
    held, clip = np.asarray(target.seed.sizes)[who], target.records.clip_norm
    size = min(limit, clip)
    rest, one = size * (held - 1) / held, clip / held
    arrived = [np.where(np.abs(rest + turn * one) <= np.asarray(target.link.max_norm)[:, who], rest + turn * one, 0)
               for turn in (1, -1)]  # fmt: skip
    gain, noise = target.link.weight[:, None, who], (target.link.noise_std**2)[:, None, None]
    return lambda seen: scores.gaussian_score(seen, gain, noise, *arrived), size


def _crowd_score(target: Target, there: _Facts, gone: _Facts) -> Callable[[Array], Array]:
    variance = target.link.noise_std**2
    assert target.records is not None
    if not target.records.poisson:  # another record takes the free place: all opposed, or one of them turned
        batch = np.round(there.held * there.rate)
        return lambda seen: scores.sampled_score(
            seen[:, :, 0] + batch * there.size, 2 * there.size, variance, there.rate
        )

    def score(seen: Array) -> Array:
        each = [
            scores.crowd_score(
                seen[:, :, 0, j], (gone.size[:, j], there.size[:, j]), variance,
                (float(gone.rate[j]), float(there.rate[j])), int(there.held[j]) - 1,
            )
            for j in range(len(there.rate))
        ]  # fmt: skip
        return np.stack(each, axis=1)

    return score


# --- the attack --------------------------------------------------------------------------------------------------


def trials_of(target: Target, seed: int) -> list[Trial]:
    return message_trials(target, seed) if target.records is None else record_trials(target)


def tests_in(target: Target, trials: list[Trial]) -> int:
    """How many bounds one scheme's audit compares with its charge."""
    return sum(audit.statistics(bool(normal)) for trial in trials for normal in trial.normal)


def attack(target: Target, runs: int, error: float, seed: int = 0, tick: Tick = lambda count: None) -> list[Canary]:
    """Play every pair of worlds `runs` times each; `error` is shared by all tests of this scheme."""
    trials = trials_of(target, seed)
    beta = error / tests_in(target, trials)
    charges = _charges(target)
    found = []
    for number, trial in enumerate(trials):
        keys = np.random.default_rng([seed, number]).integers(2**31, size=2)
        absent, present = (
            np.concatenate(list(_scores(trial, world, runs, int(key), tick)))
            for world, key in zip((trial.absent, trial.present), keys)
        )
        who = chosen(target, trial.stage.basis.shape[1])
        for j, client in enumerate(who):
            finding = audit.examine(absent[:, j], present[:, j], charges(client), beta, bool(trial.normal[j]))
            found.append(Canary(int(client), trial.pattern, absent[:, j], present[:, j], finding))
    return found


def _scores(trial: Trial, world: worlds.World, runs: int, key: int, tick: Tick) -> Iterator[Array]:
    for seen in worlds.play(trial.stage, world, runs, key):
        tick(len(seen))
        yield trial.score(seen)


def _charges(target: Target) -> Callable[[int], audit.Charge]:
    """The charge of a client; clients with equal rounds share one."""
    accounting = target.accounting if target.accounting in participation.CERTIFIED else "none"
    rows, where, _ = distinct_rows(target.events, accounting, None, ())
    made: dict[int, audit.Charge] = {}

    def charge(client: int) -> audit.Charge:
        row = int(where[client])
        if row not in made:
            made[row] = audit.row_charge(rows[row], target.message.adjacency, float(target.eps[client]), target.delta)
        return made[row]._replace(eps=float(target.eps[client]))

    return charge
