"""Theorem 1: what the noise energies of a run mean for the mean squared gradient, and the cap nu for a target gamma.

A bound under smoothness, unbiased gradients and bounded dissimilarity; clipping breaks the second, so it is a guide.
Host, float64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import Infeasible, InputError


@dataclass(frozen=True)
class Convergence:
    """Constants of Theorem 1 (A1-A4), in the paper's symbols.

    loss_gap: f(w_0) - f*; L: smoothness; learning_rate: lambda; gradient variance <= A1 norm(grad f_m)^2 + A2;
    dissimilarity <= C1 norm(grad f)^2 + C2. Needs lambda <= 1/(4 L (C1+1)(A1+1)).
    """

    loss_gap: float
    L: float
    learning_rate: float
    A1: float = 0.0
    A2: float = 0.0
    C1: float = 0.0
    C2: float = 0.0

    def __post_init__(self) -> None:
        validate.positive("L", self.L)
        validate.positive("learning_rate", self.learning_rate)
        for name in ("loss_gap", "A1", "A2", "C1", "C2"):
            validate.not_negative(name, getattr(self, name))
        largest = 1 / (4 * self.L * (self.C1 + 1) * (self.A1 + 1))
        if self.learning_rate > largest * (1 + 1e-12):
            raise InputError(
                f"learning_rate={self.learning_rate!r} must be <= 1/(4 L (C1+1)(A1+1)) = {largest:.6g} (Theorem 1)"
            )

    def phi(self, rounds: int) -> float:
        """The part without noise.  # AdaScale (22)

        >>> Convergence(loss_gap=2.0, L=1.0, learning_rate=0.1, A2=0.5).phi(100)
        0.5
        """
        validate.whole("rounds", rounds)
        spread = 2 * self.C2 * (self.A1 + 1) + self.A2
        return 2 * self.loss_gap / (self.learning_rate * rounds) + 2 * self.L * self.learning_rate * spread

    def bound(self, noise: Any) -> Array:
        """Bound on the mean squared gradient from noise energies N (..., T): (...).  # AdaScale (21)

        At the floors f, i.e. at full power, it is phi' (27), the least that any scaling reaches.
        """
        noise = np.asarray(noise, float)
        validate.positive("noise", noise)
        return self.phi(noise.shape[-1]) + self.L * self.learning_rate / 2 * noise.mean(-1)

    def nu(self, gamma: float, floors: Any) -> float:
        """The cap on the mean excess that holds the bound at gamma: 2 (gamma - phi') / (lambda L), floors (T,)."""
        validate.positive("gamma", gamma)
        least = float(self.bound(floors))
        if gamma < least:
            enough = {"target": "gamma", "value": least}
            raise Infeasible(
                f"gamma={gamma:.6g} is below phi'={least:.6g}, the bound at full power (27); feasible if gamma >= "
                f"{least * (1 + 1e-5):.6g}",
                {"gamma": gamma, "phi": self.phi(np.size(floors)), "phi_prime": least, "relaxations": [enough]},
            )
        return 2 * (gamma - least) / (self.learning_rate * self.L)
