"""Solving the optimality conditions (K1), (K2) of the bias-variance design. NumPy, float64.

Arrays are (B, N) per device or (B, 1) per problem; see `exact` for the symbols. With z = log(v / (1 - v)),

    s g(u) = y,   g = share psi'(a) + pull a       (K1)
    sum s^2 W(u) = noise                           (K2)

First Newton on both together in logarithms, all devices at once: some 7 steps. It has no guarantee, so what it did not
settle (strong spread with large rho) goes to a bracketed search over one reference device, the one closest to its
peak: given its u, (K1) gives y and then every other u, and (K2) grows with it.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from otafl.core.arrays import Bools, Floats

_STEPS = 100  # of the searches, which end by convergence after about 5
_FAST = 16  # Newton steps before the search takes over


def solve_kkt(s: Floats, share: Floats, pull: Floats, noise: float) -> tuple[Floats, int]:
    """u (B, N) and the number of steps."""
    with np.errstate(all="ignore"):  # Newton may run off; a step of 0/0 in the search falls back to its bracket
        u, steps, settled = _newton(s, share, pull, noise)
        if not settled.all():
            rest = ~settled[:, 0]
            u[rest], more = _search(s[rest], share[rest], pull[rest], noise)
            steps += more
    return u, steps


def _newton(s: Floats, share: Floats, pull: Floats, noise: float) -> tuple[Floats, int, Bools]:
    """Newton on the logarithms of (K1) and (K2) over all z and log y; also which rows (B, 1) it solved."""
    square = s * s
    log_s = np.log(s)
    # start: the same u for all where rho is small, u ~ 1/s (equal levels) where it is large
    z = logit(_inverse_w(noise / square.sum(-1, keepdims=True), steps=3))
    z = z - 2 * (1 - share) * (log_s - log_s.mean(-1, keepdims=True))
    for steps in range(1, _FAST + 1):  # noqa: B007 (reported)
        v, q = expit(z), expit(-z)
        e, rest = np.exp(-v / 2), -np.expm1(-v / 2)
        slow = share * (v / q + 2 * rest) + pull * e  # g / u
        stiffness = (share * (2 * (v * e + rest) + (3 - v) * v / (q * q)) + pull * e * q) * q / (2 * slow)  # dlog g/dz
        each = square * v * v * e / q  # s^2 W
        lever = each * (2 * q - v * q / 2 + v) / stiffness  # d(s^2 W) / dlog y
        log_g = np.log(s * np.sqrt(v) * slow)
        total = each.sum(-1, keepdims=True)
        error = np.log(total / noise)
        log_y = ((lever * log_g).sum(-1, keepdims=True) - total * error) / lever.sum(-1, keepdims=True)
        step = (log_y - log_g) / stiffness
        z = z + np.minimum(np.maximum(step, -10.0), 10.0)
        # quadratic: after a step of 1e-8 nothing is left; (K2) is asked too, for stiffness may hide it near u = 1
        settled = (np.abs(step).max(-1, keepdims=True) <= 1e-8) & (np.abs(error) <= 1e-9)
        if settled.all():
            break
    return np.minimum(np.sqrt(expit(z)), 1 - 2.0**-53), steps, settled


def _search(s: Floats, share: Floats, pull: Floats, noise: float) -> tuple[Floats, int]:
    """Newton on log sum s^2 W = log 2 n_f over z of the reference device, inside its bracket; (u, steps).

    All arrays are (B, N) or (B, 1).
    """
    square = s * s
    low = _inverse_w(noise / square.sum(-1, keepdims=True))  # v if all devices had the same u
    u = np.broadcast_to(np.sqrt(low), s.shape)
    ref = np.arange(len(s)), (s * marginal(u, 1 - low, share, pull)).argmin(-1)
    s_ref, pull_ref = s[ref][:, None], pull[ref][:, None]
    high = np.maximum(low, _inverse_w(noise / s_ref**2))  # v if the reference device stood alone
    z_low, z_high = logit(low) - 1e-6, logit(high) + 1e-6
    z, step, last = z_low + 1e-6, np.inf, np.inf
    for steps in range(_STEPS):  # noqa: B007 (reported)
        v_ref, q_ref = expit(z), expit(-z)
        y = s_ref * marginal(np.sqrt(v_ref), q_ref, share, pull_ref)
        u = _invert(y / s, share, pull, u)
        u[ref] = np.sqrt(v_ref[:, 0])
        # Newton doubles the digits: after a step of 1e-9 nothing is left; near u = 1 rounding stops it earlier
        size, before = np.abs(step), np.abs(last)
        if np.all((size <= 1e-9) | (size <= 1e-4) & (size > 0.3 * before)):
            break
        v, q, last = u * u, (1 - u) * (1 + u), step
        q[ref] = q_ref[:, 0]
        each = square * v * v * np.exp(-v / 2) / q  # s^2 W
        total = each.sum(-1, keepdims=True)
        error = np.log(total / noise)
        stiffness = _log_slope(u, q, share, pull)  # d log y / dv
        swing = stiffness[ref][:, None] * v_ref * q_ref  # d log y / dz
        step = -error * total / (swing * (each * (2 / v - 0.5 + 1 / q) / stiffness).sum(-1, keepdims=True))
        z_low, z_high = np.where(error > 0, z_low, z), np.where(error > 0, z, z_high)
        new = _inside(z, step, z_low, z_high, 1e-4)
        u = np.sqrt(np.clip(v + swing * (new - z) / stiffness, 0.1 * v, v + 0.9 * q))  # first-order guess
        z = new
    return u, steps


def _inside(x: Floats, step: Floats, low: Floats, high: Floats, tiny: ArrayLike) -> Floats:
    """x + step where that stays in the bracket or hardly moves, else the middle of the bracket."""
    new = x + step
    return np.where((new > low) & (new < high) | (np.abs(step) <= tiny), new, (low + high) / 2)


def _inverse_w(level: Floats, steps: int = _STEPS) -> Floats:
    """v with W = level; v^2 exp(-v/2) - level (1 - v) is convex, so Newton falls onto its root from sqrt(level)."""
    v = np.minimum(1.0, np.sqrt(level))
    for _ in range(steps):
        e = np.exp(-v / 2)
        step = (v * v * e - level * (1 - v)) / (v * e * (2 - v / 2) + level)
        v = v - step
        if (np.abs(step) <= 1e-9 * v).all():  # quadratic: exact now
            break
    return np.minimum(v, 1 - 1e-15)


def marginal(u: Floats, q: Floats, share: Floats, pull: Floats) -> Floats:
    """share psi'(a) + pull a, the left side of (K1) without s; q = 1 - u^2."""
    v = u * u
    return share * u * (v / q - 2 * np.expm1(-v / 2)) + pull * u * np.exp(-v / 2)


def _log_slope(u: Floats, q: Floats, share: Floats, pull: Floats) -> Floats:
    """d log(marginal) / d(u^2)."""
    v, e = u * u, np.exp(-u * u / 2)
    slope = share * (2 * (v * e - np.expm1(-v / 2)) + (3 - v) * v / q**2) + pull * e * q  # d/du
    return slope / (2 * u * marginal(u, q, share, pull))


def _invert(level: Floats, share: Floats, pull: Floats, u: Floats) -> Floats:
    """u (..., N) with marginal(u) = level: bracketed Newton on (1 - u^2)(marginal - level), which has no pole."""
    low, high = np.zeros_like(level), np.ones_like(level)
    for _ in range(_STEPS):
        v, e = u * u, np.exp(-u * u / 2)
        q, rest = 1 - v, -np.expm1(-v / 2)
        value = share * u * (v + 2 * q * rest) + q * (pull * u * e - level)
        slope = share * (3 * v + 2 * q * (rest + v * e) - 4 * v * rest) + pull * e * (q * q - 2 * v) + 2 * u * level
        low, high = np.where(value > 0, low, u), np.where(value > 0, u, high)
        tiny = 1e-9 * u * q + 2e-16  # the next Newton step would be below rounding
        new = _inside(u, -value / slope, low, high, tiny)
        if (np.abs(new - u) <= tiny).all():
            return new
        u = new
    return u
