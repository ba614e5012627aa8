"""The air: what a plan becomes once the channel has acted on it. Host NumPy or JAX, float64.

The uplink is the analog sum of `plan.py`. An error-free uplink is the same sum over a channel of gain one with no
receiver noise and no energy limit (`ideal`), so ideal baselines need no second mechanism.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.plan import Array, Deployment, Link, Plan, Trace

# Float32 sums of squares are good to about 1e-6; bounds are enforced this much below their declared value.
FLOAT32_SLACK = 4e-6


def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
    """Weights and noise that the learning sees. Leading axes of `plan` and `gain` agree; clients are the last axis."""
    xp: Any = jnp if isinstance(gain, jax.Array) else np
    allowed = plan.max_norm >= 0
    received = xp.real(gain * xp.where(allowed, plan.tx, 0))
    variance = deployment.noise_var + xp.sum(xp.real(gain * plan.noise) ** 2, axis=-1)
    # A silent round may be planned as rx_scale = inf: the update is then exactly zero.
    return Link(
        weight=received / plan.rx_scale[..., None],
        max_norm=plan.max_norm,
        noise_std=xp.sqrt(variance) / plan.rx_scale,
        live=plan.live,
    )


def to_float32(link: Link) -> Link:
    """Cast for learning; the largest norm is rounded down so that a float32 norm never passes a float64 limit."""
    return link._replace(
        weight=link.weight.astype(np.float32),
        max_norm=(link.max_norm * (1 - FLOAT32_SLACK)).astype(np.float32),
        noise_std=link.noise_std.astype(np.float32),
    )


def ideal(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    """The same site with an error-free uplink: unit gains, no receiver noise, no energy limit."""
    one = np.ones_like(trace.rms_gain)
    perfect = Trace(one + 0j, one + 0j, one, one, one, one, trace.coin)
    unlimited = np.full_like(np.asarray(deployment.energy, float), np.inf)
    return perfect, deployment._replace(energy=unlimited, noise_var=0.0, trusted_noise_var=0.0, gain_error=0.0)


def transmit_energy(plan: Plan, norms: Array, sent: Array, dim: int) -> np.ndarray:
    """Energy of the whole vector each client radiated, J, (..., K): data where sent, artificial noise always."""
    data = np.where(sent, np.abs(plan.tx) ** 2 * np.asarray(norms, float) ** 2, 0.0)
    return data + dim * np.abs(plan.noise) ** 2


def received_snr(plan: Plan, gain: Array, norms: Array, sent: Array, deployment: Deployment) -> np.ndarray:
    """Received signal energy over received noise energy, linear, per round: messages counted as uncorrelated."""
    signal = np.where(sent, np.real(gain * plan.tx) * np.asarray(norms, float), 0.0)
    variance = deployment.noise_var + np.sum(np.real(gain * plan.noise) ** 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sum(signal**2, axis=-1) / (deployment.dim * variance)
