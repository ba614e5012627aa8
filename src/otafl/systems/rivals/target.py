"""The noise multiplier of equal rounds that spends the experiment's privacy target. Host, float64."""

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message
from otafl.privacy import Budget, calibrate

MARGIN = 1e-12  # relative: the ledger adds the same costs in another order


def round_multiplier(name: str, deployment: Deployment, message: Message, context: Context) -> float:
    """z by the accountant in force, amplitudes counted with the declared gain error; needs a finite privacy.eps."""
    if not np.isfinite(context.eps):
        raise InputError(f"{name} needs a privacy target: set privacy.eps")
    budget = Budget(context.eps, context.delta, context.accountant, adjacency=message.adjacency)
    weights = np.asarray(deployment.weights, float)
    found = calibrate(budget, context.rounds, message, weights) * (1 + float(deployment.gain_error))
    validate.positive("multiplier", found)
    return found * (1 + MARGIN)
