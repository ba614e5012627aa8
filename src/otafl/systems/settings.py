"""Every scheme that designs itself for a site and a privacy target, by name."""

from collections.abc import Callable
from importlib import import_module

from otafl.channels import Channel
from otafl.core import validate
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.simulated import Options, Refusal

# (deployment, message, budget, rounds, channel, seed) -> options of the scheme, from plans alone
Rule = Callable[[Deployment, Message, Budget, int, Channel, int], Options | Refusal]

RULES: dict[str, str] = {
    "fedavg-dp": "ideal.settings:settings",
    "constant": "baselines.settings:constant",
    "weakest": "baselines.settings:weakest",
    "cares-static": "cares.settings:settings",
    "adascale": "adascale.settings:settings",
    "adascale-stat-level": "adascale.settings:stat_level",
    "cdpb": "cdpb.settings:settings",
    "biasvar": "biasvar.settings:settings",
    "eezofl": "eezofl.settings:settings",
}


def rule(name: str) -> Rule:
    """The design rule of a scheme."""
    validate.one_of("scheme", name, RULES)
    module, _, function = RULES[name].partition(":")
    found: Rule = getattr(import_module(f"otafl.systems.{module}"), function)
    return found


def settings(
    name: str, deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int = 0
) -> Options | Refusal:
    """What a scheme chooses for a site and a target; no data are looked at, so it costs no privacy."""
    return rule(name)(deployment, message, budget, rounds, channel, seed)
