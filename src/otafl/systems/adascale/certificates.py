"""What can be said for certain about a finished run of Algorithm 1. Host, float64.

All bounds hold for every channel sequence, every V and every nu. They follow from the exact drift of the queue,

    Q_{t+1}^2/2 - Q_t^2/2 <= Q_t (y_t - nu) + y_t^2/2 - nu y_t + nu^2/2,

and from the optimality of y_t in (30) against a comparator y': the paper takes y' = 0; y' = nu gives the comparison
with EqualAlloc and the queue bound, y' = y* the regret bound. At the paper's own scales its bounds say nothing, and
are marked `vacuous`.
"""

from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Bools, Floats
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.offline import fill, water_level
from otafl.systems.adascale.online import Run


class Certificate(NamedTuple):
    """Arrays (...) over the leading axes of the run. Leakages are per round and summed over devices."""

    mean_excess: Floats  # mean(y)
    violation: Floats  # mean(y) - nu
    violation_bound: Floats  # (Q_T - Q_0) / T, from the realised queue
    violation_bound_paper: Floats  # (45)
    violation_bound_paper_vacuous: Bools  # bool: it allows at least twice the cap
    final_queue: Floats  # Q_T
    max_queue: Floats
    queue_bound: Floats  # on Q_T, comparator EqualAlloc
    queue_bound_paper: Floats  # (38)
    leakage: Floats  # mean R(N_t)
    optimum: Floats  # mean R(N*_t) offline at nu
    optimum_at_spend: Floats  # offline at the mean excess that was really spent
    regret: Floats  # leakage - optimum, exact
    regret_at_spend: Floats  # leakage - optimum_at_spend, >= 0
    regret_bound: Floats  # post-run, comparator y*
    regret_bound_paper: Floats  # (48)
    regret_bound_paper_vacuous: Bools  # bool: no smaller than the leakage itself
    equal_alloc: Floats  # mean R(f_t + nu)
    equal_alloc_bound: Floats  # what leakage cannot exceed
    water_level: Floats  # W of the optimum at nu
    share_full_power: Floats  # of rounds with y = 0
    mean_floor: Floats  # to be read beside nu: the total noise energy is mean_floor + mean_excess


def certify(run: Run, V: Any, nu: Any, leakage: Leakage) -> Certificate:
    """All certificates of a run: leading axes (...) of run.excess, against which V and nu broadcast."""
    floor, excess, queue = run.floor, run.excess, run.queue
    lead, horizon = excess.shape[:-1], excess.shape[-1]
    V, nu = (np.broadcast_to(np.asarray(part, float), lead) for part in (V, nu))
    validate.positive("V", V)
    first, last = queue[..., 0], queue[..., -1]
    mean_excess, spent = excess.mean(-1), excess.sum(-1)
    got = leakage.total(run.noise)
    mean_got = got.mean(-1)
    level = water_level(floor, nu)
    best = fill(floor, level)
    optimum = leakage.total(floor + best).mean(-1)
    at_spend = leakage.total(floor + fill(floor, water_level(floor, mean_excess))).mean(-1)
    equal = leakage.total(floor + nu[..., None])
    grown = last**2 - first**2

    # AdaScale (38), (45), (48): comparator 0. (Q_0 = 0 in the paper; Q_0^2 enters the root unchanged.)
    queue_paper = np.sqrt(first**2 + 2 * V * leakage.total(floor).sum(-1) + horizon * nu**2)
    regret_paper = queue_paper * nu / V + horizon * nu**2 / (2 * V) + nu**2 / (2 * V)

    queue_square = first**2 + 2 * V * (equal - got).sum(-1) + 2 * horizon * nu**2 - 2 * nu * spent
    waiting = (queue[..., :-1] * best).sum(-1) - nu * queue[..., :-1].sum(-1)
    squares = 0.5 * (best**2).sum(-1) + 0.5 * horizon * nu**2 - nu * spent - 0.5 * grown
    gained = ((excess - best) ** 2).mean(-1) / (2 * V)  # (30) is 1-strongly convex
    gained_equal = ((excess - nu[..., None]) ** 2).mean(-1) / (2 * V)
    violation_paper = (queue_paper - first) / horizon
    return Certificate(
        mean_excess=mean_excess,
        violation=mean_excess - nu,
        violation_bound=(last - first) / horizon,
        violation_bound_paper=violation_paper,
        violation_bound_paper_vacuous=violation_paper >= nu,
        final_queue=last,
        max_queue=queue.max(-1),
        queue_bound=np.sqrt(np.maximum(queue_square, 0.0)),
        queue_bound_paper=queue_paper,
        leakage=mean_got,
        optimum=optimum,
        optimum_at_spend=at_spend,
        regret=mean_got - optimum,
        regret_at_spend=mean_got - at_spend,
        regret_bound=(waiting + squares) / (V * horizon) - gained,
        regret_bound_paper=regret_paper,
        regret_bound_paper_vacuous=regret_paper >= mean_got,
        equal_alloc=equal.mean(-1),
        equal_alloc_bound=equal.mean(-1) + nu**2 / V - nu * mean_excess / V - grown / (2 * V * horizon) - gained_equal,
        water_level=level,
        share_full_power=(excess == 0).mean(-1),
        mean_floor=floor.mean(-1),
    )
