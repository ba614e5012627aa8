"""CDPB's analytic figures 2 and 3: records, pictures, and what becomes of each claim. No training."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from otafl.reproductions.claims import fact
from otafl.reproductions.findings import Grid, Record, Verdict, by_accounting
from otafl.reproductions.pictures import Line, Panel, line
from otafl.reproductions.reproduction import Analysis, Reproduction
from otafl.systems.cdpb import figures
from otafl.systems.cdpb.claims_map import SHARP, WITH_NOISE, rises, utility_rules
from otafl.systems.cdpb.design import Params

CONSTANTS = (
    "the paper states lam1 = 1, lam2 = 1e-5, gbar = 1e-2, ebar = 100 and 100 clients; ours, unless varied: P = W = 1, "
    "sigma^2 = 0.5, A = 4, mu = 1, d = 1"
)
Settings = dict[str, Any]
Found = tuple[list[Record], list[Grid], list[Verdict], list[Panel]]
CHARGES = "as printed (Theorem 1, rivals at p = 1) and soundly (visible loss, all alike)"


def analysis_of(find: Callable[[Settings], Found]) -> Analysis:
    """An analysis: records with tables, verdicts and panels, from a preset's settings alone."""

    def analysis(job: Reproduction) -> None:
        records, grids, verdicts, panels = find(job.settings)
        job.record(records)
        job.publish(grids, verdicts, [CONSTANTS], panels, settings=job.settings)

    analysis.__doc__ = find.__doc__
    return analysis


def rows_of(records: list[Record], **where: Any) -> list[Record]:
    return [record for record in records if all(record.get(key) == value for key, value in where.items())]


def column(records: list[Record], name: str, **where: Any) -> np.ndarray:
    return np.array([record[name] for record in rows_of(records, **where)])


def curve(label: str, records: list[Record], x: str, y: str, **where: Any) -> Line:
    return line(label, column(records, x, **where), [column(records, y, **where)])


def listed(names: Any, values: Any, scale: float = 1.0) -> str:
    return ", ".join(f"{name:g}: {value * scale:.3g}" for name, value in zip(names, values))


HEADS = {
    "u": "load u", "tau": "τ", "gamma": "γ", "eps_paper": "Rényi loss, as printed", "eps_visible": "Rényi loss, sound",
    "alpha": "α", "axis": "over", "value": "at", "tau_gmin_idle": "τ_γ,min idle", "tau_gmin_noisy": "τ_γ,min noisy",
    "tau_emax_idle": "τ_ε,max idle", "tau_emax_noisy": "τ_ε,max noisy", "least_gap": "|T_i| − |T_n|, equal τ_ε,max",
    "size_gap": "|T_i| − |T_n|", "G_idle": "G idle", "G_noisy": "G noisy", "difference": "noisy − idle", "gbar": "γ̄",
}  # fmt: skip


def grid_of(title: str, keys: Sequence[str], records: list[Record]) -> Grid:
    """Columns of records as a table, in the paper's symbols."""
    rows = [[cell(record[key]) for key in keys] for record in records]
    return Grid(title, [HEADS.get(key, key) for key in keys], rows)


def cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else HEADS.get(value, str(value))


# --- Figure 2 -----------------------------------------------------------------------------------------------------


def _find2(settings: Settings) -> Found:
    """Convergence bound and privacy loss against rho and against tau."""
    span, u, tau = settings["loads"], settings["at_load"], settings["at_rounds"]
    loads = np.linspace(span["low"], span["high"], int(span["points"]))
    records = figures.fig2(Params(**settings["params"]), loads.tolist(), settings["rounds"], u, tau)
    least, bends, printed, sound, product, ratio = {}, [], [], [], [], []
    for name in figures.STRATEGIES:
        a, b = rows_of(records, panel="a", strategy=name), rows_of(records, panel="b", strategy=name)
        gamma = column(a, "gamma")
        least[name] = loads[int(np.argmin(gamma))]
        bends.append(np.all(np.diff(gamma, 2) >= 0) and gamma.argmin() not in (0, len(gamma) - 1))
        printed.append(rises(-column(a, "eps_paper")))
        sound.append(rises(-column(a, "eps_visible")))
        product.append(rises(-column(b, "gamma")))
        ratio.append(rises(column(b, "eps_paper")) and rises(column(b, "eps_visible")))
    shown = [r for r in records if r["panel"] == "b"]
    keys = ("strategy", "tau", "gamma", "eps_paper", "eps_visible")
    grid = grid_of(f"against the rounds at load {u:g}", keys, shown)
    ends = [r for name in figures.STRATEGIES for r in (rows_of(records, panel="a", strategy=name)[i] for i in (0, -1))]
    keys = ("strategy", "u", "gamma", "eps_paper", "eps_visible")
    other = grid_of(f"against the load, {tau} rounds", keys, ends)
    smallest = ", ".join(f"{name} u = {at:.3f}" for name, at in least.items())
    (low, high), (first, last) = ends[:2], (shown[0], shown[len(settings["rounds"]) - 1])
    verdicts = [
        Verdict("monotonically increasing from ρ = 0 to ρ = P/W². Hence, the τ_max is attained at the maximum ρ",
                by_accounting(all(printed), all(sound)),
                f"idle, {tau} rounds, u {low['u']:g} to {high['u']:g}: loss as printed {low['eps_paper']:.4g} to "
                f"{high['eps_paper']:.4g}, sound {low['eps_visible']:.2g} to {high['eps_visible']:.2g} (E2)",
                "Appendix D; Fig. 2(a)", f"the privacy loss falls with ρ over all loads, {CHARGES}"),
        fact("the optimization problem τ_min is convex with respect to ρ", all(bends), f"least bound at {smallest}",
             "Appendix C; Fig. 2(a)", "γ over ρ: second differences >= 0, least inside"),
        fact("as the number of global iterations τ increases, the convergence error γ tends to decrease", all(product),
             f"idle: {first['gamma']:.3g} at τ = {first['tau']}, {last['gamma']:.3g} at {last['tau']}",
             "Section IV, on Fig. 2", "γ falls from each τ to the next"),
        fact("but concerns regarding ε escalate", all(ratio),
             f"idle, printed: {first['eps_paper']:.3g} at τ = {first['tau']}, {last['eps_paper']:.4g} at {last['tau']}",
             "Section IV, on Fig. 2", f"ε grows from each τ to the next, {CHARGES}"),
    ]  # fmt: skip
    panels = []
    for panel, x in (("a", "u"), ("b", "tau")):
        across = {"u": "load u = h_th / E[h], which is ρ here", "tau": "rounds τ"}[x]
        both = [(name, rows_of(records, panel=panel, strategy=name)) for name in figures.STRATEGIES]
        panels.append(Panel(f"Fig. 2({panel})", across, "γ", [curve(n, r, x, "gamma") for n, r in both], log="y"))
        charged = [curve(f"{n}, {how}", r, x, key) for n, r in both
                   for how, key in (("as printed", "eps_paper"), ("sound", "eps_visible"))]  # fmt: skip
        panels.append(Panel(f"Fig. 2({panel})", across, "Renyi loss", charged, log="y"))
    return records, [other, grid], verdicts, panels


# --- Figure 3 -----------------------------------------------------------------------------------------------------

CHARGING = {"paper": "as published", "plain": "rivals charged the plain Gaussian", "visible": "all charged soundly"}
ON_FIG3 = "Section V, on Fig. 3"


def _find3(settings: Settings) -> Found:
    """Utility against the rounds under three ways of charging."""
    params, taus = Params(**settings["params"]), settings["rounds"]
    records: list[Record] = []
    grids, panels, G = [], [], {}
    for charging, title in CHARGING.items():
        found = figures.fig3(params, taus, charging, settings["q"], settings["receiver_noise"])
        records += [{"charging": charging, **record} for record in found]
        G[charging] = {name: column(found, "G", scheme=name) for name in (*WITH_NOISE, "Noise-Free")}
        rows = [[name, *(f"{x:.3g}" for x in values)] for name, values in G[charging].items()]
        grids.append(Grid(f"utility G, {title}", ("scheme", *(f"τ = {tau}" for tau in taus)), rows))
        curves = [curve(name, found, "tau", "G", scheme=name) for name in G[charging]]
        panels.append(Panel(f"Fig. 3, {title}", "rounds τ", "utility G", curves, log="xy"))
    return records, grids, utility_verdicts(G, taus), panels


def utility_verdicts(G: dict[str, dict[str, np.ndarray]], taus: list[int]) -> list[Verdict]:
    """The four sentences on Figure 3, charged as printed and soundly."""
    best = {c: np.minimum(at["CDPB-i"], at["CDPB-n"]) for c, at in G.items()}
    rivals = {c: np.min([at[name] for name in WITH_NOISE[2:]], axis=0) for c, at in G.items()}
    quiet = {c: at["Noise-Free"] for c, at in G.items()}
    falling, ahead, early, sharp = zip(*(utility_rules(G[charging]) for charging in ("paper", "visible")))

    def both(text: str, rule: str, held: tuple[bool, bool], said: Callable[[str], str]) -> Verdict:
        told = f"as printed {said('paper')}; sound {said('visible')}"
        return Verdict(text, by_accounting(*held), told, ON_FIG3, f"{rule}, {CHARGES}")

    ends = f"τ = {taus[0]} and {taus[-1]}"
    return [
        both("CDPB consistently outperforming the others across all ranges",
             "at every τ the better of CDPB-i and CDPB-n has the least G of the schemes with noise",
             ahead,
             lambda c: f"G at τ = {taus[-1]}: CDPB {best[c][-1]:.3g}, best rival {rivals[c][-1]:.3g}"),
        both("As iterations progress, all approaches except Noise-Free show a decreasing trend",
             "G of the other five falls from each τ to the next",
             falling,
             lambda c: f"CDPB-i at {ends}: {G[c]['CDPB-i'][0]:.3g}, {G[c]['CDPB-i'][-1]:.3g}"),
        both("in the early iterations, Noise-Free achieves better performance than any other strategy",
             f"least G of all six at τ = {taus[0]}",
             early,
             lambda c: f"{quiet[c][0]:.3g} against {min(G[c][name][0] for name in WITH_NOISE):.3g}"),
        both("as iterations increase, the G(ρ, τ) for Noise-Free rises sharply due to the loss of RDP",
             f"at τ = {taus[-1]} G is at least {SHARP:g} times its least and above CDPB's",
             sharp,
             lambda c: f"least {quiet[c].min():.3g}, at τ = {taus[-1]} {quiet[c][-1]:.3g}"),
    ]  # fmt: skip


fig2, fig3 = analysis_of(_find2), analysis_of(_find3)
