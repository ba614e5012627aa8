"""One file per published scheme, baselines included. Each has the same grammar:

    Config      frozen dataclass of what a user may set
    Info        NamedTuple of what people plot, where there is something to plot
    factory(config, deployment, message, context) -> Policy

`SCHEMES` is the list of all of them; `make` builds one by name. A scheme from outside this package joins by `register`;
a distribution that names its module in the entry-point group "otafl.schemes" has it imported, and so registered, here.
"""

import dataclasses
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple, get_args

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.plan import CSI, Context, Deployment, Gate, Loop, Message, Policy, check_gate, first_look, frozen


class Entry(NamedTuple):
    """Where a scheme lives."""

    summary: str
    module: str
    factory: str
    config: str = "Config"
    private: bool = True  # False: a reference without privacy, which no budget stops
    hindsight: bool = False  # True: it is told the whole channel before the first round, which no server is


class Scheme(NamedTuple):
    """A scheme, loaded."""

    name: str
    summary: str
    config: type
    factory: Callable[..., Policy]


SCHEMES: dict[str, Entry] = {
    "fedavg": Entry("ideal FedAvg: error-free, noiseless, nobody silent", "ideal.fedavg", "fedavg", private=False),
    "fedavg-dp": Entry("FedAvg with Gaussian noise calibrated to the privacy target", "ideal.fedavg_dp", "fedavg_dp"),
    "constant": Entry(
        "one receive scaling for all rounds, truncated channel inversion", "baselines.constant", "constant"
    ),
    "weakest": Entry(
        "full channel inversion: the weakest device sets the receive scaling", "baselines.weakest", "weakest"
    ),
    "cares-static": Entry("CARES: the certified receive scaling, fixed for the run", "cares.policy", "cares_static"),
    "cares-adaptive": Entry(
        "CARES: a budgeted bandit picks the receive scaling each round", "cares.adaptive", "cares_adaptive"
    ),
    "adascale": Entry(
        "AdaScale: least Renyi leakage under a cap on excess noise, online, by a virtual queue",
        "adascale.policy",
        "adascale",
    ),
    "adascale-optimal": Entry(
        "AdaScale's offline optimum by water-filling (hindsight)",
        "adascale.rival_policies",
        "optimal",
        "OptimalConfig",
        hindsight=True,
    ),
    "adascale-equal": Entry(
        "EqualAlloc: the same excess noise in every round", "adascale.rival_policies", "equal", "EqualConfig"
    ),
    "adascale-estim": Entry(
        "EstimFuture: re-plans with estimated future channels", "adascale.rival_policies", "estim_future", "EstimConfig"
    ),
    "adascale-constant": Entry(
        "constant receive scaling capped by the power limit",
        "adascale.rival_policies",
        "constant_scaling",
        "ConstantConfig",
    ),
    "adascale-stat-level": Entry(
        "StatLevel: constant noise level from channel statistics",
        "adascale.rival_policies",
        "stat_level",
        "StatLevelConfig",
    ),
    "adascale-stat-water": Entry(
        "StatWater: the level re-solved for the budget left", "adascale.rival_policies", "stat_water", "StatWaterConfig"
    ),
    "adascale-liu-simeone": Entry(
        "Liu-Simeone-style power control (reconstruction)", "adascale.rival_policies", "liu_simeone", "LiuSimeoneConfig"
    ),
    "adascale-lyapunov": Entry(
        "Lyapunov-style power control (reconstruction)", "adascale.rival_policies", "lyapunov", "LyapunovConfig"
    ),
    "cdpb": Entry("CDPB: clients balance power by their own channel; idle, noisy or mixed", "cdpb.policy", "cdpb"),
    "cdpb-gbar": Entry(
        "CDPB baseline: receive scaling for the convergence target alone",
        "cdpb.rival_policies",
        "gbar_based",
        "GbarConfig",
    ),
    "cdpb-hmin": Entry(
        "CDPB baseline: the weakest client sets the scaling, left-over power is noise",
        "cdpb.rival_policies",
        "hmin_based",
        "HminConfig",
    ),
    "cdpb-is": Entry(
        "CDPB baseline: independent sampling on top of the threshold",
        "cdpb.rival_policies",
        "independent_sampling",
        "SamplingConfig",
    ),
    "cdpb-noise-free": Entry(
        "CDPB baseline: idle without artificial noise", "cdpb.rival_policies", "noise_free", "NoiseFreeConfig"
    ),
    "biasvar": Entry(
        "bias-variance: fixed pre-scalers from the exact design, truncated inversion", "biasvar.policy", "biasvar"
    ),
    "opc": Entry("OPC: the per-round optimum of power control, weak devices at full power", "biasvar.opc", "opc"),
    "lcpc": Entry("LCPC: one common pre-scaler, truncated inversion", "biasvar.lcpc", "lcpc"),
    "eezofl": Entry("EEZOFL: zero-order scalars, in the clear or encrypted over the air", "eezofl.policy", "eezofl"),
    "bbfl": Entry("BB-FL: only devices near the server, or in turn with all of them", "biasvar.bbfl", "bbfl"),
}


REGISTERED: dict[str, Scheme] = {}  # those that joined by `register`
WATCHERS: list[Callable[[], None]] = []  # called after each of them: the schema of experiment files follows


def register(
    name: str,
    factory: Callable[..., Policy],
    config: type,
    summary: str = "",
    private: bool = True,
    hindsight: bool = False,
) -> None:
    """Make a scheme of your own known by name, in this process; experiment files then treat it like any other.

    factory(config, deployment, message, context) -> Policy. config: a frozen dataclass whose fields become the keys of
    the scheme in an experiment file. Registering a name again replaces the earlier scheme, as a notebook needs it;
    built-in names are refused. private=False marks a reference without privacy, which no budget stops; hindsight=True
    one that is told the whole channel in advance, and is labelled so.
    """
    if hindsight and "hindsight" not in summary:
        summary = f"{summary} (hindsight)".strip()
    if name in SCHEMES and name not in REGISTERED:
        raise InputError(f"scheme name {name!r} is taken by otafl; choose another")
    if not dataclasses.is_dataclass(config) or not isinstance(config, type):
        raise InputError(f"config={config!r} must be a dataclass")
    REGISTERED[name] = Scheme(name, summary, config, factory)
    SCHEMES[name] = Entry(summary, factory.__module__, factory.__qualname__, config.__qualname__, private, hindsight)
    for follow in WATCHERS:
        follow()


def scheme(name: str) -> Scheme:
    """Load a scheme by name."""
    validate.one_of("scheme", name, SCHEMES)
    if name in REGISTERED:
        return REGISTERED[name]
    entry = SCHEMES[name]
    module = import_module(f"otafl.systems.{entry.module}")
    return Scheme(name, entry.summary, getattr(module, entry.config), getattr(module, entry.factory))


def in_hindsight(name: str, config: Any) -> bool:
    """Whether a scheme is told the whole channel: it is registered so, or its parameters are tuned so."""
    return SCHEMES[name].hindsight or getattr(config, "tuning", None) == "hindsight"


def make(name: str, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Build a policy, told no more than its label and CSI level allow; refuse what would void a guarantee."""
    first = context.first if context.trace is None else first_look(context.trace)
    known = context if in_hindsight(name, config) else context._replace(trace=None)
    policy = _ask(name, config, deployment, message, known._replace(first=first))
    if policy.csi == "none" and known.trace is None and first is not None:
        policy = _ask(name, config, deployment, message, known._replace(first=None))
        if policy.csi != "none":
            raise InputError(f"{name}: csi={policy.csi!r} must not depend on what the policy is told")
    check_gate(policy.gate, message)
    return policy


def _ask(name: str, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    policy = scheme(name).factory(config, frozen(deployment), frozen(message), frozen(context))
    if not isinstance(policy, Policy):
        raise InputError(f"{name}: its factory must return a Policy, not {type(policy).__name__}")
    for field, allowed in (("loop", Loop), ("csi", CSI), ("gate", Gate)):
        validate.one_of(f"{name}: {field}", getattr(policy, field), get_args(allowed))
    return policy


def _import_plugins() -> None:
    """Installed schemes register themselves; one that fails must not take the others down."""
    for plugin in entry_points(group="otafl.schemes"):
        try:
            plugin.load()
        except Exception as problem:
            warnings.warn(f"otafl.schemes: {plugin.name} = {plugin.value} was not loaded: {problem!r}", stacklevel=2)


_import_plugins()
