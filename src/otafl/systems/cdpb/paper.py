"""The paper's own route to (rho, tau), as printed, with a report of what it violates; and its lemmas, repaired.

Everything here uses the mean-field model with equal clients and no receiver noise unless a function says otherwise.
Float64, host.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.systems.cdpb.accounting import Charge, eps_round
from otafl.systems.cdpb.model import IDLE, NOISY, Params, Scheme, error_energy, scheme, stats
from otafl.systems.cdpb.solver import GRID, top_load, zoom

PAPER = Charge("paper")

MAX_MEMBERS = 20_000  # of the paper's T: each is solved on its own


def lemma1_typeset(params: Params, way: Scheme) -> float:
    """Load of (28) or (29) as typeset; NaN where (28) has no real root."""
    if way.portion == 0:
        a_i = params.A / params.W**2
        return float(2 / (np.sqrt(4 * a_i + 1) + 1))  # CDPB (29), exact, in the form that does not cancel
    a_n = params.A - params.W**2  # CDPB (28); dimensions disagree unless W = 1 (CDPB E5)
    if 4 * a_n + 9 < 0:
        return float("nan")
    return float(2 / (np.sqrt(4 * a_n + 9) + 1))


def lemma1(params: Params, way: Scheme = IDLE) -> float:
    """Load that minimises the error energy B, clamped to the cap.

    >>> round(lemma1(Params(A=10, W=1.5), IDLE), 6), round(lemma1(Params(A=10, W=1.5), NOISY), 6)
    (0.375, 0.350782)
    """
    r, top = params.A / params.W**2, top_load(params)
    plain = np.ndim(params.P) == np.ndim(params.sigma2) == 0 and params.sz2 == 0
    if plain and way == IDLE:
        return min(lemma1_typeset(params, IDLE), top)  # CDPB (29)
    if plain and way == NOISY:  # stationarity of e^u (r - 1) + e^(2u) / u
        return min(
            float(scipy.optimize.brentq(lambda u: (r - 1) * u**2 + np.exp(u) * (2 * u - 1), 1e-12, 1.0, xtol=1e-14)),
            top,
        )
    return zoom(lambda u: error_energy(params, stats(params, u, way)), np.geomspace(1e-9 * min(1.0, top), top, GRID))[0]


def lemma2(params: Params, way: Scheme = IDLE) -> float:
    """Load that minimises Theorem 1's eps; the paper says always the cap, which is not so (CDPB E7)."""
    top = top_load(params)
    if way == IDLE and np.ndim(params.P) == np.ndim(params.sigma2) == 0 and params.sz2 == 0:
        return float(np.clip(np.log(params.c / ((params.alpha - 1) * params.W**2)), 0, top))
    return zoom(
        lambda u: eps_round(params, stats(params, u, way), PAPER), np.linspace(1e-9 * min(1.0, top), top, GRID)
    )[0]


def theorem3(params: Params, tau: int) -> float:
    """(33) as printed, K_t = K e^-u by damped fixed-point iteration, clamped; NaN for a negative radicand."""
    load = 0.5 * params.u_max if np.isfinite(params.u_max) else 0.5
    shift = params.W**2 * (params.alpha - 1) / params.mean_power
    for _ in range(500):
        weight = params.lam1 / (params.lam2 * tau**2 * params.K * np.exp(-load))
        radicand = weight / params.W**2 / (shift + params.A * weight - 1)  # CDPB (33)
        if radicand < 0:
            return float("nan")
        step = 0.5 * load + 0.5 * min(float(np.sqrt(radicand)), params.u_max)
        if abs(step - load) < 1e-13:
            break
        load = step
    return load


def slope_noisy(params: Params, tau: int) -> Callable[[float], float]:
    """dG/du of CDPB-n under Theorem 1, what Algorithm 2 finds the root of."""
    s0 = (params.alpha - 1) * params.W**2 / params.c

    def f(u: float) -> float:
        d_error = (params.A * np.exp(u) + params.W**2 * (np.exp(2 * u) * (2 * u - 1) / u**2 - np.exp(u))) / params.K
        w = 1 - u * np.exp(-u)
        x, dx = -u + s0 / w, -1 + s0 * (1 - u) * np.exp(-u) / w**2
        leak = params.lam2 * tau * params.alpha / (params.alpha - 1) * dx / (1 + np.exp(-x))
        return float(params.lam1 * 6 / (params.mu * tau) * d_error + leak)

    return f


def algorithm2(params: Params, tau: int, tolerance: float = 1e-13) -> float:
    """Bisection for CDPB-n's load at a given tau, with the printed loop's faults removed (CDPB E20).

    >>> round(algorithm2(Params(alpha=5), 150), 6)
    0.404649
    """
    f, high = slope_noisy(params, tau), top_load(params)
    low = 1e-9 * min(1.0, high)
    if f(high) <= 0:
        return high
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return (low + high) / 2


def best_load(params: Params, tau: int, way: Scheme = IDLE, charge: Charge = PAPER) -> float:
    """Load that minimises lam1 6 B / (mu tau) + lam2 tau eps1 for a given number of rounds, without limits."""

    def utility(u: Array) -> Array:
        at = stats(params, u, way)
        gamma = 6 * error_energy(params, at) / (params.mu * tau)
        return params.lam1 * gamma + params.lam2 * tau * eps_round(params, at, charge)

    top = top_load(params)
    return zoom(utility, np.geomspace(1e-7 * min(1.0, top), top, GRID))[0]


class Attempt(NamedTuple):
    """Stage II at one tau."""

    tau: int
    u: float
    G: float
    gamma: float
    eps: float


class PaperSolution(NamedTuple):
    tau_gmin: int
    tau_emax: int
    tried: tuple[Attempt, ...]  # one for each tau of the set T
    best: Attempt | None  # None when T is empty or no load is real
    violates_gamma: tuple[int, ...]  # members of T whose Stage II load breaks gamma <= gbar
    violates_eps: tuple[int, ...]
    undefined: tuple[int, ...]  # members of T where (33) is not real
    certified: bool = False


def stage1(params: Params, way: Scheme, repaired: bool = False) -> tuple[int, int]:
    """The ends of T: tau_gmin and tau_emax, as printed or with both lemmas repaired."""
    if params.gbar is None or params.ebar is None:
        raise InputError("gbar and ebar: the paper's two stages need both limits")
    u_gamma = lemma1(params, way) if repaired else min(lemma1_typeset(params, way), params.u_max)
    u_eps = lemma2(params, way) if repaired else top_load(params)
    scale = params.mu if repaired else 1.0
    if np.isnan(u_gamma):
        raise InputError(f"A={params.A!r}, W={params.W!r}: (28) as typeset has no real root (CDPB E5); use solve")
    error = float(error_energy(params, stats(params, u_gamma, way)))
    eps1 = float(eps_round(params, stats(params, u_eps, way), PAPER))
    return int(np.ceil(6 * error / (scale * params.gbar))), int(np.floor(params.ebar / eps1))  # CDPB (27), (31)


def solve_paper(params: Params, strategy: str = "idle", numeric: bool = False) -> PaperSolution:
    """Stages I and II as printed (CDPB Algorithm 3), and which limits each member of T then breaks (CDPB E8).

    numeric: replace (33) by the true minimiser over rho, to tell Theorem 3's fault from that of the two stages.
    """
    validate.one_of("strategy", strategy, ("idle", "noisy"))
    if np.ndim(params.P) or np.ndim(params.sigma2) or params.sz2:
        raise InputError("solve_paper needs equal clients (numbers for P and sigma2) and sz2=0, as the paper assumes")
    way, plain = scheme(strategy), params.but(mu=1.0)  # the paper drops mu from 6 B / tau
    first, last = stage1(params, way)
    validate.at_most("members of T", last - first + 1, MAX_MEMBERS, "lower ebar, or use solve")
    tried = []
    for tau in range(first, last + 1):
        if strategy == "noisy":
            u = algorithm2(plain, tau)
        else:
            u = best_load(plain, tau) if numeric else theorem3(plain, tau)
        at = stats(plain, u, way)
        gamma, eps = 6 * float(error_energy(plain, at)) / tau, tau * float(eps_round(plain, at, PAPER))
        tried.append(Attempt(tau, u, plain.lam1 * gamma + plain.lam2 * eps, gamma, eps))
    real = [attempt for attempt in tried if np.isfinite(attempt.G)]
    return PaperSolution(
        first,
        last,
        tuple(tried),
        min(real, key=lambda attempt: attempt.G) if real else None,
        tuple(x.tau for x in real if x.gamma > float(params.gbar or np.inf)),
        tuple(x.tau for x in real if x.eps > float(params.ebar or np.inf)),
        tuple(x.tau for x in tried if not np.isfinite(x.G)),
    )
