"""What the non-coherent rivals choose for a site and a privacy target: how much of their energy they may spend."""

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.baselines.settings import without_trusted_noise
from otafl.systems.simulated import Options, Refusal, affordable_share, bench


def fsk_mv(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Costs grow in proportion to energy: one division on simulated channels."""
    at = bench(deployment, message, budget, rounds, channel, seed)
    return without_trusted_noise(deployment) or {"share": affordable_share("fsk-mv", "share", at)}


def energy_difference(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """The same."""
    at = bench(deployment, message, budget, rounds, channel, seed)
    return without_trusted_noise(deployment) or {"share": affordable_share("energy-difference", "share", at)}
