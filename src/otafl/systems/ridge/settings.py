"""Settings of the ridge from a site alone: no data, no trial."""

from typing import Any

from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget

EFFICIENCY = 0.95  # energy rises as the logarithm of what is missing to 1: the knee lies near 5 %


def settings(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Any = None, seed: int = 0
) -> dict[str, Any]:
    """Keys of the scheme in an experiment file; level and odometer follow from the target by themselves."""
    return {"efficiency": EFFICIENCY, "aim": "weights"}
