"""`otafl plan cdpb`: the balancing parameter rho and the number of rounds tau for two targets. No training."""

import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator
from rich.console import Console
from rich.table import Table

from otafl import validate
from otafl.designs import cdpb
from otafl.designs.cdpb import Charge, Params, Scheme, Solution
from otafl.designs.cdpb_figures import fig2, plot_fig2
from otafl.errors import Infeasible, InputError
from otafl.files import FileModel, plain
from otafl.planners import Planner


class Inputs(FileModel):
    """Schema of FILE; the names are those of `otafl.designs.cdpb.Params` and `solve`."""

    K: int | None = None
    d: int
    W: float = 1.0
    P: float | list[float] | None = None
    sigma2: float | list[float] | None = None
    devices: str | None = None  # CSV, or TOML with [radio]: gives K, sigma2 and P (and sz2)
    sz2: float | None = None  # 0 unless a devices file says otherwise
    A: float = 4.0
    mu: float = 1.0
    a: float = 8.0
    M: float = 1.0
    L: int = 1
    D0: float = 1.0
    alpha: float = 2.0
    lam1: float = 1.0
    lam2: float = 1e-5
    gbar: float | None = 1e-2
    ebar: float | None = 100.0
    capped: bool = True
    strategy: Literal["idle", "noisy", "mixed"] = "idle"
    portion: float | None = None
    accounting: Literal["visible", "hidden", "none", "paper"] = "visible"
    adjacency: Literal["zero-out", "replace"] = "zero-out"
    trust_receiver_noise: bool = True
    assume_hidden: bool = False
    tau_cap: int | None = None
    bound: Literal["simple", "full", "printed"] = "simple"
    delta: float = 1e-5
    best_portion: bool = False
    seed: int = 0  # of the drawn channels behind the realised loss

    @model_validator(mode="after")
    def _clients_once(self) -> "Inputs":
        listed = [name for name in ("K", "P", "sigma2") if getattr(self, name) is not None]
        if self.devices is not None and listed:
            raise InputError(f"{', '.join(listed)} follow from the devices file; give one of the two")
        if self.devices is None and (self.K is None or self.sigma2 is None):
            raise InputError("K and sigma2 must be given, or a devices file")
        validate.in_open("delta", self.delta, 0, 1)
        return self


def _clients(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """K, sigma2, P and sz2: as given, or from a devices file (a .toml with [radio] brings the receiver noise too)."""
    if inputs.devices is None:
        as_given = {"K": inputs.K, "sigma2": inputs.sigma2, "P": 1.0 if inputs.P is None else inputs.P}
        lists = {name: tuple(x) if isinstance(x, list) else x for name, x in as_given.items()}
        return {**lists, "sz2": inputs.sz2 or 0.0}
    from otafl.channels.deployment import load_devices, load_site, to_deployment
    from otafl.channels.power import energy_from_power

    path = folder / inputs.devices
    if path.suffix.lower() == ".toml" and inputs.sz2 is None:
        site = load_site(path)
        devices, deployment = site.devices, to_deployment(site, inputs.d)
        energy, sz2 = deployment.energy, deployment.noise_var
        if inputs.trust_receiver_noise and deployment.trusted_noise_var < sz2:
            raise InputError(f"{path}: trusts only part of the noise; say trust_receiver_noise = false")
    elif inputs.sz2 is None:
        raise InputError(f"sz2: missing; {path.name} has no [radio] block to take it from")
    else:
        devices, sz2 = load_devices(path), inputs.sz2
        energy = energy_from_power(devices.power_w, inputs.d, symbol_time_s=1.0)
    sigma2 = tuple(devices.mean_power_gain / 2)  # E abs(gain)^2 = 2 sigma2
    return {"K": len(sigma2), "sigma2": sigma2, "P": tuple(np.asarray(energy, float)), "sz2": sz2}


def _params(inputs: Inputs, folder: Path) -> Params:
    clients = _clients(inputs, folder)
    shared = {f.name: getattr(inputs, f.name) for f in fields(Params) if f.name not in clients}
    return Params(**shared, **clients)


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Solve for (rho, tau); raises Infeasible with the certificate."""
    way = cdpb.scheme(inputs.strategy, inputs.portion)
    charge = Charge(inputs.accounting, inputs.adjacency, inputs.trust_receiver_noise, inputs.assume_hidden)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        params = _params(inputs, folder)
        try:
            found = cdpb.solve(params, way, tau_cap=inputs.tau_cap, bound=inputs.bound, **charge._asdict())
        except Infeasible as refusal:
            raise Infeasible(str(refusal), plain(refusal.report)) from None
        report = _report(params, way, charge, found, inputs)
        if inputs.best_portion:
            best = cdpb.best_portion(params, tau_cap=inputs.tau_cap, **charge._asdict())
            report["best_portion"] = best._asdict()
        report["paper"] = _paper(params, inputs.strategy)
    report["warnings"] = list(dict.fromkeys([str(w.message) for w in caught] + cdpb.remarks(params)))
    result: dict[str, Any] = plain(report)
    return result


def _report(params: Params, way: Scheme, charge: Charge, found: Solution, inputs: Inputs) -> dict[str, Any]:
    best = found.design
    at = cdpb.stats(params, best.u, way)
    exact = cdpb.inverse_moments(params, best.u, way)
    target = cdpb.eps_delta(params, best.u, best.tau, inputs.delta, way, charge)
    drawn = cdpb.draw_rounds(params, best.u, way, best.tau, np.random.default_rng([inputs.seed, 0]))
    paid = cdpb.realised(params, best.rho, drawn, charge)
    return {
        "strategy": inputs.strategy,
        "portion": way.portion,
        "rho": best.rho,
        "tau": best.tau,
        "u": best.u,
        "h_th": best.rho * params.W**2 / np.asarray(params.P),
        "p": float(at.p),
        "p_top": float(at.p_top),
        "K_t": float(at.K_t),
        "empty_round_prob": exact.empty,
        "v": float(at.v),
        "s2": float(at.s2),
        "energy": float(at.energy),
        "G": best.G,
        "gamma": best.gamma,
        "gamma_full": found.gamma_full,
        "bound": inputs.bound,
        "B": best.B,
        "B_exact": cdpb.B_exact(params, best.u, way),
        "eps1": best.eps1,
        "eps": best.eps,
        "alpha": params.alpha,
        "eps_delta": target._asdict(),
        "realised": {"largest": paid.largest, "mean": paid.mean, "seed": inputs.seed},
        "binding": list(found.binding),
        "limits": {"gbar": params.gbar, "ebar": params.ebar, "tau_cap": inputs.tau_cap, "u_max": params.u_max},
        "law": cdpb.feasibility_law(params, charge) if charge.repaired else None,
        "unit": "client",
        "accounting": charge.accounting,
        "adjacency": charge.adjacency,
        "trust_receiver_noise": charge.trust_receiver_noise,
        "certified": found.certified,
        "curves": fig2(params, _loads(params, best.u), _around(best.tau), best.u, best.tau),
        "utility": _utility(params, way, charge, best.tau, best.u, inputs.bound),
    }


def _loads(params: Params, u: float) -> list[float]:
    """Loads to draw around the chosen one."""
    return np.geomspace(u / 30, min(u * 10, params.u_max, 10.0), 60).tolist()


def _around(tau: int) -> list[int]:
    return sorted({max(1, round(tau * x)) for x in np.geomspace(0.05, 3, 40)})


def _utility(params: Params, way: Scheme, charge: Charge, tau: int, u: float, bound: str) -> list[dict[str, float]]:
    """G over the load at the chosen number of rounds."""
    loads = np.array(_loads(params, u))
    at = cdpb.stats(params, loads, way)
    gamma = cdpb.gamma_of(params, cdpb.error_energy(params, at), tau, bound)
    eps = tau * cdpb.eps_round(params, at, charge)
    rows = zip(loads, params.lam1 * gamma + params.lam2 * eps, gamma, eps)
    return [dict(zip(("u", "G", "gamma", "eps"), map(float, row))) for row in rows]


def _paper(params: Params, strategy: str) -> dict[str, Any]:
    """The published two stages on the same deployment, or why they do not apply."""
    try:
        found = cdpb.solve_paper(params, "noisy" if strategy == "noisy" else "idle")
    except InputError as reason:
        return {"applies": False, "reason": str(reason)}
    return {
        "applies": True,
        "tau_gmin": found.tau_gmin,
        "tau_emax": found.tau_emax,
        "best": found.best._asdict() if found.best else None,
        "violates_gamma": len(found.violates_gamma),
        "violates_eps": len(found.violates_eps),
        "undefined": len(found.undefined),
        "certified": False,
    }


def show(report: dict[str, Any], console: Console) -> None:
    """The design, what it costs, what limits it, and what the published route would have said."""
    console.print(_table(report))
    target = report["eps_delta"]
    tight = target["eps_tight"]
    console.print(
        f"privacy of one client ({report['adjacency']}, {report['accounting']}): eps {_number(target['eps'])} at delta "
        f"{target['delta']:g} (order {_number(target['order'])})"
        + (f", tight {_number(tight)}" if tight is not None else "")
    )
    paid = report["realised"]
    console.print(
        f"  with channels drawn from seed {paid['seed']}: realised RDP {_number(paid['largest'])} at most, "
        f"{_number(paid['mean'])} on average"
    )
    console.print("  design values plug in mean noise; only the realised loss of a run is certified")
    console.print(f"binding: {', '.join(report['binding']) or 'nothing'}")
    if "best_portion" in report:
        best = report["best_portion"]
        console.print(f"best portion: {best['portion']:.3g} (G {best['G']:.5g}, gain {100 * best['gain']:.3g} %)")
    _show_paper(report["paper"], console)
    for line in report["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {line}")


def _table(report: dict[str, Any]) -> Table:
    table = Table(title=f"CDPB, {report['strategy']}: rho = {report['rho']:.6g} for {report['tau']} rounds")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    limits = report["limits"]
    rows = [
        ("load u, threshold over mean gain", report["u"], limits["u_max"]),
        ("rounds tau", report["tau"], limits["tau_cap"]),
        ("probability of taking part p", report["p"], None),
        ("expected participants K_t", report["K_t"], None),
        ("artificial noise v (all coordinates)", report["v"], None),
        ("noise per coordinate s2", report["s2"], None),
        ("energy per client and round", report["energy"], None),
        ("convergence bound gamma", report["gamma"], limits["gbar"]),
        ("  Theorem 2 in full", report["gamma_full"], None),
        (f"RDP per round, order {report['alpha']:g}", report["eps1"], None),
        ("RDP of all rounds", report["eps"], limits["ebar"]),
        ("utility G", report["G"], None),
    ]
    for name, value, limit in rows:
        table.add_row(name, _number(value), "" if limit is None else _number(limit))
    return table


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value):.5g}"


def _show_paper(paper: dict[str, Any], console: Console) -> None:
    if not paper["applies"]:
        console.print(f"[dim]published two-stage route: {paper['reason']}[/dim]")
        return
    members = max(0, paper["tau_emax"] - paper["tau_gmin"] + 1)
    console.print(
        f"[dim]published two-stage route (not certified): T = {paper['tau_gmin']}..{paper['tau_emax']}; of its "
        f"{members} members {paper['violates_gamma']} break gbar, {paper['violates_eps']} break ebar, "
        f"{paper['undefined']} have no real rho[/dim]"
    )


def pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """curves.png (bounds against rho and tau) and utility.png (G over the load)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(curves)
    plot_fig2(report["curves"], curves.subplots(2, 2).ravel())
    utility = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(utility)
    axes = utility.subplots()
    axes.semilogx(*([row[name] for row in report["utility"]] for name in ("u", "G")))
    axes.axvline(report["u"], color="k", ls=":", label=f"chosen, u = {report['u']:.4g}")
    axes.set(xlabel="load u", ylabel=f"utility G at {report['tau']} rounds")
    axes.legend()
    files = [folder / "curves.png", folder / "utility.png"]
    for figure, path in zip((curves, utility), files):
        figure.savefig(path, dpi=120)
    return files


PLANNER = Planner(
    summary="CDPB: balancing parameter and rounds for a convergence and a privacy target",
    inputs=Inputs,
    example=(Path(__file__).parent / "examples" / "cdpb.toml").read_text(encoding="utf-8"),
    plan=plan,
    show=show,
    pictures=pictures,
)
