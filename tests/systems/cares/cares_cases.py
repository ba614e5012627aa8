"""A small site with four clients, and both CARES policies on it."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import small
from otafl import systems
from otafl.core.plan import Context, Message, Trace
from otafl.core.rounds import observe
from otafl.systems.cares.adaptive import Config, State
from otafl.systems.cares.certifier import Problem
from otafl.systems.cares.policy import Config as Static

WEIGHTS = np.array([0.1, 0.25, 0.3, 0.35])
SCALE = np.array([0.9, 0.6, 0.5, 0.3])  # Rayleigh scales
ARMS = (0.05, 0.08, 0.12)
RULES = ("ratio", "ratio_shifted", "ucb", "lagrangian")


def message(unit: str = "client", adjacency: str = "replace", batch: int = 8) -> Message:
    ones = np.ones(4)
    sensitivity = 2 * ones / (batch if unit == "record" else 1)
    return Message(53, 1.0, ones, sensitivity, ones, unit, adjacency)  # type: ignore[arg-type]


def trace(rounds: int, seed: int = 0, scale: np.ndarray = SCALE) -> Trace:
    """Rayleigh gains; `scale` (K,) or (T, K)."""
    rng = np.random.default_rng(seed)
    rms = np.broadcast_to(np.sqrt(2) * scale, (rounds, 4)).copy()
    gain = rms * (rng.standard_normal((rounds, 4)) + 1j * rng.standard_normal((rounds, 4))) / np.sqrt(2)
    return Trace(gain, gain, rms, rms, rms, rms, rng.random((rounds, 4)))


def context(rounds: int = 60, eps: float = 20.0, **changes: Any) -> Context:
    return Context(rounds=rounds, eps=eps, classes=3, trace=trace(rounds), **changes)


def adaptive(told: Context | None = None, **options: Any) -> systems.Policy:
    config = Config(**{"arms": ARMS, "max_dropped": 0.5, "max_asymmetry": 0.5, **options})
    return systems.make("cares-adaptive", config, small.deployment(), message(), told or context())


def stepper(policy: systems.Policy) -> Callable[..., Any]:
    """One round of the policy, compiled: (state, row of the trace, round, accuracy) -> state, plan, info."""
    return jax.jit(lambda state, row, t, metric: policy.step(state, observe(policy, row, t, metric)))


def drive(policy: systems.Policy, path: Trace, metrics: np.ndarray) -> tuple[list[State], list[Any], list[Any]]:
    """Step by step, as the engine does it: `metrics[t]` is the accuracy before round t. Ends with the round not run."""
    states, plans, infos = [policy.init(None)], [], []
    step = stepper(policy)
    with jax.enable_x64(True):
        state = jax.tree.map(jnp.asarray, states[0])
        for t in range(len(metrics)):
            state, plan, info = step(state, Trace(*(leaf[t] for leaf in path)), t, metrics[t])
            plans.append(jax.tree.map(np.asarray, plan))
            infos.append(jax.tree.map(np.asarray, info))
            states.append(state)
            if not plans[-1].live:
                break
    return states, plans, infos


# --- Algorithm 1, written a second time --------------------------------------------------------------------------


def problem(eps: float = 20.0, **changes: Any) -> Problem:
    targets = {"max_asymmetry": 0.5, "max_dropped": 0.5, **changes}
    return Problem(WEIGHTS, SCALE, 0.1, 53, math.log(3), eps, 1e-5, **targets)


def drifting(rounds: int) -> np.ndarray:
    steps = np.random.default_rng(5).uniform(0.8, 1.25, (rounds // 10 + 1, 4))
    return SCALE * np.repeat(np.cumprod(steps, 0), 10, axis=0)[:rounds] / steps[0]


def worse_from(round_: int, factor: np.ndarray, rounds: int = 12) -> Context:
    scales = np.where(np.arange(rounds)[:, None] < round_, SCALE, SCALE * factor)
    return context(rounds)._replace(trace=trace(rounds, scale=scales))


def static_policy(told: Context | None = None, **options: Any) -> systems.Policy:
    config = Static(**{"arms": ARMS, "max_dropped": 0.5, "max_asymmetry": 0.5, **options})
    return systems.make("cares-static", config, small.deployment(), message(), told or context())
