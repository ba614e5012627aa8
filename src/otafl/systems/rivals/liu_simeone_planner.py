"""`otafl plan liu-simeone`: how much power every round gets under one privacy budget. No training."""

import math
from bisect import bisect_left
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from rich.console import Console

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import Infeasible, InputError
from otafl.core.files import plain
from otafl.privacy import classic_budget, gaussian_budget
from otafl.privacy.attack import worth
from otafl.systems.planning import Asked, Planner, example, follows
from otafl.systems.rivals.allocation import Allocation, allocate, caps, paper_budget, price_of, worths
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
from otafl.systems.screen import say_remarks

BUDGETS = {"paper": paper_budget, "zcdp": classic_budget, "gaussian": gaussian_budget}


class Inputs(Site):
    """Schema of FILE."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        **{"K": "num_clients", "T": "rounds", "G": "clip_norm", "p": "weights", "E": "max_energy", "h": "gain"},
        **{"Delta": "sensitivity", "clients": "num_clients"},
    }
    conditioning: float = 0.01  # mu/L, in [0, 1)
    budget: Literal["paper", "zcdp", "gaussian"] = "zcdp"  # R by the paper's conversion, the classic or the exact one


def keys(asked: Asked) -> dict[str, Any]:
    """What FILE would say of an experiment; a declared gain error counts as that much more of the sensitivity."""
    follows(asked, access=("air",))
    budget, site = asked.own.get("budget", asked.context.accountant), site_keys(asked)
    if budget not in BUDGETS:
        raise InputError(
            f"liu-simeone: a budget by accountant={budget!r} is not planned in detail; `otafl plan FILE` charges it as "
            "the run does, budget under [plan] names one of this plan's own"
        )
    reach = site["sensitivity"] * (1 + float(asked.deployment.gain_error))
    return site | {"conditioning": asked.config.conditioning, "budget": budget, "sensitivity": reach}


def online(worth: Floats, price: float, cap: Floats, budget: float) -> Floats:
    """Squared amplitudes when each round is solved as if the rest had its limit."""
    out, left, shape = np.zeros(len(cap)), budget, np.sqrt(worth / price)
    before = np.concatenate([[0.0], np.cumsum(shape)])
    for t, limit in enumerate(cap):
        if limit > 0 and left > 0:
            out[t] = _first(left / price, float(limit), shape, before, t)
            left -= price * out[t]
    return out


def _first(left: float, limit: float, shape: Floats, before: Floats, t: int) -> float:
    """`allocate(...).square[0]` of the rounds from t on, all with one limit, in log T steps.

    Later rounds are worth no less: the last are at the limit, and the others share what those leave.
    """
    count = len(shape)

    def level(full: int) -> float:
        return float((left - full * limit) / (before[count - full] - before[t]))

    full = bisect_left(range(count - t), True, key=lambda full: level(full) * shape[count - 1 - full] <= limit)
    return limit if full == count - t else min(limit, level(full) * float(shape[t]))


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """(F1) of every round; what the same budget does online and at one power."""
    checked(inputs)
    validate.in_left_open("trusted_share", inputs.trusted_share, 0, 1)
    weights = weights_of(inputs)
    gain, energy = gains_of(inputs, len(weights)), per_client("max_energy", inputs.max_energy, len(weights))
    trusted = inputs.trusted_share * inputs.noise_std**2
    sensitivity = np.full(len(weights), inputs.sensitivity or 2 * inputs.clip_norm)
    cap = caps(gain, energy, weights, inputs.clip_norm)
    if np.any(cap <= 0):
        raise Infeasible(f"round {int(np.argmin(cap))}: a client at gain 0 cannot be aligned; leave that round out")
    price, worth = price_of(weights, sensitivity, trusted), worths(inputs.rounds, inputs.conditioning)
    budget = float(BUDGETS[inputs.budget](inputs.eps, inputs.delta))
    found: Allocation = allocate(worth, np.full(inputs.rounds, price), cap, budget)
    even = np.minimum(cap.min(), budget / (price * inputs.rounds))
    by_round = online(worth, price, cap, budget)

    def objective(square: Floats) -> float:
        return float(np.sum(worth / square))

    return plain({
        "square": found.square, "amplitude": np.sqrt(found.square), "cap": cap, "price_of_privacy": found.price,
        "free": found.free, "budget": budget, "budget_rule": inputs.budget,
        "budgets": {name: float(rule(inputs.eps, inputs.delta)) for name, rule in BUDGETS.items()},
        "spent": price * float(np.sum(found.square)), "zcdp_per_square": price, "worth": worth,
        "objective": objective(found.square), "objective_online": objective(by_round),
        "objective_one_power": objective(np.full(inputs.rounds, even)), "online_square": by_round,
        "rounds_at_limit": int(np.sum(found.square >= cap * (1 - 1e-12))), "eps": inputs.eps, "delta": inputs.delta,
        "notes": ["hindsight: all channels are known in advance; online solves each round with its own limit",
                  covered(inputs), *idle(inputs)],
    })  # fmt: skip


def show(report: dict[str, Any], console: Console) -> None:
    """The level, who is at its limit, and what knowing the future is worth."""
    square = np.asarray(report["square"], float)
    free = "privacy is free: full power fits the budget" if report["free"] else "privacy binds"
    console.print(
        f"[bold]{free}[/bold]: zCDP {report['spent']:.6g} of {report['budget']:.6g} ({report['budget_rule']})"
    )
    console.print(f"  {worth(math.sqrt(2 * report['spent']))}")
    console.print(
        f"  amplitude {np.sqrt(square.min()):.4g} to {np.sqrt(square.max()):.4g}; {report['rounds_at_limit']} of "
        f"{len(square)} rounds at the weakest device's limit"
    )
    relative = (report[name] / report["objective"] for name in ("objective_online", "objective_one_power"))
    console.print("  noise in the loss over the optimum's: online {:.4g}, one power {:.4g}".format(*relative))
    said = ", ".join(f"{name} {value:.6g}" for name, value in report["budgets"].items())
    console.print(f"  budgets at eps {report['eps']:g}, delta {report['delta']:g}: {said}")
    say_remarks(console, notes=report["notes"])


def pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """Amplitudes over rounds with the weakest device's limit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, style, label in (("cap", ":", "limit"), ("square", "-", "hindsight"), ("online_square", "--", "online")):
        axes.plot(np.sqrt(np.asarray(report[name], float)), style, label=label)
    axes.set(yscale="log", xlabel="round", ylabel="amplitude c", title="Liu-Simeone: power over rounds")
    axes.legend()
    file = folder / "liu-simeone.png"
    figure.savefig(file, dpi=160)
    return [file]


PLANNER = Planner(Inputs, keys, example(__file__, "liu-simeone"), plan, show, pictures, errors=True)
