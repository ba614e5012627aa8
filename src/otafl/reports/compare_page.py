"""The page of a comparison: the frontier first, then verdicts, tables with the limit, and links to the runs."""

from html import escape
from pathlib import Path
from typing import Any

from otafl.core.files import write_atomic
from otafl.privacy import ACCOUNTANTS
from otafl.reports.comparison import (
    DIGITAL_NOTE,
    E_NOTE,
    HEAD,
    folder_of,
    not_ranked,
    notes_of,
    placed,
    rows,
    sentence,
    terms,
    verdicts,
)
from otafl.reports.frontier import STORED, picture, points_of
from otafl.reports.page import asset, stored
from otafl.reports.plain_page import plain_page, scrolling_table
from otafl.runs.comparing.compare import Part, Question

FIRST = ("#", "scheme", "accuracy", "worst client", "TPR@1 %", "e", "rounds", "J/device", "CSI")
STORED_FOR = ("demo",)  # presets whose page opens with the stored frontier of their own task


def page(parts: list[Part], title: str, frontier: dict[str, Any] | None) -> str:
    """A page that stands on its own."""
    body: list[str] = []
    if frontier is not None:
        told = escape(_caption(frontier))
        drawn = picture(frontier).replace("<svg", '<svg role="img" aria-label="Accuracy over ε"', 1)
        body.append(f'<figure class="chart drawn" tabindex="0">{drawn}<figcaption><p>{told}</p></figcaption></figure>')
    for part in parts:
        found = part.found
        body.append(f'<h2>ε = {part.target:g}</h2><p class="verdict">{escape(sentence(found, part.target))}</p>')
        body.append(f'<div class="choice"><label><input type="checkbox"> All {len(HEAD)} columns</label></div>')
        body.append(scrolling_table(HEAD, rows(found), f"Schemes at ε = {part.target:g}"))
        body += [f"<p>{escape(text)}</p>" for text in not_ranked(found)]
        body += [f'<p class="small">{escape(text)}</p>' for text in terms(found).splitlines()]
        body.append("<details><summary>Neighbours in the ranking</summary><ul>")
        body += [f"<li>{escape(text)}</li>" for text in verdicts(found)]
        body.append("</ul></details>")
        link = escape(f"{part.folder.name}/run/report.html" if len(parts) > 1 else "run/report.html")
        every = f'<a href="{link}">All curves, cards and certificates of ε = {part.target:g}</a>'
        body.append(f"<p>{every}; plots for print: <code>otafl report {escape(str(part.run))}</code></p>")
    body += [f"<p>{escape(note)}</p>" for note in (*notes_of(parts), E_NOTE, DIGITAL_NOTE)]
    return plain_page("compare", title, "".join(body), asset("sort.js"), _hiding(parts))


def _hiding(parts: list[Part]) -> str:
    """On a screen a table shows its first columns until all are asked for; on paper all of them stand anyway."""
    counted = {ACCOUNTANTS[entry["accountant"]].label for part in parts for entry, _ in placed(part.found)}
    first = {*FIRST, *(f"ε {label}" for label in counted)}
    more = ", ".join(f":nth-child({n})" for n, name in enumerate(HEAD, 1) if name not in first)
    return f"@media screen {{ .choice:not(:has(:checked)) + .scroll :is(th, td):is({more}) {{ display: none; }} }}"


def _caption(told: dict[str, Any]) -> str:
    counts = sorted({point["devices"] for point in told["points"]})
    listed = ", ".join(f"{count:,}" for count in counts)
    shown = f"Bands: from the worst to the best scheme, for {listed} devices; marks: schemes."
    if "date" not in told:
        return shown
    found = "At one ε schemes differ little in accuracy and much in energy; the number of devices decides."
    return f"Stored run of {told['date']} (otafl reproduce {told['preset']}). {shown} {found}"


def write_page(parts: list[Part], question: Question) -> Path:
    """compare.html beside the targets' folders."""
    experiment = question.experiment
    frontier = stored(STORED) if question.name in STORED_FOR else None
    if frontier is None and len(parts) > 1:
        frontier = {"points": points_of(parts, experiment.task.clients)}
    file = folder_of(parts) / "compare.html"
    write_atomic(file, page(parts, experiment.title or question.name, frontier))
    return file
