"""Around the optimum: the bias-variance frontier, the price of a wrong kappa, a tighter bound. NumPy, float64."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.systems.biasvar.bound import BoundParams, Design, Radio, check, normal_form, solve_exact
from otafl.systems.biasvar.exact import objective, optimum, parts


class Frontier(NamedTuple):
    """One optimal design per rho, from least variance (rho = 0) to zero bias (rho = inf)."""

    rho: Floats  # (R,)
    u: Floats  # (R, N)
    p: Floats  # (R, N)
    bias: Floats  # (R,) sum (p - w)^2 / w; N sum (p - 1/N)^2 in the paper
    variance: Floats  # (R,) zeta / G^2: transmission, mini-batch and noise together
    normal_objective: Floats  # (R,) J_n
    kkt_residual: Floats  # (R,)


def frontier(radio: Radio, par: BoundParams, rhos: ArrayLike) -> Frontier:
    """All designs along `rhos` in one vectorised solve."""
    check(radio, par)
    rho = np.atleast_1d(np.asarray(rhos, float))
    if not np.all(rho >= 0):
        raise InputError(f"rhos={rho.tolist()} must all be >= 0")
    problem = normal_form(radio, par, rho)
    best = optimum(problem)
    transmission, minibatch, noise, _ = parts(problem, best.u)
    bias = ((best.p - problem.weights) ** 2 / problem.weights).sum(-1)
    return Frontier(rho, best.u, best.p, bias, transmission + minibatch + noise, best.objective, best.kkt_residual)


def sensitivity(radio: Radio, par: BoundParams, true_rho: ArrayLike, design_rho: ArrayLike) -> Floats:
    """(true, design) table of J_n(design for design_rho, judged at true_rho) / min J_n(true_rho), all >= 1 (E19).

    Says what an error in kappa^2 / (eta L) costs: rows are the truth, columns the assumption.
    """
    true = np.atleast_1d(np.asarray(true_rho, float))
    validate.not_negative("true_rho", true)
    designs = frontier(radio, par, design_rho)
    best = frontier(radio, par, true)
    judged = objective(normal_form(radio, par, true[:, None]), designs.u)
    return judged / best.normal_objective[:, None]


class Split(NamedTuple):
    """A design under the Young split ||a+b||^2 <= (1+c)||a||^2 + (1+1/c)||b||^2."""

    c: float
    design: Design
    bound: float  # the tightened right side of (9)
    printed: float  # (9) as printed (c = 1) at its own optimum


def young_split(radio: Radio, par: BoundParams, T: int, gap0: float) -> Split:
    """Optimise the constant that the proof of Theorem 1 fixes at c = 1; the design then solves (P1) with rho / c."""
    validate.whole("T", T)
    validate.not_negative("gap0", gap0)
    if np.isinf(par.kappa):
        raise InputError("kappa=inf leaves nothing to split: the bias is zero")

    def solved(log_c: float) -> tuple[float, float, Design]:
        """X and Y of the bound (1 + c) X + (1 + 1/c) Y, at the optimum of this c."""
        design = solve_exact(radio, par._replace(kappa=par.kappa * np.exp(-log_c / 2)))
        p, w = design.p, normal_form(radio, par).weights
        terms = design.parts
        drift = 2 * gap0 / (par.eta * T) + (terms.transmission + terms.minibatch + terms.noise) / 2
        return drift, par.kappa**2 * float(np.sum((p - w) ** 2 / w)), design

    def best(log_c: float) -> float:
        """At the best constant for its design, sqrt(Y / X): zero where no bias is left."""
        drift, bias, _ = solved(log_c)
        return float((np.sqrt(drift) + np.sqrt(bias)) ** 2)

    found = scipy.optimize.minimize_scalar(best, bounds=(-12.0, 12.0), method="bounded", options={"xatol": 1e-8})
    log_c = min((float(found.x), 0.0), key=best)
    drift, bias, design = solved(log_c)
    printed = solved(0.0)
    return Split(float(np.sqrt(bias / drift)), design, best(log_c), 2 * (printed[0] + printed[1]))
