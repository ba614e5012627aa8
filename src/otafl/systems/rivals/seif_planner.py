"""`otafl plan seif`: how much of the energy becomes artificial noise, round by round. No training."""

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from otafl.core import validate
from otafl.core.files import plain
from otafl.core.plan import Message
from otafl.privacy import Budget, calibrate
from otafl.privacy.attack import worth
from otafl.privacy.card_text import round_up
from otafl.privacy.zcdp import classic_eps
from otafl.systems.planning import Asked, Planner, example
from otafl.systems.rivals.planner_inputs import (
    Site,
    checked,
    covered,
    gains_of,
    idle,
    per_client,
    site_keys,
    weights_of,
)
from otafl.systems.rivals.split import noise_per_square, power_split
from otafl.systems.rivals.target import round_multiplier
from otafl.systems.screen import say_remarks


class Inputs(Site):
    """Schema of FILE."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        **{"K": "num_clients", "T": "rounds", "G": "clip_norm", "p": "weights", "E": "max_energy", "h": "gain"},
        **{"Delta": "sensitivity", "clients": "num_clients", "d": "num_params", "z": "multiplier"},
    }
    num_params: int
    multiplier: float | None = None  # noise over sensitivity of every round; default: for eps over all rounds, zCDP


def keys(asked: Asked) -> dict[str, Any]:
    """What FILE would say of an experiment; FILE's own target is counted anew."""
    multiplier = asked.config.multiplier
    if multiplier is None and not asked.own.keys() & {"eps", "delta", "rounds", "weights", "clip_norm", "sensitivity"}:
        multiplier = round_multiplier("seif", asked.deployment, asked.message, asked.context)
    return site_keys(asked) | {"num_params": asked.deployment.dim, "multiplier": multiplier}


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """The split of every round, and what sending less would have given."""
    checked(inputs)
    validate.whole("num_params", inputs.num_params, 1, 10**10)
    weights = weights_of(inputs)
    count = len(weights)
    gain, energy = gains_of(inputs, count), per_client("max_energy", inputs.max_energy, count)
    sensitivity = np.full(count, inputs.sensitivity or 2 * inputs.clip_norm)
    multiplier = inputs.multiplier
    if multiplier is None:
        ones = np.ones(count)
        message = Message(inputs.num_params, inputs.clip_norm, ones, sensitivity, ones, "client", "replace")
        target = Budget(inputs.eps, inputs.delta, "zcdp", adjacency="replace")
        multiplier = calibrate(target, inputs.rounds, message, weights)
    noise, trusted = inputs.noise_std**2, inputs.trusted_share * inputs.noise_std**2
    found = power_split(
        gain, energy=energy, weights=weights, bound=inputs.clip_norm, dim=inputs.num_params, trusted_noise_var=trusted,
        sensitivity=sensitivity, multiplier=multiplier,
    )  # fmt: skip
    needed = noise_per_square(weights, sensitivity, multiplier)
    less = needed * noise / trusted if trusted else np.inf
    with np.errstate(divide="ignore"):
        update_noise = (noise + found.artificial) / found.square
    return plain({
        "multiplier": multiplier, "square": found.square, "artificial_var": found.artificial,
        "shares": found.shares.mean(0), "receiver_var": noise, "trusted_var": trusted,
        "update_noise_var": update_noise,  # per coordinate of the update, with all of the receiver's noise
        "reduced_power": {"square": trusted / needed, "update_noise_var": less},
        "rounds_with_noise": int(np.sum(found.artificial > 0)), "rounds": inputs.rounds,
        "eps": classic_eps(inputs.rounds / (2 * multiplier**2), inputs.delta), "delta": inputs.delta,
        "accountant": "zcdp",
        "notes": ["others' noise is counted: no local privacy, and none against clients that collude",
                  covered(inputs), *idle(inputs)],
    })  # fmt: skip


def show(report: dict[str, Any], console: Console) -> None:
    """How often noise is needed, and whether it pays."""
    ours = np.asarray(report["update_noise_var"], float)
    console.print(
        f"[bold]noise multiplier {report['multiplier']:.6g}[/bold] in each of {report['rounds']} rounds; artificial "
        f"noise in {report['rounds_with_noise']}"
    )
    console.print(f"  ε = {round_up(report['eps'])} at δ = {report['delta']:g} (zcdp)")
    console.print(f"  {worth(math.sqrt(report['rounds']) / report['multiplier'])}")
    console.print(
        f"  noise variance of the update: median {np.median(ours):.4g}, worst {ours.max():.4g} per coordinate"
    )
    less = report["reduced_power"]["update_noise_var"]
    found = "nothing, no receiver noise is trusted", f"{float(less):.4g}, where energy does not bind"
    told = found[bool(np.isfinite(float(less)))]
    console.print(f"  with less power instead of noise: {told}")
    say_remarks(console, notes=report["notes"])


PLANNER = Planner(Inputs, keys, example(__file__, "seif"), plan, show, errors=True)
