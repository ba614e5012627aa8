"""From run folders to one plain dict: all that the page and the plots show, exactly as the store has it.

NaN is null and infinity the string "inf", as everywhere in the store. A matrix has one row per seed and one column per
round; null where a seed had stopped. Long runs are thinned to a round axis that fits a page, never averaged.
"""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.core.files import plain
from otafl.privacy.attack import tpr
from otafl.reports.devices import BARS, groups, read_devices, starts
from otafl.reports.tables import footer, metric_of
from otafl.runs.comparing.compare import difference
from otafl.runs.folder.recount import believed
from otafl.runs.folder.sealed import reading
from otafl.runs.folder.store import AGAIN, RunFolder, SchemeFolder
from otafl.runs.folder.summaries import short
from otafl.runs.planning.afford import without_rounds

NUMBERS = 80_000  # in all per-round matrices of a page together: about 1.6 MB of text
LONG_NAMES = {  # of metrics, where there is room for them
    "final_accuracy": "accuracy",
    "worst_client": "worst client",
    "accuracy_at_eps": "accuracy at the ε target",
    "worst_client_at_eps": "worst client at the ε target",
    "best_accuracy": "best accuracy",
    "final_loss": "loss",
    "final_eps": "ε",
}
SAME_DRAWS = ("task", "channel", "devices")  # what must agree for one seed to mean one partition and one channel

Columns = dict[str, np.ndarray]


def collect(folders: list[Path]) -> dict[str, Any]:
    """Everything about these runs. Labels get the run's name in front where there are several runs."""
    if not folders:
        raise InputError("give at least one run folder")
    runs = [RunFolder.open(folder) for folder in folders]
    names = run_names([run.path for run in runs])
    total = max(1, sum(len(run.labels()) for run in runs))
    schemes: list[dict[str, Any]] = []
    for run, name in zip(runs, names):
        for place in believed(run):
            with reading(place.path, AGAIN):
                found = read_scheme(place, total)
            shown = place.label if len(runs) == 1 else f"{name}: {place.label}"
            schemes.append({"id": len(schemes), "label": shown, "run": name, **found})
    told = [describe(run, name) for run, name in zip(runs, names)]
    metric = common_metric(schemes)
    named = long_names(metric)
    return plain({
        "title": told[0]["title"] if len(runs) == 1 else f"{len(runs)} runs side by side",
        "runs": told,
        "schemes": schemes,
        "metric": metric,
        "metrics": named,
        "differences": differences(schemes, named),
        "footer": footer([entry for entry in map(as_summary, schemes) if entry]),
        "notes": notes(told, schemes),
        "thinned": thinned(schemes),
    })  # fmt: skip


def run_names(paths: list[Path]) -> list[str]:
    """Short names that tell the runs apart.

    >>> run_names([Path("a/x"), Path("b/x"), Path("b/y"), Path("b/eps-2/run")])
    ['a/x', 'b/x', 'y', 'eps-2']
    """
    places = [path.resolve() for path in paths]
    parts = [(place.parent if place.name == "run" else place).parts for place in places]  # of a comparison
    names = []
    for n, own in enumerate(parts):
        others = [other for m, other in enumerate(parts) if m != n]
        depth = next((d for d in range(1, len(own)) if all(other[-d:] != own[-d:] for other in others)), 1)
        names.append("/".join(own[-depth:]))
    return [name if names.count(name) == 1 else f"{name} #{n + 1}" for n, name in enumerate(names)]


def describe(run: RunFolder, name: str) -> dict[str, Any]:
    """A run's manifest and its resolved config."""
    manifest = run.manifest
    with reading(run.path / "config.toml", AGAIN):
        config = (run.path / "config.toml").read_text(encoding="utf-8")
    keys = ("title", "seeds", "config_sha256", "data", "parameters", "versions", "machine")
    told = {key: manifest.get(key) for key in keys}
    return {"name": name, **told, "title": told["title"] or name, "config": config}


def read_scheme(place: SchemeFolder, schemes: int) -> dict[str, Any]:
    """One of so many schemes that share a page; what the store does not have is None."""
    numbers = NUMBERS // schemes
    if not place.finished:
        return {"finished": False, "checkpoint": max(place.saved(), default=0)}
    recorded, summary = "devices.parquet" in place.hashes(), place.json("summary")
    return {
        "finished": True,
        "summary": _at_eps_only_private(summary),
        "seconds": place.timing()["seconds"],
        "card": short_card(place.json("card")),
        "certificate": place.json("certificate") if "certificate.json" in place.hashes() else None,
        "tradeoff": tradeoff(summary),
        "evaluations": by_seed(place.read("evaluations"), numbers // 4),
        "rounds": by_seed(place.read("rounds"), numbers),
        "devices": _devices(place, summary, schemes) if recorded else None,
    }


def _devices(place: SchemeFolder, summary: dict[str, Any], schemes: int) -> dict[str, Any] | None:
    most = int(max(summary["rounds"], default=0))
    return read_devices(place.whole("devices.parquet"), summary["clients"], most, schemes)


def tradeoff(summary: dict[str, Any]) -> dict[str, Any] | None:
    """The worst seed's trade-off curve as a table over false alarms, where the guarantee is one μ."""
    mu = [float(value) for value in summary.get("mu") or () if value is not None]
    if not mu or not np.all(np.isfinite(mu)):
        return None
    alarms = np.concatenate([np.arange(10) / 10, np.arange(1, 100), [99.5, 100]])
    power = 100 * np.asarray(tpr(max(mu), alarms / 100))
    columns = {"power": [plain(power)]}
    return {"seeds": [0], "round": plain(alarms), "end": [100.0], "of": len(alarms), "columns": columns}


def short_card(card: dict[str, Any]) -> dict[str, Any]:
    """The privacy card with per-device eps only by the accountant that the cap is counted in, grouped where many."""
    spent = card.get("spent", [])
    chosen = next((s for s in spent if s["accountant"] == card["cap"]["accountant"]), spent[0] if spent else None)
    device_eps = None
    if chosen is not None and "eps" in chosen:  # a card of very many devices has quantiles instead
        eps = np.array([float(value) for value in chosen["eps"]])
        start = starts(groups(len(eps), BARS))
        device_eps = {"accountant": chosen["accountant"], "start": start, "max": np.maximum.reduceat(eps, start)}
    return {**short(card), "device_eps": device_eps}


def by_seed(table: Columns, numbers: int) -> dict[str, Any]:
    """A long table as one (seeds, rounds) matrix per column, with about `numbers` entries in all.

    `end` is each seed's last round, which is always kept; `of` is the number of rounds before thinning.

    >>> by_seed({"seed": np.array([0, 0, 3]), "round": np.array([0, 1, 0]), "snr": np.array([2.0, 4.0, np.inf])}, 99)
    {'seeds': [0, 3], 'round': [0, 1], 'end': [1, 0], 'of': 2, 'columns': {'snr': [[2.0, 4.0], ['inf', None]]}}
    """
    names = [name for name in table if name not in ("seed", "round")]
    seeds, row = np.unique(table["seed"], return_inverse=True)
    rounds, column = np.unique(table["round"], return_inverse=True)
    ends = np.zeros(len(seeds), int)
    np.maximum.at(ends, row, column)
    kept = np.union1d(thin(len(rounds), numbers // max(len(names) * len(seeds), 1)), ends)
    matrices = {}
    for name in names:
        matrix = np.full((len(seeds), len(rounds)), np.nan)
        matrix[row, column] = table[name].astype(float)
        matrices[name] = plain(matrix[:, kept])
    axes = {"seeds": plain(seeds), "round": plain(rounds[kept]), "end": plain(rounds[ends]), "of": len(rounds)}
    return {**axes, "columns": matrices}


def thin(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` positions, evenly spread, first and last among them.

    >>> thin(5, 9).tolist(), thin(9, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 4, 8])
    """
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 2))).round().astype(int))


def as_summary(scheme: dict[str, Any]) -> dict[str, Any] | None:
    """A finished scheme's summary under the label that the page shows."""
    return {**scheme["summary"], "label": scheme["label"]} if scheme["finished"] else None


def _at_eps_only_private(summary: dict[str, Any]) -> dict[str, Any]:
    """A scheme that spends an infinite eps has no value at a finite one."""
    if summary["private"]:
        return summary
    return {key: [None] * len(value) if key.endswith("_at_eps") else value for key, value in summary.items()}


def common_metric(schemes: list[dict[str, Any]]) -> str:
    """What all of these schemes are told in; where they differ, accuracy, which some of them then lack."""
    told = {metric_of([entry]) for entry in map(as_summary, schemes) if entry}
    return told.pop() if len(told) == 1 else "accuracy"


def long_names(metric: str) -> dict[str, str]:
    """`LONG_NAMES` with another metric in the place of accuracy."""
    return {key.replace("accuracy", metric): name.replace("accuracy", metric) for key, name in LONG_NAMES.items()}


def differences(schemes: list[dict[str, Any]], named: dict[str, str]) -> dict[str, list[list[dict[str, float] | None]]]:
    """Per metric: entry [a][b] is scheme a minus scheme b over the seeds both have; None where either is unfinished."""
    entries = [as_summary(scheme) for scheme in schemes]

    def gap(a: dict[str, Any] | None, b: dict[str, Any] | None, metric: str) -> dict[str, float] | None:
        if not a or not b or a is b:
            return None
        found = difference(a, b, metric)
        return {"mean": found.mean, "half_width": found.half_width if found.pairs > 1 else np.nan, "pairs": found.pairs}

    return {metric: [[gap(a, b, metric) for b in entries] for a in entries] for metric in named}


def notes(runs: list[dict[str, Any]], schemes: list[dict[str, Any]]) -> list[str]:
    """What a reader must know before comparing."""
    said = []
    for scheme in schemes:
        if not scheme["finished"]:
            saved = f"last checkpoint: round {scheme['checkpoint']}"
            said.append(f"{scheme['label']} is unfinished ({saved}); otafl run --resume continues it.")
        elif none := without_rounds(scheme["summary"]):
            said.append(f"{scheme['label']}: {none}; its figures are those of the initial model.")
    configs = [tomllib.loads(run["config"]) for run in runs]
    differing = [key for key in SAME_DRAWS if any(config.get(key) != configs[0].get(key) for config in configs)]
    if "task" not in differing and any(run["data"] != runs[0]["data"] for run in runs):
        differing = ["data", *differing]  # arrays that were given in Python all have one name
    if differing:
        said.append(
            f"The runs differ in {', '.join(differing)}: one seed is not one partition and one channel in all of them, "
            "so differences between runs pair unlike draws."
        )
    return said


def thinned(schemes: list[dict[str, Any]]) -> str:
    """How much of the rounds the curves show, where it is not all of them."""
    shown = [(s["rounds"]["of"], len(s["rounds"]["round"])) for s in schemes if s.get("rounds")]
    if not any(kept < of for of, kept in shown):
        return ""
    of, kept = max(shown)
    return f"Curves over rounds show {kept} of {of} rounds, evenly spread; tables are computed from all."
