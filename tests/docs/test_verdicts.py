"""The table of all reproductions: complete, up to date, and held to the pages that the runs wrote."""

import re

import pytest
from pages import ROOT

from otafl.reproductions import verdicts
from otafl.reproductions.pages import PLACE, fill
from otafl.runs.presets import presets

RESULTS = ROOT / "docs" / "results"
ROWS = verdicts.record().row
NUMBER = re.compile(r"[+-]?\d[\d.,]*(?:·10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+|e[+-]\d+)?")


def test_page_holds_the_table():
    page = (RESULTS / "index.md").read_text(encoding="utf-8")
    assert fill(page, {"record": verdicts.page_table()}) == page
    assert "CARES, Table 1" in page


def test_every_published_figure_has_a_row_and_every_row_a_preset():
    known = presets()
    published = {name for name, preset in known.items() if preset.source}
    assert published - {row.preset for row in ROWS} <= {"biasvar-designs"}, "designs are no published figure"
    assert {row.preset for row in ROWS} | {row.judged_by for row in ROWS if row.judged_by} <= set(known)


def test_every_verdict_on_record_belongs_to_a_preset_and_no_row_is_open():
    claims = verdicts.on_record()
    assert set(claims) <= set(presets())
    assert not [row.preset for row in ROWS if not row.own(claims)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.source)
def test_figures_stand_on_the_page_named(row: verdicts.Row):
    """Every number under "measured" is on the detailed page, or in the evidence that the run wrote."""
    file, _, anchor = row.page.partition("#")
    page = (RESULTS / file).read_text(encoding="utf-8")
    evidence = " ".join(one["evidence"] for one in row.own(verdicts.on_record()))
    there = set(NUMBER.findall(page)) | set(NUMBER.findall(evidence))
    there |= {number.strip(".,+") for number in there}
    missing = {number for number in NUMBER.findall(row.measured) if number.strip(".,+") not in there}
    assert not missing
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\s-]", "", head).strip().lower().replace(" ", "-") for head in heads}


def test_verdicts_on_the_pages_are_those_on_record():
    """Pages hold the tables of the same runs, between markers: claim by claim the same word."""
    known, compared = verdicts.on_record(), set()
    for page in RESULTS.glob("*.md"):
        for place in PLACE.finditer(page.read_text(encoding="utf-8")):
            name, table = place["name"], place[0].partition("| claim | verdict | evidence |")[2]
            if table:
                said = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", table, re.MULTILINE)
                assert said == [(one["claim"], one["verdict"]) for one in known[name]], name
                compared.add(name)
    assert len(compared) > 20


def test_verdicts_on_the_page_without_markers_are_those_on_record():
    """AdaScale's page is laid out by hand; its four tables of verdicts are not."""
    known = verdicts.on_record()
    pairs = {(one["claim"], one["verdict"]) for name in known for one in known[name] if name.startswith("adascale")}
    page = (RESULTS / "adascale.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| claim \| verdict \| evidence \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", page)
    said = {tuple(line.split(" | ")[:2]) for table in tables for line in table.replace("| ", "", 1).split("\n| ")}
    assert len(said) > 10 and said == pairs
