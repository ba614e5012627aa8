"""What a ridge promises before the first round: its efficiency, the energy of every device, and who is heard."""

from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message
from otafl.systems.ridge.policy import Config, privacy_allowance, spending
from otafl.systems.ridge.purse import allowance, mean_amplitude, purse_of


class Certificate(NamedTuple):
    """Expectations over Rayleigh fading; `efficiency` is S / S_max, which no power control can pass 1 with."""

    efficiency: float
    kappa: Array  # (K,)
    joules: Array  # (K,) expected, the whole run, messages at their bound
    weight: Array  # (K,) in the mean update, sum 1
    covered: float  # sum_k min(weight_k, deployment.weights_k): 1 where the mean is the wanted one


def certify(config: Config, deployment: Deployment, message: Message, context: Context, rms: Array) -> Certificate:
    """By the closed forms, for a run of `context.rounds` rounds at rms gains (K,)."""
    squares = privacy_allowance(deployment, message, context)
    purse = purse_of(deployment, message, context, squares)
    made = spending(config, squares, np.asarray(rms, float), deployment, message)
    mean_square = np.asarray(message.mean_square, float)
    peak = np.sqrt(np.asarray(deployment.energy, float) / mean_square) * rms
    q = purse.leveller(made.kappa, peak).of(allowance(purse, made.privacy, context) / context.rounds)
    amplitude = mean_amplitude(q, made.kappa, peak)
    # S = C sum_t sum_k a / sqrt(T v) against S_max = sum_k sqrt(P_k) C / sqrt(v), P_k the whole allowance.
    efficiency = float(np.sum(amplitude) * np.sqrt(context.rounds) / np.sum(np.sqrt(squares)))
    weight = amplitude / np.sum(amplitude)
    covered = float(np.sum(np.minimum(weight, deployment.weights)))
    return Certificate(efficiency, made.kappa, _joules(q, peak, made.kappa, rms, mean_square, context), weight, covered)


def _joules(q: Array, peak: Array, kappa: Array, rms: Array, mean_square: Array, context: Context) -> Array:
    """Expected energy of the run by quantiles of the channel: a^2 mean_square / (x rms^2), midpoint rule."""
    x = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000)[:, None]
    kinds, kind = np.unique(np.stack([q, kappa]), axis=1, return_inverse=True)
    square = np.minimum(kinds[0] * x / (x + np.maximum(kinds[1], 1e-9)), np.sqrt(x)) ** 2 / x
    return np.asarray(context.rounds * (peak / rms) ** 2 * mean_square * square.mean(0)[np.ravel(kind)])
