"""What a file of `otafl plan biasvar` would say of an experiment: the site as the policy of its run sees it."""

from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.core.plan import check_bound
from otafl.systems.biasvar.policy import Config, bound_params, radio
from otafl.systems.planning import Asked, follows, one_law


def keys(asked: Asked) -> dict[str, Any]:
    """Radio and learning side of the design; kappa, L or rho of FILE's own replace the scheme's."""
    config, deployment, message = asked.config, asked.deployment, asked.message
    if not isinstance(config, Config):
        raise InputError(f"scheme {asked.scheme!r} has no design of its own; add a [[scheme]] with name = 'biasvar'")
    if message.adjacency == "add-remove" or message.unit != "client":
        raise InputError("biasvar plans for clients that are replaced or zeroed out, not for records")
    one_law(asked)
    follows(asked, design=("exact", "sca"), headroom=(1.0,))
    check_bound(message)
    seen, par = radio(asked.rms, deployment), bound_params(config, deployment, message)
    stated = config.kappa is not None
    learning: dict[str, Any] = {"kappa": par.kappa, "L": par.L} if stated else {"rho": par.rho}
    if {"rho", "kappa"} & asked.own.keys():
        learning = {}
    return {
        **learning,
        "eta": par.eta if stated else asked.context.step_size,
        "gains": seen.gains.tolist(),
        "E_s": np.asarray(seen.E_s).tolist(),
        "N0": seen.N0,
        "d": seen.d,
        "G": par.G,
        "sigma2": list(config.sigma2) if isinstance(config.sigma2, tuple) else config.sigma2,
        "noise_factor": config.noise_factor,
        "weighting": np.asarray(deployment.weights).tolist(),
        "solver": "sca" if config.design == "sca" else "exact",
        "rounds": asked.context.rounds,
        "delta": asked.context.delta,
        "adjacency": message.adjacency,
        "trusted_noise": deployment.trusted_noise_var / deployment.noise_var if deployment.noise_var else None,
    }
