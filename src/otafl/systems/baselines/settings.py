"""What `constant` and `weakest` choose for a site and a privacy target, from plans alone."""

import math

import numpy as np

from otafl.privacy import Ledger
from otafl.privacy.events import events
from otafl.systems.simulated import Bench, Options, Refusal, best, cost, on_bench, planned, trial

HEARD = 0.95  # weight from which on energy does not bind
LESS, LEAST = 0.84, 1e-9  # factor of the headroom from one try to the next, and where tries end
BACKED_OFF = (0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.14, 0.1)


def spending_scale(at: Bench) -> float:
    """Receive scaling at which all rounds together spend the budget: sqrt(tv) / (wmax sensitivity z).

    The loudest client is charged with its declared gain error; z = sqrt(T / (2 B)) where costs add. At an array a round
    costs more than the amplitude says: how much more, simulated channels tell.
    """
    moved = float(np.max(np.asarray(at.deployment.weights) * at.message.sensitivity))
    loudest = moved * (1 + float(at.deployment.gain_error))
    scale = math.sqrt(at.deployment.trusted_noise_var) / (loudest * at.multiplier)
    if at.deployment.receiver.antennas == 1:
        return scale
    return scale * math.sqrt(at.rho / cost("constant", {"rx_scale": scale}, at))


def best_scale(at: Bench) -> float:
    """The scaling that spends the budget; a lower one where energy is short and more is gained by who is heard."""
    spending = spending_scale(at)
    if not np.isfinite(at.message.bound) or trial("constant", {"rx_scale": spending}, at).heard >= HEARD:
        return spending
    lower = [{"rx_scale": spending * factor} for factor in BACKED_OFF]
    found = best("constant", [{"rx_scale": spending}, *lower], at)
    return spending if isinstance(found, Refusal) else float(found["rx_scale"])


@on_bench
def constant(at: Bench) -> Options | Refusal:
    """Spends the budget exactly in `rounds` rounds, unless energy is what binds."""
    return {"rx_scale": best_scale(at)}


@on_bench
def weakest(at: Bench) -> Options | Refusal:
    """Costs grow in proportion to energy, so the back-off is one division on simulated channels; more with sampling."""
    headroom = min(1.0, at.rho / cost("weakest", {"headroom": 1.0}, at))
    while not at.budget.counted.additive and headroom > LEAST and not _affords(at, headroom):
        headroom *= LESS
    return {"headroom": headroom}


def _affords(at: Bench, headroom: float) -> bool:
    """Whether all rounds fit: with sampling a loud round costs more than in proportion to its energy."""
    _, plan, trace, site = planned("weakest", {"headroom": headroom}, at)
    return bool(np.all(Ledger(at.budget, at.devices).affordable(events(plan, trace, site, at.message))))
