"""Schemes side by side at one privacy target: same clients, same channel draws, same seeds, same ledger.

Each private scheme runs until its budget is spent; a scheme whose unit, adjacency, delta or accountant differs from the
others', that counts all clients alike where the others weigh them, or that spent more than the target, is not ranked.
Own knobs come from plans, rounds, step and clip norm from the same trials for all (`from_plans`, `trials`). The ranking
is by mean accuracy after the last round over paired seeds, and says who cannot be told from the first, and after how
many seeds one could.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from otafl.core.errors import InputError
from otafl.core.files import FileModel, parse, plain, to_json, write_atomic
from otafl.runs.comparing.from_plans import from_plans
from otafl.runs.comparing.statistics import SIGNIFICANT, Gap, behind, numbers, paired
from otafl.runs.comparing.trials import search
from otafl.runs.comparing.tune import settings_of
from otafl.runs.described import described
from otafl.runs.folder.disk import ready
from otafl.runs.folder.summaries import by_seed, summaries
from otafl.runs.planning.afford import without_rounds
from otafl.runs.planning.facts import facts_of
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere, confirm, made, run_point, task_of, values_of
from otafl.runs.runner import run_in
from otafl.runs.schema import Experiment, load
from otafl.runs.workbench import End, Workbench

MOST_TRIALS = 10_000
FROM_PLANS = "own knobs, rounds and steps from plans alone: no data used"


class Comparison(NamedTuple):
    """What a comparison found; entries are summaries with their card."""

    ranked: list[dict[str, Any]]  # best first
    references: list[dict[str, Any]]  # without privacy
    refused: list[tuple[dict[str, Any], str]]  # and why
    gaps: list[Gap]  # paired differences between neighbours in the ranking
    behind: list[tuple[Gap, float]]  # of the first to each of the others, p by Holm over all pairs


class Part(NamedTuple):
    """One privacy target of a comparison."""

    target: float
    folder: Path  # compare.json, compare.md, tuning
    run: Path
    notes: list[str]  # how settings were found
    found: Comparison


class Question(NamedTuple):
    """What is compared, at which privacy targets. trials: None leaves settings as they are, 0 takes them from plans
    alone, more are tried on a validation split."""

    experiment: Experiment
    targets: list[float]
    trials: int | None
    name: str  # of the preset or file


def question_of(path: Path, overrides: list[str], trials: int | None = None) -> Question:
    """A file's, or a preset's with its `settings.eps` and, unless trials are given, `settings.trials`."""
    experiment, settings = load(path, overrides), settings_of(path, overrides)
    fixed = any(override.startswith("privacy.eps") for override in overrides)
    targets = [experiment.privacy.eps] if fixed else settings.get("eps", [experiment.privacy.eps])
    return asked(experiment, targets, settings.get("trials") if trials is None else trials, path.stem)


def question_from(start: Any, said: dict[str, Any], eps: Any, trials: int | None, overrides: list[str]) -> Question:
    """Of a call from Python: a file's (`start` is its path) where nothing else is said, or an experiment's."""
    path = start if isinstance(start, Path) else None
    if path is not None and not said and eps is None:
        return question_of(path, overrides, trials)
    if path is None and overrides:
        raise InputError("overrides go with a file; give keywords instead")
    targets = plain(list(eps) if isinstance(eps, Sequence) and not isinstance(eps, str) else eps)
    targets = targets if isinstance(targets, list) else [targets]
    first = {**said, "eps": targets[0] if targets else None}
    experiment = described(start if path is None else load(path, overrides), first, "otafl.compare")
    targets = [experiment.privacy.eps] if eps is None else targets
    return asked(experiment, targets, trials, path.stem if path else "otafl.compare")


class Asked(FileModel):
    """What a comparison is asked beside its experiment, by a preset's settings or by a call."""

    eps: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    trials: Annotated[int, Field(ge=0, le=MOST_TRIALS)] | None


def asked(experiment: Experiment, targets: Any, trials: Any, name: str) -> Question:
    """Checked before anything is trained."""
    if targets == [None]:
        raise InputError(f"{name}: a comparison needs a common privacy target; set privacy.eps")
    said = parse(Asked, {"eps": plain(targets), "trials": plain(trials)}, name)
    places = [place_of(target) for target in said.eps]
    if alike := [target for target, place in zip(said.eps, places) if places.count(place) > 1]:
        raise InputError(f"{name}: eps={alike[-1]!r} is there twice, or written the same to six digits; leave one out")
    metric = facts_of(experiment).metric if experiment.own.model is not None else "accuracy"
    if metric != "accuracy":
        raise InputError(f"{name}: schemes are ranked by accuracy, this model is told in {metric}; use `otafl.run`")
    return Question(experiment, said.eps, said.trials, name)


def place_of(target: float) -> str:
    """The folder of one of several targets."""
    return f"eps-{target:g}"


def compare(
    question: Question,
    folder: Path,
    reporter: Reporter | None = None,
    elsewhere: Elsewhere | None = None,
    shared: Workbench | None = None,
) -> list[Part]:
    """Choose settings, run all schemes at every target, write compare.json; returns one part per target.

    elsewhere: where trials and targets run side by side. shared: data and programs of comparisons before this one.
    """
    experiment, targets, shared = question.experiment, question.targets, shared or Workbench()
    places = [folder if len(targets) == 1 else folder / place_of(target) for target in targets]
    for place in places:
        ready(place, "compare.json")
    planned = []
    ends: dict[Any, list[End]] | None = {} if len(targets) > 1 else None
    for target, place in zip(targets, places):
        privacy = experiment.privacy.model_copy(update={"eps": target})
        wanted = experiment.model_copy(update={"privacy": privacy})
        chosen, notes = settled(wanted, place, question.trials, reporter, shared, elsewhere)
        if elsewhere is None:
            shared.ends = ends  # not of trials, which are many
            run_in(place / "run", chosen, reporter, shared)
            shared.ends = None
        planned.append((target, place, notes, chosen))
    if elsewhere is not None:
        store = made(folder)
        tasks = {f"eps={target:g}": task_of(chosen, place / "run", store) for target, place, _, chosen in planned}
        values_of(elsewhere.executor, run_point, tasks, elsewhere.live)
        for _, place, _, chosen in planned:
            confirm(chosen, place / "run")
    parts = []
    for target, place, notes, _ in planned:
        found = rank(summaries(place / "run"), target)
        write_atomic(place / "compare.json", to_json({"target": target, "settings": notes, **as_json(found)}))
        parts.append(Part(target, place, place / "run", notes, found))
    return parts


def settled(
    experiment: Experiment, folder: Path, trials: int | None, reporter: Reporter | None, shared: Workbench,
    elsewhere: Elsewhere | None = None,
) -> tuple[Experiment, list[str]]:  # fmt: skip
    """The experiment with the settings that the asked rule gives, and how they were found."""
    if trials is None:
        return experiment, []
    if trials == 0:
        chosen, said = from_plans(experiment, shared.task(experiment))
        return chosen, [FROM_PLANS, *said]
    return search(experiment, trials, folder / "trials", reporter, shared, elsewhere)


def rank(found: list[dict[str, Any]], target: float) -> Comparison:
    """Sort the schemes that kept to the common target; set apart references and those that did not."""
    private = [entry for entry in found if entry["private"]]
    ranked, refused = [], []
    for entry, other in zip(private, of_another_kind(private)):
        spent = float(np.max(numbers(entry["final_eps"])))
        if none := without_rounds(entry):
            refused.append((entry, none))
        elif other:
            refused.append((entry, other))
        elif not spent <= target * (1 + 1e-9):
            refused.append((entry, f"it spent ε = {spent:.4g}, more than the target {target:g}"))
        else:
            ranked.append(entry)
    ranked.sort(key=lambda entry: -float(np.mean(numbers(entry["final_accuracy"]))))
    gaps = [difference(a, b) for a, b in pairwise(ranked)]
    references = [entry for entry in found if not entry["private"]]
    told = behind([by_seed(entry, "final_accuracy") for entry in ranked])
    return Comparison(ranked, references, refused, gaps, told)


def of_another_kind(private: list[dict[str, Any]]) -> list[str]:
    """Why each private scheme is not comparable with most of them, in their order; empty where it is."""
    kinds = [tuple(entry[key] for key in ("unit", "adjacency", "delta", "accountant")) for entry in private]
    usual = max(kinds, key=kinds.count, default=None)
    weighed = any(not entry.get("unweighted") for entry in private)
    alike = "it counts all clients alike, the others weigh them; set task.weights = 'equal'"
    return [
        f"its ε is of another kind ({', '.join(map(str, own))})" if own != usual
        else alike if weighed and entry.get("unweighted") else ""
        for entry, own in zip(private, kinds)
    ]  # fmt: skip


def difference(a: dict[str, Any], b: dict[str, Any], metric: str = "final_accuracy") -> Gap:
    """Paired difference of a figure of two summaries."""
    return paired(by_seed(a, metric), by_seed(b, metric))


def not_separated(found: Comparison) -> list[tuple[dict[str, Any], Gap]]:
    """Who cannot be told from the first, over all pairs by Holm."""
    return [(entry, gap) for entry, (gap, p) in zip(found.ranked[1:], found.behind) if not p < SIGNIFICANT]


def as_json(found: Comparison) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "ranked": found.ranked,
        "references": found.references,
        "refused": [{"entry": e, "why": w} for e, w in found.refused],
        "gaps": [gap._asdict() for gap in found.gaps],
        "behind": [{**gap._asdict(), "p_holm": p} for gap, p in found.behind],
    }
