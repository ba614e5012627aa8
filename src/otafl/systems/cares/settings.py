"""What CARES chooses for a site and a privacy target: one arm that spends the budget, judged by its certificate."""

from otafl.channels import Channel
from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.baselines.settings import best_scale, without_trusted_noise
from otafl.systems.simulated import Options, Refusal, bench, planned


def settings(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """`diagnostic` where no certificate is given for the arm: the plan then goes on without one and says so."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    at = bench(deployment, message, budget, rounds, channel, seed)
    arm: Options = {"arms": (best_scale(at),), "silence": "bound" if message.unit == "record" else "norm"}
    try:
        planned("cares-static", arm, at)
    except Infeasible:
        return {**arm, "diagnostic": True}
    except InputError as refusal:
        return Refusal(str(refusal))
    return arm
