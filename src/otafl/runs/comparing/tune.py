"""Step sizes by one rule for all schemes: the best on samples that neither training nor the report ever sees.

The rule: train with every step size of one grid, on the same seeds, and judge on the validation split, which is cut
from the training data. A step size scores the mean over seeds of the mean of the last five evaluations; the best score
wins, a tie goes to the smaller step, and a scheme that diverges at a step size scores worst there. Tuning looks at
private data: it lies outside every privacy guarantee.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.errors import RunError
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


def tune_step_size(
    experiment_path: Path,
    grid: Sequence[float],
    folder: Path,
    reporter: Reporter | None = None,
    *,
    overrides: Sequence[str] = (),
    metric: Metric = "accuracy",
) -> dict[str, float]:
    """The best step size of every scheme, by label; `folder/step_sizes.json` says how it was found.

    Called again with the same arguments it goes on where it stopped and gives the same answer.
    """
    validate.one_of("metric", metric, RULES)
    steps = sorted(set(float(step) for step in grid))
    validate.positive("grid", steps)
    experiment = load(experiment_path, [*overrides, 'task.report_on="validation"'])
    scores: dict[str, dict[str, float]] = {label: {} for label in experiment.labels}
    for step in steps:
        trial = with_step_sizes(experiment, dict.fromkeys(experiment.labels, step))
        for label, score in _scores(trial, folder / f"step-{step:g}", metric, reporter).items():
            scores[label][f"{step:g}"] = score
    best = {label: steps[_first_best(list(row.values()), metric)] for label, row in scores.items()}
    at_edge = [label for label, step in best.items() if len(steps) > 1 and step in (steps[0], steps[-1])]
    rule = f"{RULES[metric]} on the validation split, mean over seeds and over the last {LAST} evaluations"
    told = {"rule": rule, "grid": steps, "seeds": experiment.seed_list, "scores": scores, "best": best, "edge": at_edge}
    write_atomic(folder / "step_sizes.json", to_json(told))
    return best


def _first_best(scores: list[float], metric: Metric) -> int:
    """Position of the best score; the first one, of the smallest step, on a tie; NaN (diverged) is worst.

    >>> _first_best([0.5, 0.7, 0.7, float("nan")], "accuracy"), _first_best([0.5, 0.7], "loss")
    (1, 0)
    """
    gain = np.array(scores) * (1 if metric == "accuracy" else -1)
    return int(np.argmax(np.where(np.isnan(gain), -np.inf, gain)))


def _scores(experiment: Experiment, folder: Path, metric: Metric, reporter: Reporter | None) -> dict[str, float]:
    """Score of every scheme; NaN where it diverged."""
    runs = trained(experiment, folder, reporter)
    return {label: float("nan") if place is None else score(place, metric) for label, place in runs.items()}


def trained(
    experiment: Experiment, folder: Path, reporter: Reporter | None, shared: Workbench | None = None
) -> dict[str, SchemeFolder | None]:
    """Every scheme's results; None where it diverged: the schemes after it go on in a folder of their own."""
    found: dict[str, SchemeFolder | None] = {}
    left = list(experiment.scheme)
    while left:
        part = experiment.model_copy(update={"scheme": left})
        place = folder / config_hash(part)[:12]
        try:
            run_in(place, part, reporter, shared)
        except RunError as refusal:
            if "not finite" not in str(refusal):
                raise
        run = RunFolder.open(place)
        done = [label for label in part.labels if run.scheme(label).finished]
        found |= {label: run.scheme(label) for label in done}
        if len(done) < len(left):
            found[part.labels[len(done)]] = None
        left = left[len(done) + 1 :]
    return found


def score(scheme: SchemeFolder, metric: Metric) -> float:
    """Mean over seeds of the mean of the last evaluations."""
    table = scheme.read("evaluations")
    value = table["accuracy"] if metric == "accuracy" else table["loss"] + (metric == "objective") * table["penalty"]
    return float(np.mean([np.mean(value[table["seed"] == seed][-LAST:]) for seed in np.unique(table["seed"])]))


def with_step_sizes(experiment: Experiment, steps: dict[str, float]) -> Experiment:
    """The same experiment, with a step size of its own for every scheme that is named."""

    def own(scheme: Any, step: float | None) -> Any:
        changed = {} if step is None else {"step_size": step}
        return scheme.model_copy(update={"server": scheme.server.model_copy(update=changed)})

    schemes = [own(scheme, steps.get(label)) for scheme, label in zip(experiment.scheme, experiment.labels)]
    return experiment.model_copy(update={"scheme": schemes})


def settings_of(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """A preset's `settings` with what `--set preset.settings.key=value` changes."""
    data = read_toml(path)
    for override in overrides:
        if override.strip().startswith("preset."):
            assign(data, override)
    return dict(data.get("preset", {}).get("settings", {}))


def tuned(path: Path, folder: Path, overrides: Sequence[str], reporter: Reporter | None = None) -> dict[str, float]:
    """Step sizes as a preset's `settings.tune` wants them: `step_sizes`, `metric`, and `set`, overrides for tuning."""
    wanted = settings_of(path, overrides).get("tune")
    if wanted is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    changes = [*overrides, *wanted.get("set", [])]
    return tune_step_size(
        path, wanted["step_sizes"], folder, reporter, overrides=changes, metric=wanted.get("metric", "accuracy")
    )
