"""What a CARES problem refuses: one line with the name, the value and the rule (CARES section 6)."""

from typing import TYPE_CHECKING

import numpy as np

from otafl.bounds.convergence import CONSTANT_SETS
from otafl.core import validate
from otafl.core.errors import InputError

if TYPE_CHECKING:
    from otafl.systems.cares.problem import Problem

WEIGHT_TOLERANCE = 1e-6


def check_scalars(p: "Problem") -> None:
    for name in ("max_power", "clip_norm", "step_size", "eps_target", "noise_std"):
        validate.positive(name, getattr(p, name))
    if p.noise_low > p.noise_high:
        raise InputError(f"noise_std=({p.noise_low!r}, {p.noise_high!r}) must be ordered (low, high)")
    validate.whole("num_params", p.num_params)
    validate.in_open("delta", p.delta, 0, 1)
    for name in ("loss_gap", "gain_error_max"):
        validate.not_negative(name, getattr(p, name))
    for name in ("max_asymmetry", "max_dropped"):
        validate.in_closed(name, getattr(p, name), 0, 1)
    validate.one_of("constants", p.constants, CONSTANT_SETS)
    validate.one_of("accounting", p.accounting, ("classic", "gaussian"))
    validate.one_of("granularity", p.granularity, ("client", "record"))
    validate.one_of("silence", p.silence, ("norm", "bound"))
    validate.one_of("certify_with", p.certify_with, ("estimate", "limits"))
    check_reward(p.reward_data, p.reward_noise)
    check_extension(p)


def check_extension(p: "Problem") -> None:
    """Local steps are proved for one set of constants, antennas for independent Rayleigh ones."""
    validate.whole("local_steps", p.local_steps)
    validate.whole("antennas", p.antennas)
    validate.not_negative("local_step_size", p.local_step_size)
    validate.in_closed("exposure", p.exposure, 1, np.inf)
    if p.local_steps > 1 and p.constants != "tight":
        raise InputError(f"local_steps={p.local_steps} needs constants='tight': the bound is proved for that set")
    if p.local_steps > 1 and p.local_step_size == 0:
        raise InputError(f"local_steps={p.local_steps} needs local_step_size > 0, the clients' own step")
    if p.local_steps == 1 and p.local_step_size > 0:
        raise InputError(f"local_step_size={p.local_step_size!r} has no meaning for local_steps=1")


def check_reward(reward_data: str, reward_noise: float | None) -> None:
    """A private reward has declared noise, hence a cost; a public one has none (CARES E9)."""
    validate.one_of("reward_data", reward_data, ("public", "private_noisy"))
    if reward_data == "public" and reward_noise is not None:
        raise InputError(f"reward_noise={reward_noise!r} is for reward_data='private_noisy'; a public reward has none")
    if reward_data == "private_noisy":
        if reward_noise is None:
            raise InputError("reward_data='private_noisy' needs reward_noise > 0: without noise it has no finite cost")
        validate.positive("reward_noise", reward_noise)


def check_clients(p: "Problem") -> None:
    if p.weights.ndim != 1 or p.weights.size == 0:
        raise InputError(f"weights has shape {p.weights.shape} but must be a non-empty list, one per client")
    validate.not_negative("weights", p.weights)
    validate.sums_to_one("weights", p.weights, WEIGHT_TOLERANCE)
    validate.shape("channel_scale", p.channel_scale, p.weights.shape)
    validate.positive("channel_scale", p.channel_scale)
    if np.ndim(p.max_power):
        validate.shape("max_power", p.max_power, p.weights.shape)
    if p.granularity == "record" and p.silence == "norm":
        raise InputError(
            "granularity='record' with silence='norm' is refused: one record can move a client's norm across the "
            "threshold and switch the whole client on or off; use silence='bound'"
        )
    if p.granularity == "record" and p.batch_sizes is None:
        raise InputError("granularity='record' needs batch_sizes, the number of examples behind each client's mean")
    if p.batch_sizes is not None:
        validate.shape("batch_sizes", p.batch_sizes, p.weights.shape)
        validate.whole("batch_sizes", p.batch_sizes)
    if p.certify_with == "limits":
        _check_limits(p)


def _check_limits(p: "Problem") -> None:
    if p.mu_low is None or p.mu_high is None:
        raise InputError("certify_with='limits' needs mu_low and mu_high, certified limits of channel_scale")
    for name, value in (("mu_low", p.mu_low), ("mu_high", p.mu_high)):
        validate.shape(name, value, p.weights.shape)
        validate.positive(name, value)
    if np.any(p.mu_low > p.mu_high):
        k = int(np.argmax(p.mu_low > p.mu_high))
        raise InputError(f"mu_low[{k}]={float(p.mu_low[k])!r} must be <= mu_high[{k}]={float(p.mu_high[k])!r}")
