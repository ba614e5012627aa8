"""`otafl plan biasvar`: optimal pre-scalers, what they buy, and what a wrong guess costs. No training."""

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import model_validator
from rich.console import Console
from rich.table import Table

from otafl import validate
from otafl.channels import PathLoss, dbm_to_w, from_db, load_devices, loss_db, to_db
from otafl.designs.biasvar import BoundParams, Design, Radio, bound_parts, normal_form, params_from_rho, solve_exact
from otafl.designs.biasvar_exact import objective, optimum
from otafl.designs.biasvar_frontier import frontier, sensitivity, young_split
from otafl.designs.biasvar_picture import pictures
from otafl.designs.biasvar_sca import solve_sca
from otafl.designs.biasvar_yardsticks import design_common_gamma, design_lcpc, design_min_noise, design_zero_bias
from otafl.errors import InputError
from otafl.files import FileModel, plain
from otafl.plan import Deployment, Message, Plan, Trace
from otafl.planners import Planner

_PLACES = ("devices", "gains", "distances_m", "snr_db")
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


class Inputs(FileModel):
    """Schema of FILE. Devices in one of four ways; rho, or kappa with L; the rest has the names of the design."""

    devices: str | None = None  # CSV or TOML of devices, beside FILE: gains (or distances), powers, data sizes
    gains: list[float] | None = None  # Lambda = E|h|^2, linear
    distances_m: list[float] | None = None
    snr_db: list[float] | None = None  # Lambda E_s / N0; pre-scalers then come in units of sqrt(N0)
    path_loss: PathLoss = PathLoss("biasvar")  # of distances
    weighting: Literal["equal", "samples"] = "equal"  # target weights; "samples" needs devices
    E_s: float | None = None  # J per complex sample, or power and bandwidth
    power_dbm: float | None = None
    bandwidth_hz: float | None = None
    N0: float | None = None  # J per complex sample, or:
    noise_dbm_per_hz: float | None = None
    d: int  # complex samples per round, one real parameter in each
    G: float  # gradient norm bound, enforced by clipping
    eta: float
    L: float | None = None
    kappa: float | None = None
    rho: float | None = None  # kappa^2 / (eta L G^2); the bound is then in units of eta L = 1 unless L is given
    sigma2: float | list[float] = 0.0
    noise_factor: float = 0.5
    strict: bool = False  # refuse eta L > 1
    solver: Literal["exact", "sca", "both"] = "exact"
    rounds: int | None = None  # T: optimisation part of the bound, and privacy
    gap0: float | None = None  # max_m f_m(w_0) - inf f_m
    delta: float | None = None  # with rounds: eps per device
    adjacency: Literal["replace", "zero-out"] = "replace"  # one client's whole message: 2 G, or G
    trusted_noise: float = 1.0  # share of the receiver noise that privacy may count
    frontier_points: int = 50
    frontier_rho: tuple[float, float] = (1e-3, 1e3)

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        places = [name for name in _PLACES if getattr(self, name) is not None]
        if len(places) != 1:
            raise InputError(f"exactly one of {', '.join(_PLACES)} must be given, got {places or 'none'}")
        if (self.rho is None) == (self.kappa is None):
            raise InputError("exactly one of rho and kappa must be given")
        if self.kappa is not None and self.L is None:
            raise InputError("kappa needs L: the design depends on kappa^2 / (eta L G^2)")
        if self.weighting == "samples" and self.devices is None:
            raise InputError("weighting='samples' needs devices, which state data sizes")
        if (self.delta is not None or self.gap0 is not None) and self.rounds is None:
            raise InputError("delta and gap0 need rounds")
        validate.whole("frontier_points", self.frontier_points, 2)
        validate.positive("frontier_rho", self.frontier_rho)
        validate.ascending("frontier_rho", self.frontier_rho)
        validate.in_closed("trusted_noise", self.trusted_noise, 0, 1)
        return self


class _Site(NamedTuple):
    names: list[str]
    radio: Radio
    par: BoundParams


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Solve, certify by the KKT residual, compare, and walk around the optimum."""
    site = _site(inputs, folder)
    radio, par = site.radio, site.par
    design = solve_sca(radio, par) if inputs.solver == "sca" else solve_exact(radio, par, inputs.strict)
    parts = bound_parts(design, radio, par, inputs.rounds, inputs.gap0)
    report = {
        "devices": _devices(site, design),
        "rho": par.rho,
        "noise_factor": par.noise_factor,
        "alpha": design.alpha,
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
        report["privacy"] = _privacy(inputs, site, design)
    result: dict[str, Any] = plain(report)
    return result


def _site(inputs: Inputs, folder: Path) -> _Site:
    noise = _noise(inputs)
    weights: Any = None
    if inputs.devices is not None:
        if inputs.bandwidth_hz is None:
            raise InputError("devices states powers in watts; bandwidth_hz is needed to turn them into energies")
        if inputs.E_s is not None or inputs.power_dbm is not None:
            raise InputError("E_s and power_dbm follow from the devices file; give one of the two")
        validate.positive("bandwidth_hz", inputs.bandwidth_hz)
        listed = load_devices(folder / inputs.devices, inputs.path_loss)
        names, gains, energy = list(listed.names), listed.mean_power_gain, listed.power_w / inputs.bandwidth_hz
        if inputs.weighting == "samples":
            weights = listed.samples / listed.samples.sum()
    else:
        energy = np.array(_energy(inputs))
        gains = _gains(inputs, float(energy), noise)
        names = [f"device-{k}" for k in range(1, gains.size + 1)]
    radio = Radio(gains, energy, noise, inputs.d)
    sigma2 = np.asarray(inputs.sigma2, float)
    validate.positive("eta", inputs.eta)
    validate.positive("G", inputs.G)
    rest: dict[str, Any] = {"sigma2": sigma2, "noise_factor": inputs.noise_factor, "weights": weights}
    if inputs.kappa is not None:
        return _Site(names, radio, BoundParams(inputs.G, inputs.eta, inputs.L or math.nan, inputs.kappa, **rest))
    smoothness = 1 / inputs.eta if inputs.L is None else inputs.L
    assert inputs.rho is not None
    return _Site(names, radio, params_from_rho(inputs.rho, inputs.G, inputs.eta, smoothness, **rest))


def _gains(inputs: Inputs, energy: float, noise: float) -> np.ndarray:
    if inputs.gains is not None:
        return np.array(inputs.gains, float)
    if inputs.distances_m is not None:
        validate.positive("distances_m", inputs.distances_m)
        return np.asarray(from_db(-loss_db(inputs.path_loss, inputs.distances_m)), float)
    return np.asarray(from_db(np.array(inputs.snr_db, float)), float) * noise / energy


def _energy(inputs: Inputs) -> float:
    if inputs.E_s is not None:
        if inputs.power_dbm is not None:
            raise InputError("give E_s, or power_dbm with bandwidth_hz, not both")
        return inputs.E_s
    if inputs.power_dbm is not None:
        if inputs.bandwidth_hz is None:
            raise InputError("power_dbm needs bandwidth_hz: energy per sample is power / bandwidth")
        validate.positive("bandwidth_hz", inputs.bandwidth_hz)
        return float(dbm_to_w(inputs.power_dbm)) / inputs.bandwidth_hz
    if inputs.snr_db is not None:
        return 1.0
    raise InputError("E_s, or power_dbm with bandwidth_hz, is missing")


def _noise(inputs: Inputs) -> float:
    given = [name for name in ("N0", "noise_dbm_per_hz") if getattr(inputs, name) is not None]
    if len(given) == 2 or (not given and inputs.snr_db is None):
        raise InputError(f"exactly one of N0 and noise_dbm_per_hz must be given, got {given or 'none'}")
    if inputs.noise_dbm_per_hz is not None:
        return float(dbm_to_w(inputs.noise_dbm_per_hz))
    return 1.0 if inputs.N0 is None else inputs.N0


def _devices(site: _Site, design: Design) -> list[dict[str, Any]]:
    snr_db = to_db(2 * normal_form(site.radio, site.par).scale ** 2)
    columns = zip(site.names, site.radio.gains, snr_db, design.gamma, design.u, design.tx_prob, design.p)
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


def _privacy(inputs: Inputs, site: _Site, design: Design) -> dict[str, Any]:
    """eps per device after `rounds` full rounds: receiver noise is all the noise there is."""
    from otafl.privacy.events import events, inverse_square
    from otafl.privacy.gaussian import eps

    assert inputs.delta is not None and inputs.rounds is not None
    count, radio = design.gamma.size, site.radio
    rms = np.sqrt(radio.gains)[None]
    noise_var = radio.N0 / 2
    energy = np.broadcast_to(np.asarray(radio.E_s, float) * radio.d, (count,))
    deployment = Deployment(energy, noise_var, noise_var * inputs.trusted_noise, design.p, radio.d)
    one_round = Plan(design.gamma / rms + 0j, rms * 0j, np.full((1, count), np.inf), np.array([design.alpha]),
                     design.tx_prob, np.ones(1, bool))  # fmt: skip
    reach = (2 if inputs.adjacency == "replace" else 1) * inputs.G
    message = Message(radio.d, inputs.G, np.full(count, inputs.G**2), np.full(count, reach), np.ones(count), "client",
                      inputs.adjacency)  # fmt: skip
    trace = Trace(rms + 0j, rms + 0j, rms, rms, rms, rms, np.zeros((1, count)))
    per_round = inverse_square(events(one_round, trace, deployment, message))[0]
    return {
        "eps": eps(np.sqrt(inputs.rounds * per_round), inputs.delta),
        "noise_multiplier": 1 / np.sqrt(per_round),
        "delta": inputs.delta,
        "rounds": inputs.rounds,
        "unit": "client",
        "adjacency": inputs.adjacency,
        "accountant": "exact Gaussian, every round charged in full",
        "trusted": f"{inputs.trusted_noise:.0%} of the receiver noise; silence amplifies nothing, the server sees it",
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
    table = Table("device", "SNR dB", "pre-scaler gamma", "u", "P(send)", "weight p", *(["eps"] if eps else []))
    for k, row in enumerate(report["devices"]):
        numbers = [f"{row['snr_db']:.1f}", f"{row['gamma']:.4g}", *(f"{row[key]:.4f}" for key in ("u", "tx_prob", "p"))]
        table.add_row(row["name"], *numbers, *([_number(eps[k])] if eps else []))
    console.print(table)
    bound = Table("part of the bound", "value")
    for name, value in report["bound"].items():
        bound.add_row(name, "needs rounds and gap0" if value is None else f"{value:.4g}")
    console.print(bound)
    console.print("The bound ranks designs; it is far too loose to predict a gradient norm.")
    others = Table("design", "J_n", "over optimum", "transmission", "mini-batch", "noise", "bias")
    for row in report["yardsticks"]:
        terms = (f"{row[key]:.4g}" for key in ("transmission", "minibatch", "noise", "bias"))
        others.add_row(row["design"], f"{row['normal_objective']:.4g}", f"{row['ratio']:.3f}", *terms)
    console.print(others)
    if report["sensitivity"]:
        wrong = Table("if the true value is", *(f"x{factor:g}" for factor in report["sensitivity"]["factor"]))
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
        console.print(
            f"eps at delta = {card['delta']:g} after {card['rounds']} rounds, {card['unit']} level, "
            f"{card['adjacency']} adjacency; {card['accountant']}; trusted: {card['trusted']}"
        )


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


PLANNER = Planner(
    summary="bias-variance power control: globally optimal pre-scalers, their bound, frontier and sensitivity",
    inputs=Inputs,
    example=(Path(__file__).parent / "examples" / "biasvar.toml").read_text(encoding="utf-8"),
    plan=plan,
    show=show,
    pictures=pictures,
)
