"""What the rivals choose for a site and a privacy target, from plans alone."""

from typing import Any

from otafl.core.plan import Deployment
from otafl.systems.baselines.settings import best_scale, spending_scale
from otafl.systems.rivals import cotaf as _cotaf
from otafl.systems.simulated import (
    Bench,
    Options,
    Refusal,
    affordable_share,
    bench,
    best,
    on_bench,
    without_trusted_noise,
)

SHARES = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)  # of the jammer's energy


def liu_simeone(deployment: Deployment, *rest: Any) -> Options | Refusal:
    """How fast errors are forgotten is a fact about data: without it all rounds weigh alike."""
    return without_trusted_noise(deployment) or {"conditioning": 0.0}


def seif(*site: Any) -> Options:
    """The multiplier follows from the experiment's target; the clients' noise replaces what is not trusted."""
    return {}


@on_bench
def random_participation(at: Bench) -> Options | Refusal:
    """Half of the clients in a round, each as loud as the budget allows when all rounds are charged."""
    half = 0.5
    return {"participation": half, "rx_scale": half * spending_scale(at)}


@on_bench
def phase_only(at: Bench) -> Options | Refusal:
    """Costs grow in proportion to energy: one division on simulated channels."""
    return {"headroom": affordable_share("phase-only", "headroom", at)}


def jammer(*site: Any) -> Options | Refusal:
    """One jammer, at the power that leaves most learning."""
    return best("jammer", [{"jammers": 1, "share": share} for share in SHARES], bench(*site))


@on_bench
def cotaf(at: Bench) -> Options | Refusal:
    """The scale that constant scaling would choose, said as a threshold."""
    site = at.deployment
    unit = _cotaf.receive_scale(at.rms, site.energy, site.weights, at.message.bound, 1.0)
    return {"threshold": best_scale(at) / float(unit)}
