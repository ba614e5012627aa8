"""Choose grid, scale and share noise from what is wanted, or say which constraint forbids it. NumPy, float64.

Lambda is the least power of two that keeps the decoded standard deviation, flooding included, below tau. f is then the
largest that leaves headroom for the message, the failure check and the guard copies.
"""

import dataclasses
import math
from typing import NamedTuple

from otafl import validate
from otafl.crypto.budget import (
    TINY,
    Fading,
    Headroom,
    average_variance,
    decode_bits,
    headroom,
    smudging_sigma,
)
from otafl.crypto.feasibility import accepted_snr_db
from otafl.crypto.parameters import Parameters
from otafl.errors import Infeasible


class Choice(NamedTuple):
    parameters: Parameters
    headroom: Headroom
    decoded_std: float
    smudging_bits: float
    snr_db: float  # needed per device for tau


def flooded(
    p: Parameters, channel: Fading, smudging_bits: float, mode: str, h_floor: float | None = None
) -> Parameters:
    """`p` with the share noise that gives `smudging_bits`."""
    return dataclasses.replace(p, sigma_phi=smudging_sigma(p, channel, smudging_bits, mode, h_floor))


def smallest_scale(p: Parameters, channel: Fading, smudging_bits: float, tau: float, mode: str) -> int:
    """log2 of the least power-of-two Lambda with decoded std <= tau, flooding included."""
    unit = dataclasses.replace(p, scale_bits=0, sigma_phi=TINY)
    std = math.sqrt(average_variance(flooded(unit, channel, smudging_bits, mode), channel, mode))
    return max(0, math.ceil(math.log2(std / tau)))


def plan_parameters(
    p: Parameters,
    channel: Fading,
    lambda_s: float,
    tau: float,
    mode: str = "fixed-point",
    f: int | None = None,
    snr_db_max: float | None = None,
) -> Choice:
    """Parameters like `p` with f, Lambda and sigma_phi chosen for lambda_s smudging bits and decoded std tau.

    `f` fixes the grid; `snr_db_max` raises Lambda until the SNR of EEZOFL 7.2 is met. Raises `Infeasible` with the
    binding constraint.
    """
    validate.positive("tau", tau)
    validate.positive("lambda_s", lambda_s)
    most = 0 if mode == "digital" else int(p.log2_q)
    candidates = [f] if f is not None else range(most, -1, -1)
    last: tuple[Parameters, Headroom] | None = None
    for bits in candidates:
        trial = dataclasses.replace(p, f=bits)
        scale = smallest_scale(trial, channel, lambda_s, tau, mode)
        if snr_db_max is not None:
            scale = max(scale, _scale_for_snr(trial, channel, tau, snr_db_max))
        trial = flooded(dataclasses.replace(trial, scale_bits=scale), channel, lambda_s, mode)
        room = headroom(trial, channel, mode)
        last = trial, room
        if room.least >= 0:
            std = math.sqrt(average_variance(trial, channel, mode))
            snr = accepted_snr_db(p.log2_q, scale, tau, p.ring.n, channel.S_O)
            return Choice(trial, room, std, lambda_s, snr)
    assert last is not None
    raise _infeasible(*last, mode, lambda_s, tau)


def _scale_for_snr(p: Parameters, channel: Fading, tau: float, snr_db_max: float) -> int:
    at_one = accepted_snr_db(p.log2_q, 0, tau, p.ring.n, channel.S_O)
    return max(0, math.ceil((at_one - snr_db_max) / (20 * math.log10(2))))


def _infeasible(p: Parameters, room: Headroom, mode: str, lambda_s: float, tau: float) -> Infeasible:
    short = -room.least
    wanted = decode_bits(p, mode)
    remedies = [f"raise tau from {tau:g} to {tau * 2**short:.3g}", "take a larger ring"]
    if lambda_s > short:
        remedies.insert(0, f"lower smudging_bits from {lambda_s:g} to {math.floor(lambda_s - short):d}")
    if room.binding == "message":
        remedies.insert(0, f"lower Mmax from {p.Mmax:g} to {p.Mmax / 2**short:.3g}")
    if p.f > 0:
        remedies.insert(0, f"lower f from {p.f} to {max(0, p.f - math.ceil(short / 2))}")
    if room.binding == "guard":
        remedies.append("send no guard copy (guard = false)")
    report = {
        "binding": room.binding,
        "missing_bits": short,
        "f": p.f,
        "Lambda_log2": p.scale_bits,
        "decode_log2": wanted,
        "log2_q": p.log2_q,
        "relaxations": remedies,
    }
    return Infeasible(
        f"q=2^{p.log2_q:.1f} is {short:.1f} bits too small at f={p.f}, Lambda=2^{p.scale_bits} "
        f"(binding: {room.binding}): {'; or '.join(remedies)}",
        report,
    )
