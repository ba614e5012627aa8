"""Policies of somebody else, for tests of what they and their uplinks promise."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import small
from otafl import systems
from otafl.core.plan import Message, Plan, Policy, namespace
from otafl.core.rounds import plan_ahead
from otafl.runs.runner import start
from otafl.runs.schema import Experiment

MESSAGE = Message(53, 1.0, np.ones(4), np.full(4, 2.0), np.ones(4), "client", "replace")
RECORDS = MESSAGE._replace(unit="record", adjacency="zero-out")


@dataclass(frozen=True)
class Nothing:
    """Nothing to set."""


def plan_of(obs: Any, **changes: Any) -> Plan:
    xp = namespace(obs.coin)
    one, ones = xp.ones(obs.coin.shape[:-1]), xp.ones(obs.coin.shape)
    return Plan(0.01 * ones + 0j, 0j * ones, np.inf * ones, one, ones, one > 0)._replace(**changes)


def policy(step: Any = None, **declared: Any) -> Policy:
    said = {"loop": "open", "csi": "own", "gate": "open", **declared}
    return Policy("mine", lambda key: (), step or (lambda state, obs: (state, plan_of(obs), ())), **said)


def planned(**changes: Any) -> Plan:
    """A plan with some fields replaced: a number, or one row per round."""

    def step(state, obs):
        rows = {name: value[obs.round] if np.shape(value)[:1] == (3,) else value for name, value in changes.items()}
        return state, plan_of(obs, **rows), ()

    return plan_ahead(policy(step), (), small.trace(3))[1]


def run(tmp_path, made: Any, hindsight: bool = False, seeds: int = 1, stream: bool | None = None, **more: Any):
    """A scheme of one's own, through a whole run."""
    systems.register("mine", made, Nothing, hindsight=hindsight)
    experiment = Experiment.model_validate(
        {
            "rounds": 3, "seeds": seeds, "evaluate_every": 3, "channel": {}, "server": {"step_size": 0.1},
            "task": {"data": "digits", "clients": 3, "model": {"name": "logistic"}},
            "scheme": [{"name": "mine"}], "engine": {"stream": stream}, **more,
        }
    )  # fmt: skip
    return start(experiment, tmp_path / "run")
