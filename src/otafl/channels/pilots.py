"""Statistical CSI from pilots: an estimate of each rms gain and certified limits around it. Host, float64.

N fresh, noiseless, independent pilots per device and estimation. Their energy has a known law (chi-square for
Rayleigh fading, noncentral for the others), so its quantiles turn one batch into limits (CARES E16).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.channels.fading import Fading, PilotLaw, pilot_law
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError


@dataclass(frozen=True)
class Pilots:
    """How the rms gains are estimated.

    `count` pilots in round 0 and, where `every` is given, in every `every`-th round. `ema` is the weight of the new
    value in a running mean of the squared estimates; None uses the last batch alone. Limits always belong to one batch.

    All limits of a run hold together with probability at least 1 - failure_prob. It is shared equally over clients
    and, where `estimations` declares how many batches there will be, over these. Otherwise batch r = 1, 2, ... gets
    the share 6 / (pi r)^2: valid for any horizon, and early limits stay the same when the horizon grows.
    """

    count: int = 64
    every: int | None = None
    ema: float | None = None
    failure_prob: float = 0.01
    estimations: int | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.whole("count", self.count)
        validate.in_open("failure_prob", self.failure_prob, 0, 1)
        if self.every is not None:
            validate.whole("every", self.every)
        if self.ema is not None:
            validate.in_left_open("ema", self.ema, 0, 1)
        if self.estimations is not None:
            validate.whole("estimations", self.estimations)


class RmsEstimate(NamedTuple):
    """What pilots tell about the rms gain, all (T, K)."""

    estimate: Floats
    low: Floats
    high: Floats


def shares(pilots: Pilots, batches: int) -> Floats:
    """Failure probability (R,) of each batch, all clients together; sums to at most `failure_prob`."""
    if pilots.every is None:
        return np.full(batches, pilots.failure_prob)
    if pilots.estimations is None:
        return np.asarray(pilots.failure_prob * 6 / (np.pi * np.arange(1, batches + 1)) ** 2)
    if batches > pilots.estimations:
        raise InputError(f"estimations={pilots.estimations} must be >= {batches}, the batches of pilots in this run")
    return np.full(batches, pilots.failure_prob / pilots.estimations)


def limits(energy: ArrayLike, law: PilotLaw, failure_prob: ArrayLike) -> tuple[Floats, Floats]:
    """Lower and upper limit of the rms gain, each missed with probability failure_prob / 2.

    `energy` = sum over the pilots of |gain|^2; shapes broadcast.

    >>> low, high = limits(64.0, PilotLaw(degrees=128, noncentrality=0.0, scale=0.5), 0.01)
    >>> round(float(low), 4), round(float(high), 4)
    (0.8603, 1.189)
    """
    if law.degrees == 0:
        raise InputError("gains without fading have no pilot limits: the estimate is exact")
    from scipy import stats  # slow to import, and few ask

    half = np.asarray(failure_prob) / 2
    chi_square = stats.ncx2(law.degrees, law.noncentrality) if np.any(law.noncentrality) else stats.chi2(law.degrees)
    low = np.sqrt(energy / (law.scale * chi_square.isf(half)))  # CARES E16
    high = np.sqrt(energy / (law.scale * chi_square.ppf(half)))
    return low, high


def pilot_energy(law: PilotLaw, rms_gain: Floats, rng: np.random.Generator) -> Floats:
    """Draw sum |gain|^2 of each batch directly from its law, (R, K) like `rms_gain`."""
    noncentrality = np.broadcast_to(law.noncentrality, rms_gain.shape)
    return np.asarray(rms_gain**2 * law.scale * rng.noncentral_chisquare(law.degrees, noncentrality))


def estimate(pilots: Pilots, fading: Fading, rms_gain: Floats, rng: np.random.Generator) -> RmsEstimate:
    """Send the pilots of a whole run through channels of true `rms_gain` (T, K)."""
    return Estimates(pilots, fading, len(rms_gain), rng).take(rms_gain)


class Estimates:
    """What pilots tell in rounds that are asked for in order; how many at a time changes no number."""

    def __init__(self, pilots: Pilots, fading: Fading, rounds: int, rng: np.random.Generator):
        self._pilots, self._law, self._rng, self._done = pilots, pilot_law(fading, pilots.count), rng, 0
        self._every = rounds if pilots.every is None else pilots.every
        self._shares = shares(pilots, -(-rounds // self._every))
        self._known: tuple[Floats, ...] = ()  # square, low and high of the last batch, (1, K) each

    def take(self, rms_gain: Floats) -> RmsEstimate:
        """Of the next rounds, whose true rms gains (n, K) these are."""
        if self._law.degrees == 0:
            return RmsEstimate(rms_gain, rms_gain, rms_gain)
        first, stop = self._done, self._done + len(rms_gain)
        batches = np.arange(-(-first // self._every), -(-stop // self._every))
        energy = pilot_energy(self._law, rms_gain[batches * self._every - first], self._rng)
        low, high = limits(energy, self._law, self._shares[batches][:, None] / rms_gain.shape[1])
        columns = [energy / self._pilots.count, low, high]  # the first: maximum likelihood for Rayleigh, never biased
        if self._known:
            columns = [np.concatenate(pair) for pair in zip(self._known, columns)]
        if self._pilots.ema is not None:
            square = columns[0]
            for row in range(1, len(square)):
                square[row] = (1 - self._pilots.ema) * square[row - 1] + self._pilots.ema * square[row]
        at = np.arange(first, stop) // self._every - (-(-first // self._every) - len(self._known[:1]))
        self._done, self._known = stop, tuple(column[-1:].copy() for column in columns)
        return RmsEstimate(np.sqrt(columns[0])[at], columns[1][at], columns[2][at])
