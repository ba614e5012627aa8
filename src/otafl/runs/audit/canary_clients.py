"""Canary clients: a message at its bound against its opposite, or against nothing."""

import functools

import numpy as np

from otafl.core.arrays import Array
from otafl.core.uplink import FLOAT32_SLACK
from otafl.privacy import scores
from otafl.runs.audit import canaries as worlds
from otafl.runs.audit.target import Target, Trial, adds_noise, chosen, heard, patterns, totals, width_of


def message_trials(target: Target, seed: int) -> list[Trial]:
    """A client at its bound against its opposite or against nothing, always and in balanced turns; the latter within
    one or two leaves of the message each."""
    who = chosen(*totals(target), width_of(target))
    (gain, noise), opposite = heard(target), opposite_of(target)
    sent, arrived = sizes_of(target)
    trials = []
    for name, sign in patterns(arrived > 0).items():
        stage = worlds.message_stage(
            target.template, target.clients.clip_norm, target.uplink, target.link, who, seed, by_leaf=name == "balanced"
        )._replace(parts=gain.shape[1])
        world = functools.partial(worlds.message_world, target.template, stage, target.seed, who)
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
                np.full(len(who), adds_noise(target)),
            )
        )
    return trials


def opposite_of(target: Target) -> float:
    """What a canary sends in the other world, over what it sends in this one: the opposite, or nothing."""
    return -1.0 if target.message.unit == "record" or target.message.adjacency == "replace" else 0.0


def sizes_of(target: Target) -> tuple[Array, Array]:
    """(T, K) what canaries put in and what is left of it: as loud as clipping and a gate that looks allow."""
    bound, limit = target.message.bound, np.asarray(target.link.max_norm)
    gated = (limit >= 0) & (limit < bound)
    sent = np.where(gated, np.maximum(limit, 0) * (1 - 1e-5), worlds.LOUD * bound)
    arrived = np.where(limit < 0, 0.0, np.where(gated, sent, bound * (1 - FLOAT32_SLACK)))
    return sent, arrived
