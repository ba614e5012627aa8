"""Blind maximum-ratio combining: devices send without channel knowledge, the server combines along sum_k h_k.

With f = sum_k h_k the weights are w_k = Re(tx_k f^H h_k) / rx_scale. For independent Rayleigh antennas of mean power
s_k their mean is tx_k M s_k / rx_scale and their spread falls with M (`channels.antennas.blind_moments`, A5). Equal
powers at the devices weigh them by s_k: a bias, which is reported; `correct` takes tx_k in proportion to
weight_k / s_k, which needs the mean power alone.

Receiver noise is the only privacy noise. Every round is charged |tx|^2 |h_k|^2 sensitivity^2 / v0, which grows with M.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from otafl.channels.antennas import receive
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import ArrayTrace, Context, Deployment, Link, Message, Obs, Plan, Policy, Trace, always, stateless
from otafl.core.uplink import ANALOG, Uplink
from otafl.privacy.array_uplink import array_uplink


@dataclass(frozen=True)
class Config:
    """`correct`: devices know their mean power and undo it, so that the weights are unbiased."""

    correct: bool = False
    power: float = 1.0  # share of the energy that the tightest device spends on a message at its bound


class Info(NamedTuple):
    """Per round."""

    bias: Array  # distance of the mean weights from the wanted ones, half the sum of absolute differences


def site(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    """The same gains through the beam along their sum, whatever beam the others use."""
    whole: Any = trace if isinstance(trace, ArrayTrace) else ArrayTrace(*trace, trace.array, trace.array_estimate)
    return receive(whole, deployment._replace(receiver=deployment.receiver._replace(beam="sum")))


def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
    """`rx_scale` belongs to f = sum_k h_k, the beam is f/|f|: |f| is what a pilot of all devices sounds like in it."""
    size = np.sum(np.real(gain), axis=-1)
    with np.errstate(divide="ignore"):
        scale = np.where(size > 0, plan.rx_scale / np.where(size > 0, size, 1.0), np.inf)
    return ANALOG.lower(plan._replace(rx_scale=scale), gain, deployment)


def uplink_to(deployment: Deployment) -> Uplink:
    return array_uplink(deployment.receiver._replace(beam="sum"))._replace(site=site, lower=lower)


def blind(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """The server knows the mean power of every device; devices know nothing, or their own mean power (`correct`)."""
    if not 0 < config.power <= 1:
        raise InputError(f"power={config.power!r} must lie in (0, 1]")
    weights, antennas = np.asarray(deployment.weights, float), deployment.receiver.antennas
    largest = np.sqrt(config.power * np.asarray(deployment.energy, float) / np.asarray(message.mean_square, float))

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        mean_power = _mean_power(deployment)
        if config.correct:
            shape = weights / mean_power
            tx = shape * float(np.min(largest[weights > 0] / shape[weights > 0]))
        else:
            tx = np.full(weights.shape, float(np.min(largest)))
        heard = tx * antennas * mean_power  # (A5), times rx_scale
        rx_scale = float(heard.sum())
        rounds = obs.coin.shape[:-1]
        sent = np.broadcast_to(tx + 0j, obs.coin.shape)
        full = np.full(rounds, rx_scale)
        plan = Plan(sent, np.zeros_like(sent), always(sent), full, np.ones(sent.shape), np.ones(rounds, bool))
        return state, plan, Info(np.full(rounds, np.abs(heard / rx_scale - weights).sum() / 2))

    csi: Any = "statistical" if config.correct else "none"
    return Policy("blind", stateless, step, loop="open", csi=csi, gate="open", uplink=uplink_to(deployment))


def _mean_power(deployment: Deployment) -> Array:
    """(K,) E|h|^2 of one antenna, which the server measures in advance."""
    known = deployment.receiver.antenna_rms
    if known is None or not np.all(np.isfinite(known)):
        raise InputError("blind: the mean power of an antenna is not one number per device; leave out channel.drift")
    return np.asarray(known, float) ** 2
