"""What CDPB chooses for a site and a privacy target: how loud clients arrive, and how much noise they add themselves.

With m_k the mean received energy at full power, u_k = r C^2 / m_k and Rayleigh fading, a round's noise that counts is

    v = tv + sum_k m_k [left_over e^-u_k + portion (1 - (1 + u_k) e^-u_k)] / D

and the budget over T rounds allows r = 2 B v / (T sensitivity^2): a fixed point, refined on simulated channels. Too
much of the devices' own noise drowns the far ones, too little leaves distrusted receiver noise to be paid for.
"""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.simulated import Bench, Options, Refusal, bench, best, cost

LEFT_OVER = (1.0, 0.1, 0.01, 1e-3, 1e-4)  # without noise of the devices' own it would be `constant`
WAYS = {"idle": 0.0, "noisy": 1.0}  # strategy -> portion of silent clients' energy sent as noise
REFINED = 2  # settings that are refined on simulated channels
CORRECTIONS = 8
EQUAL = 1e-12  # weights that differ by less are equal
ENOUGH = 1e-4  # relative, of the budget spent


class Point(NamedTuple):
    """A setting by closed form."""

    snr: float
    load: float
    options: Options


def fixed_point(left_over: float, portion: float, at: Bench) -> tuple[float, float] | None:
    """(S, load) in expectation; None where no noise counts at all."""
    bound, sensitivity = at.message.bound, float(np.max(at.message.sensitivity))
    power, site = at.received, at.deployment
    per_noise = 1 / (sensitivity * (1 + float(site.gain_error)) * at.multiplier) ** 2  # r / v

    def noise(r: float) -> float:
        u = r * bound**2 / power
        reliable = np.exp(-u)
        own = power * (left_over * reliable + portion * (1 - (1 + u) * reliable)) / site.dim
        return float(site.trusted_noise_var + own.sum())

    def excess(log_r: float) -> float:
        return math.log(per_noise * noise(math.exp(log_r))) - log_r

    top = per_noise * (site.trusted_noise_var + power.sum() * max(left_over, portion) / site.dim)
    if top <= 0 or excess(math.log(top) - 60) <= 0:
        return None
    r = math.exp(float(brentq(excess, math.log(top) - 60, math.log(top) + 1e-9)))
    heard = float(np.exp(-r * bound**2 / power).sum())
    std = math.sqrt(noise(r) + site.noise_var - site.trusted_noise_var)
    return bound * math.sqrt(at.rounds * r) * heard / std, r * bound**2 / float(np.mean(power))


def refined(point: Point, at: Bench) -> Options:
    """The load at which the simulated channels spend the budget: closed forms know the mean, not the course.

    A round costs about as much as its load, so a few proportional corrections suffice; the last one stays below.
    """
    load = point.load
    for _ in range(CORRECTIONS):
        share = at.rho / cost("cdpb", {**point.options, "load": load}, at)
        load *= share
        if 1 <= share < 1 + ENOUGH:
            break
    return {**point.options, "load": load * (1 - ENOUGH)}


def settings(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Strategy, left_over and load with the largest S; closed forms choose whom to refine on simulated channels."""
    if not np.isfinite(message.bound):
        return Refusal("it balances power by a declared norm bound, which Poisson batches do not have")
    at = bench(deployment, message, budget, rounds, channel, seed)
    uneven: Options = {"debias": True} if np.ptp(deployment.weights) > EQUAL else {}  # its own mean is the plain one
    points = []
    for left_over, (strategy, portion) in product(LEFT_OVER, WAYS.items()):
        found = fixed_point(left_over, portion, at)
        if found is not None:
            points.append(Point(*found, {"strategy": strategy, "left_over": left_over, **uneven}))
    points.sort(key=lambda point: -point.snr)
    return best("cdpb", [refined(point, at) for point in points[:REFINED]], at)
