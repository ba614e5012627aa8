"""What a round costs a client's privacy, and how loud it may therefore be. Host, float64.

Without sampling a round of amplitude a costs a^2, and costs add. Poisson batches are charged by Renyi DP, whose cost of
a loud round grows far faster than a^2: a purse of squares would be empty after a few good channels. There the currency
is the RDP at one order, the best of a run of equal rounds, which adds exactly and under which the target holds.
"""

from typing import NamedTuple, Protocol

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message
from otafl.privacy import rdp
from otafl.privacy.moments import sampled_gaussian_log_moment
from otafl.systems.ridge.inversion import Levels, limited

ORDERS = np.arange(2.0, 64.0)  # whole ones: the ledger adds them exactly, whatever the noise of a round
CHANNELS = -np.log1p(-(np.arange(256) + 0.5) / 256)  # quantiles of an exponential channel
LEVELS = np.linspace(np.log(1e-4), np.log(1e4), 320)  # of q; a louder one is at full power in all but the best channels
SAFE = 1 - 1e-9  # relative: the ledger adds the same costs in another order


class Leveller(Protocol):
    """From the mean cost of a round to the level q, in units of the peak amplitude, (K,)."""

    kappa: Array

    def of(self, cost: Array) -> Array: ...


class Purse(Protocol):
    """The currency of one run."""

    def cost(self, amplitude: Array) -> Array: ...
    def loudest(self, left: Array) -> Array: ...
    def leveller(self, kappa: Array, peak: Array) -> Leveller: ...


class Squares:
    """No sampling: a^2 adds."""

    def cost(self, amplitude: Array) -> Array:
        return np.square(amplitude)

    def loudest(self, left: Array) -> Array:
        return np.sqrt(left)

    def leveller(self, kappa: Array, peak: Array) -> Leveller:
        return _SquareLevels(kappa, peak)


class _SquareLevels:
    def __init__(self, kappa: Array, peak: Array):
        self.levels, self.peak = Levels(kappa), peak
        self.kappa = self.levels.kappa

    def of(self, cost: Array) -> Array:
        return self.levels.of(cost / self.peak**2)


class Kind(NamedTuple):
    """Clients that are charged alike share a table."""

    rate: Array  # (K,)
    per_square: Array  # (K,) 1/z^2 of amplitude one


class Sampled:
    """Poisson batches: RDP at one order."""

    def __init__(self, kind: Kind, order: int):
        self.kind, self.order = kind, order
        self.grid = np.exp(np.linspace(np.log(1e-6), np.log(1e6), 1200))  # of amplitude^2 / z^2
        rates, self.of_rate = np.unique(kind.rate, return_inverse=True)
        self.table = np.stack([self._rdp(rate, self.grid) for rate in rates])  # (rates, grid)

    def _rdp(self, rate: Array, u: Array) -> Array:
        return sampled_gaussian_log_moment(rate, u, self.order).value / (self.order - 1)

    def cost(self, amplitude: Array) -> Array:
        return self._rdp(self.kind.rate, np.square(amplitude) * self.kind.per_square)

    def loudest(self, left: Array) -> Array:
        """From the table, a little below: the log of the cost is nearly straight between its points."""
        found = np.empty(np.shape(left))
        for n, table in enumerate(self.table):
            own = self.of_rate == n
            with np.errstate(divide="ignore"):
                found[own] = np.interp(np.log(left[own]), np.log(table), np.log(self.grid), left=-np.inf)
        return np.sqrt(np.exp(found) / self.kind.per_square) * (1 - 1e-3)

    def leveller(self, kappa: Array, peak: Array) -> Leveller:
        return _SampledLevels(self, np.broadcast_to(kappa, np.shape(peak)), peak)


class _SampledLevels:
    """Mean cost over Rayleigh fading as a table of the level, one row for clients that are alike."""

    def __init__(self, purse: Sampled, kappa: Array, peak: Array):
        self.kappa = np.maximum(np.asarray(kappa, float), 1e-9)
        alike = np.stack([self.kappa, peak**2 * purse.kind.per_square, purse.kind.rate])
        kinds, self.kind = np.unique(alike, axis=1, return_inverse=True)
        self.kind = np.ravel(self.kind)
        q = np.exp(LEVELS)[:, None]
        self.mean = []
        for kappa_, unit, rate in kinds.T:
            amplitude = np.minimum(q * CHANNELS / (CHANNELS + kappa_), np.sqrt(CHANNELS))
            at = np.log(np.maximum(amplitude**2 * unit, purse.grid[0]))
            table = purse.table[np.searchsorted(np.unique(purse.kind.rate), rate)]
            cost = np.exp(np.interp(at, np.log(purse.grid), np.log(table)))
            self.mean.append(np.maximum.accumulate(np.log(cost.mean(-1))))

    def of(self, cost: Array) -> Array:
        q = np.empty(np.shape(cost))
        with np.errstate(divide="ignore"):
            wanted = np.log(cost)
        for n, table in enumerate(self.mean):
            own = self.kind == n
            q[own] = np.exp(np.interp(wanted[own], table, LEVELS, left=-np.inf))
        return q


def purse_of(deployment: Deployment, message: Message, context: Context, squares: Array) -> Purse:
    """squares: (K,) the sum of squared amplitudes of a run of equal rounds that spends the target."""
    rate = np.broadcast_to(np.asarray(message.rate, float), np.shape(deployment.weights))
    if not np.any(rate < 1):
        return Squares()
    pair = 2.0 if message.adjacency == "replace" else 1.0  # charged as two steps of half the way
    reach = np.asarray(message.sensitivity, float) * (1 + deployment.gain_error) / pair
    kind = Kind(rate, np.broadcast_to(reach**2 / deployment.trusted_noise_var, rate.shape))
    equal = np.max(squares / context.rounds * kind.per_square)
    spent = context.rounds * rdp.sampled_gaussian_rdp(np.max(rate), equal**-0.5, ORDERS)
    return Sampled(kind, int(rdp.rdp_to_eps(spent, context.delta, ORDERS, warn=False).order))


def allowance(purse: Purse, squares: Array, context: Context) -> Array:
    """(K,) what the run may cost in the purse's currency: that of equal rounds, never more than the target's own."""
    whole = context.rounds * purse.cost(np.sqrt(squares / context.rounds))
    if not isinstance(purse, Sampled):
        return squares
    if context.accountant == "rdp":
        whole = np.minimum(whole, rdp.rdp_budget(context.eps, context.delta, [purse.order])[0])
    return SAFE * whole


def mean_amplitude(level: Array, kappa: Array, peak: Array) -> Array:
    """(K,) over Rayleigh fading, by either currency."""
    return peak * limited(level, kappa).mean
