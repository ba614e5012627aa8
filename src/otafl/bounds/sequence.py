"""The certificate of a sequence of rounds, of any scheme (CARES (12)-(13)). NumPy, float64.

A scheme is described by what arrives: the amplitude of each client that sends, the probability that it is silent, the
noise, and what the server divides by. CARES' own amplitudes (rx_scale p_k) are the default. `bounds.bias` turns these
into the one number per round that the proof needs. Subsampling is not credited: the zCDP is an upper bound.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.bounds.bias import bias_bound
from otafl.bounds.budget import Accounting, eps_of
from otafl.bounds.convergence import ConstantSet, ConvBound, assemble, bound_constants, initial_gap_term
from otafl.bounds.envelopes import drop_prob, drop_rate
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

Label = Literal["certificate", "realised_bound"]


class SequenceCertificate(NamedTuple):
    """What T given rounds amount to."""

    label: Label  # "certificate" only for a sequence declared independent of the data (CARES E20)
    rounds: int
    conv_bound: ConvBound  # scalars
    informative: bool
    bias: Floats  # (T,) bound on E||bias||^2
    dropped_weight: Floats  # (T,) expected weight of the silent
    zcdp: Floats  # (K,) summed over rounds, silent rounds in full
    worst_client: int
    eps: float  # of the worst client at `delta`: a guarantee for a certificate, else "spent"
    notes: tuple[str, ...]


def certify_sequence(
    rx_scale: ArrayLike,
    *,
    weights: ArrayLike,
    noise_std: ArrayLike,
    num_params: int,
    loss_gap: float,
    delta: float,
    clip_norm: ArrayLike = 1.0,
    step_size: float = 0.1,
    smoothness: float | None = None,
    grad_var: float | None = None,
    constants: ConstantSet = "main",
    accounting: Accounting = "classic",
    channel_scale: ArrayLike | None = None,
    max_power: ArrayLike = 1.0,
    amplitude: ArrayLike | None = None,
    silent_prob: ArrayLike | None = None,
    silence: Literal["norm", "bound"] = "norm",
    sensitivity: ArrayLike | None = None,
    noise_std_low: ArrayLike | None = None,
    gain_error_max: float = 0.0,
    independent: bool = False,
    predictable: bool = False,
    beside: ArrayLike = 0.0,
) -> SequenceCertificate:
    """Convergence bound (12) and zCDP (13) of realised or planned rounds.

    rx_scale: (T,) what the server divides by.
    weights: (K,) ideal aggregation weights p_k.
    noise_std: () or (T,) std per real dimension before division, artificial noise included; noise_std_low the part
        of it that privacy may trust (default: all). Without any, eps is infinite and the bound still holds.
    clip_norm: () or (K,) bound G_k on the message, or its root mean square where `sensitivity` is given.
    amplitude: (T, K) or (K,) received amplitude of a client that sends; default rx_scale p_k (CARES).
    silent_prob: (T, K) or (K,) probability of silence (silence="bound": exact and free of the data; "norm": an upper
        bound). Default: CARES (7) for these amplitudes from channel_scale (K,) or (T, K) and max_power; with neither,
        nobody is ever silent.
    sensitivity: () or (K,) L2 change of the message under the adjacency; default 2 G_k (client level, replace).
    gain_error_max: bound on |h / estimate| - 1. Charged; the convergence bound assumes exact inversion.
    independent: silence is independent across clients, which gives the sharper bound.
    predictable: the sequence was fixed in advance, or follows from channels alone. Otherwise it is a plug-in of one
        run and labelled `realised_bound`.
    beside: () or (K,) zCDP of what else is released with every round, a noisy reward for example.
    """
    seen = measure(
        rx_scale, weights=weights, noise_std=noise_std, clip_norm=clip_norm, channel_scale=channel_scale,
        max_power=max_power, amplitude=amplitude, silent_prob=silent_prob, silence=silence, sensitivity=sensitivity,
        noise_std_low=noise_std_low, gain_error_max=gain_error_max, independent=independent,
    )  # fmt: skip
    validate.not_negative("beside", beside)
    return conclude(
        seen._replace(cost=seen.cost.sum(0) + seen.bias.size * np.asarray(beside, float)), weights=weights,
        num_params=num_params, loss_gap=loss_gap, delta=delta, clip_norm=clip_norm, step_size=step_size,
        smoothness=smoothness, grad_var=grad_var, constants=constants, accounting=accounting, predictable=predictable,
    )  # fmt: skip


class Measured(NamedTuple):
    """What the certificate needs of rounds, one by one."""

    bias: Floats  # (T,) bound on E||bias||^2
    dropped_weight: Floats  # (T,) expected weight of the silent
    noise: Floats  # (T,) std per real dimension after division
    cost: Floats  # (T, K) zCDP of each round; (K,) of all that was released


def measure(
    rx_scale: ArrayLike,
    *,
    weights: ArrayLike,
    noise_std: ArrayLike,
    clip_norm: ArrayLike,
    amplitude: ArrayLike | None,
    silent_prob: ArrayLike | None,
    silence: Literal["norm", "bound"],
    sensitivity: ArrayLike | None,
    gain_error_max: float,
    noise_std_low: ArrayLike | None = None,
    channel_scale: ArrayLike | None = None,
    max_power: ArrayLike = 1.0,
    independent: bool = False,
) -> Measured:
    """The terms of each round; arguments as in `certify_sequence`."""
    scale = _rounds(rx_scale)
    weights = _weights(weights)
    shape = (scale.size, weights.size)
    validate.positive("clip_norm", clip_norm)
    bound = np.broadcast_to(np.asarray(clip_norm, float), weights.shape)
    share = _received(amplitude, scale, weights, shape)
    silent = _silence(silent_prob, channel_scale, share * scale[:, None], bound, max_power, shape)
    noise = _noise("noise_std", noise_std, scale)
    trusted = noise if noise_std_low is None else _noise("noise_std_low", noise_std_low, scale)
    if np.any(trusted > noise):
        raise InputError("noise_std_low must be <= noise_std in every round")
    bias = bias_bound(share, silent, weights, bound, exact=silence == "bound", independent=independent)
    change = _sensitivity(sensitivity, bound)
    validate.not_negative("gain_error_max", gain_error_max)
    received = share * scale[:, None] * change * (1 + gain_error_max)
    with np.errstate(divide="ignore"):
        cost = np.divide(received**2, 2 * trusted[:, None] ** 2, out=np.zeros(shape), where=received > 0)  # CARES (13)
    return Measured(bias, silent @ weights, noise / scale, cost)


def conclude(
    seen: Measured,
    *,
    weights: ArrayLike,
    num_params: int,
    loss_gap: float,
    delta: float,
    clip_norm: ArrayLike,
    step_size: float,
    predictable: bool,
    smoothness: float | None = None,
    grad_var: float | None = None,
    constants: ConstantSet = "main",
    accounting: Accounting = "classic",
) -> SequenceCertificate:
    """What measured rounds amount to, `cost` (K,) that of all that was released; arguments as in `certify_sequence`."""
    weights = _weights(weights)
    bound = np.broadcast_to(np.asarray(clip_norm, float), weights.shape)
    validate.whole("num_params", num_params)
    validate.not_negative("loss_gap", loss_gap)
    validate.positive("step_size", step_size)
    smoothness = 1 / (12 * step_size) if smoothness is None else smoothness
    validate.positive("smoothness", smoothness)
    grad_var = float(bound.max() ** 2) if grad_var is None else grad_var
    validate.not_negative("grad_var", grad_var)
    factors = bound_constants(constants, step_size, smoothness)
    total = assemble(  # CARES (12)
        initial_gap_term(factors, loss_gap, step_size, seen.bias.size),
        factors.variance * step_size * grad_var,
        factors.noise * step_size * num_params * np.mean(seen.noise**2),
        factors.truncation * np.mean(seen.bias),
    )
    worst = int(np.argmax(seen.cost))
    return SequenceCertificate(
        "certificate" if predictable else "realised_bound",
        seen.bias.size,
        total,
        bool(total.total < (weights @ bound) ** 2),
        seen.bias,
        seen.dropped_weight,
        seen.cost,
        worst,
        float(eps_of(accounting, seen.cost[worst], delta)),
        _notes(predictable),
    )


def _rounds(rx_scale: ArrayLike) -> Floats:
    scale = np.asarray(rx_scale, float)
    if scale.ndim != 1 or scale.size == 0:
        raise InputError(f"rx_scale has shape {scale.shape} but must be a non-empty list, one per round")
    validate.positive("rx_scale", scale)
    return scale


def _weights(weights: ArrayLike) -> Floats:
    values = np.asarray(weights, float)
    if values.ndim != 1 or values.size == 0:
        raise InputError(f"weights has shape {values.shape} but must be a non-empty list, one per client")
    validate.not_negative("weights", values)
    validate.sums_to_one("weights", values, 1e-6)
    return values


def _table(name: str, value: ArrayLike, shape: tuple[int, int]) -> Floats:
    array = np.asarray(value, float)
    if array.shape not in (shape, shape[1:]):
        raise InputError(f"{name} has shape {array.shape} but must have shape {shape} or {shape[1:]}")
    return np.broadcast_to(array, shape)


def _received(amplitude: ArrayLike | None, scale: Floats, weights: Floats, shape: tuple[int, int]) -> Floats:
    """v (T, K): received weight of a client that sends."""
    if amplitude is None:
        return np.broadcast_to(weights, shape)
    table = _table("amplitude", amplitude, shape)
    validate.not_negative("amplitude", table)
    return table / scale[:, None]


def _silence(
    silent_prob: ArrayLike | None,
    channel_scale: ArrayLike | None,
    amplitude: Floats,
    bound: Floats,
    max_power: ArrayLike,
    shape: tuple[int, int],
) -> Floats:
    if silent_prob is not None:
        if channel_scale is not None:
            raise InputError("give silent_prob or channel_scale, not both")
        table = _table("silent_prob", silent_prob, shape)
        validate.in_closed("silent_prob", table, 0, 1)
        return table
    if channel_scale is None:
        return np.zeros(shape)
    validate.positive("channel_scale", channel_scale)
    validate.positive("max_power", max_power)
    rate = drop_rate(amplitude, _table("channel_scale", channel_scale, shape), bound, max_power)
    return drop_prob(np.ones(shape[0]), rate)  # the amplitude already holds the receive scaling


def _noise(name: str, value: ArrayLike, scale: Floats) -> Floats:
    validate.not_negative(name, value)
    array = np.asarray(value, float)
    if array.shape not in ((), scale.shape):
        raise InputError(f"{name} has shape {array.shape} but must be a number or have shape {scale.shape}")
    return np.broadcast_to(array, scale.shape)


def _sensitivity(sensitivity: ArrayLike | None, bound: Floats) -> Floats:
    if sensitivity is None:
        return 2 * bound
    validate.not_negative("sensitivity", sensitivity)
    return np.broadcast_to(np.asarray(sensitivity, float), bound.shape)


def _notes(predictable: bool) -> tuple[str, ...]:
    if predictable:
        return ()
    return (
        "realised_bound: the values of one run put into (12)-(13), not a certificate; if the sequence depends on data, "
        "the guarantee is the budget that the stop rule enforces, and eps here is what was spent",
    )
