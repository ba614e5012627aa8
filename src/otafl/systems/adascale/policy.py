"""AdaScale: receive scaling from the current channels and a virtual queue. Host, NumPy, float64.

The weakest device limits the receive scaling eta; a smaller eta means more noise, so less is learnt and less leaks.
AdaScale picks the noise energy N_t = d sigma_n^2 / eta_t >= f_t that minimises the total Renyi leakage while the mean
excess above the floor f_t stays at nu. All devices invert their channels; nobody is silent (unless `max_floor` or
`device_rdp` say so), no noise is added.

Privacy unit: one record of one device. Sensitivity of what is received: sqrt(eta) w_k times the message's. Whose noise:
the receiver's. Nothing here looks at data, so the sequence of noise multipliers is fixed before the learning.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always
from otafl.systems.adascale import variables
from otafl.systems.adascale.odometer import Odometer
from otafl.systems.adascale.online import Rule, View, adascale_rule, capped_rule, follow
from otafl.systems.adascale.refusals import silenced, with_odometer
from otafl.systems.adascale.tuning import CALIBRATION_TRACES, WARM_FACTOR, simulated_floors, tune_V, warm_start

Tuning = Literal["calibrated", "hindsight", "given"]


@dataclass(frozen=True)
class Config:
    """nu: cap on the mean excess noise energy. V: the penalty weight where tuning = "given".

    tuning "calibrated" chooses V on `calibration_traces` Rayleigh traces simulated from the statistical CSI of the
    first round; "hindsight" on the very trace that is then played (the paper's protocol, not causal).
    warm_start begins with the queue of the stationary optimum, Q_0 = V abs(R'(W_inf)), and ten times the tuned V.

    max_floor: rounds whose floor f_t is larger (a deep fade of some device) are skipped: nobody sends, nothing leaks,
    y_t = 0. device_rdp: each device's own cap on its Renyi leakage at device_order (alpha if not given); a device
    refuses a round that would pass it, or its power limit. hard_budget keeps mean(y) <= nu on every path by cutting y_t
    to the budget left: DANGEROUS, once it is spent the last rounds run at full power (up to 53 times the leakage of the
    optimum was measured); `adascale-stat-water` re-solves instead.
    """

    nu: float
    alpha: int = 3
    tuning: Tuning = "calibrated"
    V: float | None = None
    calibration_traces: int = CALIBRATION_TRACES
    warm_start: bool = False
    max_floor: float | None = None
    device_rdp: float | None = None
    device_order: int | None = None
    hard_budget: bool = False


class Info(NamedTuple):
    """What people plot, (...)."""

    floor: Array  # f_t
    excess: Array  # y_t
    noise: Array  # N_t
    scaling: Array  # eta_t
    silent: Array  # devices that send nothing: a skipped fade, or their own refusal


class State(NamedTuple):
    """Parameters chosen in the first round, then whatever the rule remembers."""

    parameters: tuple[Array, ...]
    rule: Any


def scaling_plan(excess: Array, floor: Array, obs: Obs, deployment: Deployment) -> tuple[Plan, Info]:
    """Channel inversion to the receive scaling of N = f + y.  # AdaScale (12)"""
    noise = floor + excess
    scaling = variables.receive_scaling(noise, deployment)
    scale = np.sqrt(scaling)
    tx = scale[..., None] * np.asarray(deployment.weights, float) / obs.estimate
    ones = np.ones(tx.shape)
    plan = Plan(tx, np.zeros_like(tx), always(tx), scale, ones, np.ones(scale.shape, bool))
    return plan, Info(floor, excess, noise, scaling, np.zeros(scale.shape, int))


def skip_fades(plan: Plan, info: Info, max_floor: float) -> tuple[Plan, Info]:
    """Nobody sends in a round whose floor is above max_floor."""
    skipped = info.floor > max_floor
    silent = np.where(skipped, plan.tx.shape[-1], 0)
    return silenced(plan, np.broadcast_to(~skipped[..., None], plan.tx.shape)), info._replace(silent=silent)


def rule_policy(
    name: str,
    deployment: Deployment,
    message: Message,
    rule_for: Callable[..., Rule],
    parameters: Callable[[Array], tuple[Array, ...]] = lambda rms: (),
    stateless: bool = False,
    max_floor: float = np.inf,
) -> Policy:
    """A policy from a rule in noise energies. `parameters(rms)` is asked once, with the first round's rms gains."""

    @lru_cache(maxsize=64)
    def remembered(*packed: tuple[bytes, tuple[int, ...]]) -> Rule:
        return rule_for(*(np.frombuffer(values).reshape(shape) for values, shape in packed))

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Info]:
        floor = variables.noise_floor(obs.estimate, deployment, message)
        typical = variables.typical_floor(obs.rms, deployment, message)
        optimistic = variables.optimistic_floor(obs.rms, deployment, message)
        begun, first = stateless or state.rule is not None, obs.rms[0] if np.ndim(obs.round) else obs.rms
        values = () if stateless else state.parameters if begun else parameters(first)
        values = tuple(np.asarray(value, float) for value in values)
        rule = remembered(*((value.tobytes(), value.shape) for value in values))
        before = (() if stateless else state.rule) if begun else rule.init()
        view = View(obs.round, floor, typical, optimistic)
        after, excess = rule.step(before, view) if stateless else follow(rule, before, view)
        plan, info = scaling_plan(excess, floor, obs, deployment)
        if max_floor < np.inf:
            plan, info = skip_fades(plan, info, max_floor)
        return (state if stateless else State(values, after)), plan, info

    def init(key: Any) -> Any:
        return () if stateless else State((), None)

    return Policy(name, init, step, loop="open", csi="global", gate="open", spans=True)


def floors_of(
    tuning: str, context: Context, deployment: Deployment, message: Message, traces: int = CALIBRATION_TRACES
) -> Callable[[Array], Array]:
    """Floors (..., R, T) to tune on: the trace itself in hindsight, else simulated from the first statistics seen."""
    if tuning == "hindsight":
        trace = context.trace
        if trace is None:
            raise InputError("tuning='hindsight' needs the whole trace, which only a labelled comparison may hand out")
        own = variables.noise_floor(trace.estimate, deployment, message)[..., None, :]
        return lambda rms: own
    return lambda rms: simulated_floors(rms, context.rounds, context.seed, deployment, message, traces)


def check_extensions(config: Config) -> tuple[float, Odometer | None]:
    """The largest floor that is sent (inf: all) and the devices' odometer."""
    if config.max_floor is not None:
        validate.positive("max_floor", config.max_floor)
    if config.device_rdp is None:
        if config.device_order is not None:
            raise InputError(f"device_order={config.device_order} needs device_rdp, the budget it belongs to")
        odometer = None
    else:
        odometer = Odometer.checked(
            config.device_rdp, config.alpha if config.device_order is None else config.device_order
        )
    return np.inf if config.max_floor is None else config.max_floor, odometer


def adascale(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Algorithm 1. Its eta depends on the current channels and its queue alone, once V is chosen."""
    validate.not_negative("nu", config.nu)
    validate.one_of("tuning", config.tuning, get_args(Tuning))
    if (config.tuning == "given") != (config.V is not None):
        raise InputError(f"V={config.V!r} must be given with tuning='given', and only there")
    max_floor, odometer = check_extensions(config)
    leakage = variables.leakage_of(deployment, message, config.alpha)
    floors = None
    if config.tuning != "given":
        floors = floors_of(config.tuning, context, deployment, message, config.calibration_traces)

    def parameters(rms: Array) -> tuple[Array, Array]:
        if config.nu == 0:  # full power is the only feasible choice: nothing to tune
            return np.ones(()), np.zeros(())
        V = np.asarray(config.V, float) if floors is None else tune_V(floors(rms), config.nu, leakage, max_floor)
        if not config.warm_start:
            return V, np.zeros(())
        V = V if floors is None else WARM_FACTOR * V
        return V, warm_start(V, config.nu, variables.typical_floor(rms, deployment, message), leakage)

    def rule_for(V: Array, first_queue: Array) -> Rule:
        rule = adascale_rule(leakage, V, config.nu, first_queue, max_floor=max_floor)
        return capped_rule(rule, config.nu, context.rounds) if config.hard_budget else rule

    policy = rule_policy("adascale", deployment, message, rule_for, parameters, max_floor=max_floor)
    return policy if odometer is None else with_odometer(policy, odometer, deployment, message)
