"""AdaScale's per-round problem, its virtual queue and Algorithm 1, in noise energies. Host, float64.

Symbols: f the noise-energy floor of a round (full power), y >= 0 the excess chosen above it, N = f + y, nu the cap on
the mean excess, V the penalty weight, Q the virtual queue. The receive scaling follows as eta = d sigma_n^2 / N.

Every array may carry leading axes (seeds, values of V and nu, ...): only the rounds are looped over.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats, Integers
from otafl.core.errors import InputError
from otafl.core.plan import cut
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.sweeps import whole_trace

MAX_ITERATIONS = 100
GUESSES = 1024  # entries of the table of first guesses: so many that one Newton step is usually enough
STEP_TOLERANCE = 1e-7  # relative; the step that passes it is still taken, which squares the error


class View(NamedTuple):
    """What a receive-scaling rule may look at in one round. Arrays (...)."""

    round: Any  # t, from 0
    floor: Any  # f_t: the current channels
    typical: Any = np.nan  # floor at the mean of the weakest channel: statistics only
    optimistic: Any = np.nan  # floor at the weakest of the mean channels: statistics only


class Rule(NamedTuple):
    """`init() -> state`, `step(state, view) -> (state, excess)`: how one method picks y_t."""

    name: str
    init: Callable[[], Any]
    step: Callable[[Any, View], tuple[Any, Floats]]


def play(rule: Rule, floors: Any, typical: Any = np.nan, optimistic: Any = np.nan) -> tuple[Floats, list[Any]]:
    """Run a rule over floors (..., T): the excess (..., T) and the states before each round and after the last."""
    floors = np.asarray(floors, float)
    validate.positive("floor", floors)
    state, states, chosen = rule.init(), [], []
    for t in range(floors.shape[-1]):
        states.append(state)
        state, excess = rule.step(state, View(t, floors[..., t], typical, optimistic))
        chosen.append(excess)
    return np.stack(np.broadcast_arrays(*chosen), axis=-1), [*states, state]


def follow(rule: Rule, state: Any, view: View) -> tuple[Any, Floats]:
    """One step of a rule, or one for each of the rounds (T,) that are in view: the last state, the excess."""
    if not np.ndim(view.round):
        return rule.step(state, view)
    chosen = []
    for t in range(len(view.round)):
        state, excess = rule.step(state, cut(view, t))
        chosen.append(excess)
    return state, np.array(chosen)


def best_excess(leakage: Leakage, floor: Any, queue: Any, V: Any, start: Any = None, floor_slope: Any = None) -> Floats:
    """argmin over y >= 0 of  V R(f + y) + Q y + y^2 / 2, elementwise.  # AdaScale (30)

    The slope g(y) = V R'(f+y) + Q + y rises, so y = 0 if g(0) >= 0 and else the root lies in (0, -g(0)]. It is found in
    s = log1p(y / f) by Newton steps on log(V abs(R')) - log(Q + y), which falls in s and is nearly straight; a step
    that leaves the bracket, or is not half as long as the last one, gives way to a bisection. `start` guesses N;
    `floor_slope` is R'(f) where it is known already.
    """
    floor, queue, V = np.broadcast_arrays(np.asarray(floor, float), np.asarray(queue, float), np.asarray(V, float))
    pull = V * -(leakage.slopes(floor)[0] if floor_slope is None else floor_slope) - queue  # -g(0)
    active = pull > 0
    low, high = np.zeros(floor.shape), np.asarray(np.log1p(np.where(active, pull, 1.0) / floor))
    s = _starting_point(floor, high, start)
    last = np.full(floor.shape, np.inf)
    for _ in range(MAX_ITERATIONS):
        excess = floor * np.expm1(s)
        noise, push = floor + excess, queue + excess
        slope, curvature = leakage.slopes(noise)
        gap = np.log(V * -slope / push)
        step = gap / (noise / push - noise * curvature / slope)
        np.copyto(low, s, where=gap > 0)
        np.copyto(high, s, where=gap <= 0)
        settled = np.abs(step) <= STEP_TOLERANCE * s
        target = s + step
        astray = ~settled & ((target <= low) | (target >= high) | (np.abs(step) > last / 2))
        target = np.where(astray, (low + high) / 2, target)
        last, s = np.abs(target - s), target
        if np.all(settled | ~active):
            return np.where(active, floor * np.expm1(s), 0.0)
    raise ArithmeticError("the per-round problem did not settle: floor, queue or V is beyond float64's range")


def _starting_point(floor: Floats, high: Floats, noise: Any) -> Floats:
    """s of the guessed N where that lies inside (0, high), else the middle."""
    if noise is None:
        return high / 2
    s = np.log(noise / floor)
    return np.where((s > 0) & (s < high), s, high / 2)


def next_queue(queue: Any, excess: Any, nu: Any) -> Array:
    """Q_{t+1} = max(Q_t + y_t - nu, 0).  # AdaScale (29)"""
    return np.maximum(queue + excess - nu, 0.0)


def queue_of(excess: Any, nu: float, first_queue: float = 0.0) -> Floats:
    """Q_0 .. Q_T (T + 1,) of a schedule (T,), whoever chose it.

    >>> queue_of([3.0, 0.0, 0.0], nu=1.0).tolist()
    [0.0, 2.0, 1.0, 0.0]
    """
    queue = [float(first_queue)]
    for spent in np.asarray(excess, float):
        queue.append(float(next_queue(queue[-1], spent, nu)))
    return np.array(queue)


def _guesser(leakage: Leakage, V: Any) -> Callable[[Floats, Floats], Floats]:
    """A rough N for (f, Q), from a table. N solves N + V R'(N) = f - Q, whose left side rises with N and is the same in
    every round: tabulated once per V, it is inverted by a straight line between its points."""
    c = np.asarray(leakage.unit_noise)
    log_noise = np.linspace(np.log(c.min() / 3e3), np.log(c.max() * 3e4), GUESSES)
    noise = np.exp(log_noise)
    slope = np.array([leakage.slopes(n)[0] for n in noise]) if c.ndim == 2 else leakage.slopes(noise)[0]
    balance = noise + np.asarray(V, float)[..., None] * slope

    @lru_cache(maxsize=4)
    def tables(shape: tuple[int, ...]) -> tuple[Floats, Integers]:
        """The table of every element of `shape`, and their numbers."""
        flat = np.broadcast_to(balance, (*shape, noise.size)).reshape(-1, noise.size)
        return flat, np.arange(len(flat))

    def guess(floor: Floats, queue: Floats) -> Array:
        wanted = np.asarray(floor - queue)[..., None]
        shape = np.broadcast_shapes(wanted.shape[:-1], balance.shape[:-1])
        table, lane = tables(shape)
        wanted = np.broadcast_to(wanted, (*shape, 1)).reshape(-1, 1)
        above = np.count_nonzero(table < wanted, axis=-1)
        above = np.minimum(np.maximum(above, 1), noise.size - 1)
        left, right = table[lane, above - 1], table[lane, above]
        share = np.minimum(np.maximum((wanted[:, 0] - left) / (right - left), 0.0), 1.0)
        return np.exp(log_noise[above - 1] + share * (log_noise[1] - log_noise[0])).reshape(shape)

    return guess


def _check_rule(V: Any, nu: Any, first_queue: Any) -> None:
    validate.positive("V", V)
    validate.not_negative("nu", nu)
    validate.not_negative("Q_0", first_queue)


class AdaScaleState(NamedTuple):
    queue: Any  # Q_t


def adascale_rule(
    leakage: Leakage, V: Any, nu: Any, first_queue: Any = 0.0, floor_slopes: Any = None, max_floor: float = np.inf
) -> Rule:
    """Algorithm 1 as a rule: it looks at the current floor and its own queue, at nothing else.

    nu = 0 leaves full power as the only feasible choice, so the per-round problem (whose first answer would be
    positive) is passed over. `floor_slopes` (..., T) saves work where R'(f_t) is known for a whole trace. Rounds with a
    floor above max_floor are not sent: y_t = 0 there, and the queue drains.
    """
    _check_rule(V, nu, first_queue)
    if np.ndim(leakage.unit_noise) != 1:
        raise InputError("q, B or C changes over the run: Algorithm 1 needs one leakage for all rounds")
    guess = _guesser(leakage, V)

    def init() -> AdaScaleState:
        return AdaScaleState(np.asarray(first_queue, float))

    def step(state: AdaScaleState, view: View) -> tuple[AdaScaleState, Floats]:
        start = guess(view.floor, state.queue)
        slope = None if floor_slopes is None else floor_slopes[..., view.round]
        open_cap = (np.asarray(nu) > 0) & (view.floor <= max_floor)
        excess = np.where(open_cap, best_excess(leakage, view.floor, state.queue, V, start, slope), 0.0)
        return AdaScaleState(next_queue(state.queue, excess, nu)), excess

    return Rule("AdaScale", init, step)


class CappedState(NamedTuple):
    inner: Any
    left: Any  # of T nu


def capped_rule(rule: Rule, nu: Any, rounds: int) -> Rule:
    """Any rule with y_t cut to the budget left, so that mean(y) <= nu on every path.

    DANGEROUS, never a default: once the budget is spent, all later rounds run at full power.
    """

    def step(state: CappedState, view: View) -> tuple[CappedState, Floats]:
        inner, excess = rule.step(state.inner, view)
        excess = np.minimum(excess, state.left)
        return CappedState(inner, state.left - excess), excess

    return Rule(f"{rule.name}, hard budget", lambda: CappedState(rule.init(), rounds * np.asarray(nu, float)), step)


def cut_to_budget(excess: Any, nu: Any) -> Array:
    """What `capped_rule` makes of a schedule (..., T): as planned until the budget T nu ends, then nothing."""
    excess = np.asarray(excess, float)
    before = np.cumsum(excess, axis=-1) - excess
    left = np.maximum(excess.shape[-1] * np.asarray(nu, float)[..., None] - before, 0.0)
    return np.minimum(excess, left)


class Run(NamedTuple):
    """What Algorithm 1 did: rounds on the last axis."""

    floor: Floats  # (..., T) f_t
    excess: Floats  # (..., T) y_t
    queue: Floats  # (..., T + 1) Q_0 .. Q_T

    @property
    def noise(self) -> Floats:
        """N_t = f_t + y_t."""
        return self.floor + self.excess


def algorithm1(
    floors: Any, V: Any, nu: Any, leakage: Leakage, first_queue: Any = 0.0, max_floor: float = np.inf
) -> Run:
    """AdaScale over a whole trace: floors (..., T); V, nu and Q_0 broadcast against (...). Floors above max_floor are
    skipped.

    >>> devices = Leakage(np.full(10, 0.1445), np.full(10, 0.01))
    >>> run = algorithm1(np.geomspace(0.01, 1, 50), 1.0, 0.04, devices)
    >>> bool(np.all(run.excess >= 0) and run.queue[0] == 0)
    True
    """
    floors = np.asarray(floors, float)
    validate.positive("floor", floors)
    whole = _whole_trace(floors, V, nu, leakage, first_queue, max_floor)
    if whole is not None:
        return whole
    rule = adascale_rule(leakage, V, nu, first_queue, leakage.slopes(floors)[0], max_floor)
    excess, states = play(rule, floors)
    queue = np.stack(np.broadcast_arrays(*(state.queue for state in states), excess[..., 0])[:-1], axis=-1)
    return Run(np.broadcast_to(floors, excess.shape), excess, queue)


def _whole_trace(floors: Floats, V: Any, nu: Any, leakage: Leakage, first_queue: Any, max_floor: float) -> Run | None:
    """All rounds at once, for a leakage that does not change over time; None where that does not settle."""
    _check_rule(V, nu, first_queue)
    if np.ndim(leakage.unit_noise) != 1:
        return None
    lead = np.broadcast_shapes(floors.shape[:-1], np.shape(V), np.shape(nu), np.shape(first_queue))
    every = np.broadcast_to(floors, (*lead, floors.shape[-1]))
    lanes = (np.broadcast_to(np.asarray(part, float), lead).ravel() for part in (V, nu, first_queue))
    penalty, cap, first = lanes
    by_round = np.ascontiguousarray(np.moveaxis(every, -1, 0).reshape(every.shape[-1], -1))
    found = whole_trace(by_round, penalty, cap, leakage, first, max_floor)
    if found is None:
        return None
    excess, queue = (np.moveaxis(part.reshape(len(part), *lead), 0, -1) for part in found)
    return Run(every, excess, queue)
