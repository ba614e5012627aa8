"""A preset on its way to printed results: what an analysis is told, and what it leaves in its folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from otafl import __version__
from otafl.core.files import plain, to_json, write_atomic
from otafl.reports import write_report
from otafl.reproductions.findings import Grid, Record, Verdict, markdown_of, verdict_grid, write_records
from otafl.reproductions.pictures import Panel, picture
from otafl.runs import runner
from otafl.runs.folder.sealed import read_sealed, reading
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, load
from otafl.systems.screen import Fitted

SMOKE = "smoke version: too few rounds and seeds to mean anything"


@dataclass(frozen=True)
class Reproduction:
    """Everything from the preset's file to printed results and files in `folder`."""

    path: Path
    preset: Preset
    folder: Path
    overrides: list[str]
    quick: bool
    reporter: Reporter
    console: Console

    @property
    def settings(self) -> dict[str, Any]:
        """The preset's, with what `--set preset.settings.key=value` changes."""
        return self.preset.settings

    def experiment(self, *changes: str) -> Experiment:
        return load(self.path, [*self.overrides, *changes])

    def run(self, experiment: Experiment, name: str = "run") -> Path:
        """`runner.run_in`, with the run's page."""
        run = runner.run_in(self.folder / name, experiment, self.reporter)
        if not (run / "report.html").exists():
            write_report([run])
        return run

    def record(self, records: Sequence[Record], name: str = "records") -> None:
        write_records(self.folder, name, records)

    def publish(self, grids: Sequence[Grid], verdicts: Sequence[Verdict], notes: Sequence[str],
                panels: Sequence[Panel] = (), **data: Any) -> None:  # fmt: skip
        """Print the tables and write what a page is made of: results.json with `data`, results.md, results.svg."""
        folder, source, notes = self.folder, self.preset.source, [*[SMOKE] * self.quick, *notes]
        for grid in [*grids, *([verdict_grid(verdicts)] if verdicts else [])]:
            title = f"{source}: {grid.title}"
            self.console.print(Fitted.of(grid.head, grid.rows, words=grid.head, title=title, title_justify="left"))
        for note in notes:
            self.console.print(note, highlight=False)
        folder.mkdir(parents=True, exist_ok=True)
        told = {"source": source, "date": datetime.now(UTC).date().isoformat(), "version": __version__,
                "trained": trained_in(folder), "grids": grids, "verdicts": verdicts, "notes": notes,
                "panels": panels}  # fmt: skip
        if panels:
            write_atomic(folder / "results.svg", picture(panels))
        write_atomic(folder / "results.md", markdown_of(plain(told), "results.svg"))
        write_atomic(folder / "results.json", to_json({**told, "targets": self.preset.targets, **data}))


Analysis = Callable[[Reproduction], None]  # what `preset.analysis` names


def trained_in(folder: Path) -> Record:
    """What was trained below a folder: rounds of all schemes and seeds, their seconds, and on which machines."""
    rounds, seconds, machines = 0, 0.0, set()
    for file in [*folder.rglob("timing.json"), *folder.rglob("manifest.json")]:
        with reading(file, mend := f"remove {file.parent}, and call again"):
            own = read_sealed(file, mend)
            if file.name == "timing.json":
                rounds, seconds = rounds + int(own["rounds"]), seconds + float(own["seconds"])
            else:
                machines.add(f"{own['machine']['jax devices']}, {own['machine']['cores']} cores")
    return {"rounds": rounds, "seconds": round(seconds), "on": sorted(machines)}
