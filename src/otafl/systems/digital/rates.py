"""What digital messages cost on orthogonal channels: rates, channel uses, time. Host, float64.

A device sends at the power that the analog uplink would use, its energy E of a vector over D channel uses, at capacity:

    SNR_k = abs(h_k)^2 E_k / (D 2 v0)          complex noise power 2 v0, v0 per real dimension
    uses  = sum_k D bits / log2(1 + SNR_k)     one after another
    seconds = uses / bandwidth

An analog uplink needs D uses for all clients together (half of it where two numbers share a complex symbol), majority
votes ceil(D/2), non-coherent ones 2 D, analog slots K D.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.plan import Plan


class Rates(NamedTuple):
    """Of every device, and of the round."""

    snr: Floats  # (..., K) linear
    rate: Floats  # (..., K) bits per channel use
    each: Floats  # (..., K) channel uses
    uses: Floats  # (...) all devices


def energy_at(bound: float) -> Callable[[Plan, Array, Array, int], Array]:
    """`Uplink.energy` of messages that cost the same whatever they say: votes, so many bits. Noise that a device adds
    before it sends costs nothing."""

    def energy(plan: Plan, norms: Array, sent: Array, dim: int) -> Array:
        return np.asarray(np.where(sent, np.abs(plan.tx) ** 2 * bound**2, 0.0))

    return energy


def snr(gain: Array, energy: Array, dim: int, noise_var: float) -> Floats:
    """(..., K) received SNR of a channel use."""
    validate.positive("noise_var", noise_var)
    return np.asarray(np.abs(gain) ** 2 * np.asarray(energy, np.float64) / (dim * 2 * noise_var))


def channel_uses(snr: Array, dim: int, bits: int) -> Rates:
    """Uses of one round of D numbers with so many bits each, sent one device after another at capacity.

    >>> found = channel_uses(np.array([10.0, 5.0, 20.0, 8.0]), 9610, 8)
    >>> round(float(found.uses))
    93721
    """
    validate.whole("bits", bits)
    ratio = np.asarray(snr, np.float64)
    validate.not_negative("snr", ratio)
    rate = np.log1p(ratio) / np.log(2)
    with np.errstate(divide="ignore"):
        each = dim * bits / rate
    return Rates(ratio, rate, each, each.sum(-1))


def seconds(uses: Array, bandwidth_hz: float) -> Floats:
    """One channel use takes 1/bandwidth."""
    validate.positive("bandwidth_hz", bandwidth_hz)
    return np.asarray(np.asarray(uses, np.float64) / bandwidth_hz)


def uses_of(kind: str, dim: int, clients: int) -> int:
    """Channel uses of a round of the other uplinks.

    >>> [uses_of(kind, 9610, 4) for kind in ("analog", "packed", "votes", "non-coherent", "slots")]
    [9610, 4805, 4805, 19220, 38440]
    """
    half = -(-dim // 2)
    known = {"analog": dim, "packed": half, "votes": half, "non-coherent": 2 * dim, "slots": clients * dim}
    validate.one_of("kind", kind, known)
    return known[kind]
