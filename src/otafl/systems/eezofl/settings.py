"""What EEZOFL chooses for a site and a privacy target: the noise clients add before they encrypt, and a ring that fits.

The received sum counts every device alike, and the clients' own noise adds up, so K devices share the burden:
dp_noise = sensitivity z / sqrt(K) with z the multiplier that the budget asks of every round.
"""

import math
from typing import Any

import numpy as np

from otafl.channels import Channel, draw
from otafl.core.errors import OtaflError
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget, calibrate
from otafl.systems.eezofl.policy import Config, job_of
from otafl.systems.simulated import OTHER_SEED, Options, Refusal

TAIL = 8.0  # standard deviations of the devices' noise that the ring must hold
RINGS = (4096, 8192)


def settings(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Over the air where gains are real, else over digital links: a complex channel has no integer grid."""
    count = len(deployment.weights)
    if not np.isfinite(message.bound):
        return Refusal("its scalars need a norm bound to fit the ring")
    if np.ptp(message.sensitivity) > 0 or np.min(message.rate) < 1:
        return Refusal("it weighs all devices alike: sampled records of unlike devices are not covered")
    z = calibrate(budget, rounds, message, np.full(count, 1 / count))
    noise = float(message.sensitivity[0]) * z / math.sqrt(count)
    radio = over_the_air(channel, count, seed)
    least_gain = float(np.min(np.abs(radio.get("mu", 1.0))))
    largest = count * message.bound / least_gain + TAIL * math.sqrt(count) * noise
    common = {**radio, "dp_noise": noise * (1 + 1e-9), "Mmax": 2.0 ** math.ceil(math.log2(max(largest, 1.0)))}
    why = ""
    for ring in RINGS:
        options: Options = {**common, "n": ring}
        try:
            job = job_of(Config(**options), count, message, 0)
            _check(job)
        except OtaflError as refusal:
            why = str(refusal)
            continue
        return options
    return Refusal(f"no ring holds the sum: {why}")


def over_the_air(channel: Channel, count: int, seed: int) -> Options:
    """mode and, for real fading, the mean and spread that devices divide by."""
    if channel.fading.kind != "real_gaussian":
        return {"mode": "digital"}
    rms = np.asarray(draw(channel, count, 1, OTHER_SEED + seed % OTHER_SEED).rms_estimate[0], float)
    scale = rms / np.sqrt(np.asarray(channel.fading.second_moment, float))
    mu, sigma = (scale * np.asarray(given, float) for given in (channel.fading.mean, channel.fading.std))
    alike = np.ptp(mu) == 0 and np.ptp(sigma) == 0
    as_option = (lambda x: float(x[0])) if alike else (lambda x: tuple(float(value) for value in x))
    return {"mode": "analytic", "mu": as_option(mu), "sigma": as_option(sigma)}


def _check(job: Any) -> None:
    """Refuses a ring in which honest rounds would wrap; no key is drawn for that."""
    from otafl.crypto.budget import check_headroom

    check_headroom(job.parameters, job.fading, job.budget_mode)
