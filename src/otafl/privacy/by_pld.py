"""The accountant by privacy loss distributions: each client's own where they are few, else what dominates. Host.

Noise multipliers are rounded *down* to log bins. Composing one bin takes some ten milliseconds, so at most `MECHANISMS`
bins are composed: the clients that cost most are treated one by one, the others by a run that dominates all of them or
by their Renyi bound, whichever is smaller.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import gaussian, participation, pld
from otafl.privacy.by_rdp import account_rdp
from otafl.privacy.replacement import CERTIFIED_PAIR, certified_eps
from otafl.privacy.spend import Release, Spend, Terms, make_spend, release_square, sampled

SAME = 1e-12  # relative: equal devices whose 1/z^2 differ by the rounding of their amplitudes
MECHANISMS = 8 * pld.BINS


@lru_cache(maxsize=32)  # a run's end asks for each several times: eps, attack, card
def _composed(square: bytes, rate: float, beside: float, bins: int, interval: float | None) -> Any:
    z = 1 / np.sqrt(np.frombuffer(square, np.float64))
    return pld.compose(z, np.full(z.size, rate), beside, False, bins, interval)


class Row(NamedTuple):
    """All that one client's rounds cost, or a bound of it for several clients."""

    rate: float
    square: Array  # (T,) 1/z^2 of every round, ascending
    beside: float  # sum of 1/z^2 of the releases

    def loss(
        self, halved: bool = False, beside: bool = True, bins: int = pld.BINS, interval: float | None = None
    ) -> Any:
        """Distribution of the loss, contributions of the whole or half the sensitivity; not where `gaussian`."""
        square = np.asarray(self.square[self.square > 0], np.float64) / (4 if halved else 1)
        return _composed(square.tobytes(), self.rate, self.beside if beside else 0.0, bins, interval)

    @property
    def mu(self) -> float:
        """sqrt(sum 1/z^2) without sampling."""
        used = self.square if self.rate > 0 else self.square[:0]
        return math.sqrt(float(np.sum(used)) + self.beside)

    @property
    def gaussian(self) -> bool:
        """Whether the run is one Gaussian: no sampled round in it, or no noise."""
        return self.rate in (0, 1) or not np.any(self.square > 0) or not np.isfinite(self.mu)

    def mechanisms(self, bins: int) -> int:
        return 0 if self.gaussian else min(bins, np.unique(self.square[self.square > 0]).size)

    def eps(self, delta: float, replace: bool, bins: int, interval: float | None = None) -> float:
        """eps at delta; replacement under sampling through the run without the record (see `replacement`)."""
        if self.gaussian:
            return self.plain(delta)
        rounds = self.square.size
        if not replace:
            return min(self.plain(delta), pld.eps_at(self.loss(bins=bins, interval=interval), delta, rounds))
        removed, _ = pld.directions(self.loss(halved=True, bins=bins, interval=interval))
        _, added = pld.directions(self.loss(halved=True, beside=False, bins=bins, interval=interval))
        through = certified_eps(
            lambda delta: pld.eps_at(removed, delta, rounds), lambda delta: pld.eps_at(added, delta, rounds), delta
        )
        return min(self.plain(delta), float(through))

    def plain(self, delta: float) -> float:
        """eps at delta without sampling."""
        return float(gaussian.eps(self.mu, delta))

    def lost(self, eps: float, delta: float) -> bool:
        """Whether the distribution of sampled rounds told nothing at so small a delta."""
        return not self.gaussian and eps >= self.plain(delta)


def account_pld(events: Events, terms: Terms, bins: int = pld.BINS, interval: float | None = None) -> Spend:
    """Privacy loss distributions; `interval` fixes the grid of the loss (default: by the size of the loss)."""
    delta, adjacency, accounting, colluders, releases = terms
    if not sampled(events) and accounting in participation.CERTIFIED:  # every run is one Gaussian: mu is all there is
        square = participation.charged(events, accounting, colluders) * (events.rate > 0)
        mu = np.sqrt(square.sum(-2) + release_square(releases, square.shape[-1]))
        return make_spend("pld", gaussian.eps(mu, delta), terms, [])
    rows, where, apart = distinct_rows(events, accounting, colluders, releases, bins)
    replace = adjacency == "replace"
    each = [row.eps(delta, replace, bins, interval) for row in rows]
    eps, lost = np.array(each)[where], np.array([row.lost(one, delta) for row, one in zip(rows, each)])[where]
    notes = [f"noise multipliers rounded down to at most {bins} log bins"] if np.any(events.rate < 1) else []
    if replace and sampled(events):
        notes.append(CERTIFIED_PAIR)
    if not np.all(apart & ~lost):
        renyi = account_rdp(events, terms).eps.ravel()
        eps = np.where(apart & ~lost, eps, np.minimum(eps, renyi))
    if not np.all(apart):
        notes.append(
            f"too many distinct clients: {int(np.sum(apart))} of {apart.size} have a distribution of their own, the "
            "others the smaller of their Renyi bound and one run that dominates each of them"
        )
    if np.any(lost):
        notes.append("delta, or a part of it, is below the rounding of loss distributions: counted by Renyi bounds")
    return make_spend("pld", eps.reshape(*events.amp.shape[:-2], -1), terms, notes)


def distinct_rows(
    events: Events, accounting: str, colluders: Array, releases: Sequence[Release], bins: int = pld.BINS
) -> tuple[list[Row], Array, Array]:
    """Rows that stand for all clients of all runs, the row of each (flat), and whether it is its own."""
    if accounting not in participation.CERTIFIED:
        raise InputError(f"accountant 'pld' does not support accounting={accounting!r}; use accountant 'rdp'")
    square = participation.charged(events, accounting, colluders)
    *lead, rounds, clients = square.shape
    runs = math.prod(lead)
    square = np.sort(np.moveaxis(square, -2, -1).reshape(runs * clients, rounds), -1)
    rate, beside = np.tile(events.rate, runs), np.tile(release_square(releases, clients), runs)
    keyed, where = _alike(np.concatenate([rate[:, None], beside[:, None], square], 1))
    rows = [Row(float(key[0]), key[2:], float(key[1])) for key in keyed]
    order = sorted(range(len(rows)), key=lambda n: -_size(rows[n]))
    spent = np.cumsum([rows[n].mechanisms(bins) for n in order])
    own = [n for n, total in zip(order, spent) if total <= MECHANISMS or n == order[0]]
    rest = sorted(set(order) - set(own))
    place = np.full(len(rows), len(own))
    place[own] = np.arange(len(own))
    top = keyed[rest].max(0) if rest else None
    dominating = [] if top is None else [Row(float(top[0]), top[2:], float(top[1]))]
    return [rows[n] for n in own] + dominating, place[where], place[where] < len(own)


def _size(row: Row) -> float:
    """How dear a row is, roughly: mu^2 of the central limit."""
    with np.errstate(over="ignore"):
        return float(np.sum(row.rate**2 * np.expm1(np.minimum(row.square, 700.0)))) + row.beside


def _alike(rows: Array) -> tuple[Array, Array]:
    """Distinct rows and the group of each; rows that differ by rounding alone share the larger of their entries."""
    distinct, where = np.unique(rows, axis=0, return_inverse=True)
    groups: list[Array] = []
    member = np.empty(len(distinct), int)
    for n, row in enumerate(distinct):
        group = next((g for g, top in enumerate(groups) if np.all((row == top) | _close(row, top))), len(groups))
        member[n] = group
        if group < len(groups):
            groups[group] = np.maximum(groups[group], row)
        elif group >= MECHANISMS:
            return distinct, where.ravel()
        else:
            groups.append(row)
    return np.stack(groups), member[where.ravel()]


def _close(row: Array, top: Array) -> Array:
    with np.errstate(invalid="ignore"):  # infinite entries are compared by ==
        return np.abs(row - top) <= SAME * top
