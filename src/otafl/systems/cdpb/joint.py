"""The joint solver for (rho, tau), with either or both given. Float64, host."""

from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import Infeasible, InputError
from otafl.systems.cdpb.accounting import make_charge
from otafl.systems.cdpb.certificate import certificate, refusal
from otafl.systems.cdpb.convergence import gamma_of
from otafl.systems.cdpb.model import Params, Scheme, scheme
from otafl.systems.cdpb.solver import (
    Design,
    Problem,
    at_tau,
    best_tau,
    evaluate,
    least_tau,
    make_problem,
    most_tau,
    optimum,
)


class Solution(NamedTuple):
    """A design and what stands in its way."""

    design: Design
    gamma_full: float  # Theorem 2 with all its terms, whatever bound was optimised (CDPB E16)
    binding: tuple[str, ...]  # limits whose absence would give a better G: gamma, eps, tau_cap, rho_cap
    violated: tuple[str, ...]  # limits that a given pair (rho, tau) breaks; empty for everything that was solved for
    certified: bool  # always False: plug-in values; a run is certified by its realised channels


def solve(
    params: Params,
    strategy: str | Scheme = "idle",
    *,
    rho: float | None = None,
    tau: int | None = None,
    tau_cap: int | None = None,
    bound: str = "simple",
    **charging: Any,
) -> Solution:
    """Minimise G = lam1 gamma + lam2 eps over rho and whole tau subject to gamma <= gbar and eps <= ebar.

    `rho` or `tau` fixes one of the two; with both the pair is judged, and `violated` says which limits it breaks.
    Raises Infeasible, with a `Certificate` as its report when both are free, where no pair exists. `charging`: as
    `make_charge` takes it.

    >>> solve(Params(), "idle", accounting="paper").design.tau
    62
    >>> solve(Params(), rho=0.4, tau=50).violated
    ('gamma',)
    """
    way = scheme(strategy) if isinstance(strategy, str) else strategy
    charge = make_charge(**charging)
    u = None if rho is None else float(params.load(rho))
    if tau is not None:
        validate.whole("tau", tau)
        if tau_cap is not None and tau > tau_cap:
            raise InputError(f"tau={tau} must be <= tau_cap={tau_cap}")
        tau_cap = tau
    problem = make_problem(params, way, charge, tau_cap, bound, free_rho=u is None)
    best = _find(problem, u, tau)
    if best is None:
        raise _infeasible(problem, u, tau)
    full = float(gamma_of(params, best.B, best.tau, "full"))
    judged = u is not None and tau is not None
    violated = _violated(params, best) if judged else ()
    return Solution(best, full, () if judged else _binding(problem, best, u, tau), violated, certified=False)


def _find(problem: Problem, u: float | None, tau: int | None) -> Design | None:
    if u is not None and tau is not None:
        return evaluate(problem, u, tau)
    if u is not None:
        chosen = float(best_tau(problem, *problem.curves(np.array([u])))[0])
        return None if np.isnan(chosen) else evaluate(problem, u, int(chosen))
    if tau is not None:
        load, value = at_tau(problem, tau, problem.loads())
        return evaluate(problem, load, tau) if np.isfinite(value) else None
    return optimum(problem)


def _violated(params: Params, design: Design) -> tuple[str, ...]:
    pairs = (("gamma", design.gamma, params.gbar), ("eps", design.eps, params.ebar))
    return tuple(name for name, value, limit in pairs if limit is not None and value > limit * (1 + 1e-12))


def _infeasible(problem: Problem, u: float | None, tau: int | None) -> Infeasible:
    p = problem.params
    if u is not None:
        error, eps1 = problem.curves(np.array([u]))
        low, high = float(least_tau(problem, error)[0]), float(most_tau(problem, eps1)[0])
        said = f"rho={float(p.rho(u)):.6g}: gamma <= {p.gbar} needs {low:.0f} rounds, eps <= {p.ebar} "
        said += f"and tau_cap allow {high:.0f}"
        return Infeasible(said, {"rho": float(p.rho(u)), "tau_least": low, "tau_most": high})
    proof = certificate(problem)
    if tau is not None:
        return Infeasible(f"no rho meets gbar={p.gbar} and ebar={p.ebar} in tau={tau} rounds", proof)
    return Infeasible(refusal(problem, proof), proof)


def _binding(problem: Problem, best: Design, u: float | None, tau: int | None) -> tuple[str, ...]:
    """Limits without which G would improve by more than a millionth."""
    p = problem.params
    free_of = {
        "gamma": problem._replace(params=p.but(gbar=None)) if p.gbar is not None else None,
        "eps": problem._replace(params=p.but(ebar=None)) if p.ebar is not None else None,
        "tau_cap": problem._replace(tau_cap=2 * problem.tau_cap) if np.isfinite(problem.tau_cap) and not tau else None,
        "rho_cap": problem._replace(params=p.but(capped=False)) if p.capped else None,
    }
    better = {name: _find(other, u, tau) for name, other in free_of.items() if other is not None}
    return tuple(name for name, other in better.items() if other is not None and other.G < best.G * (1 - 1e-6))
