"""AdaScale's Figures 1 and 2, trained: accuracy over nu, and the nu that the printed accuracies would need."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from otafl.reproductions import curves
from otafl.reproductions.curves import Scheme
from otafl.reproductions.findings import NOT_STATED, Grid, Record, Verdict
from otafl.reproductions.pictures import Panel, Said, line
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.tune import LAST
from otafl.runs.folder.store import RunFolder
from otafl.systems.adascale.methods import half_width_95

METHODS = {
    "adascale-optimal": "Optimal",
    "adascale": "AdaScale",
    "adascale-estim": "EstimFuture",
    "adascale-equal": "EqualAlloc",
}
OURS = "AdaScale"
UNITS = "leakage is that of one record of one device (zero-out), {which}; delta = {delta:g}"


def accuracy(job: Reproduction) -> None:
    """Test accuracy over nu, with the eps that the ledger of the same run counted."""
    rows, schemes, notes = _trainings(job)
    claims = curves.about(job.preset.targets["claims"], {scheme.label for scheme in schemes})
    said = [Said(OURS, claim["said"], _nu_of(claim["better"], rows)) for claim in claims if "said" in claim]
    panels = [accuracy_panel(rows, said)]
    job.publish(accuracy_grids(rows), curves.judge(claims, schemes), notes, panels, records=rows)
    job.console.print(f"Report: {job.folder / 'report.html'}")


def inversion(job: Reproduction) -> None:
    """The nu at which accuracy falls to what the paper prints at its own largest nu, and the factor between the two."""
    rows, _, notes = _trainings(job)
    wanted, at = job.settings["wanted"], job.settings["at"]
    nus = [row["nu"] for row in rows]
    found = [crossing(nus, values, wanted) for values in np.transpose([row["accuracy"] for row in rows])]
    factor = np.array(found) / at
    told = f"nu = {listed(found)}, seed by seed: {listed(factor)} times the paper's {at:g}"
    rule = "log-linear interpolation between the trained nu; nan: not within them"
    verdict = Verdict(f"the nu at which accuracy is {wanted:.0%}", NOT_STATED, told, "", rule)
    panels = [accuracy_panel(rows, [Said(OURS, wanted, at)])]
    job.publish(accuracy_grids(rows), [verdict], notes, panels, records=rows, nu=found)


def crossing(nus: Sequence[float], accuracy: Sequence[float], wanted: float) -> float:
    """Where a curve over nu first falls below `wanted`, on a logarithmic axis; NaN if it never does.

    >>> round(crossing([1.0, 100.0], [1.0, 0.8], 0.9), 6), crossing([1.0, 2.0], [0.95, 0.94], 0.9)
    (10.0, nan)
    """
    for (x0, y0), (x1, y1) in pairwise(zip(nus, accuracy)):
        if y0 >= wanted > y1:
            return float(np.exp(np.interp(wanted, [y1, y0], [np.log(x1), np.log(x0)])))
    return float("nan")


def _trainings(job: Reproduction) -> tuple[list[Record], list[Scheme], list[str]]:
    """The preset's run: one record per method and nu, sorted by nu; all schemes; notes."""
    experiment = job.experiment()
    place = job.run(experiment, "")
    schemes = {scheme.label: scheme for scheme in curves.collect({"run": place})}
    run = RunFolder.open(place)
    rows = [
        {"method": METHODS[scheme.name], "nu": scheme.nu, **_trained(schemes[label], run.scheme(label).read("rounds"))}
        for scheme, label in zip(experiment.scheme, experiment.labels)
        if scheme.name in METHODS
    ]
    rows.sort(key=lambda row: (list(METHODS.values()).index(row["method"]), row["nu"]))
    job.record([row for record in rows for row in by_seed(record)])
    ideal = [schemes[label] for scheme, label in zip(experiment.scheme, experiment.labels) if scheme.name == "fedavg"]
    radio = experiment.radio
    notes = [
        f"accuracy: mean of the last {LAST} evaluations; {curves.data_of(run)}",
        *(f"accuracy without radio and noise: {_mean(one.finals['accuracy'].values())}" for one in ideal),
        UNITS.format(which="of the worst device", delta=experiment.privacy.delta),
        f"the ledger trusts {radio.trusted_share:.2%} of the receiver's noise power ({radio.noise_dbm:g} dBm)",
        *job.settings.get("notes", []),
    ]
    return rows, list(schemes.values()), notes


def _nu_of(label: str, rows: list[Record]) -> float:
    return next(float(row["nu"]) for row in rows if row["label"] == label)


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


def by_seed(record: Record) -> list[Record]:
    """One flat row per seed of a record with lists over seeds."""
    lists = [key for key, value in record.items() if isinstance(value, list)]
    rest = {key: value for key, value in record.items() if key not in lists}
    seeds = range(len(record[lists[0]]))
    return [{**rest, "seed": seed, **{key: record[key][seed] for key in lists}} for seed in seeds]


def listed(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))
