"""Energies of two bins without any channel knowledge: what arrives, what is decided, what it costs. Host, float64.

Every coordinate has two bins, + and -. Devices send with random phases; nobody knows a channel. Where every coordinate
fades by itself (Rayleigh), the energies are independent and exponential,

    e+- ~ Exp(mean m+-),   m+- = 2 v0 + sum_{k on +-} E_k rms_k^2                                            (G1)

FSK-MV (Sahin) decides for the louder bin: + with probability m+ / (m+ + m-). REED sends x_k = x_k+ - x_k- as energies
gamma p_k x_k+- / rms_k^2 and takes (e+ - e-) / gamma: with S+- = sum_k p_k x_k+- and n independent looks,

    mean S+ - S- = sum_k p_k x_k,     variance ((S+ + 2 v0/gamma)^2 + (S- + 2 v0/gamma)^2) / n              (G2)

With one gain per vector, as the uplink here simulates it, the sum over devices of abs(h)^2 E takes the place of its
mean and an energy has variance (sum)^2 - sum of abs(h)^4 E^2 before receiver noise.

Charge: the adversary is given h and all phases, which it can only gain from; then a bin is a Gaussian with v0 per real
dimension. FSK-MV flips up to D signs, each from one bin to the other: abs(h_k)^2 E_k 2 D / v0 (replace), D (zero-out).
REED, since (sqrt(a) - sqrt(b))^2 <= abs(a - b), tight where the sign changes:

    1/z^2 <= abs(h_k)^2 (gamma p_k / rms_k^2) norm1(x - x') / v0,     norm1(x - x') <= sqrt(D) Delta_k       (G3)

It is linear in Delta: the root amplifies small changes. Neither fading nor others' votes are credited: they are noise
that depends on the signal, pilots remove it, and the RDP of P from Q is infinite once alpha m_Q + (1 - alpha) m_P <= 0.
"""

from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Adjacency, Unit

FADING = (
    "privacy from fading or from others' votes is refused: such noise depends on the signal, and whoever knows the "
    "channel has none of it; only receiver noise counts"
)


class Energies(NamedTuple):
    """Mean energies of the two bins."""

    plus: Floats
    minus: Floats


def bin_means(plus: Array, minus: Array, rms: Array, noise_var: float) -> Energies:
    """(G1): `plus`, `minus` (..., K) J that each client puts into a bin; rms (K,); 2 v0 of noise in both.

    >>> found = bin_means(np.array([1.0, 0.0]), np.array([0.0, 2.0]), np.array([2.0, 1.0]), 0.5)
    >>> float(found.plus), float(found.minus)
    (5.0, 3.0)
    """
    square = np.asarray(rms, np.float64) ** 2
    means = (2 * noise_var + np.sum(np.asarray(side, np.float64) * square, axis=-1) for side in (plus, minus))
    return Energies(*(np.asarray(mean) for mean in means))


def plus_probability(means: Energies) -> Floats:
    """Chance that FSK-MV decides for +: m+ / (m+ + m-)."""
    return np.asarray(means.plus / (means.plus + means.minus))


def vote_error(right: int, wrong: int, energy: float, rms: float, noise_var: float) -> float:
    """FSK-MV: chance of the wrong sign with so many like devices on the right and on the wrong side.

    >>> round(vote_error(7, 4, 1.0, 1.0, 0.5), 6)
    0.384615
    """
    means = bin_means(np.full(1, right * energy), np.full(1, wrong * energy), np.full(1, rms), noise_var)
    return float(1 - plus_probability(means))


def difference_variance(plus: Array, minus: Array, scale: float, noise_var: float, looks: int = 1) -> Floats:
    """(G2): variance of (e+ - e-) / gamma for S+ and S-, gamma = `scale`, n = `looks`.

    >>> float(difference_variance(1.0, 0.5, 4.0, 1.0, looks=2))
    1.625
    """
    validate.positive("scale", scale)
    validate.whole("looks", looks)
    floor = 2 * noise_var / scale
    return np.asarray(((np.asarray(plus) + floor) ** 2 + (np.asarray(minus) + floor) ** 2) / looks)


def energy_scale(energy: Array, rms: Array, weights: Array, bound: float, dim: int) -> float:
    """Largest gamma at which nobody passes its energy: gamma p_k norm1(x) / rms_k^2 <= E_k, norm1 <= sqrt(D) G.

    >>> energy_scale(np.array([1.0, 1.0]), np.ones(2), np.array([0.25, 0.75]), 2.0, 4)
    0.3333333333333333
    """
    weights = np.asarray(weights, np.float64)
    with np.errstate(divide="ignore"):
        each = np.asarray(energy, np.float64) * np.asarray(rms, np.float64) ** 2 / (weights * bound * np.sqrt(dim))
    return float(np.min(np.where(weights > 0, each, np.inf)))


def flips(dim: int, unit: Unit, adjacency: Adjacency) -> int:
    """Bins of FSK-MV that one unit of data may change: both of every coordinate, or one where a client is taken away.

    >>> flips(10, "client", "replace"), flips(10, "client", "zero-out"), flips(10, "record", "zero-out")
    (20, 10, 20)
    """
    return dim if unit == "client" and adjacency != "replace" else 2 * dim


def fsk_charge(
    gain: Array, bin_energy: Array, dim: int, noise_var: float, unit: Unit = "client", adjacency: Adjacency = "replace"
) -> Floats:
    """1/z^2 of FSK-MV: abs(h_k)^2 E_k 2 D / v0, half of it where the client's absence is hidden.

    >>> float(fsk_charge(0.5, 0.1, 100, 2.0)), float(fsk_charge(0.5, 0.1, 100, 2.0, adjacency="zero-out"))
    (2.5, 1.25)
    """
    validate.positive("noise_var", noise_var)
    return np.asarray(np.abs(gain) ** 2 * np.asarray(bin_energy) * flips(dim, unit, adjacency) / noise_var)


def difference_charge(
    gain: Array, weights: Array, rms: Array, scale: float, dim: int, sensitivity: Array, noise_var: float
) -> Floats:
    """(G3): 1/z^2 of REED for an L2 sensitivity Delta_k, norm1 <= sqrt(D) Delta_k.

    >>> float(difference_charge(2.0, 0.5, 1.0, 0.1, 4, 0.5, 0.2))
    1.0
    """
    validate.positive("noise_var", noise_var)
    per_energy = scale * np.asarray(weights, np.float64) / np.asarray(rms, np.float64) ** 2
    return np.asarray(np.abs(gain) ** 2 * per_energy * np.sqrt(dim) * np.asarray(sensitivity) / noise_var)


def refuse_fading(credit: str) -> None:
    """Only receiver noise is credited."""
    validate.one_of("credit", credit, ("receiver", "fading"))
    if credit == "fading":
        raise InputError(f"credit='fading': {FADING}")
