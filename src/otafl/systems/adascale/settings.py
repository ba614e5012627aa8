"""What AdaScale chooses for a site and a privacy target: the cap on excess noise, and which fades to skip.

Under Rayleigh fading the floor is f = a / X with X standard exponential (`stationary`). At level W, rounds above
F = m W skipped, a round of noise energy N costs c / (2 N) of zCDP, so on average

    cost(W, F) = c/2 [exp(-a/W)/W + (g(a/W) - g(a/F)) / a],    g(x) = -(x + 1) exp(-x),

which falls in W beyond its peak: the larger root of T cost = B is the level.
"""

import math

import numpy as np
from scipy.optimize import brentq

from otafl.systems.adascale.stationary import expected_fill
from otafl.systems.adascale.variables import typical_floor, unit_noise
from otafl.systems.simulated import Bench, Options, Refusal, best, on_bench

# A round is worth sending iff its noise energy is below twice the others' mean, so the best m lies near 2.
SKIPPED_ABOVE = (1.5, 2.0, 3.0, 5.0, 10.0)
WIDEST = 1e6  # level over typical floor: beyond it a round costs less than a millionth of full power's


def mean_cost(level: float, skip: float, typical: float, unit: float) -> float:
    """Expected zCDP cost of a round at `level`, floors above skip * level not sent.

    >>> round(mean_cost(100.0, 1e9, 1e-6, 2.0), 6)
    0.01
    """
    low, high = typical / level, typical / (skip * level)
    beyond = -(low + 1) * math.exp(-low) + (high + 1) * math.exp(-high)
    return unit / 2 * (math.exp(-low) / level + beyond / typical)


def level_for(target: float, skip: float, typical: float, unit: float) -> float | None:
    """Largest level at which a round costs `target` on average; None where even the dearest level costs less."""
    grid = typical * np.geomspace(1e-3, WIDEST, 400)
    cost = np.array([mean_cost(level, skip, typical, unit) for level in grid])
    above = np.flatnonzero(cost > target)
    if not len(above):
        return None
    last = int(above[-1])
    if last == len(grid) - 1:
        return unit / (2 * target)  # far beyond every floor: the level alone sets the cost
    low, high = grid[last], grid[last + 1]
    return float(brentq(lambda level: mean_cost(level, skip, typical, unit) - target, low, high, rtol=1e-10))


def choices(at: Bench) -> list[Options]:
    """One setting per m, from statistics alone.

    Where the budget outlasts even the level that costs most, full power is left, and the choice of fades to skip.
    """
    typical = float(typical_floor(at.rms, at.deployment, at.message))
    unit = float(np.max(unit_noise(at.deployment, at.message))) * (1 + float(at.deployment.gain_error)) ** 2
    found: list[Options] = []
    for skip in SKIPPED_ABOVE:
        level = level_for(at.rho / at.rounds, skip, typical, unit)
        if level is None:
            found.append({"nu": 0.0, "max_floor": skip * typical})
        else:
            found.append({"nu": float(expected_fill(level, typical)), "max_floor": skip * level})
    return found


@on_bench
def settings(at: Bench) -> Options | Refusal:
    """nu and max_floor of `adascale` with the largest S on simulated channels."""
    return best("adascale", choices(at), at)


@on_bench
def stat_level(at: Bench) -> Options | Refusal:
    """The same of `adascale-stat-level`."""
    return best("adascale-stat-level", choices(at), at)
