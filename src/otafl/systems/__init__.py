"""Published systems, one folder each, found by looking: a folder with a `SYSTEM` is one.

    SYSTEMS           by name: the folders here, what installed distributions bring, what a notebook registers
    SCHEMES           by name: all their schemes
    scheme, make      one scheme, loaded; its policy, told no more than it may know

A scheme's grammar: `Config`, a frozen dataclass of what a user may set; `Info`, a NamedTuple of what people plot, where
there is something to plot; a factory. A distribution joins by an entry point of the group "otafl.systems" that names
its `System`; a notebook by `register`.

What systems share:

    system, planning, screen   the value a folder exports; `otafl plan NAME`; what planners and reports print
    settings, simulated, remembered   designs by name; on channels simulated for them; each solved once
    silence, apart, antennas   rounds that the channel silences, contributions kept apart, a server with antennas
"""

import pkgutil
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, get_args

from otafl.core import validate
from otafl.core.authors import by_its_author
from otafl.core.errors import InputError
from otafl.core.plan import (
    CSI,
    Context,
    Deployment,
    Gate,
    Loop,
    Message,
    Policy,
    RewardData,
    check_gate,
    first_look,
    frozen,
    ours,
)
from otafl.systems import antennas, silence
from otafl.systems.system import LoadedScheme, Scheme, System

OWN = "own"  # the system of what `register` is given
SYSTEMS: dict[str, System] = {}
SCHEMES: dict[str, Scheme] = {}
WATCHERS: list[Callable[[], None]] = []  # called after each change: the schema of experiment files follows


def add(system: System) -> None:
    """Make a system known. No two may share a name or a scheme's name."""
    for name in system.schemes:
        if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
            raise InputError(f"scheme name {name!r} must be one line of 1 to 100 printable characters")
        if name in SCHEMES:
            raise InputError(f"scheme name {name!r} is taken by otafl; choose another")
    if system.name in SYSTEMS:
        raise InputError(f"system name {system.name!r} is taken; choose another")
    SYSTEMS[system.name] = system
    SCHEMES.update(system.schemes)
    try:
        for follow in WATCHERS:
            follow()
    except InputError:  # settings that no file can hold
        remove(system.name)
        raise


def remove(name: str) -> System | None:
    """Forget a system; None where there was none."""
    system = SYSTEMS.pop(name, None)
    for scheme_name in system.schemes if system else ():
        del SCHEMES[scheme_name]
    return system


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
    before = remove(OWN) or System(OWN, "registered in this process", __name__, {})
    after = before._replace(schemes={**before.schemes, name: Scheme(summary, factory, config, private, hindsight)})
    try:
        after.scheme(name)
        add(after)
    except InputError:
        add(before)
        raise


def scheme(name: str) -> LoadedScheme:
    """Load a scheme by name."""
    validate.one_of("scheme", name, SCHEMES)
    return system_of(name).scheme(name)


def system_of(scheme: str) -> System:
    """The system that a scheme belongs to."""
    return next(system for system in SYSTEMS.values() if scheme in system.schemes)


def in_hindsight(name: str, config: Any) -> bool:
    """Whether a scheme is told the whole channel: it is registered so, or its parameters are tuned so."""
    return SCHEMES[name].hindsight or getattr(config, "tuning", None) == "hindsight"


def make(name: str, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Build a policy, told no more than its label and CSI level allow; refuse what would void a guarantee.

    Devices without a path, or with too weak an estimate, stay silent whatever the scheme is (`silence`).
    """
    return silence.make_for(lambda *site: _make(name, config, *site), config, deployment, message, context)


def _make(name: str, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    antennas.refuse(name, SCHEMES[name], deployment)
    first = context.first if context.trace is None else first_look(context.trace)
    known = context if in_hindsight(name, config) else context._replace(trace=None)
    policy = _ask(name, config, deployment, message, known._replace(first=first))
    if policy.csi == "none" and known.trace is None and first is not None:
        policy = _ask(name, config, _without_statistics(name, deployment), message, known._replace(first=None))
        if policy.csi != "none":
            raise InputError(f"{name}: csi={policy.csi!r} must not depend on what the policy is told")
    check_gate(policy.gate, message)
    return antennas.fitted(name, SCHEMES[name], _marked(name, policy), deployment)


def _marked(name: str, policy: Policy) -> Policy:
    """The policy, an uplink that somebody else brings known as such."""
    if isinstance(policy.uplink, str) or ours(scheme(name).factory):
        return policy
    from otafl.core.uplink import ANALOG, PERFECT  # not before it is needed: planners run without JAX

    if policy.uplink in (ANALOG, PERFECT):
        return policy
    brought = policy.uplink
    tried = (
        f"uplink {brought.name!r} comes from outside otafl: it was tried out on made-up messages, which cannot find "
        "one that does otherwise in a run"
    )
    return policy._replace(uplink=brought._replace(outside=True, assumed=(*brought.assumed, tried)))


def _without_statistics(name: str, deployment: Deployment) -> Deployment:
    """The site without the mean power of an antenna; otafl's own schemes use that on the server's side alone."""
    if ours(scheme(name).factory):
        return deployment
    return deployment._replace(receiver=deployment.receiver._replace(antenna_rms=None))


def _ask(name: str, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    factory = scheme(name).factory
    with by_its_author(name, factory):
        policy = factory(config, frozen(deployment), frozen(message), frozen(context))
    if not isinstance(policy, Policy):
        raise InputError(f"{name}: its factory must return a Policy, not {type(policy).__name__}")
    for field, allowed in (("loop", Loop), ("csi", CSI), ("gate", Gate)):
        validate.one_of(f"{name}: {field}", getattr(policy, field), get_args(allowed))
    validate.one_of(f"{name}: feedback.data", policy.feedback.data, get_args(RewardData))
    return policy


def _discover() -> None:
    """The folders beside this file, then plug-ins, of which one that fails must not take the others down."""
    for found in pkgutil.iter_modules(__path__):
        if found.ispkg:
            add(import_module(f"{__name__}.{found.name}").SYSTEM)
    for plugin in entry_points(group="otafl.systems"):
        try:
            add(plugin.load())
        except Exception as problem:
            warnings.warn(f"otafl.systems: {plugin.name} = {plugin.value} was not loaded: {problem!r}", stacklevel=2)


_discover()
