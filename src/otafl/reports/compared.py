"""A comparison run and written: Markdown and a page beside its folders; its runs as a notebook shows them."""

import io
from pathlib import Path

from rich.console import Console

from otafl.core.files import write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.reports import write_report
from otafl.reports.compare_page import write_page
from otafl.reports.comparison import (
    DIGITAL_NOTE,
    E_NOTE,
    HEAD,
    attackers,
    folder_of,
    joules,
    mean,
    not_ranked,
    notes_of,
    placed,
    rows,
    sentence,
    show,
    terms,
    traffic_cells,
    unspent,
    verdicts,
)
from otafl.reports.run import Run
from otafl.reports.tables import named, result
from otafl.runs.comparing.compare import Comparison, Part, Question, compare
from otafl.runs.folder.disk import ready
from otafl.runs.folder.store import RunFolder
from otafl.runs.folder.summaries import on_air
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere
from otafl.runs.schema import Own


def run_and_write(
    question: Question, folder: Path, reporter: Reporter | None = None, elsewhere: Elsewhere | None = None
) -> list[Part]:
    """A comparison with its files."""
    ready(folder, "compare.md", "compare.html")
    parts = compare(question, folder, reporter, elsewhere)
    write(parts)
    for part in parts:
        write_report([part.run], plots=False)  # `otafl report` draws them for print: most of a report's time
    write_page(parts, question)
    return parts


class Compared(dict[float, Run]):
    """Runs by privacy target, printed as their ranking."""

    def __init__(self, parts: list[Part], own: Own):
        super().__init__({part.target: Run(part.run, own) for part in parts})
        self._parts = parts

    def __repr__(self) -> str:
        page = io.StringIO()
        show(self._parts, Console(file=page, width=100))
        return page.getvalue().rstrip()

    def _repr_markdown_(self) -> str:
        return brief(self._parts)


def lines(found: Comparison, target: float) -> list[str]:
    """One target as Markdown."""
    return [
        f"## ε = {target:g}",
        "",
        sentence(found, target),
        "",
        *markdown_table(HEAD, rows(found)),
        "",
        *(f"- {text}" for text in (*terms(found).splitlines(), *not_ranked(found), *verdicts(found))),
        "",
    ]


def write(parts: list[Part]) -> Path:
    """compare.md of all targets, beside their folders."""
    text: list[str] = []
    for part in parts:
        text += lines(part.found, part.target)
    text += [f"- {note}" for note in notes_of(parts)]
    text += ["", E_NOTE, DIGITAL_NOTE]
    path = folder_of(parts) / "compare.md"
    write_atomic(path, inert("\n".join(text)) + "\n")
    return path


def brief(parts: list[Part]) -> str:
    """All targets in one table for a page, then what may be said."""
    last = parts[-1].found
    known = [{entry["label"]: entry for entry, _ in placed(part.found)} for part in parts]
    heads = ["scheme", *(f"ε = {part.target:g}" for part in parts), "e", "J per device", "rounds", "bits per device",
             "s on air", "CSI"]  # fmt: skip
    cells = []
    for entry, _ in placed(last):
        own = [one[entry["label"]] for one in known if entry["label"] in one]
        efficiency = ", ".join(mean(one, "efficiency", ".2f") for one in own) if entry["private"] else "–"
        paid = ", ".join(joules(one) for one in own) if on_air(entry) else "–"
        bits, _, seconds, _ = traffic_cells(entry)
        cells.append([named(entry), *(result(one, "final_accuracy") for one in own), efficiency, paid,
                      mean(entry, "rounds", ".0f"), bits, seconds, entry["csi"]])  # fmt: skip
    said = [sentence(part.found, part.target) for part in parts]
    said += attackers([(part.target, part.found) for part in parts])
    for part in parts:
        said += [f"ε = {part.target:g}: {text}" for text in not_ranked(part.found)]
        said += [f"ε = {part.target:g}: {text}." for entry in part.found.ranked if (text := unspent(entry))]
    made = RunFolder.open(parts[-1].run).manifest if (parts[-1].run / "manifest.json").exists() else {}
    when = f"Run of {made['created']}. " if "created" in made else ""
    page = [*markdown_table(heads, cells), "", *(f"- {text}" for text in said), "", f"{when}{terms(last)}"]
    return inert("\n".join(page)) + "\n"
