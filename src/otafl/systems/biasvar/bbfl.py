"""BB-FL (Zhu, Wang, Huang): only devices close to the server take part. Host, NumPy, float64.

The interior S holds the devices within `inner_fraction` of the cell radius. "interior" always uses S; "alternative"
tosses a fair public coin each round between S and everybody. The public coin is client 0's entry of `obs.coin`.

zero_forcing   everybody in S arrives with its share w_m / sum_S w; the weakest channel in S sets the scale. Needs all
               instantaneous channels of S, as the bias-variance paper says of this baseline.
truncated      the original scheme: each device inverts its own channel if |h|^2 >= g_th E|h|^2, to a common level that
               the farthest device of S affords at that threshold. Needs mean gains at the server only.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, check_bound, stateless


@dataclass(frozen=True)
class Config:
    """The interior: an index list; all distances with the cell radius; or a largest mean path loss.

    The last one follows deployments that are drawn per seed: with a path loss that grows with distance it is the same
    circle. g_th = 1/2 maximises the mean amplitude.
    """

    variant: Literal["interior", "alternative"] = "interior"
    mode: Literal["zero_forcing", "truncated"] = "zero_forcing"
    interior: tuple[int, ...] | None = None
    distances_m: tuple[float, ...] | None = None
    cell_radius_m: float | None = None
    inner_fraction: float = 0.6
    max_loss_db: float | None = None
    g_th: float = 0.5


class Info(NamedTuple):
    """Per client."""

    scheduled: Array  # (..., K) bool
    sends: Array  # (..., K) bool


def bbfl(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Silence depends on distances, the public coin and (truncated) the own channel, never on data."""
    validate.one_of("variant", config.variant, ("interior", "alternative"))
    validate.one_of("mode", config.mode, ("zero_forcing", "truncated"))
    validate.positive("g_th", config.g_th)
    weights = np.asarray(deployment.weights, float)
    if config.max_loss_db is not None and (config.interior is not None or config.distances_m is not None):
        raise InputError("max_loss_db replaces interior and distances_m: give one of them")
    fixed = interior_mask(config, weights.size) if config.max_loss_db is None else None
    if config.mode == "truncated":
        check_bound(message)
    plan = _zero_forcing if config.mode == "zero_forcing" else _truncated

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        everybody = (
            obs.coin[..., :1] < 0.5 if config.variant == "alternative" else np.zeros_like(obs.coin[..., :1], bool)
        )
        inside = heard_well(config, obs.rms) if fixed is None else fixed
        scheduled = np.broadcast_to(inside | everybody, obs.coin.shape)
        chance = np.where(inside, 1.0, 0.5 if config.variant == "alternative" else 0.0)
        made = plan(config, scheduled, chance, obs, deployment, message)
        return state, made, Info(scheduled, made.max_norm >= 0)

    if config.mode == "zero_forcing":
        return Policy(f"bbfl-{config.variant}", stateless, step, loop="open", csi="global", gate="open")
    return Policy(f"bbfl-{config.variant}-truncated", stateless, step, loop="open", csi="own", gate="bound")


def interior_mask(config: Config, num_clients: int) -> Array:
    """(K,) bool, never empty; for an interior that is stated by number or by distance."""
    validate.in_left_open("inner_fraction", config.inner_fraction, 0, 1)
    if (config.interior is None) == (config.distances_m is None):
        raise InputError("bbfl needs one of interior (an index list), distances_m with cell_radius_m, and max_loss_db")
    if config.distances_m is not None:
        if config.cell_radius_m is None:
            raise InputError("distances_m needs cell_radius_m: the interior is a fraction of it")
        validate.shape("distances_m", config.distances_m, (num_clients,))
        validate.positive("distances_m", config.distances_m)
        validate.positive("cell_radius_m", config.cell_radius_m)
        mask = np.asarray(config.distances_m) <= config.inner_fraction * config.cell_radius_m
    else:
        index = np.asarray(config.interior, int)
        validate.in_closed("interior", index, 0, num_clients - 1)
        mask = np.isin(np.arange(num_clients), index)
    if not mask.any():
        raise InputError("the interior set is empty: no device would ever send")
    return mask


def heard_well(config: Config, rms: Array) -> Array:
    """(..., K) bool: mean path loss of at most `max_loss_db`, never empty."""
    mask = -20 * np.log10(rms) <= config.max_loss_db
    if not np.all(mask.any(-1)):
        raise InputError(f"the interior set is empty: every device loses more than max_loss_db={config.max_loss_db:g}")
    return mask


def _shares(scheduled: Array, deployment: Deployment) -> Array:
    """w_m / sum_S w for the scheduled, 0 for the others; (..., K)."""
    share = np.where(scheduled, np.asarray(deployment.weights, float), 0.0)
    return share / share.sum(-1, keepdims=True)


def _least(level: Array, share: Array) -> Array:
    """min over the scheduled of level / share, (..., 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(share > 0, level / share, np.inf).min(-1, keepdims=True)


def _zero_forcing(
    config: Config, scheduled: Array, chance: Array, obs: Obs, deployment: Deployment, message: Message
) -> Plan:
    share = _shares(scheduled, deployment)
    affordable = np.abs(obs.estimate) * np.sqrt(np.asarray(deployment.energy) / np.asarray(message.mean_square))
    scale = _least(affordable, share)
    heard = scale > 0  # a channel of exactly 0 cannot be inverted: nobody sends, the update is zero
    with np.errstate(divide="ignore", invalid="ignore"):
        tx = np.where(heard & (share > 0), scale * share / obs.estimate, 0)
    max_norm = np.where(heard & (share > 0), np.inf, -1.0)
    rx_scale = np.where(heard, scale, np.inf)[..., 0]
    return Plan(tx, np.zeros_like(tx), max_norm, rx_scale, chance, np.ones(rx_scale.shape, bool))


def _truncated(
    config: Config, scheduled: Array, chance: Array, obs: Obs, deployment: Deployment, message: Message
) -> Plan:
    share = _shares(scheduled, deployment)
    at_threshold = np.sqrt(config.g_th * np.asarray(deployment.energy)) * obs.rms / message.bound
    gamma = _least(at_threshold, share) * share
    sends = (share > 0) & (np.abs(obs.estimate) ** 2 >= config.g_th * obs.rms**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        tx = np.where((share > 0) & (obs.estimate != 0), gamma / obs.estimate, 0)
    prob = np.exp(-config.g_th)  # Rayleigh
    rx_scale = prob * gamma.sum(-1)
    return Plan(
        tx, np.zeros_like(tx), np.where(sends, np.inf, -1.0), rx_scale, chance * prob, np.ones(rx_scale.shape, bool)
    )
