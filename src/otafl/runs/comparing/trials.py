"""The same trials for every scheme: rounds, step and clip norm by one Halton sequence, judged on devices kept out.

Trial 0 is what plans say; the others follow an unscrambled Halton sequence. In every trial each scheme's own knobs are
planned anew, so a scheme gains nothing from having many of them. The validation split is cut from the training data and
is neither trained nor reported on, the seeds are not those of the report. Trials look at private data: they lie outside
every privacy guarantee, and the card says so.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.merit import STEP_SCALE
from otafl.core import validate
from otafl.core.files import to_json, write_atomic
from otafl.runs import build
from otafl.runs.comparing.from_plans import from_plans
from otafl.runs.comparing.tune import LAST, each_seed, trained
from otafl.runs.executors import Outcome, attempt
from otafl.runs.folder.store import SchemeFolder
from otafl.runs.planning.facts import parts_of
from otafl.runs.planning.steps import is_linear
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere, Task, arrived, made, task_of, values_of
from otafl.runs.schema import Experiment
from otafl.runs.workbench import Workbench

FEWEST_ROUNDS = 25
STEP_RANGE = (0.05, 1.2)  # s of the step rule, log scale
CLIP_RANGE = (0.1, 1.0)  # of the file's clip norm, log scale
SEEDS = (1000, 1001, 1002)  # never reported
VALIDATION = 0.2  # of the training data, unless the file says otherwise
EDGE = 1 / 16  # of a range, at either end


class Point(NamedTuple):
    """One trial, the same for every scheme."""

    rounds: int
    step_scale: float
    clip: float  # of the file's clip norm


def points(count: int, rounds: int, step_scale: float) -> list[Point]:
    """Trial 0 is the plans' own; then Halton points, each coordinate on a log scale."""
    from scipy.stats import qmc  # a second to load

    def between(low: float, high: float, share: float) -> float:
        return float(low * (high / low) ** share)

    fewest = min(FEWEST_ROUNDS, rounds)
    found = [
        Point(round(between(fewest, rounds, u)), between(*STEP_RANGE, v), between(*CLIP_RANGE, w))
        for u, v, w in qmc.Halton(3, scramble=False).random(count)[1:]  # without its zero
    ]
    return [Point(rounds, step_scale, 1.0), *found]


def at(experiment: Experiment, point: Point) -> Experiment:
    """The experiment of one trial: fewer rounds, tighter messages. A scheme with rounds of its own keeps its share."""
    share = point.rounds / experiment.rounds

    def own(scheme: Any) -> Any:
        changed: dict[str, Any] = {}
        if scheme.clients is not None:
            changed["clients"] = _clipped(scheme.clients, point.clip)
        if scheme.rounds is not None:
            changed["rounds"] = max(1, round(scheme.rounds * share))
        return scheme.model_copy(update=changed)

    return experiment.model_copy(
        update={
            "rounds": point.rounds,
            "evaluate_every": min(experiment.evaluate_every, max(1, point.rounds // LAST)),
            "clients": _clipped(experiment.clients, point.clip),
            "scheme": [own(scheme) for scheme in experiment.scheme],
        }
    )


def _clipped(clients: Any, factor: float) -> Any:
    return clients.model_copy(update={"clip_norm": clients.clip_norm * factor})


def on_validation(experiment: Experiment) -> Experiment:
    """Whole devices are kept out: those left hold no more samples each than in the report, so no plan is worse off."""
    data = experiment.task.data
    if not data.validation_fraction:
        data = type(data)(**{**data.__dict__, "validation_fraction": VALIDATION})
    split = experiment.model_copy(update={"task": experiment.task.model_copy(update={"data": data})})
    all_, left = (len(parts_of(one)[0].train.y) for one in (experiment, split))
    count = experiment.task.clients
    if experiment.task.partition.kind != "owner":  # those are who they are
        count = min(count, math.ceil(left / math.ceil(all_ / count)))
    task = split.task.model_copy(update={"clients": count, "report_on": "validation"})
    return experiment.model_copy(update={"task": task, "seeds": list(SEEDS)})


def run_trial(task: Task) -> Outcome:
    """Train all schemes of one trial; in a worker. Called once more, `trained` finds what is there."""
    return attempt(lambda: len(trained(arrived(task), Path(task.folder), None)))


def search(
    experiment: Experiment, count: int, folder: Path, reporter: Reporter | None = None,
    shared: Workbench | None = None, elsewhere: Elsewhere | None = None,
) -> tuple[Experiment, list[str]]:  # fmt: skip
    """Every scheme with its best trial; `folder/trials.json` says how it was found. Goes on where it stopped."""
    validate.whole("trials", count)
    shared = shared or Workbench()
    tried = points(count, experiment.rounds, STEP_SCALE[is_linear(experiment)])
    held_out = on_validation(experiment)
    scores: dict[str, list[tuple[float, float]]] = {label: [] for label in experiment.labels}
    bare = [at(held_out, point) for point in tried]
    trials = {n: from_plans(one, shared.task(one), tried[n].step_scale)[0] for n, one in enumerate(bare)}
    places = {n: folder / f"trial-{n:03d}" for n in trials}
    if elsewhere is not None:
        store = made(folder)
        tasks = {f"trial {n}": task_of(trial, places[n], store) for n, trial in trials.items()}
        values_of(elsewhere.executor, run_trial, tasks, elsewhere.live)
    for n, trial in trials.items():
        for label, score in _scores(trial, places[n], reporter, shared).items():
            scores[label].append(score)
    best = {label: _winner(row) for label, row in scores.items()}
    edges = {label: at_edges(tried[n], experiment.rounds) for label, n in best.items() if n}
    edges = {label: where for label, where in edges.items() if where}
    told = {
        "rule": f"smallest cross-entropy on the validation split, mean over seeds and the last {LAST} evaluations; "
        "ties within one standard error go to the lower trial",
        "points": [point._asdict() for point in tried], "seeds": list(SEEDS), "scores": scores, "best": best,
        "edges": edges,
    }  # fmt: skip
    write_atomic(folder / "trials.json", to_json(told))
    said = _said(tried, best, edges)
    outside = (
        f"rounds, step and clip norm were chosen by {count} trials per scheme on a validation split of the private data"
    )
    return _with_best(experiment, tried, best, outside, shared.task(experiment)), said


def _said(tried: list[Point], best: dict[str, int], edges: dict[str, list[str]]) -> list[str]:
    taken = ", ".join(f"{label} {n}" for label, n in best.items())
    ranges = (
        f"rounds {tried[0].rounds} and fewer, s {STEP_RANGE[0]:g} to {STEP_RANGE[1]:g}, clip norm "
        f"{CLIP_RANGE[0]:g} to {CLIP_RANGE[1]:g} of the file's"
    )
    notes = [f"{len(tried)} trials per scheme on private validation data, outside the guarantee ({ranges}): {taken}"]
    said = "; ".join(f"{label} ({', '.join(where)})" for label, where in edges.items())
    return notes + ([f"at an edge of its range, so a wider one might do better: {said}"] if said else [])


def _with_best(
    experiment: Experiment, tried: list[Point], best: dict[str, int], outside: str, task: build.Task
) -> Experiment:
    """Own knobs are planned anew for all devices, each scheme at the point that won for it."""
    schemes = []
    for n, label in enumerate(experiment.labels):
        point = tried[best[label]]
        trial = at(experiment, point)
        alone, _ = from_plans(trial.model_copy(update={"scheme": [trial.scheme[n]]}), task, point.step_scale)
        own = alone.scheme[0]
        rounds = own.rounds or point.rounds
        schemes.append(own.model_copy(update={"rounds": rounds, "clients": trial.client_choice(own)}))
    return experiment.model_copy(update={"scheme": schemes, "outside": [*experiment.outside, outside]})


def at_edges(point: Point, rounds: int) -> list[str]:
    """Coordinates in the outer sixteenth of their range; the largest number of rounds is the file's own limit.

    >>> at_edges(Point(200, 0.05, 0.5), 200)
    ['step']
    """
    found = []
    ends = {"step": (point.step_scale, *STEP_RANGE), "clip norm": (point.clip, *CLIP_RANGE)}
    ends["rounds"] = (point.rounds, min(FEWEST_ROUNDS, rounds), rounds)
    for name, (value, low, high) in ends.items():
        if low == high:
            continue
        share = math.log(value / low) / math.log(high / low)
        capped = name in ("rounds", "clip norm")  # the upper end is the user's, not the search's
        if share < EDGE or (share > 1 - EDGE and not capped):
            found.append(name)
    return found


def _winner(scores: list[tuple[float, float]]) -> int:
    """The lowest trial within one standard error of the best loss; NaN (diverged) is worst.

    >>> _winner([(0.52, 0.01), (0.50, 0.03), (float("nan"), 0.0)]), _winner([(0.9, 0.01), (0.5, 0.1)])
    (0, 1)
    """
    loss = np.array([np.inf if math.isnan(value) else value for value, _ in scores])
    top = int(np.argmin(loss))
    return int(np.argmax(loss <= loss[top] + scores[top][1]))


def _scores(
    experiment: Experiment, folder: Path, reporter: Reporter | None, shared: Workbench
) -> dict[str, tuple[float, float]]:
    """(loss, its standard error) of every scheme; NaN where it diverged."""
    runs = trained(experiment, folder, reporter, shared)
    diverged = (float("nan"), 0.0)
    return {label: diverged if place is None else _loss(place) for label, place in runs.items()}


def _loss(place: SchemeFolder) -> tuple[float, float]:
    each = each_seed(place, "loss")
    return float(np.mean(each)), float(np.std(each, ddof=1) / math.sqrt(len(each))) if len(each) > 1 else 0.0
