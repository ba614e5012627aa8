"""All that a CARES certificate depends on, checked once. NumPy, float64; no data, no training."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.bounds.antennas import any_silent
from otafl.bounds.budget import Accounting, eps_of, zcdp_budget
from otafl.bounds.convergence import (
    Constants,
    ConstantSet,
    ConvBound,
    assemble,
    bound_constants,
    initial_gap_term,
)
from otafl.bounds.envelopes import (
    asymmetry,
    drop_prob,
    drop_rate,
    dropped_square,
    dropped_weight,
    dropped_weight_slope,
    eta_peak,
)
from otafl.bounds.local_steps import local_drift, local_record_sensitivity
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.privacy.feedback import noisy_accuracy
from otafl.systems.cares.checks import check_clients, check_scalars

CERTAIN = 60.0  # 1 - exp(-60) is 1 in float64
Granularity = Literal["client", "record"]
Silence = Literal["norm", "bound"]
RewardData = Literal["public", "private_noisy"]


@dataclass(frozen=True, eq=False)
class Problem:
    """A deployment, its learning constants and its four targets.

    Sensitivity at the receiver, replace-one, noise of the receiver only: client level 2 eta p_k G (clipped mean
    gradient, any change of one client's data), record level 2 eta p_k G/B_k (per-example clipping, batches of B_k drawn
    without replacement, silence decided by the bound). A private reward adds one release per round, see
    `privacy.noisy_accuracy`.
    """

    weights: Floats  # (K,) p_k, public, sum to 1
    channel_scale: Floats  # (K,) Rayleigh scale mu_k: E h^2 = 2 mu^2
    noise_std: float | tuple[float, float]  # receiver noise per real dimension, or what is known: (low, high)
    num_params: int
    loss_gap: float  # upper bound on F(w0) - F*
    eps_target: float
    delta: float
    max_power: float | Floats = 1.0  # () or (K,) limit on the energy of the whole vector per round
    clip_norm: float = 1.0
    step_size: float = 0.1
    smoothness: float | None = None  # None: 1/(12 step_size), the largest that `main` allows
    grad_var: float | None = None  # None: clip_norm^2, always valid for clipped gradients
    max_asymmetry: float = 0.1
    max_dropped: float = 0.1
    constants: ConstantSet = "main"
    accounting: Accounting = "classic"
    granularity: Granularity = "client"
    batch_sizes: Floats | None = None  # (K,) B_k, needed for the record level
    silence: Silence = "norm"
    gain_error_max: float = 0.0  # bound on h/estimate - 1; charged, not covered by the convergence bound
    certify_with: Literal["estimate", "limits"] = "estimate"
    mu_low: Floats | None = None  # (K,) certified limits of channel_scale, for certify_with="limits"
    mu_high: Floats | None = None
    independent_channels: bool = False  # E[S^2] instead of E[S] in the truncation term
    independent_batches: bool = False  # grad_var times sum p_k^2
    reward_data: RewardData = "public"  # what a controller learns from; "private_noisy" is charged every round (E9)
    reward_noise: float | None = None  # std of the noise on that reward
    sizes: Floats | None = None  # (K,) n_k, needed for a private reward at the record level
    local_steps: int = 1  # L gradients per message, fresh batches; more than one needs constants="tight" (H2)
    local_step_size: float = 0.0  # of the clients' own steps
    example_smoothness: float | None = None  # certified for every example's loss; sharpens the record level at L > 1
    antennas: int = 1  # of the server, with a beam never worse than the best antenna: participation by (H3)
    exposure: float = 1.0  # bound on 1/cos^2 of the angle between a client and the beam of an array: the cost's factor
    warnings: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for name in ("weights", "channel_scale", "max_power", "batch_sizes", "mu_low", "mu_high", "sizes"):
            value = getattr(self, name)
            if value is not None:
                self._set(name, np.asarray(value, float))
        self._set("noise_std", _pair(self.noise_std))
        check_scalars(self)
        if self.smoothness is None:
            self._set("smoothness", 1 / (12 * self.step_size))
        if self.grad_var is None:
            self._set("grad_var", self.clip_norm**2)
        validate.positive("smoothness", self.smoothness)
        validate.not_negative("grad_var", self.grad_var)
        check_clients(self)
        _ = self.bound_constants  # refuses a step size that proves nothing
        _ = self.reward_zcdp()  # refuses a reward whose cost is not defined
        if np.any(self.weights == 0):
            absent = np.flatnonzero(self.weights == 0).tolist()
            self._set("warnings", (f"clients {absent} have weight 0 and count as absent in the asymmetry",))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    # Noise must be known from both sides (CARES E15): privacy needs it from below, convergence from above.
    @property
    def noise_low(self) -> float:
        return _pair(self.noise_std)[0]

    @property
    def noise_high(self) -> float:
        return _pair(self.noise_std)[1]

    @cached_property
    def bound_constants(self) -> Constants:
        assert self.smoothness is not None
        return bound_constants(self.constants, self.step_size, self.smoothness)

    # ---- participation

    @cached_property
    def drop_rate(self) -> Floats:
        """c_k, (K,), certified from above: with limits, from the lower limit of the channel scale (CARES E16)."""
        scale = self.mu_low if self.certify_with == "limits" else self.channel_scale
        assert scale is not None
        return drop_rate(self.weights, scale, self.clip_norm, self.max_power)

    @cached_property
    def drop_rate_max(self) -> float:
        """a: rate of the hardest client, from above."""
        return float(self.drop_rate.max())

    @cached_property
    def drop_rate_min(self) -> float:
        """b: rate of the easiest client that takes part at all, from below."""
        scale = self.mu_high if self.certify_with == "limits" else self.channel_scale
        assert scale is not None
        rate = drop_rate(self.weights, scale, self.clip_norm, self.max_power)
        return float(rate[self.weights > 0].min())

    @cached_property
    def eta_peak(self) -> float | None:
        if self.antennas > 1:  # (H3) rises up to here, where it is one
            return math.sqrt(CERTAIN / float(self.drop_rate.sum()))
        return eta_peak(self.drop_rate_min, self.drop_rate_max)

    def any_silent(self, rx_scale: ArrayLike) -> Floats:
        """Bound on the probability that anyone is silent at several antennas, (...)."""
        return any_silent(rx_scale, self.drop_rate, self.antennas)  # (H3)

    def drop_prob(self, rx_scale: ArrayLike) -> Floats:
        if self.antennas > 1:
            silent = self.any_silent(rx_scale)[..., None]
            return np.broadcast_to(silent, (*silent.shape[:-1], self.weights.size)).copy()
        return drop_prob(rx_scale, self.drop_rate)

    def dropped_weight(self, rx_scale: ArrayLike) -> Floats:
        """Bound on the expected dropped weight, (...); at most 1 also where the weights sum to a little more."""
        if self.antennas > 1:
            return self.any_silent(rx_scale)
        return np.minimum(dropped_weight(rx_scale, self.weights, self.drop_rate), 1.0)

    def dropped_weight_slope(self, rx_scale: ArrayLike) -> Floats:
        return dropped_weight_slope(rx_scale, self.weights, self.drop_rate)

    def asymmetry(self, rx_scale: ArrayLike) -> Floats:
        if self.antennas > 1:
            return self.any_silent(rx_scale)
        return asymmetry(rx_scale, self.drop_rate_min, self.drop_rate_max)

    # ---- convergence

    @property
    def effective_grad_var(self) -> float:
        assert self.grad_var is not None
        alone = float(self.weights @ self.weights) if self.independent_batches else 1.0
        return self.grad_var * alone / self.local_steps

    @property
    def noise_term(self) -> float:
        """A: the channel-noise part of (10) is A/eta^2."""
        return self.bound_constants.noise * self.step_size * self.noise_high**2 * self.num_params

    @property
    def truncation_factor(self) -> float:
        """C3 G^2: the truncation part of (10) is this times the dropped mass."""
        return self.bound_constants.truncation * self.clip_norm**2

    @property
    def drift(self) -> float:
        """beta_L: what the clients' own steps add to the bias."""
        assert self.smoothness is not None
        return local_drift(self.smoothness, self.local_step_size, self.clip_norm, self.local_steps)  # (H1)

    def truncation(self, rx_scale: ArrayLike) -> Floats:
        """The part of the bound that silence, and local steps, are answerable for, (...)."""
        mass = self.dropped_mass(rx_scale)
        if self.local_steps == 1:
            return self.truncation_factor * mass
        return np.asarray(self.bound_constants.truncation * (self.clip_norm * np.sqrt(mass) + self.drift) ** 2)  # (H2)

    def dropped_mass(self, rx_scale: ArrayLike) -> Floats:
        """The bound on E[S^2] that the truncation term uses."""
        if self.antennas > 1:
            return self.any_silent(rx_scale)
        bound = dropped_square if self.independent_channels else dropped_weight
        return bound(rx_scale, self.weights, self.drop_rate)

    def round_cost(self, rx_scale: ArrayLike) -> Floats:
        """B(eta): the part of the certificate that depends on the receive scaling, (...)."""
        eta = np.asarray(rx_scale, float)
        return self.noise_term / eta**2 + self.truncation(eta)

    def conv_bound(self, rx_scale: ArrayLike, rounds: ArrayLike) -> ConvBound:
        """Gamma(eta, T) with its parts, (...); +inf where T < 1."""
        eta = np.asarray(rx_scale, float)
        return assemble(  # CARES (10)
            initial_gap_term(self.bound_constants, self.loss_gap, self.step_size, rounds),
            self.bound_constants.variance * self.step_size * self.effective_grad_var,
            self.noise_term / eta**2,
            self.truncation(eta),
        )

    def informative(self, conv_bound: ArrayLike) -> np.ndarray:
        """Clipped gradients already give ||grad F||^2 <= G^2 (CARES E4): only less than that says anything."""
        return np.asarray(conv_bound) < self.clip_norm**2

    # ---- privacy

    @cached_property
    def zcdp_budget(self) -> float:
        """Total zCDP that meets (eps_target, delta)."""
        return zcdp_budget(self.accounting, self.eps_target, self.delta)

    def eps_of(self, zcdp: ArrayLike) -> np.ndarray:
        """eps at `delta` of a total zCDP."""
        return eps_of(self.accounting, zcdp, self.delta)

    def sensitivity(self, granularity: Granularity | None = None) -> Floats:
        """Receiver-side L2 sensitivity per unit of rx_scale, (K,), inflated by the declared gain error (CARES E21)."""
        return self.weights * self.message_sensitivity(granularity) * (1 + self.gain_error_max)

    def message_sensitivity(self, granularity: Granularity | None = None) -> Floats:
        """L2 change of a client's message, (K,): 2 G at the client level, 2 G/B_k at the record level; replace-one."""
        whole = np.full(self.weights.shape, 2 * self.clip_norm)
        if (granularity or self.granularity) == "client":
            return whole
        if self.batch_sizes is None or self.silence != "bound":
            raise InputError("the record level needs batch_sizes and silence='bound'")
        if self.local_steps == 1:
            return whole / self.batch_sizes
        return local_record_sensitivity(
            self.clip_norm, self.batch_sizes, self.local_steps, self.local_step_size, self.example_smoothness
        )

    def reward_zcdp(self, granularity: Granularity | None = None) -> Floats:
        """zCDP of one reward per client, (K,): 0 on public data."""
        if self.reward_data == "public":
            return np.zeros_like(self.weights)
        assert self.reward_noise is not None
        release = noisy_accuracy(granularity or self.granularity, self.weights, self.sizes, self.reward_noise)
        return np.asarray(release.square(self.weights.size) / 2)

    def air_zcdp(self, rx_scale: ArrayLike, granularity: Granularity | None = None) -> Floats:
        """zCDP of what one round sends over the air, per client, (..., K). Silent rounds are charged in full."""
        amplitude = np.asarray(rx_scale, float)[..., None] * self.sensitivity(granularity)
        return np.asarray(amplitude**2 / (2 * self.noise_low**2)) * self.exposure

    def zcdp(self, rx_scale: ArrayLike, granularity: Granularity | None = None) -> Floats:
        """zCDP of one round per client, its reward included, (..., K)."""
        return self.air_zcdp(rx_scale, granularity) + self.reward_zcdp(granularity)

    def zcdp_cost(self, rx_scale: ArrayLike, granularity: Granularity | None = None) -> Floats:
        """zCDP of one round for the worst client, (...)."""
        return self.zcdp(rx_scale, granularity).max(-1)


def _pair(noise_std: float | tuple[float, float]) -> tuple[float, float]:
    values = np.atleast_1d(np.asarray(noise_std, float))
    if values.shape not in ((1,), (2,)):
        raise InputError(f"noise_std={noise_std!r} must be one number or a pair (low, high)")
    return float(values[0]), float(values[-1])


def default_loss_gap(num_classes: int) -> float:
    """ln C: an upper bound of the initial loss only when the output layer starts at zero (CARES E10)."""
    validate.whole("num_classes", num_classes, 2)
    return math.log(num_classes)
