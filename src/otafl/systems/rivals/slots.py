"""An analog uplink with a slot for every client: K D channel uses, K receiver noises, and the server adds up.

Client k is heard with amplitude a_k under receiver noise v0 of its own; the server divides by a_k, multiplies by the
weight p_k and adds up, so the update has the weights p_k and noise of variance sum_k p_k^2 v0 / a_k^2. The charge is
that of one client alone, amplitude a_k under the trusted receiver noise, which is what `privacy.events` counts.
"""

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Deployment, Link, Plan, Trace
from otafl.core.uplink import ANALOG


def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
    """A client that nobody hears leaves its weight out. `plan.noise` is 0 here."""
    amplitude = np.abs(np.where(plan.max_norm >= 0, gain * plan.tx, 0))
    weights = np.broadcast_to(np.asarray(deployment.weights, float), amplitude.shape)
    heard = (amplitude > 0) & np.isfinite(plan.rx_scale)[..., None]
    weight = np.where(heard, weights, 0.0)
    variance = np.sum((weight / np.where(heard, amplitude, 1.0)) ** 2, axis=-1) * deployment.noise_var
    return Link(weight, plan.max_norm, np.sqrt(variance), plan.live)


def uses(plan: Plan, trace: Trace, deployment: Deployment) -> Array:
    return np.full(np.shape(plan.live), float(len(deployment.weights) * deployment.dim))


SLOTS = ANALOG._replace(name="analog slots", lower=lower, uses=uses)
