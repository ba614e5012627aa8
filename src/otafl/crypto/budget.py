"""The noise of a decoded scalar, term by term, and the room left before the ring wraps. NumPy, float64.

Seven terms make up the error of one encrypted sum (EEZOFL 3.7). They are equalities: all cross terms vanish.

    A  V E~          B1 sum h e0      B2 w_0      C1 S~ sum h e1      C2 S~ w_1      D  w_D      E  sum h e*

Given the channel the variance is exact too and needs only Q = sum h^2; averaged over fading it needs
X = E[(sum h^2)^2]. Tests compare the conditional form: the average is heavy-tailed.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto.parameters import EPHEMERAL_VAR, GUARD_BITS, Parameters

WRAP_SIGMAS = 8.0  # z of the headroom
FAIL_SIGMAS = 32.0  # z of the failure check, against the budget averaged over fading
MOST_SMUDGING = 400.0  # bits: wider noise leaves float64


class Fading(NamedTuple):
    """Moments of the channel coefficients, one entry per device."""

    mu: np.ndarray  # E h
    Omega: np.ndarray  # E h^2
    fourth: np.ndarray  # E h^4

    @property
    def N(self) -> int:
        return self.mu.size

    @property
    def S_O(self) -> float:
        return float(self.Omega.sum())

    @property
    def X(self) -> float:
        """E[(sum h^2)^2] for independent devices."""
        return float(self.S_O**2 + (self.fourth - self.Omega**2).sum())


def fading(mu: Array, Omega: Array, fourth: Array | None = None) -> Fading:
    """Check and complete the moments; without `fourth` the law is Gaussian: E h^4 = 3 Omega^2 - 2 mu^4.

    >>> fading(np.ones(10), 2 * np.ones(10)).X
    460.0
    """
    mu, Omega = np.atleast_1d(np.asarray(mu, float)), np.atleast_1d(np.asarray(Omega, float))
    validate.shape("Omega", Omega, mu.shape)
    validate.finite("mu", mu)
    validate.positive("Omega", Omega)
    if np.any(mu == 0):
        raise InputError(f"mu[{int(np.argmax(mu == 0))}]=0.0 must not be 0: the mean gain is what a device divides by")
    if np.any(Omega < mu**2 * (1 - 1e-12)):
        bad = int(np.argmax(Omega < mu**2))
        raise InputError(f"Omega[{bad}]={Omega[bad]} must be >= mu^2={mu[bad] ** 2}")
    if fourth is None:
        fourth = 3 * Omega**2 - 2 * mu**4
    fourth = np.atleast_1d(np.asarray(fourth, float))
    validate.shape("fourth", fourth, mu.shape)
    if np.any(fourth < Omega**2 * (1 - 1e-12)):
        raise InputError("E h^4 must be >= (E h^2)^2 for every device")
    return Fading(mu, Omega, fourth)


class NoiseBudget(NamedTuple):
    """Second moments of the error polynomial in the paper's unit (real h), EEZOFL 3.7, summed over n coefficients."""

    A: float
    B1: float
    B2: float
    C1: float
    C2: float
    D: float
    E: float

    @property
    def B_eps_squared(self) -> float:
        return float(sum(self))


def noise_budget(
    n: int,
    channel: Fading,
    sigma_e: float = 3.2,
    sigma_w: float = 1.0,
    sigma_phi: float = 3.2,
    secret_var: float = 1.0,
) -> NoiseBudget:
    """The seven terms averaged over keys, noise and fading, for a real channel (no grid)."""
    S_O, X, error, air = channel.S_O, channel.X, sigma_e**2, sigma_w**2
    return NoiseBudget(
        A=EPHEMERAL_VAR * n**2 * (error * X + air * S_O),
        B1=n * error * S_O,
        B2=n * air,
        C1=secret_var * n**2 * error * X,
        C2=secret_var * n**2 * air * S_O,
        D=n * air,
        E=n * sigma_phi**2 * S_O,
    )


def on_grid(budget: NoiseBudget, f: int) -> NoiseBudget:
    """The same terms in fixed-point mode, where the linear ones shrink by 2^-2f."""
    small = 2.0 ** (-2 * f)
    return budget._replace(B1=budget.B1 * small, B2=budget.B2 * small, D=budget.D * small, E=budget.E * small)


def decoded_variance(budget: NoiseBudget, n: int, Lambda: float) -> float:
    """B_eps^2 / (n Lambda^2)."""
    return budget.B_eps_squared / (n * Lambda**2)


def variance_given(
    p: Parameters,
    Q: Array,
    N: int,
    mode: str = "fixed-point",
    Q_keys: Array | None = None,
    sigma_phi: float | None = None,
) -> Array:
    """Decoded variance of one scalar given Q = sum h^2 of the ciphertexts' channel. Plain arithmetic: jit-able.

    `Q_keys` is the same sum for the block that carries keys and shares, where that is another one (fixed-point);
    `sigma_phi` another width of the share noise than the job's, 0 for what the keys alone leave.
    Averaging over fading is exact where this is linear in Q; for fixed-point see `average_variance`.
    """
    n, error, air = p.ring.n, p.error_var, p.sigma_w**2
    keys, small = (Q if Q_keys is None else Q_keys), 2.0 ** (-2 * p.f)
    flood = p.sigma_phi if sigma_phi is None else sigma_phi
    if mode in ("fixed-point", "lifted"):  # EEZOFL 3.5, 3.7; real gains have no grid whose scale the message shares
        small = 1.0 if mode == "lifted" else small
        product = EPHEMERAL_VAR * Q * (error * keys + air) + p.secret_var * keys * (error * Q + air)
        return (n * product + small * (Q * error + keys * flood**2 + 2 * air)) / p.Lambda**2
    if mode == "digital":
        N_keys, Q, air, small = N, N, 0.0, 1.0
    elif mode == "hybrid":  # EEZOFL 8
        N_keys = N
    elif mode == "single-key":
        N_keys, flood = 1, 0.0
    else:
        raise InputError(f"mode={mode!r} has no noise budget; use fixed-point, digital, hybrid, single-key or lifted")
    product = N_keys * (EPHEMERAL_VAR * error * Q + p.secret_var * (error * Q + air))
    return (n * product + error * Q + air + small * N_keys * flood**2) / p.Lambda**2


def average_variance(
    p: Parameters, channel: Fading, mode: str = "fixed-point", sigma_phi: float | None = None
) -> float:
    """Decoded variance of one scalar averaged over fading; what a server that does not know h can predict.

    `sigma_phi` as in `variance_given`.
    """
    if mode not in ("fixed-point", "lifted"):
        return float(variance_given(p, channel.S_O, channel.N, mode, sigma_phi=sigma_phi))
    flood = p.sigma_phi if sigma_phi is None else sigma_phi
    budget = noise_budget(p.ring.n, channel, math.sqrt(p.error_var), p.sigma_w, flood, p.secret_var)
    return decoded_variance(budget if mode == "lifted" else on_grid(budget, p.f), p.ring.n, p.Lambda)


def mode_terms(p: Parameters, channel: Fading, mode: str = "fixed-point") -> dict[str, float]:
    """The seven terms as decoded variances of one scalar in this mode; they add up to `average_variance`."""
    n, error, air, scale = p.ring.n, p.error_var, p.sigma_w**2, p.Lambda**2
    if mode == "fixed-point":
        raw = noise_budget(n, channel, math.sqrt(error), p.sigma_w, p.sigma_phi, p.secret_var)
        return {name: value / (n * scale) for name, value in on_grid(raw, p.f)._asdict().items()}
    if mode not in ("digital", "hybrid"):
        raise InputError(f"mode={mode!r} has no table of terms; use fixed-point, digital or hybrid")
    N, Q = channel.N, (channel.N if mode == "digital" else channel.S_O)
    air, small = (0.0, 1.0) if mode == "digital" else (air, 2.0 ** (-2 * p.f))
    terms = NoiseBudget(
        A=n * N * EPHEMERAL_VAR * error * Q,
        B1=error * Q,
        B2=air,
        C1=n * N * p.secret_var * error * Q,
        C2=n * N * p.secret_var * air,
        D=0.0,
        E=small * N * p.sigma_phi**2,
    )
    return {name: value / scale for name, value in terms._asdict().items()}


def analytic_noise_std(h: Array, p: Parameters, mode: str = "fixed-point") -> Array:
    """Standard deviation of the decoded error given the gains h (..., N): what `analytic` mode adds. jit-able."""
    return variance_given(p, (h**2).sum(-1), h.shape[-1], mode) ** 0.5


def air_gain(p: Parameters, channel: Fading, mode: str = "fixed-point") -> float:
    """Decoded variance per variance of the noise on received symbols, times Lambda^2. EEZOFL 3.7, 8

    The keys multiply that noise, those of a round that are sent over the air the ephemeral secrets too; without a radio
    it is 0. Terms that the grid makes smaller by 2^-2f are left out.
    """
    if mode in ("fixed-point", "lifted"):
        return p.ring.n * (EPHEMERAL_VAR + p.secret_var) * channel.S_O
    keys = {"digital": None, "hybrid": channel.N, "single-key": 1}[mode]
    return 0.0 if keys is None else p.ring.n * keys * p.secret_var + 1


def smudging_sigma(
    p: Parameters, channel: Fading, smudging_bits: float, mode: str = "fixed-point", h_floor: float | None = None
) -> float:
    """sigma_phi that drowns the key-dependent residue by `smudging_bits` bits per coefficient (EEZOFL 6).

    By default all devices smudge together. With `h_floor` (fixed-point) one honest device whose |h| is at least that
    suffices; a device in a deeper fade is not covered.
    """
    validate.in_left_open("smudging_bits", smudging_bits, 0, MOST_SMUDGING)
    residue = math.sqrt(average_variance(p, channel, mode, sigma_phi=0.0)) * p.Lambda
    if mode in ("fixed-point", "lifted"):
        reach = math.sqrt(channel.S_O) if h_floor is None else h_floor
    else:
        reach = math.sqrt(channel.N) if h_floor is None else 1.0
    validate.positive("h_floor", reach)
    return float(2.0 ** (smudging_bits + (0 if mode in ("digital", "lifted") else p.f)) * residue / reach)


def decode_bits(p: Parameters, mode: str = "fixed-point") -> int:
    """log2 of the factor between a decoded scalar and the ring: 2f + log2 Lambda, once f, or not at all (EEZOFL 4)."""
    times = {"hybrid": 1, "single-key": 1, "digital": 0, "lifted": 0, "literal": 0}.get(mode, 2)
    return times * p.f + p.scale_bits


def message_bits(p: Parameters, mode: str = "fixed-point") -> int:
    """log2 of the factor at encode: the channel supplies the rest of `decode_bits`."""
    return max(0, decode_bits(p, mode) - p.scale_bits - p.f) + p.scale_bits


class Headroom(NamedTuple):
    """Bits to spare in each condition on the ring; the round is sound iff all are >= 0."""

    message: float  # 2^decode (Mmax + 8 std) < q/2
    failure_check: float  # 32 std 2^decode <= q/8, or a failed round could not be told
    guard: float  # the copy, 2^GUARD_BITS times as noisy, still tells a wrap

    @property
    def least(self) -> float:
        return min(self)

    @property
    def binding(self) -> str:
        return self._fields[int(np.argmin(self))]


def headroom(p: Parameters, channel: Fading, mode: str = "fixed-point", sigma_phi: float | None = None) -> Headroom:
    """How much of q is left, condition by condition; `sigma_phi` as in `variance_given`."""
    std = math.sqrt(average_variance(p, channel, mode, sigma_phi))
    unit = p.log2_q - decode_bits(p, mode)
    return Headroom(
        unit - 1 - math.log2(p.Mmax + WRAP_SIGMAS * std),
        unit - 3 - math.log2(FAIL_SIGMAS * std),
        unit - 2 - GUARD_BITS - math.log2(FAIL_SIGMAS * std) if p.guard else math.inf,
    )


def largest_f(p: Parameters, channel: Fading, mode: str = "fixed-point") -> int:
    """The largest grid exponent with headroom at this Lambda, the flooding scaled along with 2^f; -1 if there is none.

    >>> from otafl.crypto.ring import RING_4096
    >>> p = Parameters(RING_4096, f=16, scale_bits=40, sigma_phi=3.2)
    >>> largest_f(p, fading(np.ones(10), 2 * np.ones(10)))
    28
    """
    if mode == "digital":
        return 0
    fits = [
        f
        for f in range(int(p.log2_q) + 1)
        if headroom(dataclasses.replace(p, f=f), channel, mode, p.sigma_phi * 2.0 ** (f - p.f)).least >= 0
    ]
    return max(fits, default=-1)


def check_headroom(p: Parameters, channel: Fading, mode: str = "fixed-point") -> None:
    """Refuse parameters under which honest rounds would wrap or failed ones could not be told."""
    room = headroom(p, channel, mode)
    if room.least < 0:
        raise InputError(
            f"headroom={room.least:.1f} bits ({room.binding}) must be >= 0: f={p.f}, Lambda=2^{p.scale_bits}, "
            f"Mmax={p.Mmax:g} in q=2^{p.log2_q:.1f}; largest f {largest_f(p, channel, mode)} at this Lambda, "
            f"largest Lambda 2^{math.floor(p.scale_bits + room.least)} at this f"
        )
