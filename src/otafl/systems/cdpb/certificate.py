"""Why no (rho, tau) meets both limits, and what would have to give. Float64, host.

With gamma = 6 B / (mu tau) and eps = tau eps1 the number of rounds cancels in the product, so both limits can be met
(tau real) iff min over rho of 6 B eps1 / mu <= gbar ebar; letting rho -> 0 turns that into a law without any solver:
3 alpha d W^2 < mu gbar ebar K^2 (CDPB E10). It is necessary whatever tau_cap, and sufficient without one.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.systems.cdpb.accounting import VISIBLE, Charge
from otafl.systems.cdpb.convergence import gamma_of
from otafl.systems.cdpb.model import Params
from otafl.systems.cdpb.solver import Problem, least_product, least_tau, most_tau, optimum, zoom

MANY = 2**40  # clients or rounds beyond which no relaxation is looked for
WALK = 20  # single steps beyond what bisection found: values of 10^9 could take thousands, and 1 % is promised


class Certificate(NamedTuple):
    """Why no pair exists."""

    least_product: float  # min over rho of 6 B eps1 / mu
    target_product: float  # gbar ebar
    at_u: float
    law: float  # 3 alpha d W^2 / (mu K^2), zero-out; the infimum of the product for repaired accounting
    law_forbids: bool  # by the law alone, whatever rho, portion, trusted noise and tau
    tau_cap: int | None
    least_gap: float  # min over rho of (rounds that gamma needs) - (rounds that eps and tau_cap allow)
    law_relax: dict[str, float]  # where the law stops forbidding, each alone: enough only without a tau_cap
    relax: dict[str, float]  # each of these values alone makes a design possible: solved, not argued


def feasibility_law(params: Params, charge: Charge = VISIBLE) -> float:
    """Infimum over rho, portion and tau of gamma eps, simple bound and repaired accounting (CDPB E10).

    3 alpha d W^2 / (mu K^2) under zero-out, four times that under replace; receiver noise that the learning suffers but
    the accountant does not trust multiplies it by 1 + d sz2 / c.

    >>> feasibility_law(Params(K=100, d=1666)) < 1 < feasibility_law(Params(K=100, d=1667))
    True
    """
    factor = 12.0 if charge.adjacency == "replace" else 3.0
    untrusted = 1.0 if charge.trust_receiver_noise else 1 + params.d * params.sz2 / params.c
    return factor * params.alpha * params.d * params.W**2 / (params.mu * params.K**2) * untrusted


def certificate(problem: Problem) -> Certificate:
    """Why nothing meets both limits, and what would."""
    p = problem.params
    at, least = least_product(problem)
    target = np.inf if p.gbar is None or p.ebar is None else p.gbar * p.ebar
    law = feasibility_law(p, problem.charge) if problem.charge.repaired else np.nan
    forbids = bool(problem.charge.repaired and problem.bound == "simple" and law >= target)
    cap = None if np.isinf(problem.tau_cap) else int(problem.tau_cap)
    error, eps1 = problem.curves(problem.loads())
    gap = float(np.min(least_tau(problem, error) - most_tau(problem, eps1)))
    by_law = _law_relax(problem, law / target) if forbids else {}
    return Certificate(least, target, at, law, forbids, cap, gap, by_law, relaxations(problem, forbids))


def _law_relax(problem: Problem, over: float) -> dict[str, float]:
    """Limits and sizes at which the law holds again, `over` being how much it is broken by."""
    p = problem.params
    assert p.gbar is not None and p.ebar is not None
    found = {"gbar": p.gbar * over, "ebar": p.ebar * over, "W": float(p.W / np.sqrt(over))}
    if problem.charge.trust_receiver_noise:
        found |= {"d": float(np.ceil(p.d / over) - 1), "K": float(np.floor(p.K * np.sqrt(over)) + 1)}
    return found


def refusal(problem: Problem, proof: Certificate) -> str:
    """The certificate in one line."""
    p = problem.params
    if proof.law_forbids:
        said = (
            f"gbar={p.gbar} and ebar={p.ebar} cannot be met together: gamma * eps > {proof.law:.4g} always, "
            f"but gbar * ebar = {proof.target_product:.4g} (3 alpha d W^2 < mu gbar ebar K^2 fails, CDPB E10)"
        )
    elif problem.bound == "simple" and proof.least_product > proof.target_product:
        said = (
            f"gbar={p.gbar} and ebar={p.ebar} cannot be met together: the least gamma * eps over rho is "
            f"{proof.least_product:.4g} (at u={proof.at_u:.4g}), but gbar * ebar = {proof.target_product:.4g}"
        )
    else:
        cap = "" if proof.tau_cap is None else f" within tau_cap={proof.tau_cap} rounds"
        short = f"{proof.least_gap:.4g} rounds short at best"
        said = f"no (rho, whole tau) meets gbar={p.gbar} and ebar={p.ebar}{cap}: {short}"
    if proof.relax:
        said += "; any one of these would do: " + ", ".join(
            f"{name}={value:.6g}" for name, value in proof.relax.items()
        )
    return said


def relaxations(problem: Problem, forbidden: bool) -> dict[str, float]:
    """For gbar, ebar, tau_cap, W, d and K a value, within 1 % of the nearest, that alone makes a design possible.

    Every value has been solved with. Feasibility is monotone in each of them. `forbidden` by the law: no tau_cap helps.
    """
    p, found = problem.params, {}
    for name, least in (("gbar", _least_gamma(problem)), ("ebar", _least_eps(problem))):
        if getattr(p, name) is not None:
            found[name] = _confirmed(problem, name, least)
    if problem.charge.accounting == "hidden" and problem.charge.adjacency == "replace":
        return {name: value for name, value in found.items() if np.isfinite(value)}  # every point is a quadrature
    if np.isfinite(problem.tau_cap) and not forbidden:
        found["tau_cap"] = _first(lambda x: problem._replace(tau_cap=float(x)), int(problem.tau_cap))
    found["W"] = _largest_norm(problem)
    found["d"] = -_first(lambda x: problem._replace(params=p.but(d=-x)), -p.d, stop=-1)
    if np.ndim(p.P) == np.ndim(p.sigma2) == 0:
        found["K"] = _first(lambda x: problem._replace(params=p.but(K=x)), p.K)
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _least_gamma(problem: Problem) -> float:
    """The least gamma that ebar and tau_cap allow."""

    def gamma(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        tau = most_tau(problem, eps1)
        bounded = np.where(np.isfinite(tau), np.maximum(tau, 1), 2.0**53)
        return np.where(tau >= 1, gamma_of(problem.params, error, bounded, problem.bound), np.inf)

    return zoom(gamma, problem.loads())[1]


def _least_eps(problem: Problem) -> float:
    """The least eps that gbar and tau_cap allow."""

    def eps(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        tau = least_tau(problem, error)
        return np.where(tau <= problem.tau_cap, tau * eps1, np.inf)

    return zoom(eps, problem.loads())[1]


def _confirmed(problem: Problem, name: str, value: float) -> float:
    """`value`, rounded up to six digits at least, as a limit under which the solver finds a design."""
    if not 0 < value < np.inf:
        return np.inf
    unit = 10.0 ** (math.floor(math.log10(value)) - 5)
    for extra in (0, 1, 10, 100, 1000, 10_000):
        limit = float(f"{(math.ceil(value / unit) + extra) * unit:.10g}")
        if optimum(problem._replace(params=problem.params.but(**{name: limit}))) is not None:
            return limit
    return np.inf


def _possible(problem: Problem) -> bool:
    """Whether some load leaves room between the rounds that gamma needs and those that eps and tau_cap allow."""

    def gap(u: Array) -> Array:
        error, eps1 = problem.curves(u)
        return least_tau(problem, error) - most_tau(problem, eps1)

    return bool(np.min(gap(problem.loads())) <= 0) or zoom(gap, problem.loads(), times=4)[1] <= 0


def _first(at: Callable[[int], Problem], low: int, stop: int = MANY) -> float:
    """Smallest whole x in (low, stop] whose problem has a design, given that low has none; inf without one."""
    step, end, first = 1, stop, low
    while low < stop:
        high = min(low + step, stop)
        if _possible(at(high)):
            end = high
            break
        low, step = high, 2 * step if stop == MANY else max(1, (stop - high + 1) // 2)
    else:
        return np.inf
    while end - low > 1:
        middle = (low + end) // 2
        low, end = (low, middle) if _possible(at(middle)) else (middle, end)
    for _ in range(WALK):  # narrow windows that the gap does not show
        if end <= first + 1 or optimum(at(end - 1)) is None:
            break
        end -= 1
    near = (x for x in (end, end + 1, end + 2, end + abs(end) // 100) if x <= stop)
    return float(next((x for x in near if optimum(at(x)) is not None), np.inf))


def _largest_norm(problem: Problem) -> float:
    """Largest W, to four digits, under which a design exists; inf if none was found."""
    W = problem.params.W

    def at(share: float) -> Problem:
        return problem._replace(params=problem.params.but(W=W * share))

    low = next((share for share in (0.9, 0.5, 0.1, 0.01) if _possible(at(share))), 0.0)
    high = 1.0
    while 0 < low < high * (1 - 1e-4):
        middle = (low + high) / 2
        low, high = (middle, high) if _possible(at(middle)) else (low, middle)
    found = (W * low * share for share in (1.0, 0.9999, 0.99) if low > 0 and optimum(at(low * share)) is not None)
    return next(found, np.inf)
