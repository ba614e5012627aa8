"""Analyses of presets of no single paper: comparisons, the frontier, the phase diagram in closed form and trained."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from otafl import __version__
from otafl.core import validate
from otafl.core.files import to_json, write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.reports import frontier, phases, phases_trained
from otafl.reports.compared import brief, run_and_write
from otafl.reports.comparison import show
from otafl.reports.page import stored
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.compare import compare, question_of
from otafl.runs.schema import Experiment, config_hash
from otafl.runs.workbench import Workbench
from otafl.systems.screen import say


def compared(job: Reproduction) -> None:
    """A comparison with its files, in brief; its frontier where there are several targets."""
    parts = run_and_write(question_of(job.path, job.overrides), job.folder, job.reporter)
    show(parts, job.console)
    smoke = "\n\nA smoke version: too few rounds and seeds to mean anything.\n" if job.quick else ""
    write_atomic(job.folder / "results.md", brief(parts) + smoke)
    if len(parts) > 1:
        devices = parts[-1].found.ranked[0]["clients"] if parts[-1].found.ranked else 0
        points = frontier.points_of(parts, devices)
        write_atomic(job.folder / "frontier.svg", frontier.picture({"points": points}))


def frontier_over_devices(job: Reproduction) -> None:
    """`settings.devices` times `settings.eps`, goes on where it stopped: table, frontier.json, frontier.svg."""
    experiment = job.experiment()
    points: list[frontier.Point] = []
    for count in job.settings.get("devices") or [experiment.task.clients]:
        question = question_of(job.path, [*job.overrides, f"task.clients={count}"])
        points += frontier.points_of(compare(question, job.folder / f"devices-{count}", job.reporter), count)
    privacy = experiment.privacy
    terms = f"{privacy.accountant}, delta={privacy.delta:g}"
    told = {**_of(job, experiment), "seeds": experiment.seed_list, "terms": terms, "points": points}
    write_atomic(job.folder / frontier.STORED, to_json(told))
    write_atomic(job.folder / "frontier.svg", frontier.picture(told))
    head, *rows = frontier.spans(told)
    lines = [f"# {told['title']}", "", "Accuracy from the worst to the best scheme.", "", *markdown_table(head, rows)]
    lines += ["", f"Run on {told['date']}, {terms}."]
    write_atomic(job.folder / "results.md", inert("\n".join(lines)) + "\n")
    job.console.print(frontier.table(told))
    said = f"{told['title']}: accuracy from the worst to the best scheme. {job.folder / frontier.STORED}"
    say(job.console, said, soft_wrap=True)


def phase_diagram(job: Reproduction) -> None:
    """phases.json, phases.svg with the stored trained grid, and one line per ε."""
    experiment, wanted = job.experiment(), job.settings
    validate.in_left_open("agreement", wanted["agreement"], 0, 1)
    clip = experiment.clients.clip_norm
    terms = {"delta": experiment.privacy.delta, "noise_var": experiment.radio.noise_var(), "clip_norm": clip,
             "sensitivity": 2 * clip, "agreement": wanted["agreement"], "num_params": wanted["num_params"]}  # fmt: skip
    joules = np.geomspace(float(wanted["joules"][0]), float(wanted["joules"][1]), 120)
    told = phases.diagram(wanted["eps"], joules, terms)
    job.folder.mkdir(parents=True, exist_ok=True)
    write_atomic(job.folder / "phases.json", to_json(told))
    write_atomic(job.folder / "phases.svg", phases.picture(told, stored(phases_trained.STORED)))
    _say_lines(job, [], [phases.sentence(sheet, told["joules"]) for sheet in told["sheets"]])


def phase_diagram_trained(job: Reproduction) -> None:
    """The grid `settings.devices` x `settings.joules` x `settings.eps`, goes on where it stopped: a line per cell."""
    experiment, shared = job.experiment(), Workbench()
    cells: list[phases_trained.Cell] = []
    for count in job.settings["devices"]:
        for joules in job.settings["joules"]:
            own = [*job.overrides, f"task.clients={count}", f"radio.run_energy={joules}"]
            place = job.folder / f"devices-{count}" / f"joules-{joules:g}"
            parts = compare(question_of(job.path, own), place, job.reporter, shared=shared)
            cells += [phases_trained.cell_of(part, count, joules) for part in parts]
    told = {**_of(job, experiment), "cells": cells}
    job.folder.mkdir(parents=True, exist_ok=True)
    write_atomic(job.folder / phases_trained.STORED, to_json(told))
    head = [f"Run on {told['date']}, {told['rounds']} rounds.", ""]
    _say_lines(job, head, [phases_trained.sentence(cell) for cell in cells])


def _of(job: Reproduction, experiment: Experiment) -> dict[str, Any]:
    """What a stored picture says of the run behind it."""
    return {
        "date": datetime.now(UTC).date().isoformat(), "version": __version__, "preset": job.path.stem,
        "config_sha256": config_hash(experiment), "rounds": experiment.rounds, "title": experiment.title,
    }  # fmt: skip


def _say_lines(job: Reproduction, head: list[str], lines: list[str]) -> None:
    write_atomic(job.folder / "results.md", "\n".join([*head, *(f"- {line}" for line in lines)]) + "\n")
    for line in lines:
        say(job.console, line)
