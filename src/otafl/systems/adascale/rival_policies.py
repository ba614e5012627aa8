"""What AdaScale is compared with: the offline optimum, simple rules, and two reconstructions. Host, NumPy, float64.

All share AdaScale's channel inversion and differ only in the noise energy of each round. Labelled hindsight, because
they read the whole trace: `adascale-optimal`, and any tuning = "hindsight". The methods of references [20] and [23] of
the paper are RECONSTRUCTIONS from what the paper says about them.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Policy
from otafl.systems.adascale import rivals, tuning, variables
from otafl.systems.adascale.methods import COARSE_ORDERS, run_epsilon
from otafl.systems.adascale.offline import water_level
from otafl.systems.adascale.online import Rule
from otafl.systems.adascale.policy import Tuning, floors_of, rule_policy


@dataclass(frozen=True)
class OptimalConfig:
    """Hindsight: reads the whole trace."""

    nu: float


def optimal(config: OptimalConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """The offline optimum of (28). R does not change over a run, so this is water-filling."""
    if context.trace is None:
        raise InputError("adascale-optimal is a hindsight yardstick: it needs the whole trace")
    level = water_level(variables.noise_floor(context.trace.estimate, deployment, message), config.nu)
    return rule_policy(
        "adascale-optimal",
        deployment,
        message,
        lambda level: rivals.level_rule(level, "Optimal"),
        lambda rms: (level,),
    )


@dataclass(frozen=True)
class EqualConfig:
    """Nothing to tune."""

    nu: float


def equal(config: EqualConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """EqualAlloc."""
    rule = rivals.equal_rule(config.nu)
    return rule_policy("adascale-equal", deployment, message, lambda: rule, stateless=True)


def full_power(name: str, deployment: Deployment, message: Message) -> Policy:
    """What nu = 0 leaves to every method: no excess noise, nothing to tune."""
    rule = rivals.equal_rule(0.0)
    return rule_policy(name, deployment, message, lambda: rule, stateless=True)


@dataclass(frozen=True)
class EstimConfig:
    """estimate: "mean_of_min" of the channel powers, or the literal and optimistic "min_of_means"."""

    nu: float
    estimate: rivals.Estimate = "mean_of_min"


def estim_future(config: EstimConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """EstimFuture."""
    rule = rivals.estim_future_rule(config.nu, context.rounds, config.estimate)
    return rule_policy("adascale-estim", deployment, message, lambda: rule)


@dataclass(frozen=True)
class ConstantConfig:
    """noise: the noise energy N of every round that the power limit allows to be so good (eta = d sigma_n^2 / N)."""

    noise: float


def constant_scaling(config: ConstantConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """ConstantScaling: offline-optimal for whatever excess it spends."""
    rule = rivals.level_rule(config.noise)
    return rule_policy("adascale-constant", deployment, message, lambda: rule, stateless=True)


@dataclass(frozen=True)
class StatLevelConfig:
    """Nothing to tune: the level follows from nu and the path losses. Floors above max_floor are not sent."""

    nu: float
    max_floor: float | None = None


def stat_level(config: StatLevelConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """StatLevel. Assumes Rayleigh fading."""
    if config.max_floor is not None:
        validate.positive("max_floor", config.max_floor)
    largest = np.inf if config.max_floor is None else config.max_floor
    rule = rivals.stat_level_rule(config.nu)
    return rule_policy("adascale-stat-level", deployment, message, lambda: rule, stateless=True, max_floor=largest)


@dataclass(frozen=True)
class StatWaterConfig:
    """Nothing to tune."""

    nu: float


def stat_water(config: StatWaterConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """StatWater. Assumes Rayleigh fading."""
    rule = rivals.stat_water_rule(config.nu, context.rounds)
    return rule_policy("adascale-stat-water", deployment, message, lambda: rule)


@dataclass(frozen=True)
class LiuSimeoneConfig:
    """decay a of omega_t = a^(T-1-t): 1 for non-convex losses, below 1 for the strongly convex original.

    `budget` (b, a limit on sum 1/N_t) belongs to tuning = "given"; otherwise it is chosen so that mean(y) = nu.
    """

    nu: float
    decay: float = 1.0
    estimate: rivals.Estimate = "mean_of_min"
    tuning: Tuning = "calibrated"
    budget: float | None = None
    calibration_traces: int = 3


def liu_simeone(config: LiuSimeoneConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """RECONSTRUCTION of reference [20]."""
    validate.one_of("tuning", config.tuning, get_args(Tuning))
    if (config.tuning == "given") != (config.budget is not None):
        raise InputError(f"budget={config.budget!r} must be given with tuning='given', and only there")
    validate.not_negative("nu", config.nu)
    if config.nu == 0:
        return full_power("adascale-liu-simeone", deployment, message)

    def parameters(rms: Array) -> tuple[Any, ...]:
        if config.budget is not None:
            return (config.budget,)
        floors = floors_of(config.tuning, context, deployment, message, config.calibration_traces)(rms)
        predict = variables.typical_floor if config.estimate == "mean_of_min" else variables.optimistic_floor
        predicted = predict(rms, deployment, message)
        return (tuning.tune_budget(floors, config.nu, predicted, config.decay),)

    def rule_for(budget: Array) -> Rule:
        return rivals.liu_simeone_rule(budget, context.rounds, config.decay, config.estimate)

    return rule_policy("adascale-liu-simeone", deployment, message, rule_for, parameters)


@dataclass(frozen=True)
class LyapunovConfig:
    """(b, V') are chosen so that mean(y) = nu and, among the `points` weights V' tried, epsilon is least."""

    nu: float
    tuning: Literal["calibrated", "hindsight"] = "calibrated"
    points: int = 17
    calibration_traces: int = 3


def lyapunov(config: LyapunovConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """RECONSTRUCTION of reference [23]."""
    validate.one_of("tuning", config.tuning, ("calibrated", "hindsight"))
    validate.not_negative("nu", config.nu)
    if config.nu == 0:
        return full_power("adascale-lyapunov", deployment, message)

    def mean_epsilon(noise: Array) -> Array:
        return run_epsilon(noise, deployment, message, context.delta, COARSE_ORDERS).mean((-2, -1))  # devices, traces

    def parameters(rms: Array) -> tuple[Any, ...]:
        floors = floors_of(config.tuning, context, deployment, message, config.calibration_traces)(rms)
        nu = np.full(floors.shape[:-2], config.nu)
        return tuple(tuning.tune_lyapunov(floors, nu, mean_epsilon, config.points))

    def rule_for(budget: Array, weight: Array) -> Rule:
        return rivals.lyapunov_rule(budget, weight, context.rounds)

    return rule_policy("adascale-lyapunov", deployment, message, rule_for, parameters)
