"""Theorem 2, repaired: how far from the optimum tau rounds of error energy B leave the model. Float64, host."""

import warnings

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.systems.cdpb.model import IDLE, Params, Scheme, error_energy, stats

BOUNDS = ("full", "simple", "printed")


def remarks(params: Params) -> list[str]:
    """Why Theorem 2 may not apply to these parameters; empty when it does."""
    found = []
    least = 8 * params.L * params.M / params.mu
    if params.a < least:
        found.append(f"a={params.a:g} is below 8 L M / mu = {least:g}: steps too large for the full bound (CDPB E16)")
    if params.L > 1:
        found.append(f"L={params.L}: proved for one local step on full gradients, heuristic here (CDPB E15)")
    return found


def weight_sum(a: float, tau: Array) -> Array:
    """S_tau = sum_{t < tau} (a + t)^2."""
    return tau / 6 * (2 * tau**2 + 6 * a * tau - 3 * tau + 6 * a**2 - 6 * a + 1)


def gamma_of(params: Params, error: Array, tau: Array, bound: str = "simple") -> Array:
    """The bound on E f(average model) - f* from B and tau."""
    tau = np.asarray(tau, float)
    if bound == "simple":
        return 6 * error / (params.mu * tau)
    total = weight_sum(params.a, tau)
    slack = 2.0 if bound == "full" else 1.0  # the typeset tau + a is not a bound (CDPB E11)
    start = params.mu * params.a**3 / (4 * total) * params.D0
    return start + 2 * tau * (tau + slack * params.a) / (params.mu * total) * error  # CDPB (23)


def gamma(params: Params, u: Array, tau: Array, scheme: Scheme = IDLE, bound: str = "simple") -> Array:
    """Convergence bound at load u after tau rounds.

    bound: "full" is Theorem 2 with tau + 2a, "printed" the typeset tau + a, "simple" its limit 6 B / (mu tau).
    """
    validate.one_of("bound", bound, BOUNDS)
    validate.whole("tau", tau)
    if bound != "simple":
        for remark in remarks(params):
            warnings.warn(remark, stacklevel=2)
    return gamma_of(params, error_energy(params, stats(params, u, scheme)), tau, bound)
