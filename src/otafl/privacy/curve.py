"""eps over the rounds of a run, by the budget's own accountant. Host, float64."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Events
from otafl.privacy.accountants import round_costs
from otafl.privacy.budget import Budget
from otafl.privacy.by_rdp import rdp_total
from otafl.privacy.events import join, pick
from otafl.privacy.ledger import Ledger
from otafl.privacy.spend import Release, release_square, with_rounds


def eps_curve(
    events: Events, rounds: Array, budget: Budget, each_round: Sequence[Release] = (), before: Ledger | None = None
) -> Array:
    """Worst client's eps after so many rounds of one run, (E,), with the releases of each; rounds ascending.

    What an earlier run has spent (`before`) counts.
    The last point is what the ledger of the run counts. With `pld`, which has no cheap running value, those before are
    bounded by it and by Renyi's curve.
    """
    cuts = [0, *[int(r) for r in rounds]]
    parts = [pick(events, slice(a, b)) for a, b in pairwise(cuts)]
    clients = events.amp.shape[-1]
    before = before or Ledger(budget, clients)
    colluders = np.isin(np.arange(clients), budget.colluders) if budget.colluders else None
    if budget.counted.convert is not None:
        beside = [release_square(each_round, clients) * np.sum(part.live) for part in parts]
        costs = [round_costs(part, budget.accounting, colluders).sum(0) + b / 2 for part, b in zip(parts, beside)]
        worst = np.max(before.zcdp() + np.cumsum(costs, axis=0), axis=-1)  # eps rises with the cost
        return np.asarray(budget.counted.convert(worst, budget.delta), np.float64)
    curve, options = [], (budget.accounting, budget.orders, colluders, budget.adjacency)
    total = rdp_total(join([*before.parts, pick(events, slice(0))]), *options, before.releases)
    for part in parts:
        total = total + rdp_total(part, *options, with_rounds(each_round, part))
        curve.append(float(np.max(total.eps(budget.delta, budget.orders)[0])))
    # The whole run by itself, also with Renyi: of many noise levels its chords lie a little above those of the parts.
    whole = pick(events, slice(cuts[-1]))
    last = float(replace(before, budget=budget).besides(whole, with_rounds(each_round, whole)).spent().worst)
    found = np.minimum(curve, last)
    found[-1:] = last
    return found
