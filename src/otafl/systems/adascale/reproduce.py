"""AdaScale's Figures 1 and 2: leakage without training, accuracy with it, and what becomes of each claim."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.reproductions import curves
from otafl.reproductions.claims import Part, ahead, fact, joined
from otafl.reproductions.curves import Scheme
from otafl.reproductions.findings import (
    FAILS,
    NOT_STATED,
    UNDECIDED,
    Grid,
    Record,
    Verdict,
    publish,
    write_records,
)
from otafl.reproductions.pictures import Panel, Said, line
from otafl.reproductions.preset_run import run_in
from otafl.runs.comparing.statistics import Gap, paired
from otafl.runs.comparing.tune import LAST, settings_of
from otafl.runs.folder.store import RunFolder
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import Radio, load
from otafl.systems.adascale.methods import half_width_95, leakage_table
from otafl.systems.adascale.setting import Setting

METHODS = {
    "adascale-optimal": "Optimal",
    "adascale": "AdaScale",
    "adascale-estim": "EstimFuture",
    "adascale-equal": "EqualAlloc",
}
OURS = "AdaScale"
UNITS = "leakage is that of one record of one device (zero-out), {which}; delta = {delta:g}"
RECONSTRUCTED = (
    "liu-simeone ([20]) and lyapunov ([23]) are reconstructions from what the paper says of them: indicative"
)


# --- leakage: channels alone --------------------------------------------------------------------------------------


def leakage(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
            console: Console) -> None:  # fmt: skip
    """RDP and eps of every method over nu: means over realisations with 95 % intervals, and every claim of the text."""
    settings = settings_of(path, overrides)
    setting, alpha = Setting(**settings["setting"]), settings["alpha"]
    shared = {key: settings[key] for key in ("nus", "mode", "delta")}
    few, many = list(range(settings["few"])), list(range(settings["seeds"]))
    table = leakage_table(setting, methods=settings["methods"], alpha=alpha, seeds=many, **shared)
    beside = leakage_table(setting, methods=settings["beside"], alpha=alpha, seeds=few, grid=settings["grid"], **shared)
    by_alpha = {a: leakage_table(setting, methods=["adascale"], alpha=a, seeds=few, **shared)
                for a in settings["alphas"]}  # fmt: skip
    write_records(folder, "records", [row for record in [*table, *beside] for row in _by_seed(record)])
    grids = [
        _grid(table, f"RDP, mean ± 95 % interval of {len(many)} realisations", alpha, lambda r: _interval(r, "rdp")),
        _grid(table, f"eps, mean ± 95 % interval of {len(many)} realisations", alpha, lambda r: _interval(r, "eps")),
        _grid(table, "RDP relative to Optimal: least, median, largest", alpha, lambda r: _range(r["ratio"])),
        _grid(beside, f"beside the paper's four: RDP of {len(few)} realisations", alpha, lambda r: _each(r["rdp"])),
        _grid(beside, f"beside the paper's four: eps of {len(few)} realisations", alpha, lambda r: _each(r["eps"])),
    ]
    notes = [
        UNITS.format(which="mean over devices", delta=settings["delta"]),
        f"the paper takes three realisations; the first {len(few)} of ours are those of the trainings",
        RECONSTRUCTED,
        *setting.cautions(),
        *_told(settings, quick),
    ]
    verdicts = [leakage_verdict(claim, table, by_alpha) for claim in preset.targets["claims"]]
    panels = [
        Panel(f"{name}, mean over devices", "cap on the mean excess noise, nu", name,
              [line(method, settings["nus"], np.transpose([r[key] for r in table if r["method"] == method]))
               for method in settings["methods"]], log="xy")
        for key, name in (("rdp", f"RDP({alpha})"), ("eps", "eps"))
    ]  # fmt: skip
    publish(folder, preset, grids, verdicts, notes, console, panels, settings=settings)


def leakage_verdict(claim: Record, table: list[Record], by_alpha: dict[int, list[Record]]) -> Verdict:
    """One claim about leakage by its kind; `column` gives a method's realisations at every nu, (nu, seed)."""
    nus = list(dict.fromkeys(record["nu"] for record in table))

    def column(method: str, name: str = claim.get("metric", "eps")) -> np.ndarray:
        return np.array([next(r for r in table if (r["method"], r["nu"]) == (method, nu))[name] for nu in nus])

    text, place, kind = claim["text"], claim["place"], claim["kind"]
    if kind == "reconstructed":
        told = "no number of seeds would decide it: both are our reconstructions of what the paper names only"
        return Verdict(text, UNDECIDED, told, place, "none: [20] and [23] are not described in the paper")
    if kind == "negligible":
        return _negligible(claim, by_alpha)
    judge: Callable[..., tuple[list[Part], str]] = {"below": _below, "close": _close, "narrows": _narrows,
                                                    "rises": _rises}[kind]  # fmt: skip
    parts, rule = judge(claim, column, nus)
    return joined(text, parts, place, rule)


def _over(values: np.ndarray) -> Gap:
    """A difference that is already taken, seed by seed, as a gap from zero."""
    return paired(dict(enumerate(values)), dict.fromkeys(range(values.size), 0.0))


def _below(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    """AdaScale's mean is the smaller one, and so is its typical realisation, at every nu."""
    ours, parts = column("adascale"), []
    for rival in claim["than"]:
        theirs = column(rival)
        ratios = theirs.mean(-1) / ours.mean(-1)
        told = f"{rival} leaks {', '.join(f'{ratio:.3g}' for ratio in ratios)} times as much over nu"
        for row, ratio in zip(np.log(theirs / ours), ratios):
            part = ahead(_over(row))
            parts.append(Part(FAILS if ratio <= 1 else part.verdict, told, part.needs))
            told = ""
    rule = "at every nu the mean is smaller, and the mean log ratio over realisations is above 0"
    return parts, f"{claim['metric']}: {rule}"


def _close(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    limit = claim["times"]
    logs = np.log(column("adascale") / column("optimal"))
    told = f"{', '.join(f'{x:.3g}' for x in np.exp(logs.mean(-1)))} times Optimal's over nu"
    parts = [ahead(_over(np.log(limit) - row))._replace(evidence=told * (n == 0)) for n, row in enumerate(logs)]
    return parts, f"{claim['metric']}: at every nu at most {limit:g} times Optimal's (mean log ratio)"


def _narrows(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    parts = []
    for rival in claim["than"]:
        gap = column(rival) - column("adascale")
        told = f"{rival} − adascale: {', '.join(f'{x:.3g}' for x in gap.mean(-1))} over nu"
        for n, row in enumerate(gap[:-1] - gap[1:]):
            parts.append(ahead(_over(row))._replace(evidence=told * (n == 0)))
    return parts, f"{claim['metric']}: the mean difference falls from each nu to the next"


def _rises(claim: Record, column: Callable[..., np.ndarray], nus: list[float]) -> tuple[list[Part], str]:
    parts = []
    for method in claim["methods"]:
        at = column(method)
        told = f"{method} {', '.join(f'{x:.3g}' for x in at.mean(-1))} over nu"
        parts += [ahead(_over(row))._replace(evidence=told * (n == 0)) for n, row in enumerate(at[:-1] - at[1:])]
    return parts, f"{claim['metric']}: the mean difference from each nu to the next is above 0"


def _negligible(claim: Record, by_alpha: dict[int, list[Record]]) -> Verdict:
    """Whether the order that AdaScale plans with moves its eps by less than the paper's shaded interval."""
    means = np.array([[record["eps_mean"] for record in rows] for rows in by_alpha.values()])  # (alpha, nu)
    shaded = np.array([record["eps_half_width_95"] for record in next(iter(by_alpha.values()))])
    moved = means.max(0) - means.min(0)
    told = "; ".join(f"alpha = {alpha}: {_each(row)}" for alpha, row in zip(by_alpha, means))
    evidence = f"eps over nu, {told}; shaded ± {_each(shaded)}; largest change {np.max(moved / means.min(0)):.1%}"
    rule = "the mean eps moves by less than its 95 % interval over three realisations, at every nu"
    return fact(claim["text"], bool(np.all(moved < shaded)), evidence, claim["place"], rule)


def _by_seed(record: Record) -> list[Record]:
    """One flat row per seed of a record with lists over seeds."""
    lists = [key for key, value in record.items() if isinstance(value, list)]
    rest = {key: value for key, value in record.items() if key not in lists}
    seeds = range(len(record[lists[0]]))
    return [{**rest, "seed": seed, **{key: record[key][seed] for key in lists}} for seed in seeds]


def _grid(table: list[Record], title: str, alpha: int, cell: Callable[[Record], str]) -> Grid:
    nus = list(dict.fromkeys(record["nu"] for record in table))
    rows = [
        [method, *(cell(record) for record in table if record["method"] == method)]
        for method in dict.fromkeys(record["method"] for record in table)
    ]
    return Grid(title.replace("RDP", f"RDP({alpha})"), ("method", *(f"nu = {nu:g}" for nu in nus)), rows)


def _each(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))


def _range(values: Any) -> str:
    return f"{np.min(values):.3g}, {np.median(values):.3g}, {np.max(values):.3g}"


def _interval(record: Record, name: str) -> str:
    return f"{record[f'{name}_mean']:.3g} ± {record[f'{name}_half_width_95']:.2g}"


def _told(settings: dict[str, Any], quick: bool) -> list[str]:
    return [*settings.get("notes", []), *(["smoke version: too small to mean anything"] if quick else [])]


# --- accuracy: the same channels, trained ---------------------------------------------------------------------------


def accuracy(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
             console: Console) -> None:  # fmt: skip
    """Test accuracy over nu, with the eps that the ledger of the same run counted."""
    rows, schemes, notes = _trainings(path, folder, overrides, quick, reporter)
    known = {scheme.label for scheme in schemes}
    claims = [claim for claim in preset.targets["claims"] if claim["better"] in known and _rivals(claim) <= known]
    said = [Said(OURS, claim["said"], _nu_of(claim["better"], rows)) for claim in claims if "said" in claim]
    panels = [accuracy_panel(rows, said)]
    publish(folder, preset, accuracy_grids(rows), curves.judge(claims, schemes), notes, console, panels, records=rows)
    console.print(f"Report: {folder / 'report.html'}")


def inversion(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
              console: Console) -> None:  # fmt: skip
    """The nu at which accuracy falls to what the paper prints at its own largest nu, and the factor between the two."""
    rows, _, notes = _trainings(path, folder, overrides, quick, reporter)
    settings = settings_of(path, overrides)
    wanted, at = settings["wanted"], settings["at"]
    nus = [row["nu"] for row in rows]
    found = [crossing(nus, values, wanted) for values in np.transpose([row["accuracy"] for row in rows])]
    factor = np.array(found) / at
    told = f"nu = {_each(found)}, seed by seed: {_each(factor)} times the paper's {at:g}"
    rule = "log-linear interpolation between the trained nu; nan: not within them"
    verdict = Verdict(f"the nu at which accuracy is {wanted:.0%}", NOT_STATED, told, "", rule)
    panels = [accuracy_panel(rows, [Said(OURS, wanted, at)])]
    publish(folder, preset, accuracy_grids(rows), [verdict], notes, console, panels, records=rows, nu=found)


def crossing(nus: Sequence[float], accuracy: Sequence[float], wanted: float) -> float:
    """Where a curve over nu first falls below `wanted`, on a logarithmic axis; NaN if it never does.

    >>> round(crossing([1.0, 100.0], [1.0, 0.8], 0.9), 6), crossing([1.0, 2.0], [0.95, 0.94], 0.9)
    (10.0, nan)
    """
    for (x0, y0), (x1, y1) in pairwise(zip(nus, accuracy)):
        if y0 >= wanted > y1:
            return float(np.exp(np.interp(wanted, [y1, y0], [np.log(x1), np.log(x0)])))
    return float("nan")


def _trainings(path: Path, folder: Path, overrides: list[str], quick: bool,
               reporter: Reporter) -> tuple[list[Record], list[Scheme], list[str]]:  # fmt: skip
    """The preset's run: one record per method and nu, sorted by nu; all schemes; notes."""
    settings, experiment = settings_of(path, overrides), load(path, overrides)
    run_in(folder, experiment, reporter)
    schemes = {scheme.label: scheme for scheme in curves.collect({"run": folder})}
    run = RunFolder.open(folder)
    rows = [
        {"method": METHODS[scheme.name], "nu": scheme.nu, **_trained(schemes[label], run.scheme(label).read("rounds"))}
        for scheme, label in zip(experiment.scheme, experiment.labels)
        if scheme.name in METHODS
    ]
    rows.sort(key=lambda row: (list(METHODS.values()).index(row["method"]), row["nu"]))
    write_records(folder, "records", [row for record in rows for row in _by_seed(record)])
    ideal = [schemes[label] for scheme, label in zip(experiment.scheme, experiment.labels) if scheme.name == "fedavg"]
    data = run.manifest["data"]
    notes = [
        f"accuracy: mean of the last {LAST} evaluations; data: {data['name']}, {run.manifest['parameters']} parameters",
        *(f"accuracy without radio and noise: {_mean(one.finals['accuracy'].values())}" for one in ideal),
        UNITS.format(which="of the worst device", delta=experiment.privacy.delta),
        _trust(experiment.radio),
        *_told(settings, quick),
    ]
    return rows, list(schemes.values()), notes


def _rivals(claim: Record) -> set[str]:
    than = claim.get("than", [])
    return {than} if isinstance(than, str) else set(than)


def _nu_of(label: str, rows: list[Record]) -> float:
    return next(float(row["nu"]) for row in rows if row["label"] == label)


def _trust(radio: Radio) -> str:
    """Whose noise the ledger counted."""
    return f"the ledger trusts {radio.trusted_share:.2%} of the receiver's noise power ({radio.noise_dbm:g} dBm)"


def _trained(scheme: Scheme, rounds: dict[str, np.ndarray]) -> Record:
    """What one scheme reached, seed by seed."""

    def each(name: str, over: Callable[..., Any]) -> list[float]:
        return [float(over(rounds[name][rounds["seed"] == seed])) for seed in np.unique(rounds["seed"])]

    return {
        "label": scheme.label,
        "accuracy": list(scheme.finals["accuracy"].values()),
        "eps": list(scheme.finals["eps"].values()),
        "mean_excess": each("info_excess", np.mean),
        "mean_floor": each("info_floor", np.mean),
        "largest_energy_share": each("energy_share", np.max),
    }


def accuracy_grids(rows: list[Record]) -> list[Grid]:
    """What a reader may want of the trainings; a method that was not trained at a nu has no entry there."""
    nus = sorted({row["nu"] for row in rows})
    at = {(row["method"], row["nu"]): row for row in rows}

    def grid(title: str, cell: Callable[[Record], str]) -> Grid:
        cells = [[method, *(cell(at[method, nu]) if (method, nu) in at else "–" for nu in nus)]
                 for method in dict.fromkeys(row["method"] for row in rows)]  # fmt: skip
        return Grid(title, ("method", *(f"nu = {nu:g}" for nu in nus)), cells)

    return [
        grid("test accuracy, mean ± 95 % interval", lambda row: _mean(row["accuracy"])),
        grid("eps by RDP, least to largest over seeds", lambda row: _span(row["eps"])),
        grid("mean excess noise / nu", lambda row: _span(np.array(row["mean_excess"]) / row["nu"])),
        grid("mean floor, which adds to the noise", lambda row: _span(row["mean_floor"])),
    ]


def _span(values: Any) -> str:
    low, high = f"{np.min(values):.3g}", f"{np.max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def _mean(values: Iterable[float]) -> str:
    found = np.array(list(values))
    half = half_width_95(found)
    return f"{found.mean():.4f}" + (f" ± {half:.4f}" if np.isfinite(half) else "")


def accuracy_panel(rows: list[Record], said: list[Said]) -> Panel:
    """Accuracy over nu beside what the paper prints."""
    methods = dict.fromkeys(row["method"] for row in rows)
    own = {method: [row for row in rows if row["method"] == method] for method in methods}
    lines = [line(m, [r["nu"] for r in rows], np.transpose([r["accuracy"] for r in rows])) for m, rows in own.items()]
    return Panel("test accuracy", "cap on the mean excess noise, nu", "test accuracy", lines, said, log="x")
