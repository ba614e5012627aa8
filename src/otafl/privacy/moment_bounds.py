"""Total log moments of long runs, from above, by chords of convex functions. Host, float64.

A run of 1,000 rounds and 100 clients has 100,000 noise levels. Integer orders are summed exactly all the same (one
matrix product); at fractional orders three facts give bounds that never fall below the true sum. With A and e^A the
log moment and moment of `moments`:

- A is convex in alpha (Hoelder): a chord between the integer neighbours lies above it;
- e^A is convex in u (proof in `moments`): so does a chord of e^A between two tabulated noise levels;
- e^A is convex in the rate q (a power of something affine in q): so does a chord between two tabulated rates.

The chord in u reads A <= log((1-t) e^A_0 + t e^A_1) <= (1-t) A_0 + t A_1 + (A_1 - A_0)^2 / 8, the last step being
Hoeffding's lemma. That is linear in t, so a whole run is one product with the table.
"""

import numpy as np

from otafl.core.arrays import Array
from otafl.privacy import moments

TABLE = 600  # tabulated (rate, level) pairs
MOST_RATES = 12  # distinct rates up to which each has its own table


def sum_upper(rate: Array, u: Array, orders: Array) -> Array:
    """Sum over rounds of A from above, (R, orders), for rows with rates (R,) in (0, 1) and levels u (R, T)."""
    above = np.ceil(orders).astype(int)
    below = np.maximum(above - 1, 2)
    needed = np.unique(np.concatenate([above, below]))
    integer = _sum_integer(rate, u, needed)
    upper = integer[:, np.searchsorted(needed, above)]
    lower = np.where(above > 2, integer[:, np.searchsorted(needed, below)], 0.0)  # A_1 = 0
    share = orders - (above - 1)
    total = (1 - share) * lower + share * upper
    between = orders < above
    if between.any():
        total[:, between] = np.minimum(total[:, between], _sum_noise_chords(rate, u, orders[between]))
    return total


def _sum_integer(rate: Array, u: Array, orders: Array) -> Array:
    """Exact sums at integer orders, (R, orders)."""
    total = np.empty((len(u), orders.size))
    for q in np.unique(rate):
        rows = np.flatnonzero(rate == q)
        moment = moments.integer_orders(float(q), u[rows].ravel(), orders)
        total[rows] = moment.reshape(rows.size, -1, orders.size).sum(1)
    return total


def _sum_noise_chords(rate: Array, u: Array, orders: Array) -> Array:
    """Sums of chords in u, (R, orders)."""
    nodes = _rate_nodes(rate)
    level = _levels(u, max(TABLE // nodes.size, 75))
    tables = np.stack([moments.any_order(q, level, orders) for q in nodes])
    cell = np.asarray(np.clip(np.searchsorted(level, u, side="right") - 1, 0, level.size - 2))
    share = np.minimum((u - level[cell]) / np.diff(level)[cell], 1.0)
    cells = level.size - 1
    total = np.empty((len(u), orders.size))
    for row in range(len(u)):
        table = _at_rate(rate[row], nodes, tables)
        count = np.bincount(cell[row], minlength=cells)
        right = np.bincount(cell[row], weights=share[row], minlength=cells)
        gap = np.diff(table, axis=0) ** 2 / 8  # Hoeffding
        total[row] = (count - right) @ table[:-1] + right @ table[1:] + count @ gap
    return total


def _at_rate(rate: float, nodes: Array, tables: Array) -> Array:
    """The table of a rate: its own, or the chord of e^A between the two next to it."""
    right = int(np.searchsorted(nodes, rate))
    if nodes[right] == rate:
        return tables[right]
    share = (rate - nodes[right - 1]) / (nodes[right] - nodes[right - 1])
    low, high = tables[right - 1], tables[right]
    small = np.log1p((1 - share) * np.expm1(np.minimum(low, 30.0)) + share * np.expm1(np.minimum(high, 30.0)))
    large = np.logaddexp(np.log1p(-share) + low, np.log(share) + high)
    return np.where(high < 30.0, small, large)


def _rate_nodes(rate: Array) -> Array:
    distinct = np.unique(rate)
    if distinct.size <= MOST_RATES:
        return distinct
    nodes = np.exp(np.linspace(np.log(distinct[0]), np.log(distinct[-1]), MOST_RATES))
    nodes[[0, -1]] = distinct[[0, -1]]
    return nodes


def _levels(u: Array, count: int) -> Array:
    """Noise levels of the table: 0, and from the least to the largest u > 0, finer where e^A grows fast."""
    positive = u[u > 0]
    fine = np.exp(np.linspace(np.log(positive.min()), np.log(positive.max()), 20001))
    measure = np.log(fine) + 2 * fine
    level = np.interp(np.linspace(measure[0], measure[-1], count), measure, fine)
    return np.unique(np.concatenate([[0.0], level, [positive.max()]]))
