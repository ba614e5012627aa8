"""From radios and messages to AdaScale's variables, and back. Host, float64.

The decision is made in noise energies, which are near one, and never in x = eta / h_min^2 (values of 5e5 against
channel powers of 1e-12). With weights w_m (1/M in the paper), energy limits E_m (= P_max d) and E norm(x_m)^2 <= s_m
(= k_m^2 G^2) the largest scaling that keeps every device within its limit is min_m abs(h_m)^2 E_m / (w_m^2 s_m), and

    N = d sigma_n^2 / eta,     f = N at full power,     c_m = N at which device m's noise multiplier is one.
"""

from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message
from otafl.systems.adascale.leakage import Leakage


def noise_per_scale(deployment: Deployment) -> float:
    """d sigma_n^2 = N eta: the complex noise energy of a whole vector, twice the real one."""
    return 2.0 * deployment.dim * deployment.noise_var


def _device_floors(power_gain: Floats, deployment: Deployment, message: Message) -> Array:
    """The floor each device alone would impose at the given abs(h)^2: (..., K) -> (..., K)."""
    demand = np.asarray(deployment.weights, float) ** 2 * message.mean_square / np.asarray(deployment.energy, float)
    return noise_per_scale(deployment) * demand / power_gain


def noise_floor(gain: Any, deployment: Deployment, message: Message) -> Array:
    """f = d sigma_n^2 / eta_max, set by the weakest device: complex gains (..., K) -> (...).  # AdaScale (14)"""
    validate.double("gain", gain)
    devices = len(np.atleast_1d(deployment.weights))
    if np.ndim(gain) < 1 or np.shape(gain)[-1] != devices:
        raise InputError(f"gain has shape {np.shape(gain)} but its last axis must be the {devices} devices")
    power = np.abs(np.asarray(gain)) ** 2
    if np.any(bad := ~(np.isfinite(power) & (power > 0))):
        raise InputError(
            f"gain{list(validate.first_place(bad))} is zero or not finite: no finite receive scaling reaches this "
            "device; leave it out of the round, which changes the number of devices and with it the sensitivity"
        )
    return _device_floors(power, deployment, message).max(-1)


def typical_floor(rms: Any, deployment: Deployment, message: Message) -> Array:
    """f at the mean of the weakest Rayleigh channel, which is exponential: rms gains (..., K) -> (...)."""
    return _device_floors(np.asarray(rms, float) ** 2, deployment, message).sum(-1)


def optimistic_floor(rms: Any, deployment: Deployment, message: Message) -> Array:
    """f at the weakest of the mean channels: rms gains (..., K) -> (...)."""
    return _device_floors(np.asarray(rms, float) ** 2, deployment, message).max(-1)


def receive_scaling(noise: Any, deployment: Deployment) -> Floats:
    """eta = d sigma_n^2 / N."""
    return noise_per_scale(deployment) / np.asarray(noise, float)


def unit_noise(deployment: Deployment, message: Message) -> Array:
    """c_m = 2 d w_m^2 sensitivity_m^2, and more where only a part of the noise is trusted: (K,).  # AdaScale (15)

    Sensitivity: one record of one device, under the message's own adjacency. Whose noise: the receiver's,
    as far as `trusted_noise_var` goes.
    """
    validate.positive("trusted_noise_var", deployment.trusted_noise_var)
    distrust = deployment.noise_var / deployment.trusted_noise_var
    reach = np.asarray(deployment.weights, float) * np.asarray(message.sensitivity, float)
    return 2.0 * deployment.dim * reach**2 * distrust


def noise_multiplier(noise: Any, deployment: Deployment, message: Message) -> Array:
    """sigma_m = sqrt(N / c_m): (...) -> (..., K).  # AdaScale (15), (25)"""
    return np.sqrt(np.asarray(noise, float)[..., None] / unit_noise(deployment, message))


def leakage_of(deployment: Deployment, message: Message, alpha: int = 3) -> Leakage:
    """R(N) of these devices."""
    return Leakage(unit_noise(deployment, message), message.rate, alpha)
