"""Canary records: one record of a client present against nulled, replaced or gone, always or in balanced turns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.uplink import FLOAT32_SLACK
from otafl.privacy import scores
from otafl.runs.audit import canaries as worlds
from otafl.runs.audit.target import Target, Trial, adds_noise, chosen, filtered, heard, loudness, patterns, totals


def record_trials(target: Target) -> list[Trial]:
    """A record of each client present against nulled, replaced or gone; gone also among others that oppose it."""
    assert target.records is not None
    width = int(target.template.shape[0])
    who = chosen(*totals(target), width)
    basis, steady = np.eye(width, dtype=np.float32), np.ones((len(target.link.live), width), np.float32)
    parts = heard(target)[0].shape[1]
    stage = worlds.Stage(target.clients, target.uplink, target.link, steady, basis, len(who), parts)
    loud = worlds.LOUD * target.records.clip_norm
    there, gone = _facts(target, who, 0), _facts(target, who, 1 if target.message.adjacency == "add-remove" else 0)
    normal = (there.rate == 1) & adds_noise(target)

    def make(own: float, others: float, away: bool) -> worlds.World:
        return worlds.record_world(target.seed, who, width, own, others, away)

    def in_turns(name: str, absent: worlds.World, present: worlds.World, ratio: Any) -> list[Trial]:
        found = []
        for pattern, sign in patterns(there.size != 0).items():
            turned = steady.copy()
            turned[:, : len(who)] = sign
            score = _record_score(target, who, there._replace(size=there.size * sign), ratio)
            said = f"record, {name}" + ("" if pattern == "constant" else f", {pattern}")
            found.append(Trial(said, stage._replace(params=turned), absent, present, score, normal))
        return found

    if target.message.adjacency == "replace":
        found = in_turns("replaced", make(-loud, 0, False), make(loud, 0, False), scores.replaced_score)
        if np.all(there.rate == 1) and (other := _gate(target, who)) is not None:
            score, size = _gate_score(target, who, other)
            worst = make(-loud, size, False), make(loud, size, False)
            found.append(Trial("record, at the gate", stage, *worst, score, normal))
        return found
    if target.message.adjacency == "zero-out":
        return in_turns("nulled", make(0, 0, False), make(loud, 0, False), scores.sampled_score)
    crowd, never = _crowd_score(target, who, there, gone), np.zeros(len(who), bool)
    return [
        *in_turns("removed", make(0, 0, True), make(loud, 0, False), scores.sampled_score),
        Trial("record, removed from a crowd", stage, make(0, -loud, True), make(loud, -loud, False), crowd, never),
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
    return _Facts((loudness(target)[0] * share)[:, who] * (1 - FLOAT32_SLACK), rate[who], sizes[who])


def _record_score(target: Target, who: Array, facts: _Facts, ratio: Any) -> Callable[[Array], Array]:
    variance = loudness(target)[1]

    def score(seen: Array) -> Array:
        return np.asarray(ratio(filtered(target, seen, who), facts.size, variance, facts.rate))

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
    gain, noise = heard(target)
    return lambda seen: scores.gaussian_score(seen, gain[..., who], noise, *arrived), size


def _crowd_score(target: Target, who: Array, there: _Facts, gone: _Facts) -> Callable[[Array], Array]:
    variance = loudness(target)[1]
    assert target.records is not None
    if not target.records.poisson:  # another record takes the free place: all opposed, or one of them turned
        batch = np.round(there.held * there.rate)
        return lambda seen: scores.sampled_score(
            filtered(target, seen, who) + batch * there.size, 2 * there.size, variance, there.rate
        )

    def score(seen: Array) -> Array:
        told = filtered(target, seen, who)
        each = [
            scores.crowd_score(
                told[:, :, j], (gone.size[:, j], there.size[:, j]), variance,
                (float(gone.rate[j]), float(there.rate[j])), int(there.held[j]) - 1,
            )
            for j in range(len(there.rate))
        ]  # fmt: skip
        return np.stack(each, axis=1)

    return score
