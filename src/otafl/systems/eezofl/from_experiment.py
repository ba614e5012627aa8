"""What a file of `otafl plan eezofl` would say of an experiment: its ring, its devices, how many scalars they send."""

from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.systems.planning import Asked

SHARED = ("f", "Mmax", "guard", "short_shares", "sigma_e", "sigma_w", "secret", "allow_insecure")
MODES = {"analytic": "fixed-point", "fixed-point": "fixed-point", "digital": "digital", "hybrid": "hybrid"}
RINGS = (4096, 8192)


def keys(asked: Asked) -> dict[str, Any]:
    """tau, the wanted noise of a decoded sum, is FILE's own."""
    config = asked.config
    if config.mode not in MODES:
        raise InputError(f"mode={config.mode!r} is not planned; use one of {', '.join(MODES)}")
    if config.n not in RINGS and not {"custom_ring", "n"} & asked.own.keys():
        raise InputError(f"n={config.n}: name its primes under [plan], custom_ring = {{ n = ..., primes = [...] }}")
    flooding = {"sigma_phi": config.sigma_phi} if config.sigma_phi else {"smudging_bits": config.smudging_bits}
    return {
        **{name: getattr(config, name) for name in SHARED},
        **flooding,
        "mode": MODES[config.mode],
        "ring": str(config.n) if config.n in RINGS and not {"custom_ring", "n", "ring"} & asked.own.keys() else None,
        "Lambda_log2": config.scale_bits,
        "P": asked.message.dim,
        "bandwidth_hz": asked.bandwidth_hz,
        "rounds": asked.context.rounds,
        "devices": {
            "count": len(asked.deployment.weights),
            "mu": np.asarray(config.mu).tolist(),
            "sigma": np.asarray(config.sigma).tolist(),
        },
    }
