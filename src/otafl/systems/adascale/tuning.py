"""Choosing the free parameter of a method so that it spends the cap: mean(y) = nu. Host, float64.

Two modes. `hindsight` tunes on the very trace that is then played: the paper's protocol, not causal, and strong enough
that a constant receive scaling tuned this way *is* the offline optimum. `calibrated`, the default, tunes on traces
simulated from the path losses and freezes the result. Both are the same functions here: they differ in the floors.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from otafl.core import streams, validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.offline import fill, water_level
from otafl.systems.adascale.online import algorithm1, play
from otafl.systems.adascale.rivals import liu_simeone_rule, lyapunov_rule
from otafl.systems.adascale.roots import Function, bracketed_root, expand_bracket
from otafl.systems.adascale.setting import rayleigh
from otafl.systems.adascale.stationary import stationary_level
from otafl.systems.adascale.variables import noise_floor

CALIBRATION_TRACES = 3
MAX_TRACES = 1000
MOST_POINTS = 1000  # of a grid of weights, each played on every trace
MAX_DRAWS = 5e7  # simulated gains: 0.8 GB
WARM_FACTOR = 10.0  # V of a warm start relative to the tuned one
TOLERANCE = 1e-6  # on mean(y) / nu
SELECTION_TOLERANCE = 1e-4  # the same, where runs are only ranked
USUAL_EXCESS = 1.5  # log of V abs(R'(W)) / nu: 1 to 2.4 in all 15 published cells, so a good place to start


def simulated_floors(
    rms: Any, rounds: int, seed: int, deployment: Deployment, message: Message, traces: int = CALIBRATION_TRACES
) -> Array:
    """Floors (..., R, T) of Rayleigh traces with the given rms gains (..., K), independent of any trace that is played.

    All leading axes share one set of standard draws, so the result for one seed does not depend on its neighbours.
    """
    validate.whole("calibration_traces", traces, 1, MAX_TRACES)
    rms = np.asarray(rms, float)
    drawn = traces * rounds * rms.shape[-1]
    sizes = f"calibration_traces x rounds x devices = {traces} x {rounds} x {rms.shape[-1]}"
    validate.at_most(sizes, drawn, MAX_DRAWS, "lower one of them, or give V")
    rng = np.random.default_rng([seed, streams.Host.CALIBRATION])
    unit = rayleigh(rng, np.ones((traces, rms.shape[-1])), rounds)
    return noise_floor(unit * rms[..., None, None, :], deployment, message)


def spend_to(mean_excess: Function, nu: Floats, start: Floats, tolerance: float = TOLERANCE) -> Floats:
    """The log-parameter at which a rising mean excess meets nu, elementwise; tolerance on mean(y) / nu."""

    def imbalance(log_parameter: Floats) -> Floats:
        mean = mean_excess(log_parameter)
        return (mean - nu) / (mean + nu)

    bracket = expand_bracket(imbalance, start)
    return bracketed_root(imbalance, bracket, lambda value: np.abs(value) < tolerance / 2, width=1e-15)


def tune_V(floors: Any, nu: Any, leakage: Leakage, max_floor: float = np.inf) -> Floats:
    """V at which AdaScale's excess, averaged over traces and rounds, is nu: floors (..., R, T), nu (...) -> (...).

    R traces are tuned together (R = 1 for one's own trace in hindsight). Rounds above max_floor are skipped, so they
    spend nothing; where all are, no V does.
    """
    floors, nu = np.asarray(floors, float), np.asarray(nu, float)
    validate.positive("nu", nu)
    shape = np.broadcast_shapes(floors.shape[:-2], nu.shape)
    nu = np.broadcast_to(nu, shape)
    level = water_level(floors, nu[..., None]).mean(-1)
    start = np.log(nu / -leakage.slopes(level)[0]) + USUAL_EXCESS

    def mean_excess(log_V: Floats) -> Array:
        run = algorithm1(floors, np.exp(log_V)[..., None], nu[..., None], leakage, max_floor=max_floor)
        return run.excess.mean((-2, -1))

    return np.exp(spend_to(mean_excess, nu, start))


def tune_budget(floors: Any, nu: Any, typical: Any, decay: float = 1.0, estimate: Any = "mean_of_min") -> Floats:
    """b of the reconstruction of [20]: floors (..., R, T), nu and typical (...) -> (...)."""
    floors, nu = np.asarray(floors, float), np.asarray(nu, float)
    shape = np.broadcast_shapes(floors.shape[:-2], nu.shape)
    nu, rounds = np.broadcast_to(nu, shape), floors.shape[-1]
    guess = np.asarray(typical, float)[..., None]

    def mean_excess(minus_log_budget: Floats) -> Array:
        rule = liu_simeone_rule(np.exp(-minus_log_budget)[..., None], rounds, decay, estimate)
        return play(rule, floors, typical=guess, optimistic=guess)[0].mean((-2, -1))

    return np.exp(-spend_to(mean_excess, nu, -np.log(_optimal_budget(floors, nu))))


def _optimal_budget(floors: Floats, nu: Floats) -> Array:
    """sum_t 1/N_t of the offline optimum: where the search for a budget starts."""
    level = water_level(floors, nu[..., None])
    return (1 / (floors + fill(floors, level))).sum(-1).mean(-1)


def warm_start(V: Any, nu: Any, typical: Any, leakage: Leakage) -> Array:
    """Q_0 = V abs(R'(W_inf)): where the queue of the best stationary policy rests."""
    return V * -leakage.slopes(stationary_level(nu, typical))[0]


class LyapunovTuning(NamedTuple):
    budget: Floats  # b
    weight: Floats  # V'


def tune_lyapunov_budget(floors: Any, nu: Any, weight: Any, tolerance: float = TOLERANCE) -> Floats:
    """b of the reconstruction of [23] for given V': floors (..., R, T); nu, weight (...) -> (...).

    NaN where V' is so large that even a vanishing budget does not lead to a mean excess of nu.
    """
    floors, nu, weight = np.asarray(floors, float), np.asarray(nu, float), np.asarray(weight, float)
    shape = np.broadcast_shapes(floors.shape[:-2], nu.shape, weight.shape)
    nu, weight, rounds = np.broadcast_to(nu, shape), np.broadcast_to(weight, shape), floors.shape[-1]

    def mean_excess(minus_log_budget: Floats, weight: Floats = weight) -> Array:
        rule = lyapunov_rule(np.exp(-minus_log_budget)[..., None], weight[..., None], rounds)
        return play(rule, floors)[0].mean((-2, -1))

    start = np.broadcast_to(-np.log(_optimal_budget(floors, nu)), shape)
    reachable = mean_excess(start + 50) > nu
    used = np.where(reachable, weight, 1e-3)  # a weight that always has a root, where the answer is NaN anyway
    return np.where(reachable, np.exp(-spend_to(lambda b: mean_excess(b, used), nu, start, tolerance)), np.nan)


def tune_lyapunov(floors: Any, nu: Any, cost: Callable[[Floats], Floats], points: int = 17) -> LyapunovTuning:
    """(b, V') of [23]: for V' on a grid of `points` from 1 to 1e8, b such that mean(y) = nu; the cheapest pair is kept.

    cost: (..., points, R, T) noise energies -> (..., points), an epsilon for instance.
    """
    validate.whole("points", points, 2, MOST_POINTS)
    floors, nu = np.asarray(floors, float), np.asarray(nu, float)
    grid = np.geomspace(1.0, 1e8, points)
    wide = floors[..., None, :, :]
    budget = tune_lyapunov_budget(wide, nu[..., None], grid, SELECTION_TOLERANCE)
    possible = np.isfinite(budget)
    if not np.all(possible.any(-1)):
        raise InputError("no weight V' between 1 and 1e8 lets the reconstruction of [23] spend nu")
    rule = lyapunov_rule(np.where(possible, budget, 1.0)[..., None], grid[:, None], floors.shape[-1])
    excess, _ = play(rule, wide)
    best = np.argmin(np.where(possible, cost(wide + excess), np.inf), axis=-1)
    return LyapunovTuning(tune_lyapunov_budget(floors, nu, grid[best]), grid[best])
