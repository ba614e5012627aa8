"""The Renyi leakage of one round as a function of the noise energy N, and its slopes. Host, float64.

    R(N) = sum_m A_alpha(q_m, c_m / N) / (alpha - 1),      A_alpha(q, u) = log sum_k w_k e^{j_k u}

with j_k = k(k-1)/2, w_k the binomial weights of (alpha, q), and c_m the noise energy at which device m's noise
multiplier is one. R is convex, strictly decreasing and the same function in every round: the channel enters only
through the least N that the power limit allows.

The values come from `otafl.privacy.moments`. The slopes are evaluated several times per round by the optimiser, so
their weights are prepared once here; being ratios of positive sums they need none of the care that a small A needs.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats, Integers
from otafl.core.errors import InputError
from otafl.privacy.moments import sampled_gaussian_log_moment

MAX_ALPHA = 1000  # a round costs time in proportion


class _Kernel(NamedTuple):
    """What the slopes need, prepared once. G groups of equal devices, terms k = 1..alpha (k = 0 is added to k = 1)."""

    unit_noise: Floats  # (G,) or (T, G)
    log_weight: Floats  # (G, alpha) or (T, G, alpha), log(w_k / w_alpha)
    behind: Floats  # (alpha,) j_k - j_alpha <= 0
    powers: Floats  # (alpha, 3): 1, j_k, j_k^2
    devices: Floats  # (G,) in each group
    wide: bool  # the ratios of the weights leave the range of float64: shift before exponentiating

    @classmethod
    def prepare(cls, unit_noise: Floats, rate: Floats, count: Integers, alpha: int) -> "_Kernel":
        k = np.arange(1, alpha + 1)
        binomial = np.array([math.log(math.comb(alpha, int(i))) for i in k])
        odds = rate[..., None] / np.maximum(1 - rate[..., None], 1e-300)
        log_weight: Floats = binomial - (alpha - k) * np.log(odds)
        log_weight[..., 0] += np.log1p((1 - rate) / (alpha * rate))  # k = 0, which has j = 0 as well
        pairs = k * (k - 1) / 2.0
        powers = np.stack([np.ones(alpha), pairs, pairs**2], axis=-1)
        wide = bool(log_weight.max() > 600)
        return cls(unit_noise, log_weight, pairs - pairs[-1], powers, count.astype(float), wide)


@dataclass(frozen=True)
class Leakage:
    """R(N) for given devices.

    unit_noise: (M,) c_m, the noise energy at which sigma_m = 1; (T, M) if it changes from round to round.
    rate: (M,) or (T, M) Poisson sampling rates q_m, in (0, 1].
    alpha: integer Renyi order >= 2.

    >>> devices = Leakage(np.full(10, 0.1445), np.full(10, 0.01))
    >>> bool(devices.total(0.1) > devices.total(0.2) > 0)
    True
    """

    unit_noise: Any
    rate: Any
    alpha: int = 3
    _kernel: "_Kernel" = field(init=False, repr=False, compare=False)
    _group: tuple[Floats, Floats, Integers] = field(init=False, repr=False, compare=False)  # c, q, group of each device

    def __post_init__(self) -> None:
        alpha = self.alpha
        if isinstance(alpha, bool) or not np.isfinite(alpha) or int(alpha) != alpha or not 2 <= alpha <= MAX_ALPHA:
            raise InputError(
                f"alpha={alpha!r} must be a whole number >= 2 and <= {MAX_ALPHA} (the optimiser needs an integer order)"
            )
        validate.double("unit_noise", self.unit_noise)
        validate.double("q", self.rate)
        noise, rate = np.broadcast_arrays(np.asarray(self.unit_noise, float), np.asarray(self.rate, float))
        validate.positive("unit_noise", noise)
        validate.in_left_open("q", rate, 0, 1)
        if noise.ndim not in (1, 2):
            raise InputError(f"unit_noise has shape {noise.shape} but must have shape (M,) or (T, M)")
        object.__setattr__(self, "unit_noise", noise)
        object.__setattr__(self, "rate", rate)
        # Devices that share c and q in every round cost the same: one column each, with its multiplicity.
        columns = np.concatenate([np.atleast_2d(noise), np.atleast_2d(rate)])
        distinct, member, count = np.unique(columns, axis=1, return_inverse=True, return_counts=True)
        half = len(columns) // 2
        c, q = (part if noise.ndim == 2 else part[0] for part in (distinct[:half], distinct[half:]))
        object.__setattr__(self, "_group", (c, q, member.ravel()))
        object.__setattr__(self, "_kernel", _Kernel.prepare(c, q, count, int(self.alpha)))

    @property
    def changes(self) -> bool:
        """Whether q, B or C differ between rounds, so that R does."""
        noise, rate = np.atleast_2d(self.unit_noise), np.atleast_2d(self.rate)
        return bool(np.any(noise != noise[0]) or np.any(rate != rate[0]))

    def per_device(self, noise: Any) -> Array:
        """RDP at order alpha of each device in one round: N (...) -> (..., M)."""
        noise = np.asarray(noise, float)[..., None]
        c, q, member = self._group
        moment = sampled_gaussian_log_moment(q, c / noise, int(self.alpha)).value
        return (moment / (self.alpha - 1))[..., member]

    def total(self, noise: Any) -> Array:
        """R(N), summed over devices: (...) -> (...)."""
        return self.per_device(noise).sum(-1)

    def slopes(self, noise: Any) -> tuple[Floats, Floats]:
        """R'(N) < 0 and R''(N) > 0: (...) -> (...), (...)."""
        noise = np.asarray(noise, float)
        kernel = self._kernel
        u = kernel.unit_noise / noise[..., None]
        logits = kernel.log_weight + kernel.behind * u[..., None]  # of w_k e^{j_k u}, relative to k = alpha
        if kernel.wide:
            logits -= logits.max(-1, keepdims=True)
        sums = np.exp(logits) @ kernel.powers
        mean = sums[..., 1] / sums[..., 0]  # A'
        spread = np.maximum(sums[..., 2] / sums[..., 0] - mean * mean, 0.0)  # A''
        steep = u * mean
        scale = (self.alpha - 1) * noise
        return -(steep @ kernel.devices) / scale, ((u * u * spread + 2 * steep) @ kernel.devices) / (scale * noise)

    def steepest(self) -> Array:
        """K with -R'(N) <= K / N^2 for every N, because A' <= alpha (alpha - 1) / 2: () or (T,)."""
        return self.alpha / 2 * np.asarray(self.unit_noise).sum(-1)
