"""CDPB's analytic figures 2, 3, 6, 7 and 9: records, pictures, and what becomes of each claim. No training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.reproductions.findings import (
    FAILS,
    HOLDS,
    Grid,
    Record,
    Verdict,
    by_accounting,
    by_case,
    draw,
    publish,
    write_records,
)
from otafl.runs.comparing.tune import settings_of
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.systems.cdpb import figures
from otafl.systems.cdpb.design import Params, best_portion

CONSTANTS = "the paper states no constants; ours: P = W = 1, sigma^2 = 0.5, A = 4, mu = 1, d = 1, lam1 = 1, lam2 = 1e-5"
Settings = dict[str, Any]
Found = tuple[list[Record], list[Grid], list[Verdict]]


def _analysis(name: str, find: Callable[[Settings], Found], columns: int, rows: int,
              paint: Callable[[list[Record], list[Any]], None]) -> Callable[..., None]:  # fmt: skip
    """An analysis from its three parts: records with tables and verdicts, the shape of the figure, the figure."""

    def analysis(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
                 console: Console) -> None:  # fmt: skip
        settings = settings_of(path, overrides)
        records, grids, verdicts = find(settings)
        write_records(folder, "records", records)
        draw(folder, name, columns, rows, lambda axes: paint(records, axes))
        publish(folder, preset, grids, verdicts, [CONSTANTS], console, settings=settings)

    analysis.__doc__ = find.__doc__
    return analysis


def _rows(records: list[Record], **where: Any) -> list[Record]:
    return [record for record in records if all(record.get(key) == value for key, value in where.items())]


def _column(records: list[Record], name: str, **where: Any) -> np.ndarray:
    return np.array([record[name] for record in _rows(records, **where)])


def _rises(values: np.ndarray) -> bool:
    return bool(np.all(np.diff(values) > 0))


def _listed(names: Any, values: Any, scale: float = 1.0) -> str:
    return ", ".join(f"{name:g}: {value * scale:.3g}" for name, value in zip(names, values))


# --- Figure 2 -----------------------------------------------------------------------------------------------------


def _find2(settings: Settings) -> Found:
    """Convergence bound and privacy loss against rho and against tau."""
    span, u, tau = settings["loads"], settings["at_load"], settings["at_rounds"]
    loads = np.linspace(span["low"], span["high"], int(span["points"]))
    records = figures.fig2(Params(**settings["params"]), loads.tolist(), settings["rounds"], u, tau)
    least, bends, printed, sound, product, ratio = {}, [], [], [], [], []
    for name in figures.STRATEGIES:
        a, b = _rows(records, panel="a", strategy=name), _rows(records, panel="b", strategy=name)
        gamma = _column(a, "gamma")
        least[name] = loads[int(np.argmin(gamma))]
        bends.append(np.all(np.diff(np.sign(np.diff(gamma))) >= 0) and gamma.argmin() not in (0, len(gamma) - 1))
        printed.append(_rises(-_column(a, "eps_paper")))
        sound.append(_rises(-_column(a, "eps_visible")))
        product.append(np.ptp(_column(b, "gamma") * _column(b, "tau")) < 1e-9 * gamma.max() * tau)
        ratio.append(np.ptp(_column(b, "eps_visible") / _column(b, "tau")) < 1e-9)
    shown = [r for r in records if r["panel"] == "b"]
    keys = ("strategy", "tau", "gamma", "eps_paper", "eps_visible")
    grid = Grid(f"against the rounds at load {u:g}", keys, [[_text(r[key]) for key in keys] for r in shown])
    ends = [r for name in figures.STRATEGIES for r in (_rows(records, panel="a", strategy=name)[i] for i in (0, -1))]
    keys = ("strategy", "u", "gamma", "eps_paper", "eps_visible")
    other = Grid(f"against the load, {tau} rounds", keys, [[_text(r[key]) for key in keys] for r in ends])
    smallest = ", ".join(f"{name} u = {at:.3f}" for name, at in least.items())
    verdicts = [
        Verdict("the bound is U-shaped in rho", HOLDS if all(bends) else FAILS, f"least at {smallest}"),
        Verdict("the bound falls like 1/tau", HOLDS if all(product) else FAILS, "gamma tau is constant"),
        Verdict("the privacy loss grows like tau", HOLDS if all(ratio) else FAILS, "eps / tau is constant"),
        Verdict(
            "the privacy loss falls with rho",
            by_accounting(all(printed), all(sound)),
            f"idle, {tau} rounds, u {ends[0]['u']:g} to {ends[1]['u']:g}: printed {ends[0]['eps_paper']:.4g} to "
            f"{ends[1]['eps_paper']:.4g}, sound {ends[0]['eps_visible']:.2g} to {ends[1]['eps_visible']:.2g} (E2)",
        ),
    ]
    return records, [other, grid], verdicts


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- Figure 3 -----------------------------------------------------------------------------------------------------

CHARGING = {"paper": "as published", "plain": "rivals charged the plain Gaussian", "visible": "all charged soundly"}


def _find3(settings: Settings) -> Found:
    """Utility against the rounds under three ways of charging."""
    params, taus = Params(**settings["params"]), settings["rounds"]
    records: list[Record] = []
    grids, ahead, crossing, idle = [], {}, {}, {}
    for charging, title in CHARGING.items():
        found = figures.fig3(params, taus, charging, settings["q"], settings["receiver_noise"])
        records += [{"charging": charging, **record} for record in found]
        G = {name: _column(found, "G", scheme=name) for name in dict.fromkeys(r["scheme"] for r in found)}
        rivals = np.min([G[name] for name in ("gbar-based", "h_min-based", "IS")], axis=0)
        ahead[charging] = bool(np.all(np.minimum(G["CDPB-i"], G["CDPB-n"]) <= rivals * (1 + 1e-9)))
        idle[charging] = bool(np.all(G["CDPB-i"] < G["CDPB-n"]))
        noise_free, others = G.pop("Noise-Free"), np.array(list(G.values()))
        crossing[charging] = bool(noise_free[0] < others[:, 0].min() and noise_free[-1] > others[:, -1].max())
        rows = [[name, *(f"{x:.3g}" for x in line)] for name, line in {**G, "Noise-Free": noise_free}.items()]
        grids.append(Grid(f"utility G, {title}", ("scheme", *(f"tau = {tau}" for tau in taus)), rows))
    last = {c: {r["scheme"]: r["G"] for r in records if r["charging"] == c and r["tau"] == taus[-1]} for c in CHARGING}
    plain, sound = last["plain"], last["visible"]
    verdicts = [
        Verdict("Noise-Free is best early and worst late", by_accounting(crossing["paper"], crossing["visible"]),
                f"tau = {taus[-1]}: G {last['paper']['Noise-Free']:.3g} printed, {sound['Noise-Free']:.3g} sound"),
        Verdict("CDPB is ahead of gbar-based, h_min-based and IS at every tau",
                by_accounting(ahead["paper"], ahead["visible"]),
                f"tau = {taus[-1]}: IS {plain['IS']:.3g} against CDPB-i {plain['CDPB-i']:.3g} if only IS pays the "
                f"valid plain Gaussian (E9); {sound['IS']:.3g} against {sound['CDPB-i']:.3g} if all pay soundly"),
        Verdict("CDPB-i is ahead of CDPB-n at every tau", by_accounting(idle["paper"], idle["visible"]),
                f"tau = {taus[-1]}: {last['paper']['CDPB-i']:.3g} against {last['paper']['CDPB-n']:.3g} printed, "
                f"{sound['CDPB-i']:.3g} against {sound['CDPB-n']:.3g} sound"),
    ]  # fmt: skip
    return records, grids, verdicts


def _paint3(records: list[Record], axes: list[Any]) -> None:
    for one, (charging, title) in zip(axes, CHARGING.items()):
        figures.plot_fig3(_rows(records, charging=charging), one)
        one.set_title(title)


# --- Figure 6 -----------------------------------------------------------------------------------------------------


def _find6(settings: Settings) -> Found:
    """Sets of feasible rounds, lemmas repaired, printed accounting."""
    records = [
        {"alpha": alpha, **record}
        for alpha in settings["alphas"]
        for record in figures.fig6(Params(alpha=alpha), settings["gbars"], settings["clients"])
    ]
    shrinks, smaller, said = {}, {}, []
    for alpha in settings["alphas"]:
        gaps = []
        for axis in ("gbar", "K"):
            at = _rows(records, alpha=alpha, axis=axis)
            gap = _column(at, "tau_gmin_noisy") - _column(at, "tau_gmin_idle")
            gaps.append(np.all(np.diff(gap) <= 0) and gap[-1] < gap[0])
            said.append(f"alpha = {alpha:g}: {axis} {_listed(_column(at, 'value'), _column(at, 'size_gap'))}")
        shrinks[f"alpha = {alpha:g}"] = all(gaps)
        smaller[f"alpha = {alpha:g}"] = bool(np.all(_column(records, "size_gap", alpha=alpha) > 0))
    keys = ("alpha", "axis", "value", "tau_gmin_idle", "tau_gmin_noisy", "tau_emax_idle", "tau_emax_noisy", "size_gap")
    grid = Grid("ends of the sets T", keys, [[_text(r[key]) for key in keys] for r in records])
    verdicts = [
        Verdict("the gap between the least rounds shrinks with gbar and K", by_case(shrinks), "see the table"),
        Verdict("noisy has the smaller set of feasible rounds", by_case(smaller), f"|T_i| - |T_n|; {'; '.join(said)}"),
    ]
    return records, [grid], verdicts


def _paint6(records: list[Record], axes: list[Any]) -> None:
    for row, alpha in enumerate(dict.fromkeys(r["alpha"] for r in records)):
        for column, axis in enumerate(("gbar", "K")):
            figures.plot_fig6(_rows(records, alpha=alpha), axes[2 * row + column], axis)
            axes[2 * row + column].set_title(f"alpha = {alpha:g}")


# --- Figure 7 -----------------------------------------------------------------------------------------------------


def _find7(settings: Settings) -> Found:
    """Utility of noisy minus idle, each at its own optimum."""
    records = [
        {"alpha": alpha, **record}
        for alpha in settings["alphas"]
        for record in figures.fig7(Params(alpha=alpha), settings["clients"], settings["powers"])
    ]
    better, falls, grows, said = {}, {}, {}, []
    for alpha in settings["alphas"]:
        name = f"alpha = {alpha:g}"
        over = {axis: _column(records, "difference", alpha=alpha, axis=axis) for axis in ("K", "P")}
        better[name] = all(np.all(gap > 0) for gap in over.values())
        falls[name], grows[name] = _rises(-over["K"]), _rises(over["P"])
        at = {axis: _column(records, "value", alpha=alpha, axis=axis) for axis in over}
        said.append(f"{name}, K {_listed(at['K'], over['K'], 1e4)}, P {_listed(at['P'], over['P'], 1e4)}")
    keys = ("alpha", "axis", "value", "G_idle", "G_noisy", "difference")
    grid = Grid("utility at the optimum", keys, [[_text(r[key]) for key in keys] for r in records])
    verdicts = [
        Verdict("idle is always better than noisy", by_case(better), f"G_n - G_i in 1e-4; {'; '.join(said)}"),
        Verdict("the difference falls with K", by_case(falls), "the same numbers"),
        Verdict("the difference grows with P", by_case(grows), "and saturates: the error at the optimum is free of P"),
    ]
    return records, [grid], verdicts


def _paint7(records: list[Record], axes: list[Any]) -> None:
    for alpha in dict.fromkeys(r["alpha"] for r in records):
        for one, axis in zip(axes, ("K", "P")):
            figures.plot_fig7(_rows(records, alpha=alpha), one, axis)
            one.lines[-2].set_label(f"alpha = {alpha:g}")
            one.legend()


# --- Figure 9 -----------------------------------------------------------------------------------------------------


def _find9(settings: Settings) -> Found:
    """Utility of CDPB-mixed over the portion, with rho and tau free or held."""
    portions = np.linspace(0, 1, int(settings["points"])).tolist()
    records: list[Record] = []
    rows, inner = [], {}
    for case in [*settings["free"], *settings["fixed"]]:
        held = {key: case[key] for key in ("u", "tau") if key in case}
        params = Params(**{key: value for key, value in case.items() if key not in held})
        found = figures.fig9(params, portions, **held)
        name = ", ".join(f"{key} = {value:g}" for key, value in case.items())
        records += [{"case": name, **record} for record in found]
        portion, G, ends = found[-1]["portion"], found[-1]["G"], min(found[0]["G"], found[-2]["G"])
        inner[name] = 0 < portion < 1
        rows.append([name, f"{portion:.2f}", f"{G:.5g}", f"{max(0.0, 1 - G / ends):.3%}"])
    sound = settings["sound"]
    params = Params(K=sound["K"], d=sound["d"], alpha=sound["alpha"], gbar=None, ebar=None)
    best = best_portion(params, accounting="visible", tau_cap=sound["tau"])
    name = f"sound accounting, K = {sound['K']}, d = {sound['d']}, tau <= {sound['tau']}"
    rows.append([name, f"{best.portion:.2f}", f"{best.G:.5g}", f"{best.gain:.3%}"])
    grid = Grid("best portion", ("case", "portion", "G", "gain over the better end"), rows)
    where = [name for name, inside in inner.items() if inside]
    few = f"interior in {len(where)} of {len(inner)} cases of the printed accounting ({'; '.join(where) or 'none'})"
    verdict = by_accounting(all(inner.values()), 0 < best.portion < 1)
    word = f"{verdict} in general" if verdict == FAILS else verdict
    evidence = f"{few}; sound accounting: {best.portion:.2f}"
    return records, [grid], [Verdict("a portion strictly between 0 and 1 is best", word, evidence)]


def _paint9(records: list[Record], axes: list[Any]) -> None:
    for one, case in zip(axes, dict.fromkeys(r["case"] for r in records)):
        figures.plot_fig9(_rows(records, case=case), one)
        one.set_title(case)


fig2 = _analysis("fig2", _find2, 2, 2, figures.plot_fig2)
fig3 = _analysis("fig3", _find3, 3, 1, _paint3)
fig6 = _analysis("fig6", _find6, 2, 2, _paint6)
fig7 = _analysis("fig7", _find7, 2, 1, _paint7)
fig9 = _analysis("fig9", _find9, 3, 2, _paint9)
