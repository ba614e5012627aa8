"""`otafl plan cdpb`: the balancing parameter rho and the number of rounds tau for two targets. No training."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.core import validate
from otafl.core.errors import Infeasible, InputError
from otafl.core.files import plain
from otafl.privacy.attack import equivalent_mu, worth
from otafl.privacy.card_text import round_up
from otafl.privacy.gaussian import eps as gaussian_eps
from otafl.systems.cdpb import design as cdpb
from otafl.systems.cdpb.design import Charge, Params, Scheme, Solution
from otafl.systems.cdpb.figures import fig2, plot_fig2
from otafl.systems.cdpb.from_experiment import keys
from otafl.systems.cdpb.planner_inputs import MAX_DRAWS, Inputs, params_of
from otafl.systems.planning import Planner, example, warned
from otafl.systems.screen import Fitted, say_remarks


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Solve for (rho, tau); raises Infeasible with the certificate."""
    way = cdpb.scheme(inputs.strategy, inputs.portion)
    with warned() as said:
        params = params_of(inputs, folder)
        charge = cdpb.make_charge(
            inputs.accounting, inputs.adjacency, inputs.trust_receiver_noise, inputs.assume_hidden
        )
        rho = inputs.rho if inputs.u is None else float(params.rho(_load(params, inputs.u)))
        given: dict[str, Any] = {"rho": rho, "tau": inputs.tau, "tau_cap": inputs.tau_cap}
        try:
            found = cdpb.solve(params, way, bound=inputs.bound, **given, **charge._asdict())
        except Infeasible as refusal:
            raise Infeasible(str(refusal), plain(refusal.report)) from None
        report = _report(params, way, charge, found, inputs)
        if inputs.best_portion:
            report["best_portion"] = _best_portion(params, charge, inputs, found.design.u)._asdict()
        report["paper"] = _paper(params, inputs.strategy)
        report["lemmas"] = _lemmas(params, way)
    report["warnings"] = list(dict.fromkeys(said + cdpb.remarks(params) + _as_printed(charge)))
    return plain(report)


def _as_printed(charge: Charge) -> list[str]:
    if charge.repaired or (charge.adjacency == "zero-out" and charge.trust_receiver_noise):
        return []
    return ["Theorem 1 as printed knows neither adjacency nor whose noise is trusted: they do not move this design"]


def _load(params: Params, u: float) -> float:
    validate.positive("u", u)
    if u > params.u_max:
        raise InputError(f"u={u!r} must be <= u_max={params.u_max!r} unless capped=false")
    return u


def _best_portion(params: Params, charge: Charge, inputs: Inputs, u: float) -> cdpb.BestPortion:
    """With (rho, tau) free, or at the given pair."""
    pinned = [name for name in ("rho", "u", "tau") if getattr(inputs, name) is not None]
    if len(pinned) == 1:
        raise InputError(f"best_portion with {pinned[0]} alone: give rho and tau, or neither")
    pair: dict[str, Any] = {"u": u, "tau": inputs.tau} if pinned else {}
    return cdpb.best_portion(params, tau_cap=inputs.tau_cap, **pair, **charge._asdict())


def _report(params: Params, way: Scheme, charge: Charge, found: Solution, inputs: Inputs) -> dict[str, Any]:
    best = found.design
    validate.at_most(f"K x tau = {params.K} x {best.tau}", params.K * best.tau, MAX_DRAWS, "lower K or tau_cap")
    at = cdpb.stats(params, best.u, way)
    exact = cdpb.inverse_moments(params, best.u, way)
    every = cdpb.losses(params, best.u, best.tau, inputs.delta, way, charge)
    target = every[charge.accounting].dp
    drawn = cdpb.draw_rounds(params, best.u, way, best.tau, np.random.default_rng([inputs.seed, 0]))
    paid = cdpb.realised(params, best.rho, drawn, charge)
    return {
        "strategy": inputs.strategy,
        "portion": way.portion,
        "rho": best.rho,
        "tau": best.tau,
        "u": best.u,
        "u_max": params.u_max,
        "h_th": best.rho * params.W**2 / np.asarray(params.P),
        "p": float(at.p),
        "p_top": float(at.p_top),
        "K_t": float(at.K_t),
        "empty_round_prob": exact.empty,
        "inverse_moments": exact._asdict(),
        "c": params.c,
        "v": float(at.v),
        "s2": float(at.s2),
        "energy": float(at.energy),
        "G": best.G,
        "gamma": best.gamma,
        "gamma_full": found.gamma_full,
        "S_tau": float(cdpb.weight_sum(params.a, best.tau)),
        "bound": inputs.bound,
        "A": params.A,
        "B": best.B,
        "B_exact": cdpb.B_exact(params, best.u, way),
        "eps1": best.eps1,
        "eps": best.eps,
        "alpha": params.alpha,
        "eps_delta": target._asdict(),
        "pld": target.eps_tight,
        "accountings": {name: _row(x) for name, x in every.items()},
        "realised": {
            "largest": paid.largest,
            "mean": paid.mean,
            "eps_tight": float(gaussian_eps(np.sqrt(2 * paid.largest / params.alpha), inputs.delta)),
            "seed": inputs.seed,
        },
        "binding": list(found.binding),
        "violated": list(found.violated),
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


def _row(loss: cdpb.Loss) -> dict[str, float]:
    """eps of order alpha, and at delta through the best order and through the privacy loss distribution."""
    dp = loss.dp
    return {"eps1": loss.eps1, "eps": loss.eps, "eps_dp": dp.eps, "order": dp.order, "pld": dp.eps_tight}


def _loads(params: Params, u: float) -> list[float]:
    """Loads to draw around the chosen one."""
    return [float(load) for load in np.geomspace(u / 30, min(u * 10, params.u_max, 10.0), 60)]


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


def _lemmas(params: Params, way: Scheme) -> dict[str, Any]:
    """Lemmas 1 and 2, repaired: the loads of least B and of Theorem 1's least eps, and the rounds that each allows."""
    u = cdpb.lemma1(params, way)
    found: dict[str, Any] = {
        "u_gamma": u,
        "rho_gamma": float(params.rho(u)),
        "B_least": float(cdpb.error_energy(params, cdpb.stats(params, u, way))),
    }
    found["tau_gmin"] = None if params.gbar is None else math.ceil(6 * found["B_least"] / (params.mu * params.gbar))
    if params.alpha == round(params.alpha):  # Theorem 1 knows no other order
        u = cdpb.lemma2(params, way)
        least = float(cdpb.eps_round(params, cdpb.stats(params, u, way), cdpb.PAPER))
        found |= {"u_eps": u, "rho_eps": float(params.rho(u)), "eps1_least": least}
        found["tau_emax"] = None if params.ebar is None else math.floor(params.ebar / least)
    return found


def show(report: dict[str, Any], console: Console) -> None:
    """The design, what it costs, what limits it, and what the published route would have said."""
    console.print(_table(report))
    console.print(_losses(report))
    paid = report["realised"]
    console.print(
        f"  with channels drawn from seed {paid['seed']}: realised RDP {_number(paid['largest'])} at most, "
        f"{_number(paid['mean'])} on average; eps {round_up(paid['eps_tight'])} exactly"
    )
    console.print(f"    {worth(equivalent_mu(paid['eps_tight'], report['eps_delta']['delta']))}")
    console.print("  design values plug in mean noise; only the realised loss of a run is certified")
    console.print(f"binding: {', '.join(report['binding']) or 'nothing'}")
    if report["violated"]:
        console.print(f"[bold red]this pair breaks the limit on {' and '.join(report['violated'])}[/]")
    if "best_portion" in report:
        best = report["best_portion"]
        console.print(f"best portion: {best['portion']:.3g} (G {best['G']:.5g}, gain {100 * best['gain']:.3g} %)")
    _show_paper(report["paper"], console)
    say_remarks(console, report["warnings"])


def _losses(report: dict[str, Any]) -> Fitted:
    """Every accountant on the same design; the one that was designed for is marked."""
    delta = report["eps_delta"]["delta"]
    rows = []
    for name, row in report["accountings"].items():
        mark = " (designed for)" if name == report["accounting"] else ""
        tight = "none: no mechanism" if row["pld"] is None else round_up(row["pld"])
        rows.append((name + mark, _number(row["eps"]), round_up(row["eps_dp"]), tight))
    heads = ("accounting", f"RDP, order {report['alpha']:g}", f"eps at delta {delta:g}", "by PLD")
    title = f"Privacy of one client, {report['adjacency']}, after {report['tau']} rounds"
    return Fitted.of(heads, rows, words=("accounting",), title=title)


def _table(report: dict[str, Any]) -> Fitted:
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
    cells = [(name, _number(value), "" if limit is None else _number(limit)) for name, value, limit in rows]
    title = f"CDPB, {report['strategy']}: rho = {report['rho']:.6g} for {report['tau']} rounds"
    return Fitted.of(("quantity", "value", "limit"), cells, words=("quantity",), title=title)


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
    from matplotlib.figure import Figure

    curves = Figure(figsize=(11, 7), layout="constrained")
    plot_fig2(report["curves"], curves.subplots(2, 2).ravel())
    utility = Figure(figsize=(6, 4), layout="constrained")
    axes = utility.subplots()
    axes.semilogx(*([row[name] for row in report["utility"]] for name in ("u", "G")))
    axes.axvline(report["u"], color="k", ls=":", label=f"chosen, u = {report['u']:.4g}")
    axes.set(xlabel="load u", ylabel=f"utility G at {report['tau']} rounds")
    axes.legend()
    files = [folder / "curves.png", folder / "utility.png"]
    for figure, path in zip((curves, utility), files):
        figure.savefig(path, dpi=120)
    return files


PLANNER = Planner(Inputs, keys, example(__file__, "cdpb"), plan, show, pictures)
