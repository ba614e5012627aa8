"""The convergence certificate: a bound on the mean squared gradient after T rounds (CARES (10)). NumPy, float64.

    conv_bound = C0 loss_gap/(step T) + C1 step grad_var + C2 step noise^2 d/eta^2 + C3 G^2 (dropped mass)

The last term is whatever bounds E[S^2]: `dropped_weight` in general, `dropped_square` for independent channels.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

ConstantSet = Literal["main", "proof", "tight"]
CONSTANT_SETS: tuple[ConstantSet, ...] = ("main", "proof", "tight")
_ROUNDING = 1e-12  # 12 step L must be <= 1: an exact test would reject one in five of the defaults L = 1/(12 step)


class Constants(NamedTuple):
    """C0..C3 of CARES (10), with the step size and the smoothness put in."""

    gap: float  # C0
    variance: float  # C1
    noise: float  # C2
    truncation: float  # C3


def bound_constants(name: ConstantSet, step_size: float, smoothness: float) -> Constants:
    """Three valid sets: `main` (paper's text), `proof` (its appendix), `tight` (uses that the noise is independent).

    >>> bound_constants("main", step_size=0.5, smoothness=0.125)
    Constants(gap=4.0, variance=1.5, noise=1.5, truncation=2.75)
    """
    validate.one_of("constants", name, CONSTANT_SETS)
    check_step_size(name, step_size, smoothness)
    product = step_size * smoothness
    if name == "main":
        return Constants(4.0, 12 * smoothness, 12 * smoothness, 2 + 12 * product)
    if name == "proof":
        return Constants(4.0, 6 * smoothness, 6 * smoothness, 2 + 6 * product)
    kappa = 0.5 - product  # E||update||^2 <= 2||grad F||^2 + 2 grad_var + 2 G^2 E[S^2] + noise^2 d/eta^2
    return Constants(1 / kappa, smoothness / kappa, smoothness / (2 * kappa), (0.5 + product) / kappa)


def check_step_size(name: ConstantSet, step_size: float, smoothness: float) -> None:
    """Refuse a step size for which the chosen constants prove nothing."""
    product = step_size * smoothness
    if name == "tight":
        if not product < 0.5:
            raise InputError(f"step_size*smoothness={product!r} must be < 1/2 for constants='tight'")
        return
    factor = 12 if name == "main" else 6
    if not factor * product <= 1 + _ROUNDING:
        raise InputError(f"step_size*smoothness={product!r} must be <= 1/{factor} for constants={name!r}")


class ConvBound(NamedTuple):
    """A certificate and its four parts, each (...)."""

    total: Floats
    initial_gap: Floats
    grad_variance: Floats
    channel_noise: Floats
    truncation: Floats


def assemble(initial_gap: ArrayLike, grad_variance: ArrayLike, noise: ArrayLike, truncation: ArrayLike) -> ConvBound:
    parts = [np.asarray(part, float) for part in np.broadcast_arrays(initial_gap, grad_variance, noise, truncation)]
    return ConvBound(sum(parts, start=np.zeros(parts[0].shape)), *parts)


def initial_gap_term(constants: Constants, loss_gap: float, step_size: float, rounds: ArrayLike) -> Floats:
    """First term of (10); +inf for less than one round, where nothing is proved even with loss_gap = 0."""
    rounds = np.asarray(rounds, float)
    safe = np.where(rounds >= 1, rounds, 1.0)
    return np.where(rounds >= 1, constants.gap * loss_gap / (step_size * safe), np.inf)
