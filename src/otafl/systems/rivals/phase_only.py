"""Phases are aligned, magnitudes are left to the fading: no power control (GBMA, AGMA).

    tx_k = kappa (p_k / E abs(h_k)) e^(-j arg h_k),    E abs(h_k) = rms_k sqrt(pi) / 2 under Rayleigh fading
    kappa = min_k sqrt(E_k) E abs(h_k) / (p_k G) = rx_scale

The weight of client k is p_k on average and varies by p_k^2 (4/pi - 1). Charged is the realised amplitude: strong
rounds cost most.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless


@dataclass(frozen=True)
class Config:
    """`headroom` < 1 leaves part of the energy unused; privacy costs fall in proportion."""

    headroom: float = 1.0


class Info(NamedTuple):
    """Per round."""

    heard: Array  # sum of amplitudes over the receive scale; 1 on average


def mean_gain(rms: Array) -> Floats:
    """E abs(h) of Rayleigh fading."""
    return np.asarray(np.asarray(rms, np.float64) * np.sqrt(np.pi) / 2)


def receive_scale(rms: Array, energy: Array, weights: Array, bound: Array) -> Floats:
    """kappa (...) for rms gains (..., K): every device keeps its limit whatever its message.

    >>> round(float(receive_scale(np.ones(2), np.array([1.0, 4.0]), np.full(2, 0.5), 1.0)), 6)
    1.772454
    """
    weights = np.asarray(weights, np.float64)
    with np.errstate(divide="ignore"):
        each = np.sqrt(np.asarray(energy, np.float64)) * mean_gain(rms) / (weights * bound)
    return np.asarray(np.min(np.where(weights > 0, each, np.inf), axis=-1))


def weight_variance(weights: Array) -> Floats:
    """Variance of a client's weight in the update over Rayleigh fading, p_k^2 (4/pi - 1)."""
    return np.asarray(np.asarray(weights, np.float64) ** 2 * (4 / np.pi - 1))


def phase_only(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise. Devices know their phase and their mean gain."""
    validate.in_left_open("headroom", config.headroom, 0, 1)
    weights, size = np.asarray(deployment.weights, float), np.sqrt(np.asarray(message.mean_square, float))
    energy = config.headroom * np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        scale = receive_scale(obs.rms, energy, weights, size)
        tx = scale[..., None] * weights / mean_gain(obs.rms) * np.exp(-1j * np.angle(obs.estimate))
        plan = Plan(tx, np.zeros_like(tx), always(tx), scale, np.ones(tx.shape), np.ones(scale.shape, bool))
        return state, plan, Info(np.sum(np.abs(obs.estimate * tx), axis=-1) / scale)

    return Policy("phase-only", stateless, step, loop="open", csi="own", gate="open")
