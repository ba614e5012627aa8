"""An AdaScale system in the paper's symbols: what the devices are, and how their channels are drawn. Host, float64."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from otafl.channels.pathloss import adascale_db
from otafl.channels.power import dbm_to_w
from otafl.core import validate
from otafl.core.arrays import Array, Complexes, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message

BOLTZMANN_TIMES_290K = 4.0039e-21  # W / Hz


def dbm_to_watt(dbm: float) -> float:
    """
    >>> round(dbm_to_watt(23), 5)
    0.19953
    """
    return float(dbm_to_w(dbm))


PAPER_POWER, PAPER_NOISE = dbm_to_watt(23), dbm_to_watt(-90)


@dataclass(frozen=True)
class Setting:
    """M devices, T rounds, d parameters; n samples, expected batch B and average power limit P_max in W per device
    (one number or M of them); clipping norm G; complex noise power in W.

    privacy_noise_power: the part of noise_power that the adversary cannot know and that is Gaussian; all of it if None.
    The mean square of a message holds under Poisson sampling with rate q = B / n and division by the constant B.
    """

    M: int
    T: int
    d: int
    n: Any
    B: Any
    G: float
    P_max: Any = PAPER_POWER
    noise_power: float = PAPER_NOISE
    privacy_noise_power: float | None = None
    bandwidth_hz: float = 1e5

    def __post_init__(self) -> None:
        for name in ("M", "T", "d"):
            validate.whole(name, getattr(self, name))
        for name in ("G", "noise_power", "bandwidth_hz"):
            validate.positive(name, getattr(self, name))
        for name in ("n", "B", "P_max"):
            value = np.asarray(getattr(self, name), float)
            validate.positive(name, value)
            if value.ndim and value.shape != (self.M,):
                raise InputError(f"{name} has shape {value.shape} but must be one number or have shape ({self.M},)")
        rate = np.asarray(self.B, float) / np.asarray(self.n, float)
        if np.any(rate > 1):
            raise InputError(f"B={self.B} must not exceed n={self.n}: the sampling rate q = B / n lies in (0, 1]")
        if self.privacy_noise_power is not None:
            validate.in_left_open("privacy_noise_power", self.privacy_noise_power, 0, self.noise_power)

    @property
    def q(self) -> Floats:
        """Poisson sampling rates (M,)."""
        return np.broadcast_to(np.asarray(self.B, float) / np.asarray(self.n, float), (self.M,))

    @property
    def k_squared(self) -> Array:
        """k_m^2 = 1 + (1 - q_m) / B_m = E[abs(batch)^2] / B_m^2 (M,)."""
        return 1 + (1 - self.q) / np.asarray(self.B, float)

    @property
    def x_max(self) -> float:
        """P_max d M^2 / G^2, the largest eta / h_min^2 of the strongest device.  # AdaScale (23)"""
        return float(np.max(self.P_max)) * self.d * self.M**2 / self.G**2

    @property
    def trusted_noise(self) -> float:
        return self.noise_power if self.privacy_noise_power is None else self.privacy_noise_power

    def deployment(self) -> Deployment:
        return Deployment(
            energy=np.broadcast_to(np.asarray(self.P_max, float) * self.d, (self.M,)),
            noise_var=self.noise_power / 2,
            trusted_noise_var=self.trusted_noise / 2,
            weights=np.full(self.M, 1 / self.M),
            dim=self.d,
        )

    def message(self) -> Message:
        """Sums of clipped per-sample gradients over a Poisson batch, divided by the constant B."""
        sensitivity = np.broadcast_to(self.G / np.asarray(self.B, float), (self.M,))
        return Message(
            dim=self.d,
            bound=math.inf,
            mean_square=self.k_squared * self.G**2,
            sensitivity=sensitivity,
            rate=self.q,
            unit="record",
            adjacency="zero-out",
            published=("zero-out: a record becomes an empty one that keeps its place; n and q = B / n are published",),
        )

    def cautions(self) -> list[str]:
        """What a reader of any epsilon from this setting must know, and numbers that look like a wrong unit."""
        thermal = BOLTZMANN_TIMES_290K * self.bandwidth_hz
        ratio = math.sqrt(self.noise_power / thermal)
        found = []
        if self.trusted_noise > thermal:
            found.append(
                f"PRIVACY RESTS ON RECEIVER NOISE: {self.trusted_noise:.3g} W is counted as Gaussian and unknown to "
                f"the adversary, but thermal noise in {self.bandwidth_hz:g} Hz is only {thermal:.3g} W. Interference "
                f"is neither for certain. Counting thermal noise alone divides every sigma by "
                f"{math.sqrt(self.trusted_noise / thermal):.3g}; set privacy_noise_power."
            )
        if self.trusted_noise < self.noise_power:
            found.append(
                f"the ledger counts {self.trusted_noise:.3g} W of {self.noise_power:.3g} W receiver noise: every sigma "
                f"is {math.sqrt(self.trusted_noise / self.noise_power):.3g} times what the whole noise would give"
            )
        if np.max(self.P_max) > 1000:
            found.append(f"P_max={np.max(self.P_max):g} W is above 1 kW: was a value in dBm given as watts?")
        if self.noise_power > 1e-3:
            found.append(
                f"noise_power={self.noise_power:g} W is above 1 mW ({ratio:.2g} times thermal amplitude): dBm?"
            )
        return found


MNIST = Setting(M=10, T=500, d=26_010, n=6000, B=60, G=1.0)
CIFAR10 = Setting(M=10, T=720, d=550_570, n=5000, B=400, G=2.0)


class Channels(NamedTuple):
    """Gains of one realisation and what is known of them beforehand."""

    gain: Complexes  # (T, M)
    rms: Floats  # (M,) sqrt(E abs(gain)^2)


def path_loss_db(distance_m: Any) -> Array:
    """Of the published deployment, at positive distances."""
    validate.positive("distance_m", distance_m)
    return adascale_db(distance_m)


def rayleigh(rng: np.random.Generator, rms: Any, rounds: int) -> Array:
    """CN(0, rms^2), independent over rounds: rms (..., M) -> (..., rounds, M)."""
    rms = np.asarray(rms, float)
    shape = (*rms.shape[:-1], rounds, rms.shape[-1])
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape)) * (rms / math.sqrt(2))[..., None, :]


def draw(setting: Setting, seed: int, loss_db: Any = None) -> Channels:
    """One realisation: distances uniform on [10, 200] m, then Rayleigh gains; only these if path losses (M,) are given.

    The order of the draws from default_rng(seed) is part of the definition.
    """
    rng = np.random.default_rng(seed)
    if loss_db is None:
        loss_db = path_loss_db(rng.uniform(10, 200, setting.M))
    validate.finite("path_loss_db", loss_db)
    validate.shape("path_loss_db", loss_db, (setting.M,))
    rms = 10 ** (-np.asarray(loss_db, float) / 20)
    return Channels(rayleigh(rng, rms, setting.T), rms)
