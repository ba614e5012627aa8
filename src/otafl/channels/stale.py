"""Channel estimates that are old: devices invert what the channel was some rounds ago. Host, NumPy.

A device holds g_old and expects rho g_old, rho the correlation over the estimate's age. What arrives is

    gain = rho g_old + sqrt(1 - rho^2) rms w,        w circular normal, E|w|^2 = 1,

so |gain / (rho g_old) - 1| has no bound. Devices stay silent where |g_old| < h_min; then, as |w|^2 is exponential,

    gain_error = sqrt(1 - rho^2) rms sqrt(ln 1/beta) / (|rho| h_min)                                              (C2)

is missed with probability at most beta, per client and round. All clients and rounds together add rounds * clients *
beta to delta; what a declared gain_error means for amplitudes, artificial noise and phases is the ledger's matter.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from otafl.channels.fading import Fading
from otafl.channels.memory import JITTER, Law
from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

LARGEST = 0.999  # gain_error that can still be declared: at 1 nothing is known of the channel


@dataclass(frozen=True)
class Stale:
    """Estimates are `age_rounds` old; devices below `least_gain` times their rms gain stay silent.

    `miss_prob` is beta: the chance that one channel moved further than the gain_error that follows by (C2).
    """

    age_rounds: int = 1
    least_gain: float = 0.5
    miss_prob: float = 1e-12

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.whole("age_rounds", self.age_rounds)
        validate.positive("least_gain", self.least_gain)
        validate.in_open("miss_prob", self.miss_prob, 0, 1)


def stale_gain_error(
    rho: float, least_gain: float, miss_prob: float, rms_gain: float = 1.0, jitter: float = 0.0
) -> float:
    """Bound on |gain / (rho g_old) - 1| that holds with probability 1 - miss_prob where |g_old| >= least_gain.

    `jitter`: independent power that every gain has besides, over its mean power (`memory.JITTER` of jakes). It turns
    1 - rho^2 into 1 + jitter - rho^2 / (1 + jitter), and takes rho / (1 + jitter) of g_old where rho is expected.

    >>> round(stale_gain_error(0.903713, 0.5, 1e-6), 4)
    3.5218
    """
    validate.in_open("rho", rho, -1, 1)
    validate.positive("abs(rho)", abs(rho))
    validate.positive("least_gain", least_gain)
    validate.in_open("miss_prob", miss_prob, 0, 1)
    moved = np.sqrt((1 - rho) * (1 + rho) + 2 * jitter) * rms_gain
    return float(moved * np.sqrt(np.log(1 / miss_prob)) / (abs(rho) * least_gain) + jitter)  # (C2)


def declared(stale: Stale, fading: Fading) -> float:
    """The gain_error of an experiment; refused where it would say nothing."""
    rho = fading.correlation(stale.age_rounds)
    if rho == 0:
        raise InputError(f"stale.age_rounds={stale.age_rounds}: the channel has forgotten; nothing can be inverted")
    jitter = JITTER if fading.kind == "jakes" else 0.0
    error = stale_gain_error(rho, stale.least_gain, stale.miss_prob, jitter=jitter)
    if error > LARGEST:
        raise InputError(
            f"stale: correlation {rho:.4g} over age_rounds={stale.age_rounds}, least_gain={stale.least_gain:g} and "
            f"miss_prob={stale.miss_prob:g} give gain_error={error:.3g}, which cannot be declared (at most {LARGEST}); "
            "use fresher estimates, slower devices or a larger least_gain"
        )
    return error


class Late:
    """Gains and old estimates of rounds that are asked for in order: one process, told `age_rounds` late."""

    def __init__(self, stale: Stale, fading: Fading, law: Law, rms_gain: Floats):
        self._law, self._age = law, stale.age_rounds
        self._rho = fading.correlation(stale.age_rounds)
        self._past = law(np.broadcast_to(rms_gain, (stale.age_rounds, rms_gain.size)))

    @property
    def correlation(self) -> float:
        """|rho|: devices hold a Rayleigh gain of so much of its rms."""
        return abs(self._rho)

    def take(self, rms_gain: Floats) -> tuple[Complexes, Complexes]:
        """Gain and estimate of the next rounds, like `rms_gain` (T, K)."""
        known: Complexes = np.concatenate([self._past, self._law(rms_gain)])
        self._past = known[len(rms_gain) :]
        return known[self._age :], np.asarray(self._rho * known[: len(rms_gain)])
