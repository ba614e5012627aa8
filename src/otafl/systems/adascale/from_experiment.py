"""What a file of `otafl plan adascale` would say of an experiment: Poisson batches over the trace of its run."""

from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.systems.planning import Asked, follows

METHODS = {
    "adascale": "adascale", "adascale-optimal": "optimal", "adascale-equal": "equal-alloc",
    "adascale-estim": "estim-future", "adascale-stat-level": "stat-level", "adascale-stat-water": "stat-water",
    "adascale-liu-simeone": "liu-simeone", "adascale-lyapunov": "lyapunov",
}  # fmt: skip
SHARED = ("nu", "alpha", "tuning", "V", "max_floor", "device_rdp", "device_order", "hard_budget")
SAME = 1e-6  # relative; the generator rounds sampling rates


def keys(asked: Asked) -> dict[str, Any]:
    """Powers in W where the experiment has a bandwidth, else of symbols of one second."""
    config, deployment, message, context = asked.config, asked.deployment, asked.message, asked.context
    follows(asked, estimate=("mean_of_min",), decay=(1.0,), calibration_traces=(3,), points=(17,))
    if asked.scheme not in METHODS:
        raise InputError(f"scheme {asked.scheme!r} is not planned; use one of {', '.join(METHODS)}")
    if message.unit != "record" or message.adjacency != "zero-out" or context.sizes is None:
        raise InputError("adascale plans for Poisson batches of records that are zeroed out: clients.kind='per-sample'")
    if np.ptp(deployment.weights) > SAME / len(deployment.weights):
        raise InputError("adascale plans for equal weights: set task.weights='equal'")
    assert context.trace is not None
    batch = message.rate * np.asarray(context.sizes, float)
    clip = np.asarray(message.sensitivity * batch, float)
    if np.ptp(clip) > SAME * clip.max():
        raise InputError("adascale plans for one clipping norm and a divisor that is the mean batch")
    per_second = asked.bandwidth_hz or 1.0
    stated = {name: getattr(config, name) for name in SHARED if hasattr(config, name)}
    return {
        **stated,
        "method": "adascale-warm" if getattr(config, "warm_start", False) else METHODS[asked.scheme],
        "compare": ["optimal", "equal-alloc"],
        "delta": context.delta,
        "d": deployment.dim,
        "n": np.asarray(context.sizes).tolist(),
        "B": batch.tolist(),
        "G": float(clip.mean()),
        "P_max_w": (np.asarray(deployment.energy, float) / deployment.dim * per_second).tolist(),
        "noise_power_w": 2 * deployment.noise_var * per_second,
        "privacy_noise_power_w": 2 * deployment.trusted_noise_var * per_second,
        "bandwidth_hz": asked.bandwidth_hz,
        "seed": context.seed,
        "h": np.abs(context.trace.estimate).tolist(),
        "rms": asked.rms.tolist(),
    }
