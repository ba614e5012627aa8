"""The bias-variance design problem in its normal form, solved exactly. NumPy, float64.

Symbols (arrays end in N devices, any leading axes are independent problems):

    s      scale, gamma_max / c = sqrt(SNR / 2), with c = sqrt(d N_0) / G
    u      gamma / gamma_max in (0, 1);  v = u^2;  a(u) = u exp(-v/2)
    p, t   p = s a t participation levels, t = 1 / sum(s a) = c / alpha
    w      target weights (1/N in the paper)
    J_n    sum p^2 (exp(v/2) - 1) + sum minibatch p^2 + n_f t^2 + rho sum (p - w)^2 / w

The problem is convex in (p, t), and more is true. On the simplex sum (p - w)^2 / w = sum p^2 / w - 1: bias acts like
mini-batch variance. With psi(a) = a^2 (exp(v/2) - 1) and H = 2 (minibatch + rho / w) the KKT conditions are

    s_m (psi'(a_m) + H_m a_m) = y                    one number y for all devices                               (K1)
    sum_m s_m^2 W(u_m) = 2 n_f,  W(u) = v^2 exp(-v/2) / (1 - v) = a psi' - 2 psi                                (K2)

Both left sides grow with u, so (K2) is one increasing scalar equation in y: it has exactly one root, which is the
global optimum. `kkt` solves the pair in O(N) per step. (K1) is divided by 1 + rho, so that rho = inf (the best
zero-bias design) is an ordinary input.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.core.arrays import Floats
from otafl.systems.biasvar.kkt import marginal, solve_kkt

PEAK = np.exp(-0.5)  # largest value of a(u), reached at u = 1


class Normal(NamedTuple):
    """The design problem without units. Leading axes broadcast; the last axis is devices."""

    scale: Floats  # (..., N) s
    rho: Floats  # (..., 1) kappa^2 / (eta L G^2), may be inf
    weights: Floats  # (..., N) w, sum to 1
    minibatch: Floats  # (..., N) sigma^2 / G^2
    noise_factor: float  # n_f: 1/2 for the real part, 1 as printed


class Optimum(NamedTuple):
    """The solution of a `Normal` problem."""

    u: Floats  # (..., N)
    p: Floats  # (..., N)
    objective: Floats  # (...) J_n
    kkt_residual: Floats  # (...) scale-free, 0 at the optimum
    iterations: int


def normal(
    scale: ArrayLike,
    rho: ArrayLike,
    weights: ArrayLike | None = None,
    minibatch: ArrayLike = 0.0,
    noise_factor: float = 0.5,
) -> Normal:
    """Broadcast the pieces: `scale` (..., N), `rho` (...); `weights` default to 1/N."""
    s = np.asarray(scale, float)
    w = np.full(s.shape[-1], 1 / s.shape[-1]) if weights is None else np.asarray(weights, float)
    return Normal(
        s, np.asarray(rho, float)[..., None], w, np.asarray(minibatch, float) + np.zeros_like(s), noise_factor
    )


def levels(scale: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Participation levels p (..., N) and t = c / alpha (..., 1) of given pre-scalers."""
    load = scale * u * np.exp(-u * u / 2)
    t = 1 / load.sum(-1, keepdims=True)
    return load * t, t


def parts(problem: Normal, u: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The terms of J_n: transmission, mini-batch, noise, bias, each (...)."""
    p, t = levels(problem.scale, u)
    gap = (p - problem.weights) ** 2 / problem.weights
    unbiased = np.all(np.abs(p - problem.weights) <= 1e-12 * problem.weights, axis=-1)
    with np.errstate(invalid="ignore"):
        bias = np.where(unbiased & np.isinf(problem.rho[..., 0]), 0.0, problem.rho[..., 0] * gap.sum(-1))
    # biasvar (10), first sum; far beyond the peak p^2 exp(u^2/2) vanishes, only its factors overflow
    transmission = (p * p * np.expm1(np.minimum(u * u, 1400.0) / 2)).sum(-1)
    return transmission, (problem.minibatch * p * p).sum(-1), problem.noise_factor * t[..., 0] ** 2, bias


def objective(problem: Normal, u: Floats) -> Floats:
    """J_n (...) = (9) without its optimisation part, divided by 2 eta L G^2."""
    transmission, minibatch, noise, bias = parts(problem, u)
    return transmission + minibatch + noise + bias


def optimum(problem: Normal) -> Optimum:
    """The unique global optimum of every problem along the leading axes.

    >>> best = optimum(normal([1.0, 1.0], rho=1.0))
    >>> best.p.round(12).tolist(), bool(best.kkt_residual < 1e-14)
    ([0.5, 0.5], True)
    """
    shape = np.broadcast_shapes(problem.scale.shape, problem.rho.shape)
    per_device = problem.scale, problem.minibatch, problem.weights
    s, minibatch, w = (np.broadcast_to(x, shape).reshape(-1, shape[-1]) for x in per_device)
    rho = np.broadcast_to(problem.rho, (*shape[:-1], 1)).reshape(-1, 1)
    share = 1 / (1 + rho)  # (K1) times this: rho = inf becomes share = 0
    pull = 2 * (minibatch * share + (1 - share) / w)
    u, iterations = solve_kkt(s, share, pull, 2 * problem.noise_factor)
    flat = Normal(s, rho, w, minibatch, problem.noise_factor)
    value = objective(flat, u)
    residual = _residual(flat, u, share, pull, value)
    lead = shape[:-1]
    return Optimum(
        u.reshape(shape), levels(s, u)[0].reshape(shape), value.reshape(lead), residual.reshape(lead), iterations
    )


def _residual(problem: Normal, u: Floats, share: Floats, pull: Floats, value: Floats) -> Floats:
    """max( max_m p_m |dJ_n/dp_m + lambda|, t |dJ_n/dt| ) / J_n; with rho = inf, max |p/w - 1| in place of the first."""
    s, (p, t) = problem.scale, levels(problem.scale, u)
    v, q = u * u, (1 - u) * (1 + u)
    along_t = t * t * (2 * problem.noise_factor - (s * s * v * v * np.exp(-v / 2) / q).sum(-1, keepdims=True))
    slope = s * marginal(u, q, share, pull)
    off = p * t * np.abs(slope - (p * slope).sum(-1, keepdims=True))  # lambda: the mean slope
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(share > 0, off / share / value[..., None], np.abs(p / problem.weights - 1))
    return np.maximum(off.max(-1), np.abs(along_t[..., 0]) / value)
