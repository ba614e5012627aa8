"""Clients that retire at their own cap: `privacy.stop = "each"`. Host, float64.

Who is silent from which round on is a function of the trace, the plan and the cap alone, so it is public and carries no
information about data; client k pays for the rounds in which it may send, and for no others (adaptive composition). No
filter theorem is needed. Retired devices stay on the air with their artificial noise unless told otherwise: then nobody
leaves earlier because somebody else did.
"""

from typing import Any

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events, Plan, namespace
from otafl.privacy.accountants import round_costs
from otafl.privacy.events import pick
from otafl.privacy.ledger import PLANNING_MARGIN, Ledger

BELOW = 1 - 1e-12  # running sums of doubles in another order stay within the ledger's exact ones


def rounds_in(ledger: Ledger, released: Events, keep_noise: bool = True) -> Array:
    """Which rounds each client is in, (T, K): from the first that would pass its own cap on it is out for good.

    >>> ones = np.ones((60, 3))
    >>> run = Events(ones * [0.5, 0.3, 0.2], ones * 4 / 3, ones > 0, ones, np.zeros(60), ones[:, 0] > 0, np.ones(3),
    ...              np.full(3, 2.0))
    >>> from otafl.privacy import Budget
    >>> ledger = Ledger(Budget(eps=8.0, delta=1e-5, adjacency="replace"), clients=3)
    >>> rounds_in(ledger, run).sum(0).tolist(), rounds_in(ledger, run, keep_noise=False).sum(0).tolist()
    ([8, 23, 52], [8, 18, 27])
    """
    budget = ledger.budget
    if not budget.counted.additive:
        if not keep_noise:
            raise InputError(
                "privacy.retired_noise=false needs an accountant whose costs add ('gaussian', 'zcdp'), not "
                f"{budget.accountant!r}: who leaves changes what the others pay, round by round"
            )
        return _while_heard(_first_rounds(ledger, released), released)
    cap = budget.zcdp * BELOW
    spent, active = ledger.zcdp(), np.ones(ledger.clients, bool)
    inside = np.zeros(released.amp.shape, bool)
    for t in np.flatnonzero(released.live):
        row = pick(released, slice(t, t + 1))
        while np.any(active):  # who leaves may take noise along, so that the next has to leave too
            noise = row.artificial_var if keep_noise else np.where(active, row.artificial_var, 0.0)
            cost = round_costs(row._replace(artificial_var=noise), budget.accounting, ledger.colluders)[0]
            over = active & ~(spent + cost <= cap)
            if not np.any(over):
                spent, inside[t] = spent + np.where(active, cost, 0.0), active
                break
            active = active & ~over
    return _while_heard(inside, released)


def _while_heard(inside: Array, released: Events) -> Array:
    """Nobody is in after the last round in which somebody who has not retired may be heard: clients who never send
    never reach a cap, and would keep a run of noise alone going."""
    heard = np.flatnonzero(np.any(inside & (released.amp > 0), axis=-1))
    if heard.size and not np.all(inside[released.live]):
        inside[heard[-1] + 1 :] = False
    return inside


def _first_rounds(ledger: Ledger, released: Events) -> Array:
    """Any accountant. The noise stays, so nobody's cost depends on who else has left: one bisection for all clients.

    What fits in the end has been counted as it will be charged: the same rounds, by the same accountant.
    """
    number = np.cumsum(released.live) - 1  # of the live rounds
    cap = ledger.budget.eps * (1 - 2 * PLANNING_MARGIN)  # the ledger may add the same costs in another order
    low, high = np.zeros(ledger.clients, int), np.full(ledger.clients, int(np.sum(released.live)))

    def of(rounds: Array) -> Array:
        return released.live[:, None] & (number[:, None] < rounds)

    while np.any(low < high):
        middle = (low + high + 1) // 2
        trial = released._replace(amp=np.where(of(middle), released.amp, 0.0))
        eps = ledger.besides(trial).spent().eps
        fits = eps <= cap
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return of(low)


def retired(plan: Plan, inside: Array, keep_noise: bool = True) -> Plan:
    """The plan with every client silent from its last round on; it ends where nobody is left. NumPy or JAX."""
    xp = namespace(plan.tx)
    return plan._replace(
        tx=xp.where(inside, plan.tx, 0),
        noise=plan.noise if keep_noise else xp.where(inside, plan.noise, 0),
        max_norm=xp.where(inside, plan.max_norm, -1.0),
        send_prob=xp.where(inside, plan.send_prob, 0.0),
        live=plan.live & xp.any(inside, axis=-1),
    )


def certified_where(info: Any, wanted: Plan, played: Plan) -> Any:
    """A policy's info without its certificates of rounds in which somebody is silent who it planned would send."""
    if not hasattr(info, "certified"):
        return info
    silenced = (played.max_norm < 0) & (wanted.max_norm >= 0)
    return info._replace(certified=info.certified & ~namespace(silenced).any(silenced, axis=-1))
