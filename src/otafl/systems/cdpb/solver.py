"""The search for (rho, tau): a grid in log u, refined around its best points, with the best whole tau of each.

Float64, host. `joint.solve` is what to call.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.systems.cdpb.accounting import Charge, eps_round
from otafl.systems.cdpb.convergence import BOUNDS, gamma_of
from otafl.systems.cdpb.model import Params, Scheme, error_energy, stats

GRID = 400
LEAST_LOAD = 1e-6  # smallest load searched, as a share of the largest where that is below 1
FREE_LOAD = 10.0  # largest load searched without the cap: one client in 22,000 takes part


def top_load(params: Params) -> float:
    """Largest load that is searched."""
    return min(params.u_max, FREE_LOAD)


class Design(NamedTuple):
    """A pair (rho, tau) and what it is worth."""

    u: float
    rho: float
    tau: int
    G: float  # lam1 gamma + lam2 eps
    gamma: float
    eps1: float  # RDP of one round
    eps: float  # of all rounds
    B: float


class Problem(NamedTuple):
    """All that the search needs."""

    params: Params
    scheme: Scheme
    charge: Charge
    bound: str
    tau_cap: float

    def curves(self, u: Array) -> tuple[Array, Array]:
        """B and eps1 at loads u."""
        at = stats(self.params, u, self.scheme)
        return error_energy(self.params, at), eps_round(self.params, at, self.charge)

    def utility(self, error: Array, eps1: Array, tau: Array) -> Array:
        """G = lam1 gamma + lam2 tau eps1, CDPB (24)."""
        gamma = gamma_of(self.params, error, tau, self.bound)
        with np.errstate(invalid="ignore"):
            leak = np.where(self.params.lam2 > 0, self.params.lam2 * tau * eps1, 0.0)
        return self.params.lam1 * gamma + leak

    def excess(self, error: Array, eps1: Array, tau: Array) -> Array:
        """The larger of gamma / gbar and eps / ebar: feasible iff <= 1."""
        worst = np.zeros(np.broadcast(error, tau).shape)
        if self.params.gbar is not None:
            worst = np.maximum(worst, gamma_of(self.params, error, tau, self.bound) / self.params.gbar)
        if self.params.ebar is not None:
            worst = np.maximum(worst, tau * eps1 / self.params.ebar)
        return worst

    def loads(self) -> Array:
        """Log grid of u. Below its left end gamma <= gbar needs more than tau_cap rounds, as B >= W^2 / (K u)."""
        p = self.params
        left = LEAST_LOAD * min(1.0, top_load(p))
        if p.gbar is not None and np.isfinite(self.tau_cap):
            left = min(left, 3 * p.W**2 / (p.K * p.mu * p.gbar * self.tau_cap))
        return np.geomspace(left, top_load(p), GRID)


def least_tau(problem: Problem, error: Array) -> Array:
    """Smallest tau with gamma <= gbar; gamma falls with tau."""
    p = problem.params
    if p.gbar is None:
        return np.ones_like(error)
    if problem.bound == "simple":
        return np.maximum(1.0, np.ceil(6 * error / (p.mu * p.gbar) * (1 - 1e-12)))
    low, high = np.zeros_like(error), np.full_like(error, 2.0**53)
    for _ in range(54):
        middle = np.floor((low + high) / 2)
        met = gamma_of(p, error, np.maximum(middle, 1), problem.bound) <= p.gbar
        low, high = np.where(met, low, middle), np.where(met, middle, high)
    return np.maximum(high, 1.0)


def most_tau(problem: Problem, eps1: Array) -> Array:
    """Largest tau with eps <= ebar and within the cap."""
    high = np.full_like(eps1, problem.tau_cap)
    if problem.params.ebar is None:
        return high
    with np.errstate(divide="ignore"):
        return np.minimum(high, np.floor(problem.params.ebar / eps1 * (1 + 1e-12)))


def best_tau(problem: Problem, error: Array, eps1: Array) -> Array:
    """The best whole tau for each u within both limits; NaN where there is none."""
    p = problem.params
    low, high = least_tau(problem, error), most_tau(problem, eps1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if problem.bound == "simple":
            free = np.sqrt(6 * p.lam1 * error / (p.mu * p.lam2 * eps1)) if p.lam2 > 0 else np.full_like(error, np.inf)
            pair = [np.clip(f(free), low, high) for f in (np.floor, np.ceil)]
        else:  # beyond `last` the leak alone costs more than stopping after one round
            last = (p.lam1 * gamma_of(p, error, 1.0, problem.bound) / (p.lam2 * eps1) + 1) if p.lam2 > 0 else np.inf
            top = np.clip(np.minimum(high, last), low, None)
            pair = [_ternary(lambda tau: problem.utility(error, eps1, tau), low, top)]
        value = np.stack([problem.utility(error, eps1, np.maximum(tau, 1)) for tau in pair])
    best = np.take_along_axis(np.stack(pair), np.argmin(value, 0)[None], 0)[0]
    return np.where((low <= high) & np.isfinite(best) & np.isfinite(error) & np.isfinite(eps1), best, np.nan)


def _ternary(f: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Whole minimiser of a function that falls, then rises, elementwise."""
    low, high = low.copy(), np.floor(np.where(np.isfinite(high), high, 2.0**53))
    for _ in range(60):
        middle = np.floor((low + high) / 2)
        falls = f(np.maximum(middle + 1, 1)) < f(np.maximum(middle, 1))
        low, high = np.where(falls & (low < high), middle + 1, low), np.where(falls | (low >= high), high, middle)
    return low


def zoom(f: Callable[[Array], Array], grid: Array, times: int = 7, points: int = 61) -> tuple[float, float]:
    """Minimise f over an interval by ever finer grids around the best point: (argument, value)."""
    value = f(grid)
    for _ in range(times):
        best = int(np.argmin(value))
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], points)
        value = f(grid)
    best = int(np.argmin(value))
    return float(grid[best]), float(value[best])


def at_tau(problem: Problem, tau: float, grid: Array) -> tuple[float, float]:
    """Best u for one tau: (u, G), G = inf if no u meets the limits."""

    def penalised(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        excess = problem.excess(error, eps1, tau)
        return np.where(excess <= 1, problem.utility(error, eps1, tau), 1e200 * (1 + np.minimum(excess, 1e50)))

    u, value = zoom(penalised, grid)
    return u, value if value < 1e200 else np.inf


def optimum(problem: Problem) -> Design | None:
    """Best design, or None. Stage 1: best load with the best whole tau of each; stage 2: best load at each near tau."""
    grid = problem.loads()

    def best_value(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        tau = best_tau(problem, error, eps1)
        return np.where(np.isnan(tau), np.inf, problem.utility(error, eps1, np.where(np.isnan(tau), 1, tau)))

    first, value = zoom(best_value, grid)
    error, eps1 = problem.curves(np.array([first]))
    tau = float(best_tau(problem, error, eps1)[0])
    if not np.isfinite(value):  # the feasible loads may lie between two grid points
        first, _ = least_product(problem)
        tau = _balanced_tau(problem, *(float(x) for x in problem.curves(np.asarray(first))))
    near = np.append(np.floor(tau) + np.arange(-4, 5), problem.tau_cap)
    near = np.unique(np.clip(near[np.isfinite(near)], 1, problem.tau_cap))
    found = [(*at_tau(problem, t, grid)[::-1], t) for t in near.tolist()]
    if not found or not np.isfinite(min(found)[0]):
        return None
    _, u, chosen = min(found)
    return evaluate(problem, u, int(chosen))


def _balanced_tau(problem: Problem, error: float, eps1: float) -> float:
    """Where both limits are equally tight (simple bound)."""
    p = problem.params
    if p.gbar is None or p.ebar is None or eps1 == 0:
        return 1.0 if p.gbar is None else min(float(least_tau(problem, np.array(error))), problem.tau_cap)
    return float(np.sqrt(6 * error * p.ebar / (p.mu * p.gbar * eps1)))


def least_product(problem: Problem) -> tuple[float, float]:
    """min over u of 6 B eps1 / mu."""

    def product(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        return np.where(np.isfinite(error), 6 * error * eps1 / problem.params.mu, np.inf)

    return zoom(product, problem.loads())


def evaluate(problem: Problem, u: float, tau: int) -> Design:
    error, eps1 = (float(x) for x in problem.curves(np.asarray(u, float)))
    gamma = float(gamma_of(problem.params, error, tau, problem.bound))
    value = float(problem.utility(error, eps1, tau))
    return Design(float(u), float(problem.params.rho(u)), int(tau), value, gamma, eps1, tau * eps1, error)


def make_problem(
    params: Params, scheme: Scheme, charge: Charge, tau_cap: int | None, bound: str, free_rho: bool = True
) -> Problem:
    """Check and pack; a given rho needs no tau_cap where rounds cost something."""
    validate.one_of("bound", bound, BOUNDS)
    if tau_cap is not None:
        validate.whole("tau_cap", tau_cap)
    elif charge.repaired and free_rho:
        raise InputError("tau_cap is required: with sound accounting G improves without end as rho -> 0 and tau -> inf")
    elif params.lam2 == 0 and params.ebar is None:
        raise InputError("tau_cap is required when neither lam2 nor ebar charges for rounds")
    return Problem(params, scheme, charge, bound, np.inf if tau_cap is None else float(tau_cap))
