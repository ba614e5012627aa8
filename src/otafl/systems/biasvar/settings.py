"""What bias-variance power control chooses for a site and a privacy target: rho, and how far levels are backed off.

The largest level is what is charged, so under privacy a large rho (no bias) is best. Backing off energy instead would
keep the devices' thresholds at their peak, where 39 % are silent.
"""

import math

import numpy as np
from scipy.optimize import brentq

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.biasvar.policy import Config, backed_off, bound_params, pre_scalers
from otafl.systems.simulated import Bench, Options, Refusal, bench, best, without_trusted_noise

RHOS = (1e4, 1e6, 1e2, 1.0)  # a tie goes to the first: little bias


def headroom_for(rho: float, at: Bench) -> float:
    """Share of the designed levels at which the largest pre-scaler spends the budget in all rounds; 1 if none does."""
    par = bound_params(Config(rho=rho), at.deployment, at.message)
    gamma = pre_scalers("exact", at.rms[None], at.deployment, par)
    sensitivity = float(np.max(at.message.sensitivity)) * (1 + float(at.deployment.gain_error))
    target = math.sqrt(at.deployment.trusted_noise_var) / (sensitivity * at.multiplier)

    def excess(log_share: float) -> float:
        lowered = backed_off(gamma, at.rms, at.deployment, at.message, math.exp(log_share))
        return math.log(float(np.max(lowered)) / target)

    return 1.0 if excess(0.0) <= 0 else math.exp(float(brentq(excess, math.log(1e-12), 0.0, xtol=1e-12)))


def settings(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """rho and headroom with the largest S on simulated channels."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    if not np.isfinite(message.bound):
        return Refusal("it truncates by a declared norm bound, which Poisson batches do not have")
    at = bench(deployment, message, budget, rounds, channel, seed)
    # Rounding must not cost the last round of a budget that is spent exactly.
    return best("biasvar", [{"rho": rho, "headroom": headroom_for(rho, at) * (1 - 1e-9)} for rho in RHOS], at)
