"""Zero-order convergence: step schedules and the constants of Theorem 2. NumPy, float64. EEZOFL 3.6, 3.8"""

import math
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.crypto.budget import Fading


class Schedule(NamedTuple):
    """eta_k = eta0 (1+k)^-eta_power, gamma_k = gamma0 (1+k)^-gamma_power; power 0 with a horizon is Theorem 2's."""

    eta0: float = 0.05
    gamma0: float = 0.05
    eta_power: float = 0.5
    gamma_power: float = 0.25

    def step(self, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """(eta, gamma), each (rounds,).

        >>> eta, gamma = Schedule(eta0=2.0, gamma0=3.0).step(16)
        >>> eta[[0, 3]].tolist(), gamma[[0, 15]].tolist()
        ([2.0, 1.0], [3.0, 1.5])
        """
        validate.whole("K", rounds)
        validate.positive("eta0", self.eta0)
        validate.positive("gamma0", self.gamma0)
        k = 1.0 + np.arange(rounds)
        return self.eta0 * k**-self.eta_power, self.gamma0 * k**-self.gamma_power

    def check(self) -> dict[str, bool]:
        """Which assumptions on the infinite sums hold; a power series sum k^-x is finite iff x > 1.

        >>> [name for name, holds in Schedule().check().items() if not holds]
        ['sum eta^2 < inf']
        """
        eta, gamma = self.eta_power, self.gamma_power
        return {
            "sum eta gamma = inf": eta + gamma <= 1,
            "sum eta gamma^3 < inf": eta + 3 * gamma > 1,
            "sum eta^2 gamma^2 < inf": 2 * eta + 2 * gamma > 1,
            "sum eta^2 < inf": 2 * eta > 1,
        }


def theorem2_schedule(eta0: float, gamma0: float, rounds: int) -> Schedule:
    """Constant steps eta0 K^-1/4 and gamma0 K^-1/4.

    >>> theorem2_schedule(0.1, 0.2, 16)
    Schedule(eta0=0.05, gamma0=0.1, eta_power=0.0, gamma_power=0.0)
    """
    validate.whole("K", rounds)
    return Schedule(eta0 * rounds**-0.25, gamma0 * rounds**-0.25, 0.0, 0.0)


class Theorem2(NamedTuple):
    """min_k E|grad F|^2 <= R / sqrt(K) + rho."""

    c1: float
    c3: float
    C_g: float
    C_e: float
    R: float
    rho: float

    def bound(self, rounds: int) -> float:
        validate.whole("K", rounds)
        return self.R / math.sqrt(rounds) + self.rho

    def rounds_needed(self, eps: float, beta: float) -> float:
        """K(eps, beta) = R^2 / (eps beta - rho)^2."""
        if eps * beta <= self.rho:
            raise InputError(f"eps beta={eps * beta!r} must be > rho={self.rho!r}: the noise floor is above the target")
        return self.R**2 / (eps * beta - self.rho) ** 2


def theorem2(
    channel: Fading,
    var: float,
    d: int,
    eta0: float,
    gamma0: float,
    L_f: float,
    L_g: float,
    b: float,
    gap: float,
    b1: float = 1.0,
    b2: float | None = None,
) -> Theorem2:
    """Constants for N devices and a direction with E Phi_j^2 = b1, |Phi| <= b2 (Rademacher unless told otherwise).

    var  decoded variance (sigma_n^2 for the unencrypted baseline);  L_f Lipschitz constant of f_i, L_g of grad F
    b    bound on the Hessian of F_i;  gap = F(theta0) - F*
    """
    for name, value in (("eta0", eta0), ("gamma0", gamma0), ("L_f", L_f), ("L_g", L_g), ("b", b), ("b1", b1)):
        validate.positive(name, value)
    validate.not_negative("var", var)
    N, b2 = channel.N, math.sqrt(d) if b2 is None else b2
    c1 = 2 * b1
    c3 = b * b2**3 * N / (2 * b1)
    C_g = 4 * L_f**2 * b2**4 * (float((channel.Omega / channel.mu**2).sum()) + N * (N - 1))
    C_e = b2**2 * var
    R = float(2 * gap / (c1 * eta0 * gamma0) + c3**2 * gamma0**2 + C_g * L_g * eta0 * gamma0 / c1)
    return Theorem2(c1, c3, C_g, C_e, R, C_e * L_g * eta0 / (c1 * gamma0))
