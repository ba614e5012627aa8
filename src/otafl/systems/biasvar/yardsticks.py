"""Cheap statistical designs that an optimal one must beat, and LCPC. NumPy, float64.

Unit of pre-scalers inside: c = sqrt(d N_0) / G, so that device m's peak is its scale s_m.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from otafl.core.arrays import Floats
from otafl.systems.biasvar.bound import BoundParams, Design, Radio, check, evaluate, normal_form, unit
from otafl.systems.biasvar.exact import Normal, objective, optimum

_GRID = 2000  # points of log gamma: two local minima do occur
_CELLS = 2_000_000  # grid points times devices evaluated at once


def design_min_noise(radio: Radio, par: BoundParams) -> Design:
    """Every device at its peak, gamma = gamma_max: the largest alpha, hence the least receiver noise."""
    check(radio, par)
    return evaluate(radio, par, np.ones(len(radio.gains)), "min-noise")


def design_zero_bias(radio: Radio, par: BoundParams) -> Design:
    """The best design among those with p equal to the target weights."""
    check(radio, par)
    best = optimum(normal_form(radio, par, np.inf))
    return evaluate(radio, par, best.u, "zero-bias", float(best.kkt_residual), best.iterations, "optimal at zero bias")


def design_common_gamma(radio: Radio, par: BoundParams) -> Design:
    """The best single pre-scaler for all; weak devices may go beyond their peak (u > 1)."""
    check(radio, par)
    problem = normal_form(radio, par)
    level = _best_level(problem.scale, lambda gamma: objective(problem, gamma / problem.scale))
    return evaluate(radio, par, level / problem.scale, "common-gamma", status="grid and scalar search")


class Lcpc(NamedTuple):
    """Truncated inversion to one common level, scaled for least mean squared error: it shrinks, sum E[c] < 1."""

    gamma: float  # sqrt(J) per gradient unit
    xi: float  # post-scale, 1 / alpha
    tx_prob: Floats  # (N,)
    mean_weight: Floats  # (N,) E[c_m] = gamma xi tx_prob
    mse: float  # mean squared error / G^2 under uncorrelated gradients of norm G


def design_lcpc(radio: Radio, par: BoundParams) -> Lcpc:
    """Least mean squared error over one gamma and one post-scale; independent of rho."""
    check(radio, par)
    problem = normal_form(radio, par)
    level = _best_level(problem.scale, lambda gamma: lcpc_mse(problem, gamma)[0])
    mse, xi, tx_prob = lcpc_mse(problem, np.array([level]))
    c = unit(radio, par)
    return Lcpc(level * c, float(xi / c), tx_prob, level * xi * tx_prob, float(mse))


def lcpc_mse(problem: Normal, gamma: Floats) -> tuple[Floats, Floats, Floats]:
    """(mse (...), best xi (...), tx_prob (..., N)) of common levels gamma (..., 1), in unit c.

    mse = sum P (gamma xi - w)^2 + sum (1 - P) w^2 + n_f xi^2, quadratic in xi.
    """
    level, w = gamma[..., 0], problem.weights
    tx_prob = np.exp(-((gamma / problem.scale) ** 2) / 2)
    reach, heard = (tx_prob * w).sum(-1), tx_prob.sum(-1)
    power = level**2 * heard + problem.noise_factor
    return np.sum(w * w) - (level * reach) ** 2 / power, level * reach / power, tx_prob


def _best_level(scale: Floats, cost: Callable[[Floats], Floats]) -> float:
    """Minimise `cost`, levels (M, 1) -> (M,), over log gamma: a grid, then a scalar search beside its best point."""
    weakest = scale.min()
    grid = np.linspace(np.log(0.01 * min(weakest, np.sqrt(weakest))), np.log(4 * scale.max()), _GRID)
    rows = max(1, _CELLS // scale.size)
    values = np.concatenate([cost(np.exp(grid[i : i + rows, None])) for i in range(0, _GRID, rows)])
    best = int(np.argmin(values))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    found = scipy.optimize.minimize_scalar(
        lambda x: cost(np.array([[np.exp(x)]]))[0], bounds=bounds, method="bounded", options={"xatol": 1e-10}
    )
    return float(np.exp(found.x if found.fun <= values[best] else grid[best]))
