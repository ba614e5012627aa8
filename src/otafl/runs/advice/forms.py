"""The closed forms that advice.html recomputes: what moves how, from one computed plan. Host, float64.

They hold while nearly everybody is heard. `assets/advice.js` has the same forms; a test in a browser holds them equal.
"""

import math
from typing import Any, NamedTuple

from otafl.bounds import merit
from otafl.privacy import ACCOUNTANTS, Budget
from otafl.privacy.attack import FPR, tpr


class Base(NamedTuple):
    """One computed plan, reduced to what its closed forms start from."""

    eps: float
    delta: float
    accountant: str
    devices: int
    num_params: int
    rounds: int
    agreement: float
    efficiency: float  # e
    snr_unit: float  # S_max / (K mu): clip norm over sensitivity
    energy: float | None  # J per device and run; None where the forms do not say how it moves
    margin_db: float | None  # least distance from a device's power limit


class State(NamedTuple):
    """Where the sliders stand."""

    eps: float
    devices: int
    num_params: int
    rounds: int
    noise_db: float  # change of the receiver's noise


def mu_of(eps: float, delta: float, accountant: str) -> float:
    """The Gaussian mechanism that the target allows; accountants without a closed cap are taken as exact."""
    name = accountant if ACCOUNTANTS[accountant].cap is not None else "gaussian"
    return math.sqrt(2 * Budget(eps, delta, name).zcdp)


def base_of(question: Any, option: Any) -> Base:
    """From a ranked option. Energy follows the receiver's noise only where that is what protects."""
    row, value = option.row, option.merit
    mu = mu_of(question.eps, question.delta, question.accountant)
    receiver = row.noise_of == "receiver"
    return Base(
        question.eps, question.delta, question.accountant, question.site.num_devices, question.num_params,
        question.rounds, question.gamma, value.efficiency, value.snr_max / (question.site.num_devices * mu),
        row.energy_mean if receiver else None, row.power_margin_db if receiver else None,
    )  # fmt: skip


def forms(base: Base, at: State) -> dict[str, Any]:
    """S, Q, lift, attack success and energy at another state."""
    mu = mu_of(at.eps, base.delta, base.accountant)
    before = mu_of(base.eps, base.delta, base.accountant)
    snr_max = at.devices * mu * base.snr_unit
    snr = base.efficiency * snr_max
    q = merit.quality(snr, base.agreement, at.num_params)
    louder = (mu / before) ** 2 * 10 ** (at.noise_db / 10)  # energy of a run; a round has 1/T of it
    margin = None if base.margin_db is None else base.margin_db - 10 * math.log10(louder * base.rounds / at.rounds)
    return {
        "mu": mu, "snr_max": snr_max, "snr": snr, "quality": q, "lift": merit.lift(q, at.rounds),
        "tpr": float(tpr(mu, FPR)), "verdict": merit.verdict(q),
        "energy": None if base.energy is None else base.energy * louder, "margin_db": margin,
        "outside": merit.in_domain(at.num_params, at.rounds, at.devices),
    }  # fmt: skip
