"""Power between message and artificial noise: Seif, Tandon and Li's split, and noise that somebody else sends. Host.

All clients are aligned, tx_k = c p_k / h_k, and every round is to have the noise multiplier z. With m = max_k p_k
Delta_k the noise that must arrive at amplitude c has variance (m z c)^2; the trusted receiver noise v_tr is there
already. What a client has left of its energy after its message may become noise: r_k = (abs(h_k)^2 E_k - c^2 p_k^2
G^2) / D of variance.

    c^2 = min( cap,  (v_tr + sum_k abs(h_k)^2 E_k / D) / ((m z)^2 + G^2 sum_k p_k^2 / D) )
    A   = (m z)^2 c^2 - v_tr,      shared in proportion to r_k

Where the receiver's noise is trusted whole this equals sending less: the update's noise is (m z)^2 per coordinate
either way. A split pays only where v_tr < v0, against colluders, or where the server has more antennas.

Energies are of whole vectors (J), noise per real dimension; gains end in the client axis (..., K).
"""

from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.systems.rivals.allocation import caps


class Split(NamedTuple):
    """Of each round: squared amplitude, and what noise of each client arrives."""

    square: Floats  # (...) c^2
    artificial: Floats  # (...) A, received variance
    shares: Floats  # (..., K) of A that each client sends


def power_split(
    gain: Array, *, energy: Array, weights: Array, bound: Array, dim: int, trusted_noise_var: float, sensitivity: Array,
    multiplier: float,
) -> Split:  # fmt: skip
    """Seif, Tandon and Li: amplitude and noise that reach the noise multiplier z in every round.

    energy, weights, sensitivity (K,); bound G, a number or (K,); the artificial noise is 0 where the receiver's does.

    >>> found = power_split(np.ones(2), energy=np.full(2, 4.0), weights=np.full(2, 0.5), bound=1.0, dim=4,
    ...                     trusted_noise_var=0.0, sensitivity=np.full(2, 2.0), multiplier=1.0)
    >>> round(float(found.square), 6), round(float(found.artificial), 6), found.shares.round(6).tolist()
    (1.777778, 1.777778, [0.888889, 0.888889])
    """
    received = np.abs(gain) ** 2 * np.asarray(energy, np.float64)  # (..., K)
    needed = noise_per_square(weights, sensitivity, multiplier)
    own = (np.asarray(weights, np.float64) * bound) ** 2
    most = (trusted_noise_var + received.sum(-1) / dim) / (needed + own.sum() / dim)
    square = np.minimum(caps(gain, energy, weights, bound), most)
    left = np.maximum(received - square[..., None] * own, 0.0)
    whole = left.sum(-1, keepdims=True)
    # Beside a loud receiver that difference is all rounding: never more than there is energy for.
    artificial = np.clip(needed * square - trusted_noise_var, 0.0, whole[..., 0] / dim)
    shares = np.where(whole > 0, artificial[..., None] * left / np.where(whole > 0, whole, 1.0), 0.0)
    return Split(square, artificial, shares)


def jammed(
    gain: Array, *, energy: Array, weights: Array, bound: Array, dim: int, trusted_noise_var: float, sensitivity: Array,
    multiplier: float, noise_energy: Array,
) -> Split:  # fmt: skip
    """The amplitude that reaches z under noise that jammers send whatever happens, `noise_energy` (K,) J.

    A jammer has weight 0. z is passed where the senders' energy binds.

    >>> found = jammed(np.ones(3), energy=np.ones(3), weights=np.array([0.5, 0.5, 0]), bound=0.1, dim=4, multiplier=2.0,
    ...                trusted_noise_var=0.01, sensitivity=np.full(3, 0.2), noise_energy=np.array([0, 0, 1.0]))
    >>> round(float(found.square), 6), float(found.artificial)
    (6.5, 0.25)
    """
    weights, noise_energy = np.asarray(weights, np.float64), np.asarray(noise_energy, np.float64)
    for k in np.flatnonzero((weights > 0) & (noise_energy > 0)):
        raise InputError(f"client {k} has weight {weights[k]:g} and jams; a jammer has no data and weight 0")
    shares = np.abs(gain) ** 2 * noise_energy / dim
    artificial = shares.sum(-1)
    most = (trusted_noise_var + artificial) / noise_per_square(weights, sensitivity, multiplier)
    return Split(np.minimum(caps(gain, energy, weights, bound), most), artificial, shares)


def jammer_charge(
    amplitude: Array, sensitivity: Array, receiver_var: Array, jam_var: Array, angle: Array = 0.0
) -> Floats:
    """1/z^2 of a message beside a jammer's noise of received variance `jam_var`, its phase off by `angle` rad; (C3).

    One antenna. A server that keeps both parts sees sin(angle) of the message under receiver noise alone. Two antennas
    null one jammer: nothing of it counts there.

    >>> round(float(jammer_charge(1.2, 1.0, 1.0, 63.4, 0.4)), 4)
    0.2373
    """
    angle = np.minimum(np.abs(np.asarray(angle, np.float64)), np.pi / 2)
    signal = (np.asarray(amplitude, np.float64) * sensitivity) ** 2
    with np.errstate(divide="ignore"):
        aside = np.where(angle > 0, np.sin(angle) ** 2 / np.asarray(receiver_var, np.float64), 0.0)
    return np.asarray(signal * (np.cos(angle) ** 2 / (np.asarray(receiver_var) + jam_var) + aside))


def noise_per_square(weights: Array, sensitivity: Array, multiplier: float) -> float:
    """(m z)^2: noise variance that z needs per squared amplitude."""
    validate.positive("multiplier", multiplier)
    return float((np.max(np.asarray(weights, np.float64) * np.asarray(sensitivity)) * multiplier) ** 2)
