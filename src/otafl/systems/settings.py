"""Every scheme that designs itself for a site and a privacy target, by name."""

import numpy as np

from otafl.channels import Channel
from otafl.core import validate
from otafl.core.errors import OtaflError
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems import SCHEMES, SYSTEMS, system_of
from otafl.systems.simulated import Options, Refusal, Rule


def names() -> list[str]:
    """Schemes that design themselves."""
    return [name for name, scheme in SCHEMES.items() if scheme.settings is not None]


def advised() -> list[str]:
    """Those of them that a site may be offered."""
    offered = {name for system in SYSTEMS.values() if system.advised for name in system.schemes}
    return [name for name in names() if name in offered]


def rule(name: str) -> Rule:
    """The design rule of a scheme."""
    validate.one_of("scheme", name, names())
    return system_of(name).load(str(SCHEMES[name].settings))


def settings(
    name: str, deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int = 0
) -> Options | Refusal:
    """What a scheme chooses for a site and a target; no data are looked at, so it costs no privacy.

    On a site so extreme that doubles do not hold its numbers, searches find no bracket and plans no scale: a refusal.
    """
    try:
        with np.errstate(all="ignore"):
            return rule(name)(deployment, message, budget, rounds, channel, seed)
    except OtaflError:
        raise
    except (ArithmeticError, ValueError, np.linalg.LinAlgError) as problem:
        return Refusal(f"its design fails numerically on this site ({problem})")
