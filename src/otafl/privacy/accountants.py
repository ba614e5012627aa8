"""One table of accountants: events in, eps per client out, each with what it assumed. Host, float64.

| name           | what it is                                          | sampling (rate < 1)         | participation   |
|----------------|-----------------------------------------------------|-----------------------------|-----------------|
| `zcdp`         | rho + 2 sqrt(rho ln(1/delta))                       | charged as rate 1 (valid)   | none, realised  |
| `zcdp-optimal` | best conversion of the same rho                     | charged as rate 1 (valid)   | none, realised  |
| `gaussian`     | exact curve of composed Gaussians                   | charged as rate 1 (valid)   | none, realised  |
| `rdp`          | Renyi orders, improved conversion                   | amplified; not `replace`    | all four        |
| `pld`          | privacy loss distributions (dp_accounting)          | amplified                   | none, realised  |
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from otafl import validate
from otafl.errors import InputError
from otafl.plan import Array, Events
from otafl.privacy import gaussian, participation, pld, rdp, zcdp

ADJACENCIES = ("add-remove", "replace", "zero-out")
SAME = 1e-12  # relative: equal devices whose 1/z^2 differ by the rounding of their amplitudes
PLD_CLIENTS = 8  # distinct clients up to which pld treats each one; beyond, one sequence that dominates all


class Release(NamedTuple):
    """A Gaussian release beside the air: a noisy reward, a pilot count. Charged like a round, without sampling."""

    name: str
    sensitivity: Array  # () or (K,) L2 change under the ledger's unit and adjacency
    noise_std: float
    times: int = 1

    def square(self, clients: int) -> Array:
        """1/z^2 of one occurrence, (K,)."""
        validate.not_negative(f"release {self.name!r} sensitivity", self.sensitivity)
        validate.positive(f"release {self.name!r} noise_std", self.noise_std)
        validate.whole(f"release {self.name!r} times", self.times)
        return np.broadcast_to((np.asarray(self.sensitivity, np.float64) / self.noise_std) ** 2, (clients,))


class Spend(NamedTuple):
    """What a run cost by one accountant."""

    eps: Array  # (..., K) per client
    worst: Array  # (...) the guarantee of the system: a unit lives at one client
    mean: Array  # (...)
    delta: float
    accountant: str
    accounting: str
    certified: bool  # False: a design value, not a guarantee
    notes: tuple[str, ...]


Accountant = Callable[..., Spend]


def _spend(name: str, eps: Array, delta: float, accounting: str, notes: Sequence[str]) -> Spend:
    certified = accounting in participation.CERTIFIED
    if not certified:
        notes = [*notes, f"participation '{accounting}' is a design value, not a certificate (CDPB E13b)"]
    return Spend(eps, np.max(eps, -1), np.mean(eps, -1), delta, name, accounting, certified, tuple(notes))


def round_costs(events: Events, accounting: str = "none", colluders: Array = None) -> Array:
    """zCDP cost of each round without amplification, (..., T, K)."""
    return zcdp.cost(participation.charged(events, accounting, colluders)) * (events.rate > 0)


def release_costs(releases: Sequence[Release], clients: int) -> list[list[float]]:
    """zCDP costs of all releases, one list per client."""
    squares = [(r.square(clients), r.times) for r in releases]
    return [[float(square[k]) / 2 for square, times in squares for _ in range(times)] for k in range(clients)]


def _plain_rho(name: str, events: Events, accounting: str, colluders: Array, releases: Sequence[Release]) -> Array:
    """Total zCDP cost without amplification, (..., K)."""
    if accounting not in participation.CERTIFIED:
        raise InputError(
            f"accountant {name!r} does not support accounting={accounting!r}: such a round is a mixture of Gaussians; "
            "use accountant 'rdp'"
        )
    costs = round_costs(events, accounting, colluders)
    *lead, rounds, clients = costs.shape
    extra = release_costs(releases, clients)
    columns = np.moveaxis(costs, -2, -1).reshape(math.prod(lead) * clients, rounds).tolist()
    total = [zcdp.strict_sum([*column, *extra[n % clients]]) for n, column in enumerate(columns)]
    return np.array(total).reshape(*lead, clients)


def _sampling_note(events: Events) -> list[str]:
    return ["sampling (rate < 1) gives no amplification here; charged as rate 1"] if np.any(events.rate < 1) else []


def _from_rho(name: str, convert: Callable[[Array, float], Array]) -> Accountant:
    def account(
        events: Events,
        delta: float,
        *,
        adjacency: str = "add-remove",
        accounting: str = "none",
        colluders: Array = None,
        releases: Sequence[Release] = (),
    ) -> Spend:
        _check(events, delta, adjacency, accounting)
        rho = _plain_rho(name, events, accounting, colluders, releases)
        return _spend(name, np.asarray(convert(rho, delta)), delta, accounting, _sampling_note(events))

    account.__name__ = f"account_{name.replace('-', '_')}"
    return account


def account_rdp(
    events: Events,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accounting: str = "none",
    colluders: Array = None,
    releases: Sequence[Release] = (),
    orders: Array = rdp.ORDERS,
) -> Spend:
    """Renyi accounting over a list of orders."""
    _check(events, delta, adjacency, accounting)
    refuse_sampled_replace(events, adjacency)
    total = participation.run_rdp(events, accounting, orders, colluders, adjacency)
    total = total + release_rdp(releases, total.shape[-2], orders)
    notes = []
    if accounting in participation.CERTIFIED:
        z = 1 / np.sqrt(np.maximum(participation.charged(events, accounting, colluders), 1e-300))
        if not rdp.is_exact(events.rate, z):
            notes.append("fractional orders from chords above the curve (many distinct noise levels)")
    if accounting == "hidden" and adjacency == "replace":
        notes.append("antipodal contributions are taken as the worst pair (not proved)")
    found = rdp.rdp_to_eps(total, delta, orders, warn=False)
    edge = np.isin(found.order, np.asarray(orders)[[0, -1]]) & (found.eps > 0) & np.isfinite(found.eps)
    if np.size(orders) > 1 and np.any(edge):
        notes.append("the best order is at the edge of the list: eps is valid but may be loose")
    return _spend("rdp", np.asarray(found.eps), delta, accounting, notes)


def refuse_sampled_replace(events: Events, adjacency: str) -> None:
    if adjacency == "replace" and np.any((events.rate > 0) & (events.rate < 1)):
        raise InputError(
            "accountant 'rdp' does not support Poisson sampling (rate < 1) with adjacency='replace'; use 'pld', or "
            "adjacency='add-remove'"
        )


def release_rdp(releases: Sequence[Release], clients: int, orders: Array) -> Array:
    """RDP of all releases, (K, orders)."""
    square = sum((r.times * r.square(clients) for r in releases), np.zeros(clients))
    return square[:, None] * np.asarray(orders, np.float64) / 2


def account_pld(
    events: Events,
    delta: float,
    *,
    adjacency: str = "add-remove",
    accounting: str = "none",
    colluders: Array = None,
    releases: Sequence[Release] = (),
    bins: int = pld.BINS,
) -> Spend:
    """Privacy loss distributions; noise rounded down to log bins; many distinct clients through one dominating run."""
    _check(events, delta, adjacency, accounting)
    if accounting not in participation.CERTIFIED:
        raise InputError(f"accountant 'pld' does not support accounting={accounting!r}; use accountant 'rdp'")
    square = participation.charged(events, accounting, colluders)
    *lead, rounds, clients = square.shape
    extra = [np.tile(r.square(clients), (r.times, 1)) for r in releases]
    square = np.concatenate([square, *[np.broadcast_to(e, (*lead, *e.shape)) for e in extra]], axis=-2)
    rows = np.sort(np.moveaxis(square, -2, -1).reshape(-1, square.shape[-2])[:, :rounds], -1)
    added = np.moveaxis(square, -2, -1).reshape(-1, square.shape[-2])[:, rounds:]
    rate = np.tile(events.rate, len(rows) // clients)
    keyed, where = _alike(np.concatenate([rate[:, None], rows, added], 1))
    notes = [f"noise multipliers rounded down to at most {bins} log bins"] if np.any(events.rate < 1) else []
    if adjacency == "replace" and np.any(events.rate < 1):
        notes.append("replacement: two contributions of half the sensitivity each, opposed, taken as the worst pair")
    if len(keyed) > PLD_CLIENTS:
        keyed, where = keyed.max(0, keepdims=True), np.zeros(len(rows), int)
        notes.append(f"more than {PLD_CLIENTS} distinct clients: all charged as one run that dominates each of them")
    eps = [_pld_row(row[0], row[1 : rounds + 1], row[rounds + 1 :], delta, adjacency, bins) for row in keyed]
    return _spend("pld", np.array(eps)[where].reshape(*lead, clients), delta, accounting, notes)


def _alike(rows: Array) -> tuple[Array, Array]:
    """Distinct rows and the group of each; rows that differ by rounding alone share the larger of their entries.

    Looks no further once there are too many groups for `account_pld` to treat apart.
    """
    distinct, where = np.unique(rows, axis=0, return_inverse=True)
    groups: list[Array] = []
    member = np.empty(len(distinct), int)
    for n, row in enumerate(distinct):
        group = next((g for g, top in enumerate(groups) if np.all((row == top) | _close(row, top))), len(groups))
        member[n] = group
        if group < len(groups):
            groups[group] = np.maximum(groups[group], row)
        elif group >= PLD_CLIENTS:
            return distinct, where.ravel()
        else:
            groups.append(row)
    return np.stack(groups), member[where.ravel()]


def _close(row: Array, top: Array) -> Array:
    with np.errstate(invalid="ignore"):  # infinite entries are compared by ==
        return np.abs(row - top) <= SAME * top


def _pld_row(rate: float, square: Array, added: Array, delta: float, adjacency: str, bins: int) -> float:
    with np.errstate(divide="ignore"):
        z = 1 / np.sqrt(np.concatenate([square, added]))
    rates = np.concatenate([np.full(square.size, rate), np.ones(added.size)])
    return pld.pld_eps(z, rates, delta, adjacency, bins)


def _check(events: Events, delta: float, adjacency: str, accounting: str) -> None:
    validate.in_open("delta", delta, 0, 1)
    validate.one_of("adjacency", adjacency, ADJACENCIES)
    validate.one_of("accounting", accounting, participation.ACCOUNTINGS)
    if np.ndim(events.amp) < 2:
        raise InputError(f"events have shape {np.shape(events.amp)} but need axes (rounds, clients)")


ACCOUNTANTS: dict[str, Accountant] = {
    "zcdp": _from_rho("zcdp", zcdp.classic_eps),
    "zcdp-optimal": _from_rho("zcdp-optimal", zcdp.optimal_eps),
    "gaussian": _from_rho("gaussian", gaussian.eps_from_rho),
    "rdp": account_rdp,
    "pld": account_pld,
}


def account(name: str, events: Events, delta: float, **options: object) -> Spend:
    """Look the accountant up by name and apply it."""
    validate.one_of("accountant", name, ACCOUNTANTS)
    return ACCOUNTANTS[name](events, delta, **options)
