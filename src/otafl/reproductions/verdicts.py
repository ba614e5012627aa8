"""All reproductions in one table: what each paper says, what was measured, and the verdict.

`record.toml` has one row per published table or figure, in words; `verdicts.json` has the verdict on every claim, as
the full-size reproductions judged it. After new full-size runs

    python -m otafl.reproductions.verdicts docs/results/index.md RUNS

takes the verdicts from RUNS/NAME/results.json and writes the table into the page, between `<!-- begin record -->` and
`<!-- end record -->`; without RUNS it only writes the table.
"""

import html
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from otafl.core.files import FileModel, read, to_json, write_atomic
from otafl.core.markdown import table as markdown_table
from otafl.reproductions.findings import HOLDS
from otafl.reproductions.pages import fill

ROWS, VERDICTS = Path(__file__).with_name("record.toml"), Path(__file__).with_name("verdicts.json")
REPRODUCED, PARTLY, NOT, OPEN = "reproduced", "partly", "not reproduced", "not measured"
OF_OURS = {REPRODUCED: "confirmed", NOT: "not confirmed"}  # words for a study that no paper has
HEAD = ("published", "command", "the paper says", "measured", "verdict", "why")
Claim = dict[str, str]  # claim, verdict, evidence


class Row(FileModel):
    """One published table or figure; or a study of ours beside it, which has no `says`."""

    source: str
    preset: str
    judged_by: str = ""  # another preset, whose claims are those of this figure
    claims: str = ""  # only claims that end so: two panels of one preset
    says: str = ""
    measured: str
    why: str
    page: str  # in docs/results

    def own(self, claims: dict[str, list[Claim]]) -> list[Claim]:
        """The claims of this row."""
        return [one for one in claims.get(self.judged_by or self.preset, []) if one["claim"].endswith(self.claims)]


class Record(FileModel):
    date: str
    row: list[Row]


def record() -> Record:
    return read(Record, ROWS)


def on_record() -> dict[str, list[Claim]]:
    """Claims of the full-size runs, by preset."""
    return dict(json.loads(VERDICTS.read_text(encoding="utf-8")))


def judged_in(folder: Path, smoke: bool = True) -> dict[str, list[Claim]]:
    """Claims of the reproductions in a folder, by preset; with or without smoke versions."""
    found = {}
    for file in sorted(folder.glob("*/results.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        if told.get("verdicts") and (smoke or not told.get("quick")):
            found[file.parent.name] = told["verdicts"]
    return found


def overall(claims: Sequence[Claim], ours: bool = False) -> str:
    """One word for several claims: all hold, some do (or do in part), none does.

    >>> overall([{"verdict": "holds"}, {"verdict": "cannot be separated"}]), overall([{"verdict": "does not hold"}])
    ('partly', 'not reproduced')
    """
    words = [one["verdict"] for one in claims]
    if not words:
        return OPEN
    if all(word == HOLDS for word in words):
        word = REPRODUCED
    else:
        word = PARTLY if any(word.startswith(HOLDS) for word in words) else NOT
    return OF_OURS.get(word, word) if ours else word


class Found(NamedTuple):
    """What one row's reproduction says in a folder of them."""

    verdict: str
    measured: str


def found_in(judged: dict[str, list[Claim]], row: Row) -> Found:
    """The verdict, how many claims hold, and the evidence for the first one."""
    own = row.own(judged)
    if not own:
        return Found(OPEN, "no claim to judge")
    held, first = sum(one["verdict"] == HOLDS for one in own), own[0]
    text = f"{held} of {len(own)} claims hold; {first['claim']}: {first['verdict']} ({first['evidence']})"
    return Found(overall(own, not row.says), text)


def page_table() -> str:
    """The record as a Markdown table for docs/results."""
    claims = on_record()
    rows = []
    for row in record().row:
        own = row.own(claims)
        held = f" ({sum(one['verdict'] == HOLDS for one in own)} of {len(own)} claims in full)" if own else ""
        rows.append([f"[{row.source}]({row.page})", f"`otafl reproduce {row.preset}`", row.says or "not in the paper",
                     row.measured, f"**{overall(own, not row.says)}**{held}", row.why])  # fmt: skip
    return "\n".join(markdown_table(HEAD, rows))


def closing(preset: str, folder: Path, quick: bool) -> list[str]:
    """How a reproduction ends: what the paper says, the verdict here and on record, and where everything is."""
    lines, known = [], on_record()
    results = folder / "results.json"
    here = {preset: json.loads(results.read_text(encoding="utf-8")).get("verdicts") or []} if results.exists() else {}
    for row in (row for row in record().row if row.preset == preset):
        lines += [f"{row.source}, the paper says: {row.says}"] if row.says else []
        own = row.own(here)
        if own:
            held = f"{sum(one['verdict'] == HOLDS for one in own)} of {len(own)} claims hold in full"
            word = "a smoke version means nothing" if quick else overall(own, not row.says)
            before = overall(row.own(known), not row.says)
            lines.append(f"Verdict: {word} ({held}); on record: {before}, {row.measured}")
    drawn = sorted(str(file) for kind in ("png", "svg") for file in folder.glob(f"*.{kind}"))
    lines += [f"Plots: {', '.join(drawn)}"] if drawn else []
    return [*lines, *([f"Results: {folder / 'results.md'}"] if (folder / "results.md").exists() else [])]


INDEX_HEAD = ("published", "command", "the paper says", "measured here", "verdict here", "on record", "why, on record")


def index_rows(folder: Path, outcome: dict[str, str], quick: bool) -> list[list[str]]:
    """Every row of the record beside what this folder says; a preset that failed shows its refusal."""
    here_judged, known, rows = judged_in(folder), on_record(), []
    for row in record().row:
        said = outcome.get(row.preset, "not run yet")
        here = found_in(here_judged, row)
        if said != "done":
            here = Found("–", said)
        elif quick:
            here = Found("–", f"smoke version: {here.measured}")
        rows.append([row.source, f"otafl reproduce {row.preset}", row.says or "not in the paper", here.measured,
                     here.verdict, f"{overall(row.own(known), not row.says)}: {row.measured}", row.why])  # fmt: skip
    return rows


SMOKE = "Smoke versions: too few rounds and seeds to mean anything; they show that everything runs."
STYLE = """body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem; } table { border-collapse: collapse; }
td, th { border: 1px solid #bbb; padding: .3rem .5rem; text-align: left; vertical-align: top; }
thead th { background: #eee; position: sticky; top: 0; }"""


def write_index(folder: Path, outcome: dict[str, str], quick: bool) -> None:
    """index.md and index.html of a folder of reproductions: the table, and the presets that are no reproduction."""
    rows = index_rows(folder, outcome, quick)
    linked = {row[1].split()[-1] for row in rows}
    others = {name: said for name, said in outcome.items() if name not in linked or said != "done"}
    notes = [SMOKE] * quick + [f"On record: full-size runs of {record().date}."]
    notes += [f"{name}: {said}" for name, said in others.items()]
    text = [[f"[{row[0]}]({_results(row)})", f"`{row[1]}`", *row[2:]] for row in rows]
    write_atomic(folder / "index.md", "\n".join(["# Reproductions", "", *markdown_table(INDEX_HEAD, text), "",
                                                 *(f"- {note}" for note in notes), ""]))  # fmt: skip
    write_atomic(folder / "index.html", _html(rows, notes))


def _results(row: Sequence[str]) -> str:
    """The file to read about a row, relative to the folder; the command names the preset."""
    return f"{row[1].split()[-1]}/results.md"


def _html(rows: list[list[str]], notes: list[str]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    body = []
    for row in rows:
        safe = [html.escape(cell) for cell in row]
        link = f'<a href="{_results(row)}">{safe[0]}</a>'
        body.append(line([link, f"<code>{safe[1]}</code>", *safe[2:]], "td"))
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Reproductions</title><style>{STYLE}</style>'
        f"<h1>Reproductions</h1><ul>{said}</ul><table><thead>{line(INDEX_HEAD, 'th')}</thead>"
        f"<tbody>{''.join(body)}</tbody></table></html>\n"
    )


def main(page: Path, runs: Path | None = None) -> None:
    if runs is not None:
        write_atomic(VERDICTS, to_json({**on_record(), **judged_in(runs, smoke=False)}) + "\n")
    write_atomic(page, fill(page.read_text(encoding="utf-8"), {"record": page_table()}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
