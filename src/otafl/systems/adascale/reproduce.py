"""AdaScale's Figures 1 and 2: leakage without training, accuracy with it, and what becomes of each claim."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.reports.tables import paired_difference
from otafl.reproductions.findings import (
    FAILS,
    HOLDS,
    Grid,
    Record,
    Verdict,
    by_case,
    draw,
    publish,
    write_records,
)
from otafl.reproductions.preset_run import run_in
from otafl.runs.comparing.statistics import numbers
from otafl.runs.comparing.tune import settings_of
from otafl.runs.folder.store import RunFolder
from otafl.runs.folder.summaries import summaries
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import Radio, load
from otafl.systems.adascale.methods import half_width_95, leakage_table, paint_leakage
from otafl.systems.adascale.setting import Setting

METHODS = {
    "adascale-optimal": "Optimal",
    "adascale": "AdaScale",
    "adascale-estim": "EstimFuture",
    "adascale-equal": "EqualAlloc",
}
OURS, BEST = "AdaScale", "Optimal"
UNITS = "leakage is that of one record of one device (zero-out), {which}; delta = {delta:g}"
RECONSTRUCTED = (
    "liu-simeone ([20]) and lyapunov ([23]) are reconstructions from what the paper says of them: indicative"
)


# --- leakage: channels alone --------------------------------------------------------------------------------------


def leakage(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
            console: Console) -> None:  # fmt: skip
    """RDP and eps of every method over nu, seed by seed, with 95 % intervals."""
    settings = settings_of(path, overrides)
    setting = Setting(**settings["setting"])
    shared = {key: settings[key] for key in ("nus", "seeds", "mode", "delta")}
    alpha, methods = settings["alpha"], settings["methods"]
    table = leakage_table(setting, methods=methods, alpha=alpha, grid=settings["grid"], **shared)
    by_alpha = {a: leakage_table(setting, methods=["adascale"], alpha=a, **shared) for a in settings["alphas"]}
    write_records(folder, "records", [row for record in table for row in _by_seed(record, settings["seeds"])])
    plotted = [record for record in table if record["method"] in settings["plotted"]]
    draw(folder, "leakage", 2, 1, lambda panels: paint_leakage(plotted, panels))
    grids = [
        _grid(table, "total RDP, seed by seed", alpha, lambda r: _each(r["rdp"])),
        _grid(table, "RDP relative to Optimal, seed by seed", alpha, lambda r: _each(r["ratio"])),
        _grid(table, "RDP, mean ± 95 % interval", alpha, lambda r: _interval(r, "rdp")),
        _grid(table, "eps, mean ± 95 % interval", alpha, lambda r: _interval(r, "eps")),
    ]
    notes = [
        UNITS.format(which="mean over devices", delta=settings["delta"]),
        RECONSTRUCTED,
        *setting.cautions(),
        *_told(settings, quick),
    ]
    verdicts = leakage_verdicts(table, by_alpha, preset.targets)
    publish(folder, preset, grids, verdicts, notes, console, settings=settings, records=table)


def leakage_verdicts(table: list[Record], by_alpha: dict[int, list[Record]], targets: dict[str, Any]) -> list[Verdict]:
    """Every claim about leakage, checked at every nu and seed."""
    nus = list(dict.fromkeys(record["nu"] for record in table))

    def column(method: str, name: str) -> np.ndarray:
        return np.array([next(r for r in table if (r["method"], r["nu"]) == (method, nu))[name] for nu in nus])

    steps = {
        f"{less} < {more}": column(more, "rdp") > column(less, "rdp")  # (nu, seed)
        for less, more in zip(targets["order"], targets["order"][1:])
    }
    whole = {step: bool(held.all()) for step, held in steps.items()}
    broken = [f"{step} at nu = {nu:g}" for step, held in steps.items() for nu, row in zip(nus, held) if not row.all()]
    ours, eps = column("adascale", "ratio"), column("adascale", "eps")
    margin = {method: (column(method, "eps") - eps).min(-1) for method in targets["rivals"]}
    behind = [f"{method} at nu = {nu:g}" for method, gaps in margin.items() for nu, gap in zip(nus, gaps) if gap < 0]
    ahead = {method: bool(np.all(gaps >= 0)) for method, gaps in margin.items()}
    gaps = {method: column(method, "ratio").mean(-1) for method in targets["order"][1:]}
    narrows = {method: bool(np.all(np.diff(gap) < 0)) for method, gap in gaps.items()}
    large = {m: column(m, "rdp") / column("adascale", "rdp") for m in targets["much_larger"]}
    least = {f"{m} at nu = {nu:g}": row.min() for m, at in large.items() for nu, row in zip(nus, at)}
    larger = {name: bool(ratio >= targets["much"]) for name, ratio in least.items()}
    by_order = np.array([[record["eps_mean"] for record in rows] for rows in by_alpha.values()])  # (alpha, nu)
    spread = (by_order.max(0) - by_order.min(0)) / by_order.min(0)
    by_order_said = "; ".join(f"alpha = {alpha}: {_each(row)}" for alpha, row in zip(by_alpha, by_order))
    said = "; ".join(f"{m} {_each(gap)}" for m, gap in gaps.items())
    return [
        Verdict(" < ".join(targets["order"]) + " in RDP", by_case(whole),
                f"{ours.size} pairs of nu and seed; broken on some seed: {', '.join(broken) or 'never'}"),
        Verdict("AdaScale is close to Optimal", HOLDS if ours.max() <= targets["close"] else FAILS,
                f"RDP {ours.min():.3g} to {ours.max():.3g} times Optimal's; `close` read as {targets['close']:g}"),
        Verdict("AdaScale has the least eps of the online methods", by_case(ahead),
                f"above a rival on some seed: {', '.join(behind) or 'never'}"),
        Verdict("the gap is largest at small nu and narrows", by_case(narrows),
                f"mean ratio to Optimal over nu: {said}"),
        Verdict("[20] and [23] leak much more RDP", by_case(larger),
                "times AdaScale's: " + "; ".join(f"{m} {_each(at.mean(-1))}" for m, at in large.items())),
        Verdict("alpha hardly matters for eps", HOLDS if spread.max() <= targets["negligible"] else FAILS,
                f"eps over nu, {by_order_said}; largest difference {spread.max():.1%}"),
    ]  # fmt: skip


def _by_seed(record: Record, seeds: Sequence[int]) -> list[Record]:
    """One flat row per seed of a record of `leakage_table`."""
    lists = [key for key, value in record.items() if isinstance(value, list)]
    rest = {key: value for key, value in record.items() if key not in lists}
    return [{**rest, "seed": seed, **{key: record[key][s] for key in lists}} for s, seed in enumerate(seeds)]


def _grid(table: list[Record], title: str, alpha: int, cell: Callable[[Record], str]) -> Grid:
    nus = list(dict.fromkeys(record["nu"] for record in table))
    rows = [
        [method, *(cell(record) for record in table if record["method"] == method)]
        for method in dict.fromkeys(record["method"] for record in table)
    ]
    return Grid(title.replace("RDP", f"RDP({alpha})"), ("method", *(f"nu = {nu:g}" for nu in nus)), rows)


def _each(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))


def _interval(record: Record, name: str) -> str:
    return f"{record[f'{name}_mean']:.3g} ± {record[f'{name}_half_width_95']:.2g}"


def _told(settings: dict[str, Any], quick: bool) -> list[str]:
    return [*settings.get("notes", []), *(["smoke version: too small to mean anything"] if quick else [])]


# --- accuracy: the same channels, trained ---------------------------------------------------------------------------


def accuracy(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
             console: Console) -> None:  # fmt: skip
    """Test accuracy of every method over nu, with the eps that the ledger of the same run counted."""
    settings, experiment = settings_of(path, overrides), load(path, overrides)
    run_in(folder, load(path, overrides), reporter)
    found = {entry["label"]: entry for entry in summaries(folder)}
    run = RunFolder.open(folder)
    rows = [
        {"method": METHODS[scheme.name], "nu": scheme.nu, **_trained(found[label], run.scheme(label).read("rounds"))}
        for scheme, label in zip(experiment.scheme, experiment.labels)
        if scheme.name in METHODS
    ]
    ideal = [found[label] for scheme, label in zip(experiment.scheme, experiment.labels) if scheme.name == "fedavg"]
    write_records(folder, "records", [row for record in rows for row in _by_seed(record, experiment.seed_list)])
    draw(folder, "accuracy", 2, 1, lambda panels: paint_accuracy(rows, panels))
    notes = [f"accuracy without radio and noise: {_mean(entry['final_accuracy'])}" for entry in ideal]
    notes += [
        UNITS.format(which="of the worst device", delta=experiment.privacy.delta),
        _trust(experiment.radio),
        *_told(settings, quick),
    ]
    verdicts = accuracy_verdicts(rows, found, preset.targets)
    publish(folder, preset, accuracy_grids(rows), verdicts, notes, console, records=rows)
    console.print(f"Report: {folder / 'report.html'}")


def _trust(radio: Radio) -> str:
    """Whose noise the ledger counted."""
    return f"the ledger trusts {radio.trusted_share:.2%} of the receiver's noise power ({radio.noise_dbm:g} dBm)"


def _trained(entry: dict[str, Any], rounds: dict[str, np.ndarray]) -> Record:
    """What one scheme reached, seed by seed."""

    def each(name: str, over: Callable[..., Any]) -> list[float]:
        return [float(over(rounds[name][rounds["seed"] == seed])) for seed in entry["seeds"]]

    return {
        "label": entry["label"],
        "accuracy": numbers(entry["final_accuracy"]).tolist(),
        "eps": numbers(entry["final_eps"]).tolist(),
        "mean_excess": each("info_excess", np.mean),
        "mean_floor": each("info_floor", np.mean),
        "largest_energy_share": each("energy_share", np.max),
    }


def accuracy_grids(rows: list[Record]) -> list[Grid]:
    nus = list(dict.fromkeys(row["nu"] for row in rows))
    head = ("method", *(f"nu = {nu:g}" for nu in nus))

    def grid(title: str, cell: Callable[[Record], str]) -> Grid:
        methods = dict.fromkeys(row["method"] for row in rows)
        return Grid(title, head, [[m, *(cell(row) for row in rows if row["method"] == m)] for m in methods])

    return [
        grid("test accuracy, mean ± 95 % interval", lambda row: _mean(row["accuracy"])),
        grid("eps by RDP, seed by seed", lambda row: _each(row["eps"])),
        grid("mean excess noise / nu", lambda row: _each(np.array(row["mean_excess"]) / row["nu"])),
        grid("mean floor, which adds to the noise", lambda row: _each(row["mean_floor"])),
    ]


def _mean(values: Any) -> str:
    values = numbers(values)
    half = half_width_95(values)
    return f"{values.mean():.4f}" + (f" ± {half:.4f}" if np.isfinite(half) else "")


def accuracy_verdicts(rows: list[Record], found: dict[str, Any], targets: dict[str, Any]) -> list[Verdict]:
    """Claims about accuracy, and the order of the ledgers' eps."""
    nus = sorted({row["nu"] for row in rows})
    at = {(row["method"], row["nu"]): row for row in rows}
    means = np.array([np.mean(at[OURS, nu]["accuracy"]) for nu in nus])
    said = [targets["accuracy_at_least_nu"], targets["accuracy_at_largest_nu"]]
    reached = np.abs(means[[0, -1]] - said) <= targets["tolerance"]
    pairs = [(found[row["label"]], found[at[BEST, row["nu"]]["label"]]) for row in rows if row["method"] != BEST]
    gaps = {one["label"]: paired_difference(one, best, "final_accuracy") for one, best in pairs}
    alike = [abs(gap["mean"]) <= targets["tolerance"] for gap in gaps.values()]
    widest = max(gaps, key=lambda name: abs(gaps[name]["mean"]))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    eps = np.array([[at[m, nu]["eps"] for nu in nus] for m in methods])
    return [
        Verdict(f"accuracy falls from {said[0]:.0%} to {said[1]:.0%} as nu grows from {nus[0]:g} to {nus[-1]:g}",
                by_case(dict(zip((f"nu = {nus[0]:g}", f"nu = {nus[-1]:g}"), map(bool, reached)))),
                f"AdaScale over nu: {_each(means)}; tolerance {targets['tolerance']:g}"),
        Verdict("accuracy falls with nu", HOLDS if np.all(np.diff(means) < 0) else FAILS, "the same numbers"),
        Verdict("nu fixes accuracy, whatever the method", HOLDS if all(alike) else FAILS,
                f"largest paired difference to {BEST}: {widest}, "
                f"{gaps[widest]['mean']:+.4f} ± {gaps[widest]['half_width']:.4f}"),
        Verdict(" < ".join(methods) + " in the ledgers' eps", HOLDS if np.all(np.diff(eps, axis=0) > 0) else FAILS,
                f"every one of {eps[0].size} pairs of nu and seed was checked"),
    ]  # fmt: skip


def paint_accuracy(rows: list[Record], panels: list[Any]) -> None:
    """Accuracy over nu and over eps, with 95 % intervals."""
    for n, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["nu"])
        mean = [np.mean(row["accuracy"]) for row in own]
        half = np.nan_to_num([half_width_95(row["accuracy"]) for row in own])
        places = ([row["nu"] for row in own], [np.mean(row["eps"]) for row in own])
        for panel, place in zip(panels, places):
            panel.errorbar(place, mean, half, label=method, marker="o", ms=3, capsize=2, color=f"C{n}")
    for panel, name in zip(panels, ("cap on the mean excess noise, nu", "eps of the run, mean over seeds")):
        panel.set(xscale="log", xlabel=name, ylabel="test accuracy")
        panel.grid(alpha=0.3, which="both")
    panels[0].legend()
