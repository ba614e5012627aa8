"""Reproductions: run a preset (or go on with it), set ours beside the paper's, write the plots and a results file."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from otafl.core.files import to_json, write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.reports.tables import METRICS, footer, paired_difference
from otafl.reproductions.reproduction import Analysis, Reproduction
from otafl.reproductions.verdicts import closing
from otafl.runs.comparing.statistics import mean_sd, numbers
from otafl.runs.folder.summaries import summaries, without_card
from otafl.runs.presets import Preset, find, read_preset
from otafl.runs.progress import Reporter
from otafl.systems.screen import Fitted, say


def run_and_compare(job: Reproduction) -> None:
    """Run the preset's experiment and print every scheme beside its target, with paired differences."""
    preset, folder, console = job.preset, job.folder, job.console
    found = summaries(job.run(job.experiment(), ""))
    shown = [
        metric
        for metric in METRICS
        if any(metric in targets for targets in preset.targets.values())
        or metric in ("final_accuracy", "final_eps", "rounds")
    ]
    heads = ("scheme", *(METRICS[metric] for metric in shown))
    rows = [[escape(entry["label"]), *(_cell(entry, metric, preset.targets) for metric in shown)] for entry in found]
    title = escape(f"{preset.source or job.path.stem}: ours, and (paper)")
    console.print(Fitted.of(heads, rows, title=title, title_justify="left"))
    gaps = differences(found, preset)
    for line in gaps:
        say(console, line)
    say(console, f"{footer(found)}\nReport: {folder / 'report.html'}")
    note = "".join(job.smoke)
    results = {
        "preset": job.path.stem,
        "source": preset.source,
        "note": note,
        "schemes": [without_card(entry) for entry in found],
        "targets": preset.targets,
        "differences": gaps,
    }
    write_atomic(folder / "results.json", to_json(results))
    write_atomic(folder / "results.md", markdown(preset, found, shown, gaps, note))


def _cell(entry: dict[str, Any], metric: str, targets: dict[str, Any]) -> str:
    if metric == "final_eps" and not entry["private"]:
        return "∞"
    digits = {"final_eps": 1, "rounds": 0}.get(metric, 3)
    said = targets.get(entry["label"], {}).get(metric)
    return mean_sd(numbers(entry[metric]), digits) + (f" ({said})" if said is not None else "")


def differences(found: list[dict[str, Any]], preset: Preset) -> list[str]:
    """Paired differences to the reference scheme (the last one, or `settings.reference`), with 95 % t intervals."""
    labels = [entry["label"] for entry in found]
    reference = preset.settings.get("reference", labels[-1] if labels else "")
    if reference not in labels:
        return []
    base, lines = found[labels.index(reference)], []
    for entry in found:
        if entry["label"] == reference:
            continue
        gap = paired_difference(entry, base, "final_accuracy")
        if not np.isfinite(gap["half_width"]):
            continue
        apart = "" if abs(gap["mean"]) > gap["half_width"] else "; cannot be separated"
        size = f"{gap['mean']:+.3f} ± {gap['half_width']:.3f} last accuracy ({gap['pairs']} paired seeds{apart})"
        lines.append(f"{entry['label']} − {reference}: {size}")
    return lines


def markdown(preset: Preset, found: list[dict[str, Any]], shown: list[str], gaps: list[str], note: str) -> str:
    """The results file: a table that can be pasted into a page."""
    head = ["scheme", *(METRICS[metric] for metric in shown)]
    rows = [[entry["label"], *(_cell(entry, metric, preset.targets) for metric in shown)] for entry in found]
    lines = [f"## {preset.source}: ours (paper in brackets)", "", *([f"**{note}**", ""] if note else [])]
    lines += [*markdown_table(head, rows), ""]
    return inert("\n".join([*lines, *(f"- {gap}" for gap in gaps), "", footer(found), ""]))


def reproduce(name: str, folder: Path, overrides: list[str], quick: bool, reporter: Reporter, console: Console) -> None:
    """Run a preset and print ours beside the paper's."""
    path = find(name)
    preset = read_preset(path)
    analysis: Analysis = run_and_compare
    if preset.analysis is not None:
        module, _, attribute = preset.analysis.partition(":")
        analysis = getattr(import_module(module), attribute)
    analysis(Reproduction(path, preset, folder, preset.overrides(quick) + overrides, quick, reporter, console))
    results = folder / "results.json"
    if quick and results.exists():  # whoever reads it later must know
        write_atomic(results, to_json({**json.loads(results.read_text(encoding="utf-8")), "quick": True}))
    for line in closing(name, folder, quick):
        say(console, line, soft_wrap=True)
