"""What is kept of rounds that are over: sums per client, figures per round, quantiles over clients. Host, float64."""

from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.sequence import Measured
from otafl.core import uplink
from otafl.core.arrays import Floats
from otafl.core.messages import Stats
from otafl.core.plan import Events, Plan, Trace, cut
from otafl.privacy import noise_multiplier
from otafl.privacy.card import QUANTILES
from otafl.privacy.events import pick
from otafl.privacy.sums import Sums
from otafl.runs.build import Site
from otafl.runs.certificates import measured
from otafl.runs.folder.results import Columns, RoundColumns, per_round
from otafl.runs.planning.energy import check_sent

SPREAD = ("norm", "raw_norm", "energy", "noise_multiplier")  # told as quantiles over the clients of a round
SUMMED = ("terms", "bare", "rounds", "least_multiplier", "receiver", "artificial", "leak_angle", "quiet")


class Tally:
    """One seed's rounds so far.

    `sums` and `before` are what rounds and releases (K,) of an earlier run cost, `beside` what accompanies every round.
    """

    def __init__(self, site: Site, sums: Sums, before: Floats, beside: Floats, accounting: str, where: str):
        self.site, self.sums, self._accounting, self._where = site, sums, accounting, where
        self._before, self._beside, self._rounds_before = before, beside, sums.rounds
        self.opening = sums.worst(before)
        clients = len(site.deployment.weights)
        self.energy = np.zeros(clients)  # J of all rounds

    def add(self, plan: Plan, trace: Trace, released: Events, stats: Stats, first: int) -> Columns:
        """Take in rounds (T, K) from `first` on; what is told of each of them, (T,) or (T, quantiles)."""
        site, live = self.site, released.live
        with np.errstate(all="ignore"):  # rounds that were not run may hold anything
            spent = uplink.uplink_of(site.policy).energy
            energy = spent(plan, stats.norm, stats.sent, site.message.dim)
            check_sent(energy, live, site.deployment, site.message, self._where, first)
            columns = per_round(plan, trace.gain, site, stats, energy)._asdict()
            spread = dict(zip(SPREAD, (stats.norm, stats.raw_norm, energy, noise_multiplier(released))))
            columns |= {name: _quantiles(np.asarray(values)) for name, values in spread.items()}
        counts = {"left_out": stats.left_out, "zeroed": stats.zeroed}
        columns |= {name: np.asarray(count, float).sum(-1) for name, count in counts.items()}
        columns["energy_mean"] = energy.mean(-1)
        rows = [self._add_round(plan, trace, released, energy, t) for t in range(len(live))]
        return columns | {name: np.array([getattr(row, name) for row in rows]) for name in _Round._fields}

    def _add_round(self, plan: Plan, trace: Trace, released: Events, energy: Floats, t: int) -> "_Round":
        """Round by round, so that sums do not depend on the blocks."""
        nan, terms = float("nan"), None
        if released.live[t]:
            self.energy += energy[t]
            self.sums = self.sums.add_round(released, t, self._accounting)
            at = slice(t, t + 1)
            terms = measured(cut(plan, at), pick(released, at), cut(trace, at), self.site)
        rho = self.sums.worst(self._before + self._beside * (self.sums.rounds - self._rounds_before))
        if terms is None:
            return _Round(rho, nan, nan, nan)
        return _Round(rho, float(terms.bias[0]), float(terms.dropped_weight[0]), float(terms.noise[0]))

    def certified(self, bias: Floats, dropped: Floats, noise: Floats) -> Measured | None:
        """All rounds of this seed as the certificate wants them; None where nothing ever moved."""
        used = ~np.isnan(bias)
        return Measured(bias[used], dropped[used], noise[used], np.zeros(0)) if np.any(used) else None

    def arrays(self) -> Columns:
        """For a checkpoint."""
        summed = {name: np.asarray(getattr(self.sums, name)) for name in SUMMED}
        return {"energy": self.energy, **summed}

    def restore(self, arrays: Columns) -> None:
        self.energy = arrays["energy"].copy()
        plain: dict[str, Any] = {name: arrays[name] if arrays[name].ndim else arrays[name].item() for name in SUMMED}
        self.sums = self.sums._replace(**plain)

    def fits(self, arrays: Columns) -> bool:
        """Whether these could be this seed's."""
        own = self.arrays()
        return set(arrays) == set(own) and all(
            arrays[name].dtype == own[name].dtype and arrays[name].shape[-1:] == own[name].shape[-1:] for name in own
        )


class _Round(NamedTuple):
    """What the sums say after a round, and the terms of its certificate; NaN where it moved nothing."""

    rho_worst: float  # zCDP of the client that has spent most
    bias: float
    dropped_weight: float
    noise: float


COLUMNS = {*RoundColumns._fields, *SPREAD, "left_out", "zeroed", "energy_mean", *_Round._fields}  # of `Tally.add`


def _quantiles(values: Floats) -> Floats:
    """(T, Q) over the clients of each round: values that occur, not means of two."""
    return np.moveaxis(np.quantile(values, QUANTILES, axis=-1, method="lower"), 0, -1)


def quantile_table(records: Columns, live: np.ndarray, seeds: list[int]) -> Columns:
    """One row per seed, round and quantile over the clients."""
    seed_axis, round_axis = np.nonzero(live)
    table = {
        "seed": np.repeat(np.asarray(seeds)[seed_axis], len(QUANTILES)),
        "round": np.repeat(round_axis, len(QUANTILES)),
        "quantile": np.tile(QUANTILES, len(round_axis)),
    }
    return table | {name: records[name][live].reshape(-1) for name in SPREAD}
