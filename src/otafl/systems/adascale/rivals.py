"""The methods AdaScale is compared with, as rules in noise energies. Host, float64.

`liu_simeone_rule` and `lyapunov_rule` are RECONSTRUCTIONS of references [20] and [23] of the paper, from abstracts and
the paper's description, adapted to this problem: indicative only.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError
from otafl.systems.adascale.online import Rule, View
from otafl.systems.adascale.stationary import resolved_level, stationary_level

Estimate = Literal["mean_of_min", "min_of_means"]


def level_rule(level: Any, name: str = "ConstantScaling") -> Rule:
    """y_t = (W - f_t)^+: a constant receive scaling, capped by the power limit. Offline-optimal for what it spends."""
    validate.positive("level", level)
    return Rule(name, lambda: (), lambda state, view: (state, np.maximum(level - view.floor, 0.0)))


def equal_rule(nu: Any) -> Rule:
    """EqualAlloc: y_t = nu."""
    validate.not_negative("nu", nu)
    return Rule("EqualAlloc", lambda: (), lambda state, view: (state, np.zeros(np.shape(view.floor)) + nu))


def stat_level_rule(nu: Any) -> Rule:
    """StatLevel: the stationary water level of the path losses; no tuning and no trace."""
    validate.not_negative("nu", nu)

    def step(state: Any, view: View) -> tuple[Any, Floats]:
        level = stationary_level(np.maximum(nu, 1e-300), view.typical)
        return state, np.where(np.asarray(nu) > 0, np.maximum(level - view.floor, 0.0), 0.0)

    return Rule("StatLevel", lambda: (), step)


def stat_water_rule(nu: Any, rounds: int) -> Rule:
    """StatWater: re-solve (W - f_t)^+ + n E (W - f)^+ = b_t for the budget b_t left; spends exactly T nu."""
    validate.not_negative("nu", nu)

    def step(budget: Floats, view: View) -> tuple[Floats, Floats]:
        left = rounds - 1 - view.round
        positive = budget > 0
        if left == 0:
            excess = np.maximum(budget, 0.0) + np.zeros(np.shape(view.floor))
        else:
            level = resolved_level(view.floor, left, np.where(positive, budget, 1.0), view.typical)
            excess = np.where(positive, np.maximum(level - view.floor, 0.0), 0.0)
        return budget - excess, excess

    return Rule("StatWater", lambda: rounds * np.asarray(nu, float), step)


def _predicted(view: View, estimate: Estimate) -> Any:
    return view.typical if estimate == "mean_of_min" else view.optimistic


def estim_future_rule(nu: Any, rounds: int, estimate: Estimate = "mean_of_min") -> Rule:
    """EstimFuture: solve (28) for the rounds left as if every future floor were the predicted one, play the first.

    estimate: "mean_of_min" predicts the weakest channel power by its mean; "min_of_means", the literal reading,
    replaces every channel by its mean first and is optimistic.
    """
    validate.not_negative("nu", nu)
    validate.one_of("estimate", estimate, ("mean_of_min", "min_of_means"))

    def step(budget: Floats, view: View) -> tuple[Floats, Floats]:
        left, later, floor = rounds - 1 - view.round, _predicted(view, estimate), view.floor
        shared = (budget + floor + left * later) / (left + 1) - floor  # one level for now and later
        alone = (floor <= later) & (budget <= later - floor)  # the level stays below the later floors
        nothing = (floor > later) & (budget <= left * (floor - later))  # the level stays below this floor
        excess = np.where(alone, budget, np.where(nothing, 0.0, shared)) if left else budget
        excess = np.where(budget > 0, excess, 0.0)
        return budget - excess, excess

    return Rule(f"EstimFuture ({estimate})", lambda: rounds * np.asarray(nu, float), step)


class DiscountedState(NamedTuple):
    budget: Any  # what is left of b
    level: Any  # L of the last round that was not at full power: a good place to look for the next one


def liu_simeone_rule(budget: Any, rounds: int, decay: float = 1.0, estimate: Estimate = "mean_of_min") -> Rule:
    """RECONSTRUCTION of [20]: least sum of omega_t N_t under a total DP budget sum_t 1/N_t <= b, re-solved each round.

    N_t = max(f_t, L / sqrt(omega_t)), omega_t = decay^(T-1-t); decay = 1 is the non-convex weight, below 1 the strongly
    convex one (noise falls over time).
    """
    validate.positive("budget", budget)
    validate.in_left_open("decay", decay, 0, 1)
    validate.one_of("estimate", estimate, ("mean_of_min", "min_of_means"))

    def step(state: DiscountedState, view: View) -> tuple[DiscountedState, Floats]:
        left, later = rounds - 1 - view.round, _predicted(view, estimate)
        if np.any(state.budget <= 0):
            raise InputError("the reconstructed budget ran out before the last round")  # cannot happen for N <= level
        noise = discounted_level(view.floor, left, state.budget, later, decay, state.level)
        level = np.where(noise > view.floor, noise * decay ** (left / 2), state.level)
        return DiscountedState(state.budget - 1 / noise, level), noise - view.floor

    label = "omega=1" if decay == 1 else f"a={decay:g}"
    first = DiscountedState(np.asarray(budget, float), np.asarray(np.inf))
    return Rule(f"[20] reconstructed ({label})", lambda: first, step)


def discounted_level(floor: Any, left: int, budget: Any, later: Any, decay: float, near: Any = np.inf) -> Array:
    """N_t = max(f_t, L decay^(-n/2)) with 1/N_t + sum_{e<n} 1/max(later, L decay^(-e/2)) = b, or f_t if that is cheap
    enough for b. `near` guesses L.

    In x = 1/L the left side is concave, rising and made of straight pieces: Newton's method is left of the root after
    one step, then climbs to it without passing it and arrives exactly.
    """
    parts = (np.asarray(part, float) for part in (floor, budget, later, near))
    floor, budget, later, near = np.broadcast_arrays(*parts)
    if decay == 1:
        return np.maximum(floor, _common_level(floor, left, budget, later))
    root = np.sqrt(decay)
    affordable = 1 / floor + left / later <= budget
    goal = np.where(affordable, budget / 2, budget)  # any goal with a root; the answer is f_t there
    safe = 0.5 * np.minimum(1 / later, root**-left / floor)  # nothing is held yet
    x, least = np.maximum(1 / near, safe), np.zeros(floor.shape)
    for _ in range(left + 6):
        # Later rounds e < first are held at their floor, the others form a geometric sum; now is held or not.
        with np.errstate(divide="ignore"):
            first = np.minimum(np.maximum(np.ceil(-np.log(x * later) / np.log(root)), 0), left)
        held_now = x * root**left >= 1 / floor
        fixed = first / later + held_now / floor
        rate = (root**first - root**left) / (1 - root) + ~held_now * root**left
        flat = rate <= 0  # all is held: far to the right of the root
        new = np.where(flat, safe, (goal - fixed) / np.where(flat, 1.0, rate))
        if np.all((least > 0) & (new <= x * (1 + 1e-15))):
            break
        x = np.maximum(new, least)
        least = np.where(flat, least, x)
    return np.where(affordable, floor, np.maximum(floor, root**-left / x))


def _common_level(floor: Floats, left: int, budget: Floats, later: Floats) -> Floats:
    """L with 1/max(f, L) + n/max(later, L) = b in closed form; 0 where full power throughout is affordable."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spare_now, spare_later = budget - left / later, budget - 1 / floor
        only_now = (floor < later) & (spare_now >= 1 / later)
        only_later = (floor >= later) & (left >= 1) & (spare_later >= left / floor)
        level = np.where(only_now, 1 / spare_now, np.where(only_later, left / spare_later, (left + 1) / budget))
    return np.where(1 / floor + left / later <= budget, 0.0, level)


class LyapunovState(NamedTuple):
    queue: Any  # Z_t, on the privacy constraint


def lyapunov_rule(budget: Any, weight: Any, rounds: int) -> Rule:
    """RECONSTRUCTION of [23]: standard Lyapunov control with one queue, on the DP budget sum_t 1/N_t <= b.

    N_t = max(f_t, sqrt(Z_t / V')), Z_{t+1} = max(Z_t + 1/N_t - b/T, 0), Z_0 = 0: the first rounds run at full power.
    """
    validate.positive("budget", budget)
    validate.positive("V'", weight)

    def step(state: LyapunovState, view: View) -> tuple[LyapunovState, Floats]:
        noise = np.maximum(view.floor, np.sqrt(state.queue / weight))
        return LyapunovState(np.maximum(state.queue + 1 / noise - budget / rounds, 0.0)), noise - view.floor

    return Rule("[23] reconstructed", lambda: LyapunovState(np.zeros(())), step)
