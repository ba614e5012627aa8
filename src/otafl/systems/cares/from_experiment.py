"""What a file of `otafl plan cares` would say of an experiment: the problem that the policy of its run certifies."""

import dataclasses
from typing import Any

import numpy as np

from otafl.core.plan import Trace, first_look
from otafl.systems.cares.checks import WEIGHT_TOLERANCE
from otafl.systems.cares.policy import arms_of, problem_of
from otafl.systems.planning import Asked, rayleigh

OF_THE_SCHEME = ("arms", "num_arms", "conv_target", "diagnostic")
REWARD = ("reward_data", "reward_noise")  # of a scheme that is told one


def keys(asked: Asked) -> dict[str, Any]:
    """The certifier's problem in the names of FILE, and the arms of the scheme."""
    context, config = asked.context, asked.config
    rayleigh(asked)
    assert context.trace is not None
    reward = {name: getattr(config, name) for name in REWARD if hasattr(config, name)}
    problem = problem_of(config, first_look(context.trace), asked.deployment, asked.message, context, **reward)
    stated = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem) if f.name != "warnings"}
    stated = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in stated.items()}
    for name in ("sizes", "batch_sizes"):
        stated[name] = None if stated[name] is None else [int(number) for number in stated[name]]
    if stated["sizes"] is not None and not _shares(problem.weights, stated["sizes"]):
        stated["sizes"] = None  # of a file they would be the weights
    if asked.deployment.receiver.antennas > 1:
        stated["exposure"] = _exposure(context.trace)
    if "num_classes" in asked.own:
        stated["loss_gap"] = None
    stated |= {name: getattr(config, name) for name in OF_THE_SCHEME} | {"rounds": context.rounds}
    if config.arms == "auto" and not asked.own:  # keys of FILE's own state another problem, and so another grid
        stated |= {"arms": arms_of(config, problem, context.rounds).tolist(), "num_arms": None}
    return stated


def _exposure(trace: Trace) -> float:
    """Largest 1/cos^2 between a client and the beam in any round of the public trace."""
    heard = np.abs(trace.estimate) ** 2
    whole = np.sum(np.abs(trace.array_estimate) ** 2, axis=-1)
    return float(np.max(whole / np.where(heard > 0, heard, np.inf), initial=1.0))


def _shares(weights: np.ndarray, sizes: list[int]) -> bool:
    return bool(np.max(np.abs(weights - np.array(sizes) / sum(sizes))) <= WEIGHT_TOLERANCE)
