"""CARES' tables and the figures drawn from their runs; and the study of a grid wider than the paper's."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from otafl.reports.tables import footer
from otafl.reproductions.beside import compare, gaps
from otafl.reproductions.findings import Grid, Record, Verdict
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.statistics import mean_sd, numbers
from otafl.runs.comparing.tune import tuned, with_step_sizes
from otafl.runs.folder.store import RunFolder
from otafl.runs.folder.summaries import summaries, without_card
from otafl.runs.presets import Preset, find, read_preset
from otafl.runs.schema import Experiment, load
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.systems.cares.reproduce_certificates import past_the_budget
from otafl.systems.cares.reproduce_claims import judge, larger_gain, levels
from otafl.systems.cares.reproduce_figures import FIGURES, level_panels, printed, read_curves
from otafl.systems.cares.reproduce_scalings import ASKED

OPTIMISTIC = "best acc is the maximum over evaluations on the reported data, hence optimistic"
BAND = "mean over the seeds that reach a point, as long as half of them do, with its 95 % interval"
TUNED = "tuning looked at private data: outside the guarantee"
AT_EPS = ("accuracy_at_eps", "worst_client_at_eps")
SHOWN = ("best_accuracy", *AT_EPS, "worst_client", "final_eps", "rounds")


def table(job: Reproduction) -> None:
    """Run the table's methods on paired seeds and judge the paper's claims about them, and its numbers."""
    preset, run = job.preset, job.run(job.experiment())
    found, said = summaries(run), printed(preset.targets.get("schemes", {}))
    verdicts = judged(preset, run, found)
    if easier := preset.settings.get("easier"):
        other = _beside(job, easier).run(load(find(easier), read_preset(find(easier)).overrides(job.quick)))
        verdicts.append(larger_gain(found, summaries(other), preset.settings["reference"]))
    if said:
        verdicts += levels(found, said, preset.settings)
    grids = [
        compare(found, SHOWN, preset.targets.get("schemes", {})),
        own_measures(run, found),
        gaps(found, preset.settings["reference"], AT_EPS),
    ]
    notes = [*data_notes(found), OPTIMISTIC, footer(found)]
    shown = level_panels(found, said, SHOWN[:3])
    job.publish(grids, verdicts, notes, shown, schemes=[without_card(entry) for entry in found])


def figure(job: Reproduction) -> None:
    """Draw a figure from the run of its table, which is made beside this folder unless it is there already."""
    preset = job.preset
    assert preset.experiment is not None
    run = _beside(job, preset.experiment).run(load(find(preset.experiment), job.overrides))
    shown = FIGURES[preset.settings["figure"]]
    curves = [read_curves(run, label) for label in RunFolder.open(run).labels() if label in shown.schemes]
    said = printed({**read_preset(find(preset.experiment)).targets["schemes"], **preset.targets.get("schemes", {})})
    notes = [f"drawn from the run of {preset.experiment}", BAND]
    panels, verdicts = [panel(curves, said) for panel in shown.panels], judged(preset, run, summaries(run))
    if planned := preset.settings.get("exceeds"):
        verdicts.append(past_the_budget(find(preset.experiment), **{**planned, **({"seeds": 2} if job.quick else {})}))
    job.publish([], verdicts, notes, panels)


def _beside(job: Reproduction, name: str) -> Reproduction:
    return replace(job, folder=job.folder.parent / (name + ("-quick" if job.quick else "")))


def judged(preset: Preset, run: Path, found: list[Record]) -> list[Verdict]:
    """The paper's claims: differences between methods, and what `settings.asked` names about single methods."""
    known = {entry["label"]: entry for entry in found}
    verdicts = judge(preset.targets.get("claims", []), found)
    for name in preset.settings.get("asked", []):
        verdicts.append(ASKED[name](known, partial(read_curves, run)))
    return verdicts


# --- grids -----------------------------------------------------------------------------------------------------------


def own_measures(run: Path, found: list[Record]) -> Grid:
    """What the paper does not print: mean scaling, realised silence, exact eps, the realised bound, why runs ended."""
    rows = []
    for entry in found:
        bound = RunFolder.open(run).scheme(entry["label"]).json("certificate")
        exact = [spent["eps_worst"] for spent in entry["card"]["spent"] if spent["accountant"] == "gaussian"]
        stops = sorted(set(entry["stopped_by"]))
        rows.append([
            entry["label"],
            mean_sd(numbers(entry["mean_rx_scale"])),
            f"{abs(np.mean(numbers(entry['silent_weight']))):.2%}",
            f"{float(exact[0]):.1f}" if exact and entry["private"] else "∞",
            mean_sd(numbers(bound.get("conv_bound_total", [None])), 1),
            bound["label"],
            ", ".join([*stops, *entry["remarks"]]),
        ])  # fmt: skip
    head = ("method", "mean η", "silent weight", "exact ε, worst seed", "bound (12)", "which is a", "ended by")
    return Grid("further measures (ours)", head, rows)


def data_notes(found: list[Record]) -> list[str]:
    """What lies outside the guarantee, subsets of data among it, as the privacy cards say it."""
    said = dict.fromkeys(note for entry in found for note in entry["card"]["outside_the_guarantee"])
    return [note for note in said if not note.startswith(NO_CERTIFICATE)]  # told scheme by scheme


# --- beyond the paper ------------------------------------------------------------------------------------------------


def wide(job: Reproduction) -> None:
    """Choose scaling and step size together on a validation split, then confirm on other seeds and the report split."""
    settings = job.settings
    steps = tuned(job.path, job.folder / "tuning", job.overrides, job.reporter)
    scores = json.loads((job.folder / "tuning" / "step_sizes.json").read_text())["scores"]
    chosen = candidates(scores, steps, settings["published"], settings["published_step"])
    run = job.run(confirmation(job.experiment(), chosen))
    found = summaries(run)
    tables = [gaps(found, reference, AT_EPS) for reference in (chosen.published, chosen.published_tuned)]
    grids = [validation_grid(scores), compare(found, SHOWN, {}), own_measures(run, found), *tables]
    notes = [*data_notes(found), TUNED, footer(found)]
    verdicts = judge([of_the_selection(chosen, settings["fixed"]), *wide_claims(chosen)], found)
    job.publish(grids, verdicts, notes, level_panels(found, {}, SHOWN[1:3]), scores=scores)


class Candidates(NamedTuple):
    """What goes into the confirmation, and the names of those that play a part in the claims."""

    pairs: dict[str, tuple[str, float]]  # name -> scheme of the file, step size
    published: str
    published_tuned: str
    wide: str  # best on validation at the published step
    wide_tuned: str  # best on validation of all scalings, each at its own step
    certified: str  # the certificate's choice on an automatic grid, at its own step


def candidates(scores: dict[str, dict[str, float]], steps: dict[str, float], published: str, step: float) -> Candidates:
    """Every scaling at its tuned step; the published one, and validation's favourite, at the published step as well."""
    fixed = [label for label in scores if label.startswith("η")]
    certified = next(label for label in scores if label not in fixed)

    def score(label: str, size: float) -> float:
        return float(np.nan_to_num(scores[label][f"{size:g}"], nan=-np.inf))

    parts = {
        "published": (published, step),
        "published_tuned": (published, steps[published]),
        "wide": (max(fixed, key=lambda label: score(label, step)), step),
        "wide_tuned": (best := max(fixed, key=lambda label: score(label, steps[label])), steps[best]),
        "certified": (certified, steps[certified]),
    }
    pairs = dict.fromkeys([*parts.values(), *((label, steps[label]) for label in scores)])
    names = {pair: f"{pair[0]}, step {pair[1]:g}" for pair in pairs}
    return Candidates(
        {name: pair for pair, name in names.items()}, **{part: names[pair] for part, pair in parts.items()}
    )


def of_the_selection(chosen: Candidates, fixed: str) -> Record:
    """Where the paper sees the reason for its gain: then it must remain when both scalings have their own step."""
    rival = next(name for name, (label, _) in chosen.pairs.items() if label == fixed)
    text = "This gain comes from certified receive-scaling selection: it remains when each scaling has its own step"
    own = {"better": chosen.published_tuned, "than": rival, "metric": "accuracy_at_eps"}
    return {"text": text, "place": "Section 4.1", **own}


def wide_claims(chosen: Candidates) -> list[Record]:
    """What would make a wider grid worth having; a claim about one and the same pair is no claim."""
    asked = (
        ("at the published step a scaling outside the published grid is better", chosen.wide, chosen.published),
        (
            "with tuned steps another scaling is better than the published one",
            chosen.wide_tuned,
            chosen.published_tuned,
        ),
        ("tuning the step alone improves the published scaling", chosen.published_tuned, chosen.published),
        (
            "tuned steps at the published scaling beat the best scaling at the published step",
            chosen.published_tuned,
            chosen.wide,
        ),
        ("the certificate's choice on an automatic grid is better", chosen.certified, chosen.published_tuned),
    )
    metric = {"metric": "accuracy_at_eps"}
    return [{"text": text, "better": one, "than": other, **metric} for text, one, other in asked if one != other]


def confirmation(experiment: Experiment, chosen: Candidates) -> Experiment:
    by_label = dict(zip(experiment.labels, experiment.scheme))
    schemes = [by_label[label].model_copy(update={"label": name}) for name, (label, _) in chosen.pairs.items()]
    renamed = experiment.model_copy(update={"scheme": schemes})
    return with_step_sizes(renamed, {name: step for name, (_, step) in chosen.pairs.items()})


def validation_grid(scores: dict[str, dict[str, float]]) -> Grid:
    steps = list(next(iter(scores.values())))
    rows = [
        [label, *("diverged" if row[step] is None else f"{row[step]:.3f}" for step in steps)]
        for label, row in scores.items()
    ]
    return Grid("validation accuracy by scaling and step size", ("scaling", *steps), rows)
