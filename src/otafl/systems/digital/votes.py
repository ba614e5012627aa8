"""One-bit votes in a superposition: what the majority gets wrong, and what a vote costs in privacy. Host, float64.

    y = c sum_{active} sign_k + n,   decided by sign(y)

A vote is a vector of D signs of norm sqrt(D). The server holds y before it decides, so the charge is that of y:
replacing a client's data may flip every sign, c^2 (2 sqrt(D))^2 / v0; taking the client away c^2 D / v0. One record
may flip every sign of its client, too, so record level costs the same as replacing the client.
"""

import numpy as np
from scipy.special import ndtr

from otafl.core import validate
from otafl.core.plan import Adjacency, Unit


def majority_error(clients: int, right: float, active: float, amplitude: float, noise_var: float) -> float:
    """Probability that sign(y) is wrong: i.i.d. votes that are right with probability pi, clients active with a.

    sum_n Bin(n; K, a) sum_j Bin(j; n, pi) Phi(-c (2 j - n) / sqrt(v0)).

    >>> round(majority_error(11, 0.7, 0.8, 0.5, 1.0), 6)
    0.152911
    """
    validate.whole("clients", clients)
    validate.in_closed("right", right, 0, 1)
    validate.in_closed("active", active, 0, 1)
    validate.not_negative("amplitude", amplitude)
    validate.positive("noise_var", noise_var)
    from scipy.stats import binom  # slow to import, and few ask

    number = np.arange(clients + 1)
    voters, good = np.meshgrid(number, number, indexing="ij")
    chance = binom.pmf(voters, clients, active) * binom.pmf(good, voters, right)  # 0 where good > voters
    return float(np.sum(chance * ndtr(-amplitude * (2 * good - voters) / np.sqrt(noise_var))))


def vote_sensitivity(dim: int, unit: Unit, adjacency: Adjacency) -> float:
    """L2 change of a vector of signs: every sign may flip, or all are taken away with their client.

    >>> vote_sensitivity(9, "client", "replace"), vote_sensitivity(9, "client", "zero-out")
    (6.0, 3.0)
    >>> vote_sensitivity(9, "record", "zero-out")  # the other records still vote
    6.0
    """
    whole = unit == "client" and adjacency != "replace"
    return float(np.sqrt(dim) * (1 if whole else 2))


def vote_charge(
    amplitude: float, dim: int, noise_var: float, unit: Unit = "client", adjacency: Adjacency = "replace"
) -> float:
    """1/z^2 of a round in which the votes arrive with amplitude c.

    >>> vote_charge(0.5, 100, 2.0), vote_charge(0.5, 100, 2.0, adjacency="zero-out")
    (50.0, 12.5)
    """
    validate.positive("noise_var", noise_var)
    return float((amplitude * vote_sensitivity(dim, unit, adjacency)) ** 2 / noise_var)
