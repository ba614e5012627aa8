"""All reproductions in one table: what each paper says, what was measured, and the verdict.

`record.toml` has one row per published table or figure, in words; `record/NAME.json` is what the full-size run of a
preset wrote into its folder: tables, the verdict on every claim, the panels of its picture. `pages` puts them there.
"""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from otafl.core.files import FileModel, read, write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.reproductions.findings import FAILS, HOLDS, NOT_STATED, UNDECIDED, Verdict
from otafl.runs.folder.sealed import reading
from otafl.runs.presets import presets

ROWS, RECORD = Path(__file__).with_name("record.toml"), Path(__file__).with_name("record")
REPRODUCED, PARTLY, NOT, OPEN = "reproduced", "partly", "not reproduced", "not measured"
OURS = "not stated by the paper"
HEAD = ("published", "command", "the paper says", "measured", "verdict", "why")
VERDICTS = TypeAdapter(list[Verdict])
MEND = "remove it, and call again"
SHOWN = 3  # claims whose evidence stands in the table
Claim = dict[str, Any]  # a findings.Verdict


class Row(FileModel):
    """One published table or figure; or a study of ours beside it, which has no `says`."""

    source: str
    preset: str
    claims: str = ""  # only claims that end so: two panels of one preset
    says: str = ""
    why: str
    page: str  # in docs/results

    def own(self, claims: dict[str, list[Claim]]) -> list[Claim]:
        """The claims of this row."""
        return [one for one in claims.get(self.preset, []) if one["claim"].endswith(self.claims)]


class Record(FileModel):
    row: list[Row]


def record() -> Record:
    return read(Record, ROWS)


def recorded() -> dict[str, dict[str, Any]]:
    """What the full-size runs wrote, by preset."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(RECORD.glob("*.json"))}


def on_record() -> dict[str, list[Claim]]:
    """Claims of the full-size runs, by preset."""
    return {name: told["verdicts"] for name, told in recorded().items()}


def judged_in(folder: Path) -> dict[str, list[Claim]]:
    """Claims of the reproductions in a folder, by preset."""
    judged = {file.parent.name: claims_in(file) for file in sorted(folder.glob("*/results.json"))}
    return {name: claims for name, claims in judged.items() if claims}


def claims_in(results: Path) -> list[Claim]:
    """What one `results.json` says of each claim; InputError where it is none."""
    with reading(results, MEND):
        said = json.loads(results.read_text(encoding="utf-8")).get("verdicts") or []
        return [one._asdict() for one in VERDICTS.validate_python(said)]


def dates() -> list[str]:
    """When the runs on record were made."""
    return sorted({told["date"] for told in recorded().values()})


def overall(claims: Sequence[Claim], ours: bool = False) -> str:
    """One word for several claims: all hold; some do (or do in part); all fail; or none holds and some are open.

    >>> overall([{"verdict": "holds"}, {"verdict": "undecided"}]), overall([{"verdict": "does not hold"}])
    ('partly', 'not reproduced')
    >>> overall([{"verdict": "undecided"}]), overall([{"verdict": "holds"}], ours=True), overall([])
    ('undecided', 'not stated by the paper', 'not measured')
    """
    words = [one["verdict"] for one in claims if one["verdict"] != NOT_STATED]
    if ours or (claims and not words):
        return OURS
    if not words:
        return OPEN
    if all(word == HOLDS for word in words):
        return REPRODUCED
    if any(word.startswith(HOLDS) for word in words):
        return PARTLY
    return UNDECIDED if UNDECIDED in words else NOT


def counted(claims: Sequence[Claim]) -> str:
    """How many claims hold, fail and are undecided.

    >>> counted([{"verdict": "holds"}, {"verdict": "holds only with x"}, {"verdict": "undecided"}])
    '1 of 3 claims holds, 1 in part, 1 undecided'
    """
    words = [one["verdict"] for one in claims if one["verdict"] != NOT_STATED]
    held, part = words.count(HOLDS), sum(word.startswith(HOLDS) and word != HOLDS for word in words)
    rest = {"in part": part, "undecided": words.count(UNDECIDED), "not": words.count(FAILS)}
    told = [f"{held} of {len(words)} claims hold{'s' * (held == 1)}"]
    return ", ".join(told + [f"{count} {name}" for name, count in rest.items() if count])


def measured(claims: Sequence[Claim]) -> str:
    """The evidence for the first claims, two parts of each at most and none twice, behind what their rules measure.

    >>> measured([{"evidence": "a; b; c"}, {"evidence": "d; a"}]), measured([{"evidence": "a"}, {"evidence": "a"}])
    ('a; b; d …', 'a')
    >>> measured([{"evidence": "a 0.1", "rule": "accuracy: mean > 0"}, {"evidence": "a 7", "rule": "rounds: mean > 0"}])
    'accuracy: a 0.1; rounds: a 7'
    """
    shown: dict[str, dict[str, None]] = {"": {}}  # first what stands by itself
    known = set()
    for n, one in enumerate(claims):
        head, colon, _ = one.get("rule", "").partition(": ")
        what = head if colon and ";" not in head else ""
        parts = one["evidence"].split("; ")
        known |= {(what, part) for part in parts}
        if n < SHOWN:
            shown.setdefault(what, {}).update(dict.fromkeys(parts[:2]))
    told = [f"{what}: " * bool(what) + "; ".join(parts) for what, parts in shown.items() if parts]
    return "; ".join(told) + " …" * (len(known) > sum(map(len, shown.values())))


class Found(NamedTuple):
    """What one row's reproduction says in a folder of them."""

    verdict: str
    measured: str


def found_in(judged: dict[str, list[Claim]], row: Row) -> Found:
    """The verdict, how many claims hold, and the evidence for the first ones."""
    own = row.own(judged)
    if not own:
        return Found(OPEN, "no claim to judge")
    return Found(overall(own, not row.says), f"{counted(own)}; {measured(own)}")


def page_table() -> str:
    """The record as a Markdown table for docs/results."""
    claims = on_record()
    rows = []
    for row in record().row:
        own = row.own(claims)
        held = f" ({counted(own)})" if own else ""
        rows.append([f"[{row.source}]({row.page})", f"`otafl reproduce {row.preset}`", row.says or "–",
                     _starred(measured(own)), f"**{overall(own, not row.says)}**{held}", row.why])  # fmt: skip
    return "\n".join(markdown_table(HEAD, rows))


def _starred(cell: str) -> str:
    """With its stars as they are: between the two of `acc@ε*; worst@ε*` Markdown would lean."""
    return cell.replace("*", "\\*")


def folder_table() -> str:
    """Where every run on record was made, and what it took; a figure may be drawn from the run of its table."""
    rows = []
    for name, told in recorded().items():
        own = told["trained"]
        took = [f"{own['rounds']:,}", f"{own['seconds']:,}", "; ".join(own["on"])] if own["rounds"] else ["–"] * 3
        rows.append([name, told["folder"] or "–", told["date"], told["version"], *took])
    head = ("preset", "folder", "date", "otafl", "rounds, all seeds and schemes", "seconds", "trained on")
    return "\n".join(markdown_table(head, rows))


def times_table() -> str:
    """Minutes of the presets that take more than one on two cores."""
    longer = {name: one.minutes for name, one in sorted(presets().items(), key=lambda own: own[1].minutes)
              if one.minutes > 1}  # fmt: skip
    return "\n".join(markdown_table(("preset", "minutes"), [[name, f"{took:,.0f}"] for name, took in longer.items()]))


def closing(preset: str, folder: Path, quick: bool) -> list[str]:
    """How a reproduction ends: what the paper says, the verdict here and on record, and where everything is."""
    lines, known = [], on_record()
    results = folder / "results.json"
    here = {preset: claims_in(results)} if results.exists() else {}
    for row in (row for row in record().row if row.preset == preset):
        lines += [f"{row.source}, the paper says: {row.says}"] if row.says else []
        own = row.own(here)
        if own:
            word = "a smoke version means nothing" if quick else overall(own, not row.says)
            before = row.own(known)
            lines.append(f"Verdict: {word} ({counted(own)}); on record: {overall(before, not row.says)} "
                         f"({counted(before)})")  # fmt: skip
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
        before = row.own(known)
        rows.append([row.source, f"otafl reproduce {row.preset}", row.says or "–", here.measured, here.verdict,
                     f"{overall(before, not row.says)}: {counted(before)}", row.why])  # fmt: skip
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
    notes = [SMOKE] * quick + [f"On record: full-size runs of {', '.join(dates())}."]
    notes += [f"{name}: {said}" for name, said in others.items()]
    text = [
        [f"[{row[0]}]({_results(row)})", f"`{row[1]}`", *(inert(_starred(cell)) for cell in row[2:])] for row in rows
    ]
    page = ["# Reproductions", "", *markdown_table(INDEX_HEAD, text), "", *(f"- {inert(note)}" for note in notes), ""]
    write_atomic(folder / "index.md", "\n".join(page))
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
