"""Slow change of the mean gains: every n rounds each is multiplied by a random factor. Host, NumPy, float64."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from otafl.core import validate
from otafl.core.arrays import Floats


@dataclass(frozen=True)
class Drift:
    """Every `every` rounds the rms gain is multiplied by 1 + Uniform(-amplitude, amplitude), independently per device.

    relative_to "current": factors accumulate; "initial": each replaces the one before (CARES 3.8).
    """

    every: int = 40
    amplitude: float = 0.25
    relative_to: Literal["current", "initial"] = "current"

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.whole("every", self.every)
        validate.in_left_open("amplitude", self.amplitude, 0, 1)
        validate.one_of("relative_to", self.relative_to, ("current", "initial"))


def factors(drift: Drift, num_clients: int, rounds: int, rng: np.random.Generator) -> Floats:
    """Factor (T, K) on the rms gain; 1 in the first `every` rounds.

    >>> factors(Drift(every=2), num_clients=1, rounds=3, rng=np.random.default_rng(0)).ravel().round(4)
    array([1.    , 1.    , 1.0685])
    """
    return Levels(drift, num_clients, rng).take(rounds)


class Levels:
    """The factors of rounds that are asked for in order; how many at a time changes no number."""

    def __init__(self, drift: Drift, num_clients: int, rng: np.random.Generator):
        self._drift, self._rng, self._done = drift, rng, 0
        self._level = np.ones((1, num_clients))

    def take(self, rounds: int) -> NDArray[np.float64]:
        """Of the next rounds, (rounds, K)."""
        drift, first, stop = self._drift, self._done, self._done + rounds
        changes = (stop - 1) // drift.every - max(first - 1, 0) // drift.every
        spread = self._rng.uniform(-drift.amplitude, drift.amplitude, (changes, self._level.shape[1]))
        levels: NDArray[Any] = np.concatenate([self._level, 1 + spread])
        if drift.relative_to == "current":
            levels = np.cumprod(levels, axis=0)
        self._done, self._level = stop, levels[-1:].copy()
        return np.asarray(levels[np.arange(first, stop) // drift.every - max(first - 1, 0) // drift.every])
