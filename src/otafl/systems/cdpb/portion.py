"""The best coin-flip portion of CDPB-mixed, which the paper leaves open. Float64, host.

At fixed rho and tau, G is convex in the noise v for every accountant (log-sum-exp of convex functions of 1 / v), and v
is linear in the portion, so a one-dimensional search is exact. With rho free, sound accounting and trusted receiver
noise, idle wins: any portion > 0 is beaten by idle at a smaller rho (`idle_twin`).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import Infeasible, InputError
from otafl.systems.cdpb.accounting import VISIBLE, Charge, inv_z2, make_charge
from otafl.systems.cdpb.model import Params, Scheme, stats
from otafl.systems.cdpb.solver import Problem, evaluate, make_problem, optimum, zoom


class BestPortion(NamedTuple):
    portion: float
    u: float
    tau: float
    G: float
    gain: float  # relative to the better of idle and noisy


def _choice(portions: Array, values: Array, loads: Array, taus: Array) -> BestPortion:
    best = int(np.argmin(values))
    ends = min(values[0], values[-1])
    portion, u, tau, G = (float(x[best]) for x in (portions, loads, taus, values))
    return BestPortion(portion, u, tau, G, float(1 - G / ends))


def portion_fixed(params: Params, u: float, tau: int, charge: Charge) -> BestPortion:
    """Best portion at given rho and tau."""

    def utility(portion: Array) -> Array:
        return np.array([evaluate(problem._replace(scheme=Scheme(x)), u, tau).G for x in np.atleast_1d(portion)])

    problem = Problem(params, Scheme(), charge, "simple", float(tau))
    inner, value = zoom(utility, np.linspace(0, 1, 21), times=5, points=21)
    ends = utility(np.array([0.0, 1.0]))
    portions, values = np.array([0.0, inner, 1.0]), np.array([ends[0], value, ends[1]])
    return _choice(portions, values, np.full(3, u), np.full(3, float(tau)))


def free_utility(problem: Problem) -> tuple[float, float, float]:
    """Without limits and with real tau: (G, u, tau) with G = 2 sqrt(6 lam1 lam2 B eps1 / mu) at the best load."""
    p = problem.params

    def product(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        return error * eps1

    u, least = zoom(product, problem.loads())
    error, eps1 = problem.curves(np.asarray(u))
    tau = float(np.sqrt(6 * p.lam1 * error / (p.mu * p.lam2 * eps1)))
    return float(2 * np.sqrt(6 * p.lam1 * p.lam2 * least / p.mu)), u, tau


def best_portion(
    params: Params,
    *,
    u: float | None = None,
    tau: int | None = None,
    tau_cap: int | None = None,
    **charging: Any,
) -> BestPortion:
    """Portion in [0, 1] that minimises G: at a given (u, tau), or with rho and tau chosen anew for each portion.

    Limits gbar and ebar are obeyed where set; without them, and under the paper's accounting, tau is real.
    `charging`: as `make_charge` takes it.

    >>> best_portion(Params(K=100, gbar=None, ebar=None), accounting="paper").portion
    0.0
    """
    charge = make_charge(**charging)
    if (u is None) != (tau is None):
        raise InputError("u and tau: give both (portion alone is chosen) or neither")
    if u is not None and tau is not None:
        validate.positive("u", u)
        validate.whole("tau", tau)
        return portion_fixed(params, u, tau, charge)
    problem = make_problem(params, Scheme(), charge, tau_cap, "simple")
    real_tau = params.gbar is None and params.ebar is None and tau_cap is None
    if real_tau and (params.lam1 == 0 or params.lam2 == 0):
        raise InputError("lam1 and lam2 must both be > 0 when nothing limits tau")

    def values(portions: Array) -> Array:
        rows = []
        for portion in portions:
            there = problem._replace(scheme=Scheme(float(portion)))
            if real_tau:
                rows.append(free_utility(there))
            else:
                found = optimum(there)
                rows.append((np.inf, np.nan, np.nan) if found is None else (found.G, found.u, float(found.tau)))
        return np.array(rows).T

    inner, least = zoom(lambda x: values(x)[0], np.linspace(0, 1, 6), times=3, points=6)
    if not np.isfinite(least):
        raise Infeasible("no portion in [0, 1] meets both limits")
    portions = np.array([0.0, inner, 1.0])
    G, loads, taus = values(portions)
    return _choice(portions, G, loads, taus)


def idle_twin(params: Params, u: float, portion: float, charge: Charge = VISIBLE) -> float:
    """The idle load w <= u that beats (u, portion): less error, no more privacy loss, at the same tau.

    With m = 0, 1, 2 for `none`, `visible`, `hidden`, w is the smallest root of e^(-m w) x_idle(w) = e^(-m u) x(u),
    x = 1 / z^2. Proved for equal clients, zero-out and trusted (or no) receiver noise.
    """
    power = {"none": 0, "visible": 1, "hidden": 2}[charge.accounting]

    def level(w: float, scheme: Scheme) -> float:
        return float(np.exp(-power * w) * inv_z2(params, stats(params, w, scheme), charge))

    target = level(u, Scheme(portion))
    grid = np.linspace(0, u, 2001)[1:]
    above = np.exp(-power * grid) * inv_z2(params, stats(params, grid, Scheme()), charge) >= target
    first = float(grid[np.argmax(above)]) if above.any() else u
    left = max(first - u / 2000, 1e-300)
    if level(left, Scheme()) >= target:
        return left
    return float(scipy.optimize.brentq(lambda w: level(w, Scheme()) - target, left, first, xtol=1e-15, rtol=1e-12))
