"""What a file of `otafl plan cdpb` would say of an experiment: the load that the policy of its run would choose."""

from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.systems.cdpb.model import scheme
from otafl.systems.cdpb.policy import Config, rho_rule
from otafl.systems.planning import Asked, follows, one_law

SHARED = ("strategy", "portion", "accounting", "alpha", "A", "mu", "lam1", "lam2")
FREE = {"rho", "u", "tau", "tau_cap", "rounds", "gbar", "ebar"}  # given under [plan], the rest is solved for


def keys(asked: Asked) -> dict[str, Any]:
    """The pair (rho, rounds) that the run would play, to be judged; rho, tau or limits of FILE's own free the other."""
    config, deployment, message = asked.config, asked.deployment, asked.message
    if not isinstance(config, Config):
        raise InputError(f"scheme {asked.scheme!r} has no design of its own; add a [[scheme]] with name = 'cdpb'")
    if message.unit != "client" or not np.isfinite(message.bound):
        raise InputError("cdpb plans for messages of clients with a norm bound, not for records")
    one_law(asked)
    follows(asked, left_over=(1.0,), debias=(False,))
    power, energy = asked.rms**2, np.asarray(deployment.energy, float)
    rounds, way = asked.context.rounds, scheme(config.strategy, config.portion)
    alike = np.ptp(power) == 0 and np.ptp(energy) == 0
    return {
        **{name: getattr(config, name) for name in SHARED},
        "K": power.size,
        "d": deployment.dim,
        "W": message.bound,
        "P": float(energy[0]) if alike else energy.tolist(),
        "sigma2": float(power[0]) / 2 if alike else (power / 2).tolist(),
        "sz2": deployment.noise_var,
        "trust_receiver_noise": bool(deployment.trusted_noise_var >= deployment.noise_var),
        "adjacency": message.adjacency,
        "assume_hidden": True,
        "rho": None if FREE & asked.own.keys() else float(rho_rule(config, deployment, message, rounds, way)(power)),
        "tau": None if FREE & asked.own.keys() else rounds,
        "gbar": float("inf"),
        "ebar": float("inf"),
        "capped": False,
        "delta": asked.context.delta,
        "seed": asked.context.seed,
    }
