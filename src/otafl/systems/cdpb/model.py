"""CDPB's mean-field model: who takes part, how much noise arrives, how large the error of one round is. Float64, host.

The natural variable is the load u = h_th / E[h] = rho W^2 / (2 P sigma^2): a client is reliable with probability
p = e^-u. With unlike clients u is measured against the mean of 2 P_k sigma_k^2 and client k has its own
u_k = rho W^2 / (2 P_k sigma_k^2). Every function takes arrays of u and returns arrays of the same shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import exp1, gammainc

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError


class ExpGain(NamedTuple):
    """Power gain h = abs(gain)^2 of Rayleigh fading: exponential with mean 2 sigma2 (CDPB E17).

    >>> ExpGain(0.5).tail(1.0) == np.exp(-1.0)
    np.True_
    """

    sigma2: Array

    @property
    def mean(self) -> Array:
        return 2.0 * np.asarray(self.sigma2, float)

    def tail(self, threshold: Array) -> Array:
        """Pr[h >= threshold]."""
        return np.exp(-threshold / self.mean)

    def excess(self, threshold: Array) -> Array:
        """E[(h - threshold) 1{h >= threshold}]; what exceeds a threshold is again exponential."""
        return self.mean * self.tail(threshold)

    def below(self, threshold: Array) -> Array:
        """E[h 1{h < threshold}] = mean (1 - (1 + u) e^-u), free of cancellation."""
        return self.mean * gammainc(2.0, threshold / self.mean)

    def draw(self, rng: np.random.Generator, shape: Sequence[int]) -> Array:
        return self.mean * rng.standard_exponential(tuple(shape))


class Scheme(NamedTuple):
    """What clients do beyond the threshold rule; the defaults are CDPB-i."""

    portion: float = 0.0  # of unreliable clients' power that is sent as noise: 0 idle, 1 noisy
    keep: float = 1.0  # reliable clients also toss a coin to take part (independent sampling)
    artificial: bool = True  # left-over power of reliable clients becomes noise


IDLE, NOISY = Scheme(0.0), Scheme(1.0)
NOISE_FREE = Scheme(artificial=False)


def scheme(strategy: str, portion: float | None = None) -> Scheme:
    """The paper's three strategies by name; `portion` is for "mixed" alone."""
    validate.one_of("strategy", strategy, ("idle", "noisy", "mixed"))
    if (portion is not None) != (strategy == "mixed"):
        raise InputError(f"portion={portion!r}: must be given with strategy='mixed' and only there")
    if portion is not None:
        validate.in_closed("portion", portion, 0, 1)
        return Scheme(portion)
    return NOISY if strategy == "noisy" else IDLE


@dataclass(frozen=True)
class Params:
    """One deployment and its targets. P and sigma2 are numbers, or tuples with one entry per client."""

    K: int = 100  # clients
    d: int = 1  # real coordinates sent per round
    W: float = 1.0  # norm of the clipped update, gradient units
    P: float | tuple[float, ...] = 1.0  # energy limit of one client's whole vector
    sigma2: float | tuple[float, ...] = 0.5  # Rayleigh scale: E[h] = 2 sigma2
    sz2: float = 0.0  # receiver noise per coordinate
    A: float = 4.0  # 4 L^2 G, sampling error of the average (CDPB E12)
    mu: float = 1.0  # strong convexity
    a: float = 8.0  # eta_t = 4 / (mu (a + t))
    M: float = 1.0  # smoothness
    L: int = 1  # local steps
    D0: float = 1.0  # E norm(theta_0 - theta*)^2
    alpha: float = 2.0  # Renyi order of the targets
    lam1: float = 1.0  # weight of gamma
    lam2: float = 1e-5  # weight of eps
    gbar: float | None = 1e-2  # limit on gamma; None: no limit
    ebar: float | None = 100.0  # limit on eps; None: no limit
    capped: bool = True  # rho <= P / W^2, the paper's cap on the threshold (CDPB E19)

    def __post_init__(self) -> None:
        validate.whole("K", self.K)
        validate.whole("d", self.d)
        validate.whole("L", self.L)
        for name in ("W", "P", "sigma2", "mu", "a", "M", "A"):
            validate.positive(name, getattr(self, name))
        for name in ("sz2", "D0", "lam1", "lam2"):
            validate.not_negative(name, getattr(self, name))
        for name in ("gbar", "ebar"):
            if getattr(self, name) is not None:
                validate.positive(name, getattr(self, name))
        if not (np.isfinite(self.alpha) and self.alpha > 1):
            raise InputError(f"alpha={self.alpha!r} must be finite and > 1")
        if self.lam1 == 0 and self.lam2 == 0:
            raise InputError("lam1=0 and lam2=0: at least one must be > 0")
        for name in ("P", "sigma2"):
            if np.ndim(getattr(self, name)):
                validate.shape(name, getattr(self, name), (self.K,))
                object.__setattr__(self, name, tuple(float(x) for x in getattr(self, name)))

    def but(self, **changes: Any) -> "Params":
        return replace(self, **changes)

    @cached_property
    def groups(self) -> tuple[Array, Array, Array]:
        """Clients that are alike: (P, sigma2, how many), each (groups,)."""
        power, sigma2 = np.broadcast_arrays(np.asarray(self.P, float), np.asarray(self.sigma2, float))
        pairs = np.stack([power, sigma2], -1).reshape(-1, 2)
        if len(pairs) == 1:
            return pairs[:, 0], pairs[:, 1], np.array([self.K])
        unlike, count = np.unique(pairs, axis=0, return_counts=True)
        return unlike[:, 0], unlike[:, 1], count

    @cached_property
    def mean_power(self) -> float:
        """Mean received power at full transmit power, 2 P sigma2."""
        energy, sigma2, count = self.groups
        return float(2 * np.sum(count * energy * sigma2) / self.K)

    @property
    def c(self) -> float:
        """2 K P sigma2: received artificial noise if everybody sent noise only."""
        return self.K * self.mean_power

    @cached_property
    def u_max(self) -> float:
        """The load at rho = P / W^2, or inf without the cap."""
        return float(np.min(self.P)) / self.mean_power if self.capped else np.inf

    def rho(self, u: Array) -> Array:
        return np.asarray(u, float) * self.mean_power / self.W**2  # CDPB (7)

    def load(self, rho: Array) -> Array:
        """u from rho; refuses what the paper's cap forbids."""
        validate.positive("rho", rho)
        u = np.asarray(rho, float) * self.W**2 / self.mean_power
        if np.any(u > self.u_max * (1 + 1e-12)):
            cap = float(np.min(self.P)) / self.W**2
            raise InputError(f"rho={float(np.max(rho))!r} must be <= P / W^2 = {cap!r} unless capped=false")
        return u


class Stats(NamedTuple):
    """One round on average; every field has the shape of u."""

    u: Array
    rho: Array
    p: Array  # mean probability of taking part
    p_top: Array  # of the client that takes part most often
    K_t: Array  # expected participants
    v: Array  # artificial noise at the receiver, summed over d coordinates
    s2: Array  # noise variance per coordinate, v / d + sz2
    energy: Array  # mean transmit energy of a client whose update has norm W


def stats(params: Params, u: Array, scheme: Scheme = IDLE) -> Stats:
    """Participation and noise at load u.

    >>> round(float(stats(Params(), 0.6, IDLE).v), 4), round(float(stats(Params(), 0.6, NOISY).v), 4)
    (54.8812, 67.0713)
    """
    validate.in_closed("portion", scheme.portion, 0, 1)
    validate.in_closed("keep", scheme.keep, 0, 1)
    u = np.asarray(u, float)
    power, sigma2, count = params.groups
    rho = params.rho(u)
    gain, threshold = ExpGain(sigma2), rho[..., None] * params.W**2 / power
    send = scheme.keep * gain.tail(threshold)
    K_t = np.sum(count * send, -1)  # CDPB (53)
    left = scheme.artificial * scheme.keep * power * gain.excess(threshold)  # CDPB (60)
    v = np.sum(count * (left + scheme.portion * power * gain.below(threshold)), -1)  # CDPB (56)
    silent = scheme.portion * power * -np.expm1(-threshold / gain.mean)
    spent = np.sum(count * (send * power + silent), -1) / params.K
    if not scheme.artificial:
        load = threshold / gain.mean  # E[rho W^2 / h; good] = P u E1(u)
        spent = np.sum(count * (scheme.keep * power * load * exp1(load) + silent), -1) / params.K
    return Stats(u, rho, K_t / params.K, np.max(send, -1), K_t, v, v / params.d + params.sz2, spent)


def error_energy(params: Params, at: Stats) -> Array:
    """B = A / K_t + (v + d sz2) / (K_t^2 rho), inf where nobody takes part.

    Exact in its noise term for the normaliser K p, mean-field for the others (CDPB E13).
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = params.A / at.K_t + (at.v + params.d * params.sz2) / (at.K_t**2 * at.rho)
    return np.where(at.K_t > 0, total, np.inf)
