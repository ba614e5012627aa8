"""Liu and Simeone's power allocation over rounds under one privacy budget: a water level. Host, float64.

With every client aligned at amplitude c_t p_k, u_t = c_t^2, step 1/L and Polyak-Lojasiewicz constant mu, the bound on
the loss falls with

    min_u  sum_t w_t / u_t    s.t.  sum_t s_t u_t <= R,   0 < u_t <= cap_t                                    (F1)
    w_t = (1 - mu/L)^(T-t),   s_t = max_k (p_k Delta_k)^2 / (2 v0),   cap_t = min_k abs(h_kt)^2 E_k / (p_k G)^2

R is a zCDP budget. The problem is convex; u_t = min(cap_t, sqrt(w_t / (lambda s_t))), and sum s_t cap_t <= R is the
case in which privacy is free: full power fits (lambda = 0).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError


class Allocation(NamedTuple):
    """Squared amplitudes of the rounds, and the price of privacy."""

    square: Floats  # (T,) u_t
    price: float  # lambda; 0 where privacy is free
    free: bool


def allocate(worth: Floats, cost: Floats, cap: Floats, budget: float) -> Allocation:
    """The minimiser of (F1) for weights `worth`, prices `cost` and limits `cap`, (T,) each, in one pass.

    Rounds are sorted by cap_t / sqrt(w_t / s_t): up to some place they are at their cap, behind it they share what is
    left in proportion to sqrt(w_t / s_t).

    >>> found = allocate(np.array([1.0, 4.0]), np.ones(2), np.full(2, 10.0), 6.0)
    >>> found.square.round(12).tolist(), found.free
    ([2.0, 4.0], False)
    """
    worth, cost, cap = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (worth, cost, cap)))
    for name, value in (("worth", worth), ("cost", cost), ("cap", cap), ("budget", np.asarray(budget))):
        validate.positive(name, value)
    if np.sum(cost * cap) <= budget:
        return Allocation(cap.copy(), 0.0, True)
    shape = np.sqrt(worth / cost)  # u_t = level shape_t below the caps
    order = np.argsort(cap / shape, kind="stable")
    at_cap = np.concatenate([[0.0], np.cumsum((cost * cap)[order])[:-1]])  # spent by the rounds before
    sharing = np.cumsum((cost * shape)[order][::-1])[::-1]  # per unit of level, by this round and those behind
    levels = (budget - at_cap) / sharing
    first = int(np.argmax(levels <= (cap / shape)[order]))  # exists: not all fit at their cap
    level = float(levels[first])
    return Allocation(np.minimum(cap, level * shape), 1 / level**2, False)


def worths(rounds: int, conditioning: float) -> Floats:
    """w_t of rounds 1..T, (T,): an error that is made early is forgotten. `conditioning` = mu/L.

    >>> worths(3, 0.5).tolist()
    [0.25, 0.5, 1.0]
    """
    validate.whole("rounds", rounds)
    if not 0 <= conditioning < 1:
        raise InputError(f"conditioning={conditioning!r} must lie in [0, 1)")
    found = np.asarray((1 - conditioning) ** np.arange(rounds - 1, -1, -1, dtype=np.float64))
    if found[0] == 0:
        raise InputError(f"conditioning={conditioning} leaves the first of rounds={rounds} no weight; lower one")
    return found


def price_of(weights: Floats, sensitivity: Floats, noise_var: float) -> float:
    """s_t: zCDP that one unit of squared amplitude costs the worst client, max_k (p_k Delta_k)^2 / (2 v0)."""
    validate.positive("noise_var", noise_var)
    return float(np.max(np.asarray(weights) * np.asarray(sensitivity)) ** 2 / (2 * noise_var))


def caps(gain: Floats, energy: Floats, weights: Floats, bound: float) -> Floats:
    """cap_t (...): the largest squared amplitude that every client's energy allows; gain (..., K)."""
    weights = np.asarray(weights, np.float64)
    with np.errstate(divide="ignore"):
        each = np.abs(gain) ** 2 * np.asarray(energy, np.float64) / (weights * bound) ** 2
    return np.asarray(np.min(np.where(weights > 0, each, np.inf), axis=-1))


def paper_budget(eps: float, delta: float) -> float:
    """R of the paper's own accounting: (sqrt(eps + y^2) - y)^2 with sqrt(pi) y e^(y^2) = 1/delta.

    >>> round(paper_budget(8.0, 1e-5), 5)
    1.18491
    """
    validate.positive("eps", eps)
    validate.in_open("delta", delta, 0, 1)
    target = -math.log(delta)
    y = scipy.optimize.brentq(
        lambda y: 0.5 * math.log(math.pi) + math.log(y) + y * y - target, 1e-300, 10 + math.sqrt(target) + 1
    )
    # The difference of two near numbers loses digits at small eps.
    return float((eps / (math.sqrt(eps + y * y) + y)) ** 2)
