"""Bias-variance power control: the bound, the normal form and the optimal pre-scalers. NumPy, float64.

Device m sends (gamma_m / h_m) g_m unless that would break its energy limit, biasvar (4)-(5); the server divides what
it hears by alpha, (6). Then E[estimate] = sum_m p_m g_m with constant levels p, (8), and Theorem 1, (9)-(10), prices
the bias of p against the noise. Numbers with a bare parenthesis are the paper's; E1 ... are the errata in the docs.

    gamma_max = sqrt(d Lambda E_s / 2) / G    the pre-scaler of largest mean amplitude; u = gamma / gamma_max
    tx_prob   = exp(-u^2 / 2)                 probability that a device sends
    alpha     = sum gamma tx_prob,  p = gamma tx_prob / alpha
"""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import lambertw

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.systems.biasvar.exact import PEAK, Normal, normal, optimum, parts


class Radio(NamedTuple):
    """The radio side of the design; E_s may differ by device."""

    gains: Floats  # (N,) Lambda = E|h|^2
    E_s: ArrayLike  # () or (N,) J per complex sample
    N0: float  # J per complex sample
    d: int  # complex samples per round, one real entry in each


class BoundParams(NamedTuple):
    """The learning side: what Theorem 1 knows of the objective."""

    G: float  # bound on every gradient norm, enforced by clipping
    eta: float  # step size
    L: float  # smoothness
    kappa: float  # gradient dissimilarity, may be inf: zero bias
    sigma2: ArrayLike = 0.0  # () or (N,) mini-batch gradient variance
    noise_factor: float = 0.5  # 1/2: real part of the received signal (E5); 1: as printed
    weights: ArrayLike | None = None  # (N,) target weights; None: 1/N as in the paper

    @property
    def rho(self) -> float:
        """kappa^2 / (eta L G^2), the one number that steers the design."""
        return self.kappa**2 / (self.eta * self.L * self.G**2)


class Parts(NamedTuple):
    """The five terms of Theorem 1; their sum is the bound on the mean squared gradient norm."""

    optimisation: float  # NaN without a horizon and an initial gap
    transmission: float
    minibatch: float
    noise: float
    bias: float


class Design(NamedTuple):
    """Pre-scalers and all that follows from them."""

    gamma: Floats  # (N,) sqrt(J) per gradient unit
    alpha: float  # same unit
    p: Floats  # (N,) participation levels
    tx_prob: Floats  # (N,)
    u: Floats  # (N,) gamma / gamma_max
    parts: Parts
    objective: float  # J: the last four parts together
    normal_objective: float  # J_n = J / (2 eta L G^2)
    kkt_residual: float  # scale-free; NaN where the design is not a solution of the problem
    iterations: int
    solver: str
    status: str
    history: tuple[float, ...] = ()  # J_n after each iteration, iterative solvers only


def params_from_rho(rho: float, G: float, eta: float = 1.0, L: float = 1.0, **rest: object) -> BoundParams:
    """Parameters with a given rho; without eta and L the bound is in units where eta L = 1.

    >>> round(params_from_rho(0.2, G=10.0).rho, 12)
    0.2
    """
    if not rho >= 0:
        raise InputError(f"rho={rho!r} must be >= 0")
    return BoundParams(G, eta, L, float(np.sqrt(rho * eta * L) * G), **rest)  # type: ignore[arg-type]


def check(radio: Radio, par: BoundParams, strict: bool = False) -> None:
    """Refuse what the design cannot mean; a step size beyond the theorem warns, or is refused when `strict`."""
    gains = np.asarray(radio.gains, float)
    if gains.ndim != 1 or gains.size < 1:
        raise InputError("gains must be a list of at least one device")
    for name in ("gains", "E_s", "N0", "d"):
        validate.positive(name, getattr(radio, name))
    for name in ("G", "eta", "L", "noise_factor"):
        validate.positive(name, getattr(par, name))
    if not par.kappa >= 0:
        raise InputError(f"kappa={par.kappa!r} must be >= 0")
    validate.not_negative("sigma2", par.sigma2)
    for name, value in (("E_s", radio.E_s), ("sigma2", par.sigma2), ("weights", par.weights)):
        if value is not None and np.ndim(value):
            validate.shape(name, value, gains.shape)
    if par.weights is not None:
        validate.positive("weights", par.weights)
        validate.sums_to_one("weights", par.weights, 1e-9)
    if par.eta * par.L > 1:
        message = f"eta*L={par.eta * par.L:g} must be <= 1 for the convergence bound to hold"
        if strict:
            raise InputError(message)
        warnings.warn(message, stacklevel=3)


def unit(radio: Radio, par: BoundParams) -> float:
    """c = sqrt(d N_0) / G: pre-scalers and post-scaler in the normal form are multiples of it."""
    return float(np.sqrt(radio.d * radio.N0) / par.G)


def normal_form(radio: Radio, par: BoundParams, rho: ArrayLike | None = None) -> Normal:
    """The problem without units; d and the scale of the gradients drop out. `rho` replaces that of `par`."""
    snr = np.asarray(radio.gains, float) * np.asarray(radio.E_s, float) / radio.N0
    minibatch = np.asarray(par.sigma2, float) / par.G**2
    return normal(np.sqrt(snr / 2), par.rho if rho is None else rho, par.weights, minibatch, par.noise_factor)


def small_root(a: ArrayLike) -> Floats:
    """The smaller root u in [0, 1] of u exp(-u^2/2) = a, through Lambert's W: u^2 = -W_0(-a^2).

    >>> small_root([0.0, 0.6065306597126334]).round(7).tolist()
    [0.0, 1.0]
    """
    a = np.asarray(a, float)
    if np.any((a < 0) | (a > PEAK * (1 + 1e-9)) | np.isnan(a)):
        raise InputError(f"a={np.max(a)!r} must lie in [0, exp(-1/2)]: no pre-scaler reaches this mean amplitude")
    r = np.sqrt(2 * np.maximum(0.0, 1 - np.e * a * a))  # distance from the branch point, where W has a square root
    series = 1 - r + r**2 / 3 - 11 / 72 * r**3
    square = np.where(r < 1e-4, series, np.maximum(0.0, -lambertw(-a * a).real))
    return np.where(a < 1e-8, a, np.sqrt(square))  # a^2 underflows before a does


def bound_parts(
    design: Design, radio: Radio, par: BoundParams, T: int | None = None, gap0: float | None = None
) -> Parts:
    """Theorem 1, (9)-(10), term by term; `gap0` = max_m f_m(w_0) - inf f_m."""
    start = float("nan") if T is None or gap0 is None else 4 * gap0 / (par.eta * T)
    return _parts(normal_form(radio, par), par, design.u)._replace(optimisation=start)


def _parts(problem: Normal, par: BoundParams, u: Floats) -> Parts:
    scale = 2 * par.eta * par.L * par.G**2
    return Parts(float("nan"), *(float(scale * term) for term in parts(problem, u)))


def evaluate(
    radio: Radio,
    par: BoundParams,
    u: ArrayLike,
    solver: str,
    kkt_residual: float = float("nan"),
    iterations: int = 0,
    status: str = "closed form",
    history: tuple[float, ...] = (),
) -> Design:
    """Everything that follows from relative pre-scalers u (N,)."""
    u = np.asarray(u, float)
    problem = normal_form(radio, par)
    gamma = unit(radio, par) * problem.scale * u
    tx_prob = np.exp(-u * u / 2)  # Rayleigh: |h|^2 is exponential
    alpha = float(np.sum(gamma * tx_prob))
    terms = _parts(problem, par, u)
    total = sum(terms[1:])
    return Design(
        gamma=gamma,
        alpha=alpha,
        p=gamma * tx_prob / alpha,
        tx_prob=tx_prob,
        u=u,
        parts=terms,
        objective=total,
        normal_objective=total / (2 * par.eta * par.L * par.G**2),
        kkt_residual=kkt_residual,
        iterations=iterations,
        solver=solver,
        status=status,
        history=history,
    )


def solve_exact(radio: Radio, par: BoundParams, strict: bool = False) -> Design:
    """The global optimum of (P1), with its KKT residual as a certificate."""
    check(radio, par, strict)
    best = optimum(normal_form(radio, par))
    status = "optimal" if best.kkt_residual <= 1e-3 else "inaccurate"
    return evaluate(radio, par, best.u, "exact", float(best.kkt_residual), best.iterations, status)
