"""One run as its own audit: all canaries at once, each in its world by a coin of its own."""

import numpy as np

from otafl.core.errors import InputError
from otafl.privacy import scores
from otafl.privacy.one_run import OneRun, one_run
from otafl.runs.audit import canaries as worlds
from otafl.runs.audit.canary_clients import opposite_of, sizes_of
from otafl.runs.audit.target import Target, adds_noise, chosen, heard, totals, width_of

QUIET = 64  # directions along which nobody sends, at most: they tell the noise


def single_run(target: Target, beta: float, seed: int = 0) -> OneRun:
    """Lower bound, at error `beta`, on the mean mu of the canaries of one run of the compiled rounds."""
    if target.records is not None or target.gain is not None:
        raise InputError("one run audits the real part of whole messages; records and both parts need worlds of runs")
    if not adds_noise(target):
        raise InputError("one run audits sums under Gaussian noise; what votes and rings decode to is no such sum")
    width = width_of(target)
    who = chosen(*totals(target), width)
    count = min(len(who) + 1 + QUIET, width)
    if count < len(who) + 2:
        raise InputError(f"one run needs coordinates without a canary: {width} numbers, {len(who)} canaries")
    stage = worlds.message_stage(target.template, target.clients.clip_norm, target.uplink, target.link, who, seed)
    # The last direction is that of clients that are no canaries.
    stage = stage._replace(basis=worlds.orthonormal(count, width, seed), number=count - 1)
    sent, arrived = sizes_of(target)
    (gain, noise), opposite = heard(target), opposite_of(target)
    signs = np.random.default_rng([seed, 1]).choice([-1.0, 1.0], len(who))
    amplitude = sent.copy()
    amplitude[:, who] *= np.where(signs > 0, 1.0, opposite)
    world = worlds.message_world(target.template, stage, target.seed, who, amplitude)
    [seen] = worlds.play(stage, world, 1, seed)
    present, absent = arrived[:, who], opposite * arrived[:, who]
    found = scores.gaussian_score(seen[..., : len(who)], gain[..., who], noise, present, absent)
    others = seen[0, :, 0, len(who) :] / target.link.noise_std[:, None]
    return one_run(found[0], signs, others.ravel(), beta)
