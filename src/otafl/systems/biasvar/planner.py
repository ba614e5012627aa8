"""`otafl plan biasvar`: optimal pre-scalers, what they buy, and what a wrong guess costs. No training."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.channels import to_db
from otafl.core.files import plain
from otafl.core.plan import Deployment, Message, Plan, Trace
from otafl.privacy.attack import equivalent_mu, worth
from otafl.privacy.card_text import round_up
from otafl.privacy.events import events, inverse_square
from otafl.privacy.gaussian import eps as gaussian_eps
from otafl.systems.biasvar.design import BoundParams, Design, Radio, bound_parts, normal_form, solve_exact, unit
from otafl.systems.biasvar.exact import objective, optimum
from otafl.systems.biasvar.from_experiment import keys
from otafl.systems.biasvar.picture import pictures
from otafl.systems.biasvar.planner_inputs import Inputs, Site, site
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.tradeoff import frontier, sensitivity, young_split
from otafl.systems.biasvar.yardsticks import design_common_gamma, design_lcpc, design_min_noise, design_zero_bias
from otafl.systems.planning import Planner, example, unread, warned
from otafl.systems.screen import ROWS, Fitted, say, say_left_out, say_remarks, some_of

_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Solve, certify by the KKT residual, compare, and walk around the optimum."""
    with warned() as said:
        report = _report(inputs, site(inputs, folder))
    idle = unread(
        inputs,
        (inputs.distances_m is not None or inputs.devices is not None, "distances", ("path_loss",)),
        (inputs.power_dbm is not None or inputs.devices is not None, "power_dbm or devices", ("bandwidth_hz",)),
        (inputs.delta is not None, "delta, which asks for eps", ("adjacency", "trusted_noise")),
    )
    return plain({**report, "warnings": said + idle})


def _report(inputs: Inputs, place: Site) -> dict[str, Any]:
    radio, par = place.radio, place.par
    design = solve_sca(radio, par) if inputs.solver == "sca" else solve_exact(radio, par, inputs.strict)
    parts = bound_parts(design, radio, par, inputs.rounds, inputs.gap0)
    report = {
        "devices": _devices(place, design),
        **_symbols(place, design),
        "bound": {**parts._asdict(), "total": sum(parts[int(math.isnan(parts.optimisation)) :])},
        "objective": design.objective,
        "normal_objective": design.normal_objective,
        "solver": design.solver,
        "status": design.status,
        "iterations": design.iterations,
        "kkt_residual": design.kkt_residual,
        "history": list(design.history),
        "yardsticks": _yardsticks(radio, par),
        "lcpc": design_lcpc(radio, par)._asdict(),
        "sensitivity": _sensitivity(radio, par),
        "frontier": _frontier(inputs, radio, par),
    }
    if inputs.solver == "both":
        sca = solve_sca(radio, par)
        gap = sca.normal_objective / design.normal_objective - 1
        report["sca"] = {"status": sca.status, "iterations": sca.iterations, "gap": gap, "history": list(sca.history)}
    if inputs.rounds is not None and inputs.gap0 is not None and math.isfinite(par.kappa):
        split = young_split(radio, par, inputs.rounds, inputs.gap0)
        report["young_split"] = {"c": split.c, "bound": split.bound, "printed": split.printed, "p": split.design.p}
    if inputs.delta is not None:
        report["privacy"] = _privacy(inputs, place, design)
    return report


def _symbols(place: Site, design: Design) -> dict[str, Any]:
    """The design under the paper's symbols: numbers, and lists with one entry per device."""
    radio, par = place.radio, place.par
    problem = normal_form(radio, par)
    gamma_max = unit(radio, par) * problem.scale
    variance = design.parts.transmission + design.parts.minibatch + design.parts.noise
    return {
        "N": len(place.names),
        "d": radio.d,
        "G": par.G,
        "eta": par.eta,
        "L": par.L,
        "kappa": par.kappa,
        "rho": par.rho,
        "noise_factor": par.noise_factor,
        "Lambda": radio.gains,
        "SNR": 2 * problem.scale**2,
        "gamma": design.gamma,
        "gamma_max": gamma_max,
        "u": design.u,
        "P": design.tx_prob,
        "alpha_m": design.gamma * design.tx_prob,
        "alpha_max": gamma_max / math.sqrt(math.e),
        "alpha": design.alpha,
        "p": design.p,
        "zeta": variance / (2 * par.eta * par.L),
        "J": design.objective,
        "J_n": design.normal_objective,
    }


def _devices(place: Site, design: Design) -> list[dict[str, Any]]:
    snr_db = to_db(2 * normal_form(place.radio, place.par).scale ** 2)
    columns = zip(place.names, place.radio.gains, snr_db, design.gamma, design.u, design.tx_prob, design.p)
    keys = ("name", "gain", "snr_db", "gamma", "u", "tx_prob", "p")
    return [dict(zip(keys, row)) for row in columns]


def _yardsticks(radio: Radio, par: BoundParams) -> list[dict[str, Any]]:
    """J_n of every design of the same shape, with the price over the optimum."""
    best = solve_exact(radio, par)
    rows = []
    for made in (best, design_common_gamma(radio, par), design_zero_bias(radio, par), design_min_noise(radio, par)):
        parts = {name: value for name, value in made.parts._asdict().items() if name != "optimisation"}
        ratio = made.normal_objective / best.normal_objective
        rows.append({"design": made.solver, "normal_objective": made.normal_objective, "ratio": ratio, **parts})
    return rows


def _sensitivity(radio: Radio, par: BoundParams) -> dict[str, Any]:
    """J over its minimum when the truth is a factor off what was assumed, and the table of E19 around rho."""
    if not 0 < par.rho < math.inf:
        return {}
    chosen = optimum(normal_form(radio, par)).u

    def price(true_rho: float) -> float:
        problem = normal_form(radio, par, true_rho)
        return float(objective(problem, chosen) / optimum(problem).objective)

    rhos = [par.rho * factor for factor in _FACTORS]
    return {
        "factor": list(_FACTORS),
        "true_kappa": [price(par.rho * factor**2) for factor in _FACTORS],
        "true_L": [price(par.rho / factor) for factor in _FACTORS],
        "rho": rhos,
        "table": sensitivity(radio, par, rhos, [*rhos, np.inf]),  # rows: truth, columns: assumed, last: zero bias
    }


def _frontier(inputs: Inputs, radio: Radio, par: BoundParams) -> dict[str, Any]:
    inner = np.geomspace(*inputs.frontier_rho, inputs.frontier_points)
    line = frontier(radio, par, [0.0, *inner, np.inf])
    here = frontier(radio, par, [par.rho])
    worst = frontier(radio, par, [1 / (par.eta * par.L)])
    points = {"rho": line.rho, "bias": line.bias, "variance": line.variance, "kkt_residual": line.kkt_residual}
    return {
        **points,
        "design": {"bias": here.bias[0], "variance": here.variance[0]},
        "kappa_equals_G": {"bias": worst.bias[0], "variance": worst.variance[0]},
    }


def _privacy(inputs: Inputs, place: Site, design: Design) -> dict[str, Any]:
    """eps per device after `rounds` full rounds: receiver noise is all the noise there is."""
    assert inputs.delta is not None and inputs.rounds is not None
    count, radio = design.gamma.size, place.radio
    rms = np.sqrt(radio.gains)[None]
    noise_var = radio.N0 / 2
    energy = np.broadcast_to(np.asarray(radio.E_s, float) * radio.d, (count,))
    deployment = Deployment(energy, noise_var, noise_var * place.trusted_noise, design.p, radio.d)
    one_round = Plan(design.gamma / rms + 0j, rms * 0j, np.full((1, count), np.inf), np.array([design.alpha]),
                     design.tx_prob, np.ones(1, bool))  # fmt: skip
    reach = (2 if inputs.adjacency == "replace" else 1) * inputs.G
    message = Message(radio.d, inputs.G, np.full(count, inputs.G**2), np.full(count, reach), np.ones(count), "client",
                      inputs.adjacency)  # fmt: skip
    trace = Trace(rms + 0j, rms + 0j, rms, rms, rms, rms, np.zeros((1, count)))
    per_round = inverse_square(events(one_round, trace, deployment, message))[0]
    return {
        "eps": gaussian_eps(np.sqrt(inputs.rounds * per_round), inputs.delta),
        "noise_multiplier": 1 / np.sqrt(per_round),
        "delta": inputs.delta,
        "rounds": inputs.rounds,
        "unit": "client",
        "adjacency": inputs.adjacency,
        "accountant": "exact Gaussian, every round charged in full",
        "trusted": f"{place.trusted_noise:.0%} of the receiver noise; silence amplifies nothing, the server sees it",
    }


def show(report: dict[str, Any], console: Console) -> None:
    """Devices, bound, yardsticks, sensitivity, privacy."""
    residual = report["kkt_residual"]
    certificate = "" if residual is None else f", KKT residual {residual:.1e}"
    console.print(
        f"bias-variance design: rho = {report['rho']:.4g}, J_n = {report['normal_objective']:.4g}, "
        f"alpha = {report['alpha']:.4g}; {report['solver']} solver, {report['iterations']} steps, "
        f"{report['status']}{certificate}"
    )
    eps = report.get("privacy", {}).get("eps")
    shown = _shown(report["devices"], eps)
    heads = ("device", "SNR dB", "pre-scaler", "P(send)", "weight p", *(["eps"] if eps else []), "u")
    console.print(Fitted.of(heads, (_cells(report["devices"][k], eps and eps[k]) for k in shown), words=("device",)))
    say_left_out(console, len(shown), len(report["devices"]), "devices, the weakest first")
    bound = Fitted("part of the bound", "value")
    for name, value in report["bound"].items():
        bound.add_row(name, "needs rounds and gap0" if value is None else f"{value:.4g}")
    console.print(bound)
    console.print("The bound ranks designs; it is far too loose to predict a gradient norm.")
    terms = ("normal_objective", "ratio", "transmission", "noise", "bias", "minibatch")
    others = ([row["design"], *(f"{row[key]:.4g}" for key in terms)] for row in report["yardsticks"])
    heads = ("design", "J_n", "J_n/best", "transmission", "noise", "bias", "mini-batch")
    console.print(Fitted.of(heads, others, words=("design",)))
    if report["sensitivity"]:
        wrong = Fitted("if the true value is", *(f"x{factor:g}" for factor in report["sensitivity"]["factor"]))
        for name, key in (("kappa", "true_kappa"), ("L", "true_L")):
            wrong.add_row(f"{name}: J over its minimum", *(f"{value:.3f}" for value in report["sensitivity"][key]))
        console.print(wrong)
    if "sca" in report:
        sca = report["sca"]
        console.print(f"SCA: {sca['status']} after {sca['iterations']} iterations, {sca['gap']:.1e} above the optimum")
    if "young_split" in report:
        split = report["young_split"]
        console.print(
            f"bound with the best Young split, c = {split['c']:.3g}: {split['bound']:.4g} "
            f"(printed, c = 1: {split['printed']:.4g})"
        )
    if "privacy" in report:
        card = report["privacy"]
        worst = _worst(card["eps"])
        told = worth(equivalent_mu(card["eps"][worst], card["delta"]))
        say(console, f"largest eps: {round_up(card['eps'][worst])}, of {report['devices'][worst]['name']} ({told})")
        console.print(
            f"eps at delta = {card['delta']:g} after {card['rounds']} rounds, {card['unit']} level, "
            f"{card['adjacency']} adjacency; {card['accountant']}; trusted: {card['trusted']}"
        )
    say_remarks(console, report["warnings"])


def _shown(devices: list[dict[str, Any]], eps: Sequence[Any] | None) -> list[int]:
    """The devices to print; of many some from the weakest to the strongest, the one with the largest eps among them."""
    if len(devices) <= ROWS:
        return list(range(len(devices)))
    weakest_first = np.argsort([row["snr_db"] for row in devices], kind="stable").tolist()
    worst = [weakest_first.index(_worst(eps))] if eps else []
    return [weakest_first[rank] for rank in some_of(len(devices), worst)]


def _worst(eps: Sequence[Any]) -> int:
    return int(np.argmax(np.asarray(eps, float)))


def _cells(row: dict[str, Any], eps: Any) -> list[str]:
    numbers = [f"{row['snr_db']:.1f}", *(f"{row[key]:.4g}" for key in ("gamma", "tx_prob", "p"))]
    return [row["name"], *numbers, *([] if eps is None else [round_up(eps)]), f"{row['u']:.4g}"]


PLANNER = Planner(Inputs, keys, example(__file__, "biasvar"), plan, show, pictures)
