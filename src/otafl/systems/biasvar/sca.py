"""The published solver of (P1): successive convex approximation. Needs the extra `sca` (cvxpy with Clarabel).

Kept as a cross-check of the exact solver. All variables are relative to the anchor (value 1 there), the objective is
divided by its anchor value, and the noise term is w^2 with w >= exp(-l), l <= log(alpha): `power(alpha, -2)` makes
Clarabel stop early from about 50 devices on.

Every surrogate lies above what it replaces and touches it at the anchor, so the true objective never rises.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.systems.biasvar.bound import BoundParams, Design, Radio, check, evaluate, normal_form, small_root
from otafl.systems.biasvar.exact import PEAK, Normal, levels, objective


def solve_sca(
    radio: Radio,
    par: BoundParams,
    anchor: Literal["zero-bias", "half"] | ArrayLike = "zero-bias",
    tol: float = 1e-6,
    keep_11d: bool = True,
    max_iterations: int = 100,
) -> Design:
    """Iterate convex subproblems (11a)-(11e) until J falls by less than `tol`, relative; `history` holds J_n.

    anchor: "zero-bias" (p = w at 0.9 of the largest alpha), "half" (all u = 1/2) or relative pre-scalers u (N,).
    keep_11d: the linearised second half of (11d), redundant in the original problem, caps growth at 2 alpha.
    """
    check(radio, par)
    validate.positive("tol", tol)
    if np.isinf(par.kappa):
        raise InputError("kappa=inf cannot be given to the SCA solver; use design_zero_bias")
    problem = normal_form(radio, par)
    u = _anchor(problem, anchor)
    history, status = [float(objective(problem, u))], "max_iterations"
    subproblem = _Subproblem(problem, keep_11d)
    for _ in range(max_iterations):
        solved = subproblem.solve(u, history[-1])
        if solved is None or not (value := float(objective(problem, solved))) <= history[-1] * (1 + tol):
            status = "solver_failed"  # the last feasible anchor stays
            break
        if value > history[-1]:  # up by rounding only
            status = "converged"
            break
        u = solved
        history.append(value)
        if history[-2] - value <= tol * history[-2]:
            status = "converged"
            break
    return evaluate(radio, par, u, "sca", iterations=len(history) - 1, status=status, history=tuple(history))


def _anchor(problem: Normal, anchor: str | ArrayLike) -> Floats:
    if isinstance(anchor, str):
        validate.one_of("anchor", anchor, ("zero-bias", "half"))
        if anchor == "half":
            return np.full_like(problem.scale, 0.5)
        reach = problem.weights / problem.scale
        return small_root(0.9 * PEAK * reach / reach.max())
    u = np.asarray(anchor, float)
    validate.shape("anchor", u, problem.scale.shape)
    validate.in_left_open("anchor", u, 0, 1)
    return u


class _Subproblem:
    """(11a)-(11e) around an anchor, compiled once and re-solved with new parameters."""

    def __init__(self, problem: Normal, keep_11d: bool):
        cp = _cvxpy()
        n = problem.scale.size
        gamma, p, z, alpha, noise, log_alpha = (cp.Variable(k) for k in (n, n, n, 1, 1, 1))
        names = ("z_weight", "p_slope", "spread", "pull", "target", "level", "half_u2", "fill", "cap")
        self.at = {name: cp.Parameter(n, nonneg=True) for name in names} | {"noise": cp.Parameter(nonneg=True)}
        at = self.at
        cost = (
            at["z_weight"] @ z
            - at["p_slope"] @ p  # p gamma / alpha - p^2, the square linearised
            + cp.sum_squares(cp.multiply(at["spread"], p))
            + at["noise"] * cp.square(noise[0])
            + cp.sum_squares(cp.multiply(at["pull"], p) - at["target"])
        )
        rules = [
            gamma + p - 2 <= cp.log(z) + log_alpha,  # (11b)
            alpha + p - 2 <= cp.log(gamma) - cp.multiply(at["half_u2"], cp.square(gamma) - 1),  # (11c)
            gamma <= at["cap"],  # (11d)
            at["level"] @ p == 1,  # (11e)
            log_alpha <= cp.log(alpha),
            noise >= cp.exp(-log_alpha),
        ]
        if keep_11d:
            rules.append(cp.multiply(at["fill"], p) <= 2 - alpha)  # (11d), second half
        self.problem, self.alpha, self.p = problem, alpha, p
        self.program = cp.Problem(cp.Minimize(cost), rules)

    def solve(self, u: Floats, value: float) -> Floats | None:
        """One subproblem and the projection back onto (i): keep alpha and p, take the smaller root; None on failure."""
        cp, problem, at = _cvxpy(), self.problem, self.at
        p, t = levels(problem.scale, u)
        root = np.sqrt(problem.rho[0] / problem.weights / value)
        at["z_weight"].value = p * problem.scale * u * t[0] / value
        at["p_slope"].value = 2 * p * p / value
        at["spread"].value = np.sqrt(problem.minibatch / value) * p
        at["pull"].value, at["target"].value = root * p, root * problem.weights
        at["level"].value, at["half_u2"].value, at["cap"].value = p, u * u / 2, 1 / u
        at["fill"].value = u * np.exp(-u * u / 2) / PEAK
        at["noise"].value = problem.noise_factor * float(t[0]) ** 2 / value
        try:
            self.program.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            return None
        if self.p.value is None or not np.all(np.isfinite(self.p.value)) or np.min(self.p.value) <= 0:
            return None
        new_p = p * self.p.value
        new_p /= new_p.sum()
        a = new_p * float(self.alpha.value[0]) / (problem.scale * t[0])
        return small_root(np.minimum(a, PEAK)) if np.all(a <= PEAK * (1 + 1e-6)) else None


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError:
        raise InputError(
            "solver='sca' needs cvxpy and clarabel, which are not installed: pip install 'otafl[sca]'; "
            "solver='exact' finds the same optimum without them"
        ) from None
    return cvxpy
