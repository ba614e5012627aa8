"""One table of accountants: events in, eps per client out, each with what it assumed. Host, float64.

| name           | what it is                                          | sampling (rate < 1)         | participation   |
|----------------|-----------------------------------------------------|-----------------------------|-----------------|
| `zcdp`         | rho + 2 sqrt(rho ln(1/delta))                       | charged as rate 1 (valid)   | none, realised  |
| `zcdp-optimal` | best conversion of the same rho                     | charged as rate 1 (valid)   | none, realised  |
| `gaussian`     | exact curve of composed Gaussians                   | charged as rate 1 (valid)   | none, realised  |
| `rdp`          | Renyi orders, improved conversion                   | amplified                   | all four        |
| `pld`          | privacy loss distributions (dp_accounting)          | amplified                   | none, realised  |

Whoever needs an eps, a cap or a name of an accountant asks this table: ledger, curves, cards, tables, command line.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import gaussian, participation, rdp, zcdp
from otafl.privacy.by_pld import account_pld
from otafl.privacy.by_rdp import account_rdp
from otafl.privacy.spend import ADJACENCIES, Release, Spend, Terms, check_run, make_spend

__all__ = ["ACCOUNTANTS", "ADJACENCIES", "Accountant", "Release", "Spend", "account", "release_costs", "round_costs",
           "spend_of_sums"]  # fmt: skip

NOT_AMPLIFIED = "sampling (rate < 1) gives no amplification here; charged as rate 1"


@dataclass(frozen=True)
class Accountant:
    """How a run is counted; `account` asks it."""

    name: str
    label: str  # head of a narrow column
    summary: str
    supports: frozenset[str]  # participation accountings
    amplified: bool  # whether Poisson sampling lowers the cost
    eps: Callable[..., Spend]  # (events, terms, options of its own) that were checked
    adaptive: Literal["cap", "order", "none"]  # what a policy that looks at the training needs: nothing more, one order
    convert: Callable[[Array, float], Array] | None = None  # eps of a total rho, where costs add
    cap: Callable[[float, float], float] | None = None  # the largest total rho within (eps, delta), where costs add

    @property
    def additive(self) -> bool:
        """Whether a run is one sum of zCDP costs, compared with one cap."""
        return self.cap is not None


def round_costs(events: Events, accounting: str = "none", colluders: Array = None) -> Array:
    """zCDP cost of each round without amplification, (..., T, K); in full where participation only averages."""
    square = participation.charged(events, participation.certified(accounting), colluders)
    return zcdp.cost(square) * (events.rate > 0)


def release_costs(releases: Sequence[Release], clients: int) -> Array:
    """zCDP costs of all occurrences of all releases, (n, K)."""
    each = [np.broadcast_to(r.square(clients) / 2, (r.times, clients)) for r in releases]
    return np.concatenate([np.zeros((0, clients)), *each])


def _plain_rho(name: str, events: Events, terms: Terms) -> Array:
    """Total zCDP cost without amplification, (..., K)."""
    if terms.accounting not in participation.CERTIFIED:
        raise InputError(
            f"accountant {name!r} does not support accounting={terms.accounting!r}: such a round is a mixture of "
            "Gaussians; use accountant 'rdp'"
        )
    costs = round_costs(events, terms.accounting, terms.colluders)
    *lead, _, clients = costs.shape
    extra = release_costs(terms.releases, clients)
    whole = np.concatenate([costs, np.broadcast_to(extra, (*lead, *extra.shape))], axis=-2)
    columns = np.moveaxis(whole, -2, 0).reshape(whole.shape[-2], math.prod(lead) * clients)
    return zcdp.strict_sums(columns).reshape(*lead, clients)


def _from_rho(name: str, convert: Callable[[Array, float], Array]) -> Callable[..., Spend]:
    def account(events: Events, terms: Terms) -> Spend:
        rho, notes = _plain_rho(name, events, terms), [NOT_AMPLIFIED] if np.any(events.rate < 1) else []
        return make_spend(name, np.asarray(convert(rho, terms.delta)), terms, notes)

    return account


def _additive(name: str, label: str, summary: str, convert: Any, cap: Any) -> Accountant:
    return Accountant(
        name, label, summary, participation.CERTIFIED, False, _from_rho(name, convert), "cap", convert, cap
    )


_TABLE = (
    _additive(
        "zcdp",
        "zCDP",
        "zero-concentrated DP, classic conversion rho + 2 sqrt(rho ln(1/delta)); what published schemes count in",
        zcdp.classic_eps,
        zcdp.classic_budget,
    ),
    _additive(
        "zcdp-optimal",
        "zCDP*",
        "zero-concentrated DP, the smallest eps that its Renyi curve implies",
        zcdp.optimal_eps,
        zcdp.optimal_budget,
    ),
    _additive(
        "gaussian",
        "exact",
        "exact for Gaussian rounds without sampling",
        gaussian.eps_from_rho,
        gaussian.budget_rho,
    ),
    Accountant(
        "rdp",
        "RDP",
        "Renyi DP: Poisson sampling and random participation",
        frozenset(participation.ACCOUNTINGS),
        True,
        account_rdp,
        "order",
    ),
    Accountant(
        "pld",
        "PLD",
        "privacy-loss distributions: tightest with sampling, no running value",
        participation.CERTIFIED,
        True,
        account_pld,
        "none",
    ),
)
ACCOUNTANTS: dict[str, Accountant] = {entry.name: entry for entry in _TABLE}


def account(
    name: str, events: Events, delta: float, *, adjacency: str = "add-remove", accounting: str = "none",
    colluders: Array = None, releases: Sequence[Release] = (), **own: Any,
) -> Spend:  # fmt: skip
    """What a run cost by the accountant of that name; `own`: rdp takes `orders`, pld `bins` and `interval`."""
    validate.one_of("accountant", name, ACCOUNTANTS)
    terms = Terms(delta, adjacency, accounting, colluders, releases)
    check_run(events, terms)
    return ACCOUNTANTS[name].eps(events, terms, **own)


LEVELS = 1 << 16  # totals that are converted one by one


def spend_of_sums(
    name: str, rho: Array, sampled: bool, delta: float, accounting: str, orders: Array = rdp.ORDERS
) -> Spend:
    """What total zCDP costs (K,) amount to by an accountant that can count from them.

    Above `LEVELS` different totals single clients are charged the next level above their own; the worst is exact.
    """
    validate.one_of("accountant", name, ACCOUNTANTS)
    entry, notes = ACCOUNTANTS[name], []
    if entry.convert is None and (sampled or name != "rdp"):
        raise InputError(f"accountant {name!r} needs every round; this ledger keeps one sum per client")
    if sampled:
        notes.append(NOT_AMPLIFIED)
    totals, where = np.unique(rho, return_inverse=True)
    if totals.size > LEVELS:
        level = np.linspace(0, totals.size - 1, LEVELS).astype(int)
        where = np.searchsorted(level, np.arange(totals.size))[where]
        totals = totals[level]
        notes.append(f"eps of single clients is that of the next of {LEVELS} levels above; the worst is exact")
    if entry.convert is not None:
        eps = np.asarray(entry.convert(totals, delta))
    else:  # without sampling an order costs in proportion to rho
        eps = np.asarray(rdp.rdp_to_eps(totals[:, None] * np.asarray(orders, float), delta, orders, warn=False).eps)
    return make_spend(name, eps[where.reshape(np.shape(rho))], Terms(delta, accounting=accounting), notes)
