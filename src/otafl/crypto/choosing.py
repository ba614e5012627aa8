"""Choose grid, scale and share noise from what is wanted, or say which constraint forbids it. NumPy, float64.

Lambda is the least power of two that keeps the decoded standard deviation, flooding included, below tau. f is then the
largest that leaves headroom for the message, the failure check and the guard copies.
"""

import dataclasses
import math
from typing import NamedTuple

from otafl.core import validate
from otafl.core.errors import Infeasible
from otafl.crypto.budget import (
    Fading,
    Headroom,
    air_gain,
    average_variance,
    decode_bits,
    headroom,
    smudging_sigma,
)
from otafl.crypto.feasibility import accepted_snr_db
from otafl.crypto.parameters import WIDEST_BITS, Parameters

RESIDUE_BITS = 60  # more than the key-dependent residue of any plausible channel


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


def smallest_scale(
    p: Parameters, channel: Fading, smudging_bits: float, tau: float, mode: str, h_floor: float | None = None
) -> int:
    """log2 of the least power-of-two Lambda with decoded std <= tau, flooding included."""
    unit = dataclasses.replace(p, scale_bits=0)
    std = math.sqrt(average_variance(flooded(unit, channel, smudging_bits, mode, h_floor), channel, mode))
    return max(0, math.ceil(math.log2(std / tau)))


def plan_parameters(
    p: Parameters,
    channel: Fading,
    lambda_s: float,
    tau: float,
    mode: str = "fixed-point",
    f: int | None = None,
    snr_db_max: float | None = None,
    h_floor: float | None = None,
) -> Choice:
    """Parameters like `p` with f, Lambda and sigma_phi chosen for lambda_s smudging bits and decoded std tau.

    `f` fixes the grid; `snr_db_max` raises Lambda until the SNR of EEZOFL 7.2 is met; `h_floor` as in `smudging_sigma`.
    Raises `Infeasible` with the binding constraint.
    """
    validate.positive("tau", tau)
    validate.positive("lambda_s", lambda_s)
    wish = _Wish(p, channel, lambda_s, tau, mode, f, snr_db_max, h_floor)
    trial, room = _best(wish)
    if room.least < 0:
        raise _infeasible(wish, trial, room)
    std = math.sqrt(average_variance(trial, channel, mode))
    return Choice(trial, room, std, lambda_s, _snr_db(trial, channel, tau, mode))


class _Wish(NamedTuple):
    """The arguments of `plan_parameters`."""

    p: Parameters
    channel: Fading
    lambda_s: float
    tau: float
    mode: str
    f: int | None
    snr_db_max: float | None
    h_floor: float | None


def _best(wish: _Wish) -> tuple[Parameters, Headroom]:
    """The largest f that fits with its headroom, or the last one tried."""
    p, channel, mode = wish.p, wish.channel, wish.mode
    widest = WIDEST_BITS - RESIDUE_BITS - math.ceil(wish.lambda_s)  # flooding: 2^(f + lambda_s) times the residue
    most = 0 if mode == "digital" else max(0, min(int(p.log2_q), widest))
    for bits in [wish.f] if wish.f is not None else range(most, -1, -1):
        trial = dataclasses.replace(p, f=bits)
        scale = smallest_scale(trial, channel, wish.lambda_s, wish.tau, mode, wish.h_floor)
        if wish.snr_db_max is not None:
            scale = max(scale, _scale_for_snr(trial, channel, wish.tau, mode, wish.snr_db_max))
        trial = flooded(dataclasses.replace(trial, scale_bits=scale), channel, wish.lambda_s, mode, wish.h_floor)
        room = headroom(trial, channel, mode)
        if room.least >= 0:
            break
    return trial, room


def _snr_db(p: Parameters, channel: Fading, tau: float, mode: str) -> float:
    return accepted_snr_db(p.log2_q, p.scale_bits, tau, p.ring.n, channel.S_O, air_gain(p, channel, mode))


def _scale_for_snr(p: Parameters, channel: Fading, tau: float, mode: str, snr_db_max: float) -> int:
    at_one = _snr_db(dataclasses.replace(p, scale_bits=0), channel, tau, mode)
    return 0 if at_one <= snr_db_max else math.ceil((at_one - snr_db_max) / (20 * math.log10(2)))


def _relaxations(wish: _Wish) -> dict[str, float]:
    """Changes each of which alone makes a plan possible, tried out: whole f and bits, tau and Mmax by powers of two."""
    p, grid = wish.p, wish.f or 0  # a plan that fits at any f fits at f = 0

    def fits(eased: _Wish) -> bool:
        return _best(eased._replace(f=eased.f or 0))[1].least >= 0

    ways: dict[str, list[tuple[float, _Wish]]] = {
        "f": [(f, wish._replace(f=f)) for f in range(grid - 1, -1, -1)],
        "Mmax": [(M, wish._replace(p=dataclasses.replace(p, Mmax=M))) for M in (p.Mmax / 2.0**k for k in range(1, 41))],
        "smudging_bits": [(s, wish._replace(lambda_s=s)) for s in range(math.ceil(wish.lambda_s) - 1, 0, -1)],
        "tau": [(tau, wish._replace(tau=tau)) for tau in (wish.tau * 2.0**k for k in range(1, 41))],
        "guard": [(0, wish._replace(p=dataclasses.replace(p, guard=False)))] if p.guard else [],
    }
    first = {name: next((value for value, eased in way if fits(eased)), None) for name, way in ways.items()}
    return {name: float(value) for name, value in first.items() if value is not None}


def _infeasible(wish: _Wish, p: Parameters, room: Headroom) -> Infeasible:
    now = {"f": p.f, "Mmax": p.Mmax, "smudging_bits": wish.lambda_s, "tau": wish.tau}
    relax = _relaxations(wish)
    remedies = [
        f"{'raise' if name == 'tau' else 'lower'} {name} from {now[name]:g} to {value:.6g}"
        for name, value in relax.items()
        if name != "guard"
    ]
    remedies += ["send no guard copy (guard = false)"] if "guard" in relax else []
    remedies.append("take a larger ring")
    report = {
        "binding": room.binding,
        "missing_bits": -room.least,
        "f": p.f,
        "Lambda_log2": p.scale_bits,
        "decode_log2": decode_bits(p, wish.mode),
        "log2_q": p.log2_q,
        "relax": relax,
        "relaxations": remedies,
    }
    return Infeasible(
        f"q=2^{p.log2_q:.1f} is {-room.least:.1f} bits too small at f={p.f}, Lambda=2^{p.scale_bits} "
        f"(binding: {room.binding}): {'; or '.join(remedies)}",
        report,
    )
