"""Results pages: text by hand, everything measured from a folder of reproductions.

    python -m otafl.reproductions.pages docs/results/cdpb.md RUNS

takes RUNS/NAME/results.json into the record (`record/NAME.json`), for every NAME that has been reproduced there at full
size, and writes what is on record between `<!-- begin NAME -->` and `<!-- end NAME -->` of the page, where NAME is a
comparison its table in RUNS; the table of all reproductions, in docs/results/index.md, has the name `record`. Without
RUNS it only writes the page. The picture of a NAME, ours beside what the paper prints, is drawn from the record when
the site is built (docs/hooks.py).
"""

import json
import re
import sys
from pathlib import Path

from otafl.core.files import to_json, write_atomic
from otafl.reports import frontier
from otafl.reports.page import stored
from otafl.reproductions import verdicts
from otafl.reproductions.findings import markdown_of
from otafl.runs.presets import presets

PLACE = re.compile(r"<!-- begin (?P<name>[\w.-]+) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)
KEPT = ("source", "date", "version", "trained", "grids", "verdicts", "notes", "panels")


def fill(page: str, results: dict[str, str]) -> str:
    """The page with the results that there are.

    >>> fill("<!-- begin a -->\\nold\\n<!-- end a -->", {"a": "new\\n"})
    '<!-- begin a -->\\n\\nnew\\n\\n<!-- end a -->'
    """

    def put(place: re.Match[str]) -> str:
        name = place["name"]
        if name not in results:
            return place[0]
        return f"<!-- begin {name} -->\n\n{results[name].strip()}\n\n<!-- end {name} -->"

    return PLACE.sub(put, page)


def take(runs: Path) -> list[str]:
    """Put what a folder of reproductions found on record; smoke versions are no record. Returns the names taken."""
    taken = []
    for file in sorted(runs.glob("*/results.json")):
        told, name = json.loads(file.read_text(encoding="utf-8")), file.parent.name
        if name in presets() and set(KEPT) <= set(told) and not told.get("quick"):
            kept = {"folder": f"{runs.resolve().name}/{name}", **{key: told[key] for key in KEPT}}
            write_atomic(verdicts.RECORD / f"{name}.json", to_json(kept) + "\n")
            taken.append(name)
    return taken


def blocks() -> dict[str, str]:
    """What belongs between the markers, by name; runs of before have left no tables."""
    found = {name: markdown_of(told, f"../images/made/results-{name}.svg")
             for name, told in verdicts.recorded().items() if "grids" in told}  # fmt: skip
    tables = {"record": verdicts.page_table(), "folders": verdicts.folder_table(), "times": verdicts.times_table(),
              "demo-frontier": frontier.span_table(stored(frontier.STORED))}  # fmt: skip
    return {**tables, **found}


def comparisons(runs: Path) -> dict[str, str]:
    """Tables of presets that compare schemes and judge no claim: they stand on their page alone."""
    found = {file.parent.name: file.read_text(encoding="utf-8") for file in runs.glob("*/results.md")
             if not file.with_suffix(".json").exists()}  # fmt: skip
    return {name: text for name, text in found.items() if name in presets() and "smoke version" not in text}


def main(page: Path, runs: Path | None = None) -> None:
    """Take a folder of reproductions, if there is one, and write one page."""
    compared = {} if runs is None else comparisons(runs)
    if runs is not None:
        print("taken:", ", ".join([*take(runs), *compared]) or "nothing")
    write_atomic(page, fill(page.read_text(encoding="utf-8"), {**blocks(), **compared}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
