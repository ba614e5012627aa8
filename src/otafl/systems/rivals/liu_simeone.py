"""Liu and Simeone, "Privacy for free": aligned power over rounds under one privacy budget, as `allocation` solves it.

The optimum needs all channels in advance (`tuning = "hindsight"`, and labelled so). `online` solves the rest of the run
in every round as if each later round had this round's limit. `access = "orthogonal"` is the same allocation where every
client has a slot of its own: K D channel uses, and only its own receiver noise hides a client.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always
from otafl.systems.rivals.allocation import Allocation, allocate, caps, price_of, worths
from otafl.systems.rivals.slots import SLOTS
from otafl.systems.rivals.target import round_multiplier


@dataclass(frozen=True)
class Config:
    """`conditioning` = mu/L says how fast an early error is forgotten; 0 weighs all rounds alike."""

    conditioning: float = 0.01  # mu/L, Polyak-Lojasiewicz constant over smoothness, in [0, 1)
    tuning: Literal["hindsight", "online"] = "hindsight"  # told all channels in advance, or this round's alone
    access: Literal["air", "orthogonal"] = "air"  # one superposition, or a slot per client


class Info(NamedTuple):
    """Per round."""

    amplitude: Array  # c_t; mean over clients where each has its slot


class State(NamedTuple):
    """zCDP that is left: one number, or (K,) with slots."""

    left: Array


class Problem(NamedTuple):
    """(F1) without its limits; the last axis of `price` is the problems that are solved apart: 1, or K slots."""

    worth: Array  # (T,)
    price: Array  # (1,) or (K,)
    budget: float  # zCDP
    energy: Array
    weights: Array
    bound: Array

    def caps(self, gain: Array) -> Array:
        """(..., 1) or (..., K) largest squared amplitudes."""
        if len(self.price) == 1:
            return caps(gain, self.energy, self.weights, self.bound)[..., None]
        return np.abs(gain) ** 2 * self.energy / self.bound**2


def problem_of(config: Config, deployment: Deployment, message: Message, context: Context) -> Problem:
    """Noise counts as far as it is trusted; the budget is what equal rounds may spend by the accountant in force."""
    multiplier = round_multiplier("liu-simeone", deployment, message, context)
    validate.positive("trusted_noise_var", deployment.trusted_noise_var)
    weights, sensitivity = np.asarray(deployment.weights, float), np.asarray(message.sensitivity, float)
    shared = price_of(weights, sensitivity, deployment.trusted_noise_var)
    alone = sensitivity**2 / (2 * deployment.trusted_noise_var)
    return Problem(
        worths(context.rounds, config.conditioning),
        np.broadcast_to(alone, weights.shape) if config.access == "orthogonal" else np.array([shared]),
        context.rounds / (2 * multiplier**2),
        np.asarray(deployment.energy, float),
        weights,
        np.sqrt(np.asarray(message.mean_square, float)),
    )


def solve(problem: Problem, first: int, cap: Array, budget: Array) -> Array:
    """Squared amplitudes (T - first, 1 or K) of the rounds from `first` on; 0 where a fade allows none."""
    out = np.zeros(cap.shape)
    for k, price in enumerate(problem.price):
        heard = cap[:, k] > 0
        if np.any(heard) and budget[k] > 0:
            worth = problem.worth[first:][heard]
            found: Allocation = allocate(worth, np.full(worth.shape, price), cap[heard, k], float(budget[k]))
            out[heard, k] = found.square
    return out


def liu_simeone(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise. Everybody is heard; the weakest limits a round."""
    if config.access == "orthogonal" and deployment.gain_error > 0:
        raise InputError(f"gain_error={deployment.gain_error:g} must be 0 with access='orthogonal'")
    problem = problem_of(config, deployment, message, context)
    whole = np.full(len(problem.price), problem.budget)
    if config.tuning == "hindsight":
        if context.trace is None:
            raise InputError(
                "liu-simeone with tuning='hindsight' needs the whole channel in advance; use tuning='online'"
            )
        ahead = solve(problem, 0, problem.caps(np.asarray(context.trace.estimate)), whole)

    def init(key: Any) -> State | tuple[()]:
        return () if config.tuning == "hindsight" else State(whole)

    def step(state: State | tuple[()], obs: Obs) -> tuple[State | tuple[()], Plan, Info]:
        if not isinstance(state, State):
            return (), *_plan(problem, ahead[obs.round], obs)
        now = problem.caps(obs.estimate)
        rest = context.rounds - int(obs.round)
        square = solve(problem, int(obs.round), np.broadcast_to(now, (rest, *now.shape)), state.left)[0]
        return State(np.maximum(state.left - problem.price * square, 0.0)), *_plan(problem, square, obs)

    uplink: Any = SLOTS if config.access == "orthogonal" else "analog"
    return Policy("liu-simeone", init, step, loop="open", csi="global", gate="open", uplink=uplink)


def _plan(problem: Problem, square: Array, obs: Obs) -> tuple[Plan, Info]:
    """All clients at amplitude c_t p_k, or each at its own amplitude in its slot."""
    amplitude = np.sqrt(square)
    shared = len(problem.price) == 1
    wanted = amplitude * problem.weights if shared else amplitude
    tx = np.where(wanted > 0, wanted / np.where(obs.estimate == 0, 1, obs.estimate), 0)
    with np.errstate(divide="ignore"):
        # Slots are scaled one by one (`slots`); this is the scale at which their sum is charged no less than it is.
        scale = amplitude[..., 0] if shared else np.min(amplitude / problem.weights, axis=-1)
    scale = np.where(scale > 0, scale, np.inf)
    live = np.ones(scale.shape, bool)
    return Plan(tx, np.zeros_like(tx), always(tx), scale, np.ones(tx.shape), live), Info(amplitude.mean(-1))
