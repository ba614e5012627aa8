"""The Renyi accountant: a list of orders, sampling and participation, the best order at the end. Host, float64."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Events
from otafl.privacy import participation, rdp
from otafl.privacy.replacement import CERTIFIED_PAIR, certified_eps
from otafl.privacy.spend import Release, Spend, Terms, make_spend, release_square, sampled

EDGE = "the best order is at the edge of the list: eps is valid but may be loose"


class RdpTotal(NamedTuple):
    """RDP of rounds and releases; adds up over the chunks of a run."""

    rounds: Array  # (..., K, orders); under replacement with sampling, of one of the two steps (see `replacement`)
    releases: Array  # (K, orders)
    plain: Array = None  # (..., K, orders) replacement with sampling only: the whole of it, charged without sampling

    def __add__(self, other: "RdpTotal") -> "RdpTotal":  # type: ignore[override]
        plain = None if self.plain is None else self.plain + other.plain
        return RdpTotal(self.rounds + other.rounds, self.releases + other.releases, plain)

    def eps(self, delta: float, orders: Array) -> tuple[Array, bool]:
        """eps (..., K), and whether an order at the edge of the list gave one of them."""
        whole = self.rounds if self.plain is None else self.plain
        found = rdp.rdp_to_eps(whole + self.releases, delta, orders, warn=False)
        edge = np.isin(found.order, np.asarray(orders)[[0, -1]]) & (found.eps > 0) & np.isfinite(found.eps)
        eps = np.asarray(found.eps)
        if self.plain is not None:
            removed, added = self.rounds + self.releases, self.rounds
            through = certified_eps(
                lambda d: rdp.rdp_to_eps(removed, d, orders, warn=False).eps,
                lambda d: rdp.rdp_to_eps(added, d, orders, warn=False).eps,
                delta,
            )
            eps, edge = np.minimum(eps, through), edge & (eps < through)
        return eps, bool(np.size(orders) > 1 and np.any(edge))


def rdp_total(
    events: Events,
    accounting: str,
    orders: Array,
    colluders: Array = None,
    adjacency: str = "add-remove",
    releases: Sequence[Release] = (),
) -> RdpTotal:
    """What a run adds to the total."""
    square = release_square(releases, events.amp.shape[-1])
    beside = square[:, None] * np.asarray(orders, np.float64) / 2
    if not (adjacency == "replace" and sampled(events)):
        return RdpTotal(participation.run_rdp(events, accounting, orders, colluders, adjacency), beside)
    half = events._replace(sensitivity=events.sensitivity / 2)
    plain = events._replace(rate=np.where(events.rate > 0, 1.0, 0.0))
    parts = [participation.run_rdp(e, accounting, orders, colluders, "add-remove") for e in (half, plain)]
    return RdpTotal(parts[0], beside, parts[1])


def account_rdp(events: Events, terms: Terms, orders: Array = rdp.ORDERS) -> Spend:
    """Renyi accounting over a list of orders."""
    delta, adjacency, accounting, colluders, releases = terms
    total = rdp_total(events, accounting, orders, colluders, adjacency, releases)
    eps, edge = total.eps(delta, orders)
    notes = []
    if accounting in participation.CERTIFIED:
        z = 1 / np.sqrt(np.maximum(participation.charged(events, accounting, colluders), 1e-300))
        if not rdp.is_exact(events.rate, z):
            notes.append("fractional orders from chords above the curve (many distinct noise levels)")
    if total.plain is not None:
        notes.append(CERTIFIED_PAIR)
    if accounting == "hidden" and adjacency == "replace":
        notes.append("antipodal contributions are taken as the worst pair (not proved)")
    return make_spend("rdp", eps, terms, [*notes, *([EDGE] if edge else [])])
