"""Reproductions: run a preset (or go on with it), set ours beside the paper's, write the plots and a results file."""

import json
from importlib import import_module
from pathlib import Path

from rich.console import Console

from otafl.core import validate
from otafl.core.errors import InputError, OtaflError, first_line
from otafl.core.files import parse, to_json, write_atomic
from otafl.reports.tables import METRICS, footer
from otafl.reproductions.beside import compare, gaps
from otafl.reproductions.reproduction import Analysis, Reproduction
from otafl.reproductions.verdicts import MEND, closing
from otafl.runs.comparing.tune import settings_of
from otafl.runs.folder.disk import ready
from otafl.runs.folder.sealed import reading
from otafl.runs.folder.summaries import summaries, without_card
from otafl.runs.presets import Preset, find, read_preset
from otafl.runs.progress import Reporter
from otafl.systems.screen import say


def run_and_compare(job: Reproduction) -> None:
    """Every scheme beside its targets, and its paired difference to `settings.reference`, else to the last one."""
    targets, found = job.preset.targets, summaries(job.run(job.experiment(), ""))
    asked = {"final_accuracy", "final_eps", "rounds"}.union(*targets.values())
    labels = [entry["label"] for entry in found]
    reference = job.settings.get("reference", labels[-1])
    validate.one_of("preset.settings.reference", reference, labels)
    grids = [compare(found, [metric for metric in METRICS if metric in asked], targets),
             gaps(found, reference, ["final_accuracy"])]  # fmt: skip
    job.publish(grids, [], [footer(found)], schemes=[without_card(entry) for entry in found])
    say(job.console, f"Report: {job.folder / 'report.html'}", soft_wrap=True)


def reproduce(name: str, folder: Path, overrides: list[str], quick: bool, reporter: Reporter, console: Console) -> None:
    """Run a preset and print ours beside the paper's."""
    path = find(name)
    ready(folder, "results.md", "results.json", "results.svg")
    preset = read_preset(path)
    changes = preset.overrides(quick) + overrides
    preset = parse(Preset, {**preset.model_dump(), "settings": settings_of(path, changes)}, path)
    analysis: Analysis = run_and_compare
    if preset.analysis is not None:
        module, _, attribute = preset.analysis.partition(":")
        analysis = getattr(import_module(module), attribute)
    try:
        analysis(Reproduction(path, preset, folder, changes, quick, reporter, console))
    except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
        if isinstance(problem, OtaflError) or not overrides:
            raise
        said = f"what it shows cannot be made with --set {' --set '.join(map(validate.shown, overrides))}"
        raise InputError(f"{name}: {said} ({first_line(problem)})") from problem
    results = folder / "results.json"
    if quick and results.exists():  # whoever reads it later must know
        with reading(results, MEND):
            write_atomic(results, to_json({**json.loads(results.read_text(encoding="utf-8")), "quick": True}))
    for line in closing(name, folder, quick):
        say(console, line, soft_wrap=True)
