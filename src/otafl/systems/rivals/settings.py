"""What the rivals choose for a site and a privacy target, from plans alone."""

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems.baselines.settings import best_scale, spending_scale, without_trusted_noise
from otafl.systems.rivals import cotaf as _cotaf
from otafl.systems.simulated import Options, Refusal, affordable_share, bench, best

SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)  # of the jammer's energy


def liu_simeone(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """How fast errors are forgotten is a fact about data: without it all rounds weigh alike."""
    return without_trusted_noise(deployment) or {"conditioning": 0.0}


def seif(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """The multiplier follows from the experiment's target; the clients' noise replaces what is not trusted."""
    return {}


def random_participation(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Half of the clients in a round, each as loud as the budget allows when all rounds are charged."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    half = 0.5
    return {
        "participation": half,
        "rx_scale": half * spending_scale(bench(deployment, message, budget, rounds, channel, seed)),
    }


def phase_only(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """Costs grow in proportion to energy: one division on simulated channels."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    return {
        "headroom": affordable_share(
            "phase-only", "headroom", bench(deployment, message, budget, rounds, channel, seed)
        )
    }


def jammer(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """One jammer, at the power that leaves most learning."""
    at = bench(deployment, message, budget, rounds, channel, seed)
    return best("jammer", [{"jammers": 1, "share": share} for share in SHARES], at)


def cotaf(
    deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int
) -> Options | Refusal:
    """The scale that constant scaling would choose, said as a threshold."""
    if (refusal := without_trusted_noise(deployment)) is not None:
        return refusal
    at = bench(deployment, message, budget, rounds, channel, seed)
    unit = _cotaf.receive_scale(at.rms, deployment.energy, deployment.weights, message.bound, 1.0)
    return {"threshold": best_scale(at) / float(unit)}
