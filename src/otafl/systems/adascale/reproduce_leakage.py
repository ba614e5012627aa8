"""AdaScale's Figures 1 and 2 without training: leakage over nu, and what becomes of each claim about it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.reproductions.claims import Part, ahead, fact, joined
from otafl.reproductions.findings import FAILS, UNDECIDED, Grid, Record, Verdict
from otafl.reproductions.pictures import Panel, line
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.statistics import from_zero
from otafl.systems.adascale.methods import leakage_table
from otafl.systems.adascale.reproduce import UNITS, by_seed, listed
from otafl.systems.adascale.setting import Setting

RECONSTRUCTED = (
    "liu-simeone ([20]) and lyapunov ([23]) are reconstructions from what the paper says of them: indicative"
)


def leakage(job: Reproduction) -> None:
    """RDP and eps of every method over nu: means over realisations with 95 % intervals, and every claim of the text."""
    settings = job.settings
    setting, alpha = Setting(**settings["setting"]), settings["alpha"]
    shared = {key: settings[key] for key in ("nus", "mode", "delta")}
    few, many = list(range(settings["few"])), list(range(settings["seeds"]))
    table = leakage_table(setting, methods=settings["methods"], alpha=alpha, seeds=many, **shared)
    beside = leakage_table(setting, methods=settings["beside"], alpha=alpha, seeds=few, grid=settings["grid"], **shared)
    by_alpha = {a: leakage_table(setting, methods=["adascale"], alpha=a, seeds=few, **shared)
                for a in settings["alphas"]}  # fmt: skip
    job.record([row for record in [*table, *beside] for row in by_seed(record)])
    grids = [
        _grid(table, f"RDP, mean ± 95 % interval of {len(many)} realisations", alpha, lambda r: _interval(r, "rdp")),
        _grid(table, f"eps, mean ± 95 % interval of {len(many)} realisations", alpha, lambda r: _interval(r, "eps")),
        _grid(table, "RDP relative to Optimal: least, median, largest", alpha, lambda r: _range(r["ratio"])),
        _grid(beside, f"beside the paper's four: RDP of {len(few)} realisations", alpha, lambda r: listed(r["rdp"])),
        _grid(beside, f"beside the paper's four: eps of {len(few)} realisations", alpha, lambda r: listed(r["eps"])),
    ]
    notes = [
        UNITS.format(which="mean over devices", delta=settings["delta"]),
        f"the paper takes three realisations; the first {len(few)} of ours are those of the trainings",
        RECONSTRUCTED,
        *setting.cautions(),
        *settings.get("notes", []),
    ]
    verdicts = [leakage_verdict(claim, table, by_alpha) for claim in job.preset.targets["claims"]]
    panels = [
        Panel(f"{name}, mean over devices", "cap on the mean excess noise, nu", name,
              [line(method, settings["nus"], np.transpose([r[key] for r in table if r["method"] == method]))
               for method in settings["methods"]], log="xy")
        for key, name in (("rdp", f"RDP({alpha})"), ("eps", "eps"))
    ]  # fmt: skip
    job.publish(grids, verdicts, notes, panels, settings=settings)


def leakage_verdict(claim: Record, table: list[Record], by_alpha: dict[int, list[Record]]) -> Verdict:
    """One claim about leakage by its kind; `column` gives a method's realisations at every nu, (nu, seed)."""
    nus = list(dict.fromkeys(record["nu"] for record in table))

    def column(method: str, name: str = claim.get("metric", "eps")) -> np.ndarray:
        return np.array([next(r for r in table if (r["method"], r["nu"]) == (method, nu))[name] for nu in nus])

    text, place, kind = claim["text"], claim["place"], claim["kind"]
    if kind == "reconstructed":
        told = "no number of seeds would decide it: both are our reconstructions, from a sentence or two in this paper"
        return Verdict(text, UNDECIDED, told, place, "none: [20] and [23] are methods of other papers")
    if kind == "negligible":
        return _negligible(claim, by_alpha)
    judge: Callable[..., tuple[list[Part], str]] = {"below": _below, "close": _close, "narrows": _narrows,
                                                    "approaches": _approaches, "rises": _rises}[kind]  # fmt: skip
    parts, rule = judge(claim, column, nus)
    return joined(text, parts, place, rule)


def _below(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    """AdaScale's mean is the smaller one, and so is its typical realisation, at every nu."""
    ours, parts = column("adascale"), []
    for rival in claim["than"]:
        theirs = column(rival)
        ratios = theirs.mean(-1) / ours.mean(-1)
        told = f"{rival} leaks {', '.join(f'{ratio:.3g}' for ratio in ratios)} times as much over nu"
        for row, ratio in zip(np.log(theirs / ours), ratios):
            part = ahead(from_zero(row))
            parts.append(part._replace(verdict=FAILS if ratio <= 1 else part.verdict, evidence=told))
            told = ""
    rule = "at every nu the mean is smaller, and the mean log ratio over realisations is above 0"
    return parts, f"{claim['metric']}: {rule}"


def _close(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    limit = claim["times"]
    logs = np.log(column("adascale") / column("optimal"))
    told = f"{', '.join(f'{x:.3g}' for x in np.exp(logs.mean(-1)))} times Optimal's over nu"
    parts = [ahead(from_zero(np.log(limit) - row))._replace(evidence=told * (n == 0)) for n, row in enumerate(logs)]
    return parts, f"{claim['metric']}: at every nu at most {limit:g} times Optimal's (mean log ratio)"


def _narrows(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    parts = []
    for rival in claim["than"]:
        gap = column(rival) - column("adascale")
        told = f"{rival} − adascale: {', '.join(f'{x:.3g}' for x in gap.mean(-1))} over nu"
        for n, row in enumerate(gap[:-1] - gap[1:]):
            parts.append(ahead(from_zero(row))._replace(evidence=told * (n == 0)))
    return parts, f"{claim['metric']}: the mean difference falls from each nu to the next"


def _approaches(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    """The ratio to Optimal's, at the ends of the range."""
    parts = []
    for rival in claim["than"]:
        logs = np.log(column(rival) / column("optimal"))
        told = f"{rival} {', '.join(f'{x:.3g}' for x in np.exp(logs.mean(-1)))} times Optimal's over nu"
        parts.append(ahead(from_zero(logs[0] - logs[-1]))._replace(evidence=told))
    rule = "the mean log ratio to Optimal's is smaller at the largest nu than at the smallest"
    return parts, f"{claim['metric']}: {rule}"


def _rises(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    parts = []
    for method in claim["methods"]:
        at = column(method)
        told = f"{method} {', '.join(f'{x:.3g}' for x in at.mean(-1))} over nu"
        parts += [ahead(from_zero(row))._replace(evidence=told * (n == 0)) for n, row in enumerate(at[:-1] - at[1:])]
    return parts, f"{claim['metric']}: the mean difference from each nu to the next is above 0"


def _negligible(claim: Record, by_alpha: dict[int, list[Record]]) -> Verdict:
    """Whether the order that AdaScale plans with moves its eps by less than the paper's shaded interval."""
    means = np.array([[record["eps_mean"] for record in rows] for rows in by_alpha.values()])  # (alpha, nu)
    shaded = np.array([record["eps_half_width_95"] for record in next(iter(by_alpha.values()))])
    moved = means.max(0) - means.min(0)
    told = "; ".join(f"alpha = {alpha}: {listed(row)}" for alpha, row in zip(by_alpha, means))
    evidence = f"eps over nu, {told}; shaded ± {listed(shaded)}; largest change {np.max(moved / means.min(0)):.1%}"
    rule = "the mean eps moves by less than its 95 % interval over three realisations, at every nu"
    return fact(claim["text"], bool(np.all(moved < shaded)), evidence, claim["place"], rule)


def _grid(table: list[Record], title: str, alpha: int, cell: Callable[[Record], str]) -> Grid:
    nus = list(dict.fromkeys(record["nu"] for record in table))
    rows = [
        [method, *(cell(record) for record in table if record["method"] == method)]
        for method in dict.fromkeys(record["method"] for record in table)
    ]
    return Grid(title.replace("RDP", f"RDP({alpha})"), ("method", *(f"nu = {nu:g}" for nu in nus)), rows)


def _range(values: Any) -> str:
    return f"{np.min(values):.3g}, {np.median(values):.3g}, {np.max(values):.3g}"


def _interval(record: Record, name: str) -> str:
    return f"{record[f'{name}_mean']:.3g} ± {record[f'{name}_half_width_95']:.2g}"
