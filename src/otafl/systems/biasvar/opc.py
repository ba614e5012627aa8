"""OPC (Cao, Zhu, Xu, Huang): least mean squared error, solved anew each round. Host, NumPy, float64.

With messages that are uncorrelated and of mean square M_m, device m affords a received level of at most
a_m = |h_m| sqrt(energy_m / M_m). For a post-scale xi the best level is min(a_m, w_m / xi), which leaves

    f(xi) = sum M_m max(w_m - a_m xi, 0)^2 + nu xi^2,   nu = n_f d N_0,

convex in xi. With devices sorted by a_m / w_m its minimum is the largest of

    xi_k = sum_{i<=k} M_i w_i a_i / (nu + sum_{i<=k} M_i a_i^2).

Devices below w_m / xi send at full power, the others invert their channel. Nobody is silent.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from otafl.core import streams, validate
from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless
from otafl.systems.remembered import once_per_row


@dataclass(frozen=True)
class Config:
    """`unit_sum` undoes the shrinkage of a least-squares estimate, on average over `draws` Rayleigh channels."""

    noise_factor: float = 0.5
    unit_sum: bool = False
    draws: int = 100_000


class Info(NamedTuple):
    """Per client."""

    full_power: Array  # (..., K) bool: sends all it has and still arrives below its weight
    weight: Array  # (..., K) c_m


def best_post_scale(reach: Array, weights: Array, mean_square: Array, noise: float) -> Array:
    """xi (...) for affordable levels `reach` (..., K), in any consistent unit; `noise` is nu.

    >>> float(best_post_scale(np.array([1.0]), np.array([1.0]), np.array([1.0]), 1.0))
    0.5
    """
    order = np.argsort(reach / weights, axis=-1)
    a, w, power = (
        np.take_along_axis(np.broadcast_to(x, reach.shape), order, -1) for x in (reach, weights, mean_square)
    )
    with np.errstate(invalid="ignore"):  # 0/0: no noise and no channel
        prefix = np.cumsum(power * w * a, -1) / (noise + np.cumsum(power * a * a, -1))
    return np.nanmax(np.where(np.isnan(prefix), 0.0, prefix), axis=-1)


def opc(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Amplitudes follow all channels of a round, so the noise multiplier of a client changes from round to round."""
    validate.positive("noise_factor", config.noise_factor)
    validate.whole("draws", config.draws)
    weights = np.asarray(deployment.weights, float)
    validate.positive("weights", weights)
    mean_square = np.broadcast_to(np.asarray(message.mean_square, float), weights.shape)
    amplitude = np.sqrt(np.asarray(deployment.energy, float) / mean_square)
    noise = 2 * config.noise_factor * deployment.dim * deployment.noise_var  # n_f d N_0

    def mean_total(rms: Array) -> tuple[Array]:
        """E sum c_m over Rayleigh fading, for rows (R, K)."""
        rng = np.random.default_rng([context.seed, streams.Host.OPC])
        fading = np.sqrt(rng.exponential(size=(config.draws, weights.size)))
        return (np.array([_total(fading * row * amplitude) for row in rms]),)

    def _total(reach: Array) -> float:
        xi = best_post_scale(reach, weights, mean_square, noise)
        return float(np.minimum(reach * xi[:, None], weights).sum(-1).mean())

    totals = once_per_row(mean_total)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        size = np.abs(obs.estimate)
        reach = size * amplitude
        xi = best_post_scale(reach, weights, mean_square, noise)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.minimum(reach, weights / xi[..., None])
            tx = np.where(size > 0, level / obs.estimate, 0)
            rx_scale = 1 / xi  # inf, an empty update, where no device has a channel
        if config.unit_sum:
            rx_scale = rx_scale * totals(obs.rms)[0]
        plan = Plan(tx, np.zeros_like(tx), always(tx), rx_scale, np.ones(tx.shape), np.ones(xi.shape, bool))
        return state, plan, Info(reach * xi[..., None] < weights, level / rx_scale[..., None])

    return Policy("opc", stateless, step, loop="open", csi="global", gate="open")
