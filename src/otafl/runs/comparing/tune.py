"""Step sizes by one rule for all schemes: the best on samples that neither training nor the report ever sees.

The rule: train with every step size of one grid, on the same seeds, and judge on the validation split, which is cut
from the training data. A step size scores the mean over seeds of the mean of the last five evaluations; the best score
wins, a tie goes to the smaller step, and a scheme that diverges at a step size scores worst there. With a `reach` the
middle of the grid is tried first, then what lies outwards, until the best has `reach` steps on either side that are no
better. Tuning looks at private data: it lies outside every privacy guarantee.
"""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.errors import Diverged, InputError
from otafl.core.files import read_toml, to_json, write_atomic
from otafl.runs.folder.store import RunFolder, SchemeFolder
from otafl.runs.progress import Reporter
from otafl.runs.runner import run_in
from otafl.runs.schema import Experiment, assign, config_hash, load
from otafl.runs.workbench import Workbench

Metric = Literal["accuracy", "loss", "objective"]
RULES = {
    "accuracy": "largest accuracy",
    "loss": "smallest cross-entropy",
    "objective": "smallest cross-entropy plus l2 term",
}
LAST = 5  # evaluations that a score averages
ALWAYS = ("eps", "trials", "reference")  # settings that a preset need not have


def tune_step_size(
    experiment_path: Path,
    grid: Sequence[float],
    folder: Path,
    reporter: Reporter | None = None,
    *,
    overrides: Sequence[str] = (),
    metric: Metric = "accuracy",
    reach: int | None = None,
) -> dict[str, float]:
    """The best step size of every scheme, by label; `folder/step_sizes.json` says how it was found.

    Called again with the same arguments it goes on where it stopped and gives the same answer; for another metric in
    the same folder it trains only what is new. reach: None tries the whole grid.
    """
    validate.one_of("metric", metric, RULES)
    if reach is not None:
        validate.whole("reach", reach)
    steps = sorted(set(float(step) for step in grid))
    validate.positive("grid", steps)
    experiment = load(experiment_path, [*overrides, 'task.report_on="validation"'])
    scores: dict[str, dict[float, float]] = {label: {} for label in experiment.labels}
    shared = Workbench()  # the data are read and the program is compiled for the first step size alone

    def attempt(step: float, schemes: list[Any]) -> None:
        part = experiment.model_copy(update={"scheme": schemes})
        trial = with_step_sizes(part, dict.fromkeys(part.labels, step))
        for label, score in _scores(trial, folder / f"step-{step:g}", metric, reporter, shared).items():
            scores[label][step] = score

    for step in steps if reach is None else [steps[len(steps) // 2]]:
        attempt(step, experiment.scheme)
    for scheme, label in zip(experiment.scheme, experiment.labels):  # alone, so that another metric finds them
        while (further := outwards(scores[label], steps, metric, reach or 0)) is not None:
            attempt(further, [scheme])
    best = {label: best_of(row, metric) for label, row in scores.items()}
    at_edge = [label for label, step in best.items() if len(steps) > 1 and step in (steps[0], steps[-1])]
    rule = f"{RULES[metric]} on the validation split, mean over seeds and over the last {LAST} evaluations"
    rows = {label: {f"{step:g}": row[step] for step in sorted(row)} for label, row in scores.items()}
    told = {"rule": rule, "grid": steps, "reach": reach, "seeds": experiment.seed_list, "scores": rows, "best": best}
    write_atomic(folder / "step_sizes.json", to_json({**told, "edge": at_edge}))
    return best


def best_of(scores: dict[float, float], metric: Metric) -> float:
    """The step with the best score; the smallest one on a tie; NaN (diverged) is worst.

    >>> best_of({0.1: 0.5, 0.3: 0.7, 0.6: 0.7, 1.0: float("nan")}, "accuracy"), best_of({0.1: 0.5, 0.3: 0.7}, "loss")
    (0.3, 0.1)
    """
    steps = sorted(scores)
    gain = np.array([scores[step] for step in steps]) * (1 if metric == "accuracy" else -1)
    return steps[int(np.argmax(np.where(np.isnan(gain), -np.inf, gain)))]


def outwards(scores: dict[float, float], steps: list[float], metric: Metric, reach: int) -> float | None:
    """The next step of the sorted grid to try, beside a run of steps that have scores; None: the best lies deep enough.

    >>> outwards({0.1: 0.5, 0.3: 0.7}, [0.03, 0.1, 0.3, 1.0], "accuracy", 1)
    1.0
    """
    tried = [number for number, step in enumerate(steps) if step in scores]
    low, high, best = tried[0], tried[-1], steps.index(best_of(scores, metric))
    if high - best < reach and high + 1 < len(steps):
        return steps[high + 1]
    return steps[low - 1] if best - low < reach and low > 0 else None


def _scores(
    experiment: Experiment, folder: Path, metric: Metric, reporter: Reporter | None, shared: Workbench
) -> dict[str, float]:
    """Score of every scheme; NaN where it diverged."""
    runs = trained(experiment, folder, reporter, shared)
    return {label: float("nan") if place is None else score(place, metric) for label, place in runs.items()}


def trained(
    experiment: Experiment, folder: Path, reporter: Reporter | None, shared: Workbench | None = None
) -> dict[str, SchemeFolder | None]:
    """Every scheme's results; None where it diverged: those that it stopped go on in a folder of their own."""
    found: dict[str, SchemeFolder | None] = {}
    left = list(experiment.scheme)
    while left:
        part = experiment.model_copy(update={"scheme": left})
        place = folder / config_hash(part)[:12]
        try:
            run_in(place, part, reporter, shared)
        except Diverged as stopped:  # beside others, of which any may have finished
            found[stopped.label] = None
        run = RunFolder.open(place)
        found |= {label: run.scheme(label) for label in part.labels if run.scheme(label).finished}
        left = [scheme for scheme, label in zip(left, part.labels) if label not in found]
    return found


def score(scheme: SchemeFolder, metric: Metric) -> float:
    """Mean over seeds of the mean of the last evaluations."""
    return float(np.mean(each_seed(scheme, metric)))


def each_seed(scheme: SchemeFolder, metric: Metric) -> list[float]:
    """The mean of the last evaluations, by seed."""
    table = scheme.read("evaluations")
    value = table["loss"] + table["penalty"] if metric == "objective" else table[metric]
    return [float(np.mean(value[table["seed"] == seed][-LAST:])) for seed in np.unique(table["seed"])]


def with_step_sizes(experiment: Experiment, steps: dict[str, float]) -> Experiment:
    """The same experiment, with a step size of its own for every scheme that is named."""

    def own(scheme: Any, step: float | None) -> Any:
        changed = {} if step is None else {"step_size": step}
        return scheme.model_copy(update={"server": scheme.server.model_copy(update=changed)})

    schemes = [own(scheme, steps.get(label)) for scheme, label in zip(experiment.scheme, experiment.labels)]
    return experiment.model_copy(update={"scheme": schemes})


def settings_of(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """A preset's `settings` with what `--set preset.settings.key=value` changes: keys that it has, to the like."""
    data = read_toml(path)
    stated = _settings(path, deepcopy(data))
    for override in overrides:
        if override.strip().startswith("preset."):
            assign(data, override)
    settings = _settings(path, data)
    for key, value in settings.items():
        if key in stated:
            _refuse_unlike(f"{path}: preset.settings.{key}", stated[key], value)
        elif key not in ALWAYS:
            near = validate.meant(key, known := [*stated, *ALWAYS]) or f"; the preset has {validate.listed(known)}"
            raise InputError(f"{path}: preset.settings.{validate.listed([key])}: unknown key{near}")
    return settings


def _settings(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    settings = data.get("preset", {}).get("settings", {})
    if not isinstance(settings, dict):
        raise InputError(f"{path}: preset.settings={validate.shown(settings)} must be a table")
    return settings


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number" if isinstance(value, int) or np.isfinite(value) else "an infinity"
    return {dict: "a table", list: "a list", str: "text", bool: "true or false"}.get(type(value), "a date")


def _refuse_unlike(key: str, stated: Any, value: Any) -> None:
    """Analyses take their settings as they are, some after hours of training; the closed ones in arithmetic."""
    if _kind(value) != _kind(stated):
        said = "" if isinstance(value, dict | list) else f"={validate.shown(value)}"
        raise InputError(f"{key}{said} must be {_kind(stated)}, as the preset has it")
    if _kind(value) == "a number" and stated > 0 and not value > 0:
        raise InputError(f"{key}={validate.shown(value)} must be > 0")
    if isinstance(stated, int) and isinstance(value, float) and not value.is_integer():
        raise InputError(f"{key}={value!r} must be a whole number, as the preset has it")
    if isinstance(value, dict):
        for name in value.keys() & stated.keys():
            _refuse_unlike(f"{key}.{name}", stated[name], value[name])
    if isinstance(value, list) and stated:
        if not value and _kind(stated[0]) == "a number":
            raise InputError(f"{key} must list one number at least")
        for n, one in enumerate(value):
            _refuse_unlike(f"{key}.{n}", stated[0], one)


def tuned(path: Path, folder: Path, overrides: Sequence[str], reporter: Reporter | None = None) -> dict[str, float]:
    """Step sizes as a preset's `settings.tune` wants them: `step_sizes`, `metric`, and `set`, overrides for tuning."""
    wanted = settings_of(path, overrides).get("tune")
    if wanted is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    changes = [*overrides, *wanted.get("set", [])]
    return tune_step_size(
        path, wanted["step_sizes"], folder, reporter, overrides=changes, metric=wanted.get("metric", "accuracy"),
        reach=wanted.get("reach"),
    )  # fmt: skip
