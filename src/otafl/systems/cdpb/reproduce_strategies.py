"""CDPB's analytic figures 6, 7 and 9, which set noisy against idle; no training."""

from collections.abc import Callable

import numpy as np

from otafl.reproductions.claims import fact
from otafl.reproductions.findings import Grid, Record, Verdict, by_accounting, by_case
from otafl.reproductions.pictures import Panel
from otafl.systems.cdpb import figures
from otafl.systems.cdpb.claims_map import rises
from otafl.systems.cdpb.design import PAPER, VISIBLE, Params, best_portion
from otafl.systems.cdpb.reproduce import Found, Settings, analysis_of, column, curve, grid_of, listed

# --- Figure 6 -----------------------------------------------------------------------------------------------------

ON_FIG6 = "Section V, on Fig. 6"


def _find6(settings: Settings) -> Found:
    """Sets of feasible rounds, lemmas repaired, printed accounting."""
    records = [
        {"alpha": alpha, **record}
        for alpha in settings["alphas"]
        for record in figures.fig6(Params(alpha=alpha), settings["gbars"], settings["clients"])
    ]
    for r in records:
        r["least_gap"] = r["tau_gmin_noisy"] - r["tau_gmin_idle"]  # |T_i| - |T_n| on the paper's premise
    ends = [(r["tau_emax_idle"], r["tau_emax_noisy"]) for r in records]
    shrinks = {axis: all(_falls(column(records, "least_gap", alpha=alpha, axis=axis)) for alpha in settings["alphas"])
               for axis in ("gbar", "K")}  # fmt: skip
    one = settings["alphas"][0]
    said = {axis: listed(column(records, "value", alpha=one, axis=axis),
                          column(records, "least_gap", alpha=one, axis=axis)) for axis in shrinks}  # fmt: skip
    smaller = [r["size_gap"] > 0 for r in records]
    keys = ("alpha", "axis", "value", "tau_gmin_idle", "tau_gmin_noisy", "tau_emax_idle", "tau_emax_noisy", "least_gap",
            "size_gap")  # fmt: skip
    grid = grid_of("ends of the sets T", keys, records)
    rule = "τ_γ,min of noisy minus idle never grows and ends lower, at every α"
    sizes, premise = ([r[key] for r in records] for key in ("size_gap", "least_gap"))
    verdicts = [
        fact("as the acceptable convergence error γ̄ increases, the impact on disparity decreases ... narrowing the gap",
             shrinks["gbar"], f"disparity with equal τ_ε,max, over γ̄: {said['gbar']}", ON_FIG6 + "(a)", rule),
        fact("as the total number of participating clients K increases, the disparity also decreases", shrinks["K"],
             f"disparity with equal τ_ε,max, over K: {said['K']}", ON_FIG6 + "(b)", rule),
        fact("τ_ε,max being the same for both CDPB-n and CDPB-i", all(i == n for i, n in ends),
             f"equal in {sum(i == n for i, n in ends)} of {len(ends)} cells, idle and noisy furthest apart "
             f"{max(ends, key=lambda pair: abs(pair[1] - pair[0]))}", "Section V, before Fig. 6",
             "equal in every cell, Lemma 2 repaired"),
        fact("(CDPB-n) a smaller feasible set |T|", all(smaller),
             f"|T_i| − |T_n| from {min(sizes)} to {max(sizes)}, positive in {sum(smaller)} of {len(smaller)} cells; "
             f"with equal τ_ε,max from {min(premise)} to {max(premise)}",
             "Section V, before Fig. 8", "|T_n| < |T_i| in every cell"),
    ]  # fmt: skip
    panels = [
        Panel(f"Fig. 6, over {name}", name, "rounds",
              [curve(f"{label}, alpha = {alpha:g}", records, "value", key, alpha=alpha, axis=axis)
               for alpha in settings["alphas"]
               for label, key in (("τ_ε,max equal, as the paper says", "least_gap"), ("|T_i| − |T_n|", "size_gap"))],
              log="x")
        for axis, name in (("gbar", "γ̄"), ("K", "K"))
    ]  # fmt: skip
    return records, [grid], verdicts, panels


def _falls(values: np.ndarray) -> bool:
    return bool(np.all(np.diff(values) <= 0) and values[-1] < values[0])


# --- Figure 7 -----------------------------------------------------------------------------------------------------

ON_FIG7 = "Section V, on Fig. 7"


def _find7(settings: Settings) -> Found:
    """Utility of noisy minus idle, each at its own optimum, charged both ways."""
    ways = {"printed": (PAPER, None), "sound": (VISIBLE, settings["sound_rounds"])}
    cases = {(alpha, how): f"α = {alpha:g} {how}" for alpha in settings["alphas"] for how in ways}
    records = [
        {"alpha": alpha, "accounting": how, **record}
        for alpha, how in cases
        for record in figures.fig7(Params(alpha=alpha), settings["clients"], settings["powers"], *ways[how])
    ]

    def over(case: tuple[float, str], axis: str, name: str = "difference") -> np.ndarray:
        return column(records, name, alpha=case[0], accounting=case[1], axis=axis)

    def verdict(text: str, place: str, axis: str, rule: str, held: Callable[[np.ndarray], bool]) -> Verdict:
        word = by_case({name: held(over(case, axis)) for case, name in cases.items()})
        told = [f"{name}: {listed(over(case, axis, 'value'), over(case, axis), 1e4)}" for case, name in cases.items()]
        return Verdict(text, word, f"G_n − G_i in 1e-4 over {axis}, {'; '.join(told)}", place, f"G_n − G_i {rule}")

    where = "at every α, as printed (best ρ and τ of each) and soundly (best ρ of each)"
    verdicts = [
        verdict("remains positive, indicating that CDPB-i consistently outperforms CDPB-n", ON_FIG7 + "(a)", "K",
                f"> 0 {where}", lambda gap: bool(np.all(gap > 0))),
        verdict("the disparity decreases with an increasing number of participating clients K", ON_FIG7 + "(a)", "K",
                f"falls from each K to the next {where}", lambda gap: rises(-gap)),
        verdict("as P increases, the disparity grows", ON_FIG7 + "(b)", "P",
                f"grows from each P to the next {where}", rises),
        verdict("A similar trend (remains positive) ... with increasing available power P", ON_FIG7 + "(b)", "P",
                f"> 0 {where}", lambda gap: bool(np.all(gap > 0))),
    ]  # fmt: skip
    keys = ("alpha", "accounting", "axis", "value", "G_idle", "G_noisy", "difference")
    grid = grid_of("utility at the optimum", keys, records)
    panels = [Panel(f"Fig. 7, over {axis}, {how}", axis, "G_noisy − G_idle",
                    [curve(f"alpha = {alpha:g}", records, "value", "difference", alpha=alpha, axis=axis, accounting=how)
                     for alpha in settings["alphas"]], log="x") for how in ways for axis in ("K", "P")]  # fmt: skip
    return records, [grid], verdicts, panels


# --- Figure 9 -----------------------------------------------------------------------------------------------------


def _find9(settings: Settings) -> Found:
    """Utility of CDPB-mixed over the portion, with rho and tau free or held."""
    portions = np.linspace(0, 1, int(settings["points"])).tolist()
    records: list[Record] = []
    rows, inner, panels = [], {}, []
    for case in [*settings["free"], *settings["fixed"]]:
        held = {key: case[key] for key in ("u", "tau") if key in case}
        params = Params(**{key: value for key, value in case.items() if key not in held})
        found = figures.fig9(params, portions, **held)
        name = ", ".join(f"{key} = {value:g}" for key, value in case.items())
        records += [{"case": name, **record} for record in found]
        portion, G, ends = found[-1]["portion"], found[-1]["G"], min(found[0]["G"], found[-2]["G"])
        inner[name] = max(0.0, 1 - G / ends) if 0 < portion < 1 else 0.0
        rows.append([name, f"{portion:.2f}", f"{G:.5g}", f"{max(0.0, 1 - G / ends):.3%}"])
        shape = [curve("G", found[:-1], "portion", "G")]
        panels.append(Panel(f"Fig. 9, {name}", "portion of noise", "utility G", shape))
    sound = settings["sound"]
    params = Params(K=sound["K"], d=sound["d"], alpha=sound["alpha"], gbar=None, ebar=None)
    best = best_portion(params, accounting="visible", tau_cap=sound["tau"])
    name = f"sound accounting, K = {sound['K']}, d = {sound['d']}, tau <= {sound['tau']}"
    rows.append([name, f"{best.portion:.2f}", f"{best.G:.5g}", f"{best.gain:.3%}"])
    grid = Grid("best portion", ("case", "portion", "G", "gain over the better end"), rows)
    where = {name: gain for name, gain in inner.items() if gain > 0}
    told = ", ".join(f"{gain:.3%} ({name})" for name, gain in where.items()) or "none"
    verdict = Verdict(
        "By adjusting this proportion, CDPB-mixed strikes a balance between privacy enhancement from noise and "
        "improved convergence performance", by_accounting(bool(where), 0 < best.portion < 1),
        f"inside in {len(where)} of {len(inner)} cases as printed, gains {told}; sound accounting: {best.portion:.2f}",
        "Section V, on Fig. 9", "some portion strictly between 0 and 1 has the least G, in some case, as printed and "
        "soundly")  # fmt: skip
    return records, [grid], [verdict], panels


fig6, fig7, fig9 = (analysis_of(find) for find in (_find6, _find7, _find9))
