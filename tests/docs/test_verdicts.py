"""The table of all reproductions: complete, up to date, and held to the pages that the runs wrote."""

import json
import re

import pytest
from pages import ROOT

from otafl.reproductions import verdicts
from otafl.reproductions.findings import markdown_of
from otafl.reproductions.pages import PLACE, blocks, fill
from otafl.runs.presets import packaged, presets

RESULTS = ROOT / "docs" / "results"
ROWS = verdicts.record().row
NUMBER = re.compile(r"\d+\.\d+")


def test_every_published_figure_has_a_row_and_every_row_a_preset():
    known = presets()
    published = {name for name, preset in known.items() if preset.source}
    assert published - {row.preset for row in ROWS} <= {"biasvar-designs"}, "designs are no published figure"
    assert {row.preset for row in ROWS} <= set(known)


def test_every_verdict_on_record_belongs_to_a_preset_and_no_row_is_open():
    claims = verdicts.on_record()
    assert set(claims) <= set(presets())
    assert not [row.preset for row in ROWS if not row.own(claims)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.source)
def test_the_page_named_has_the_heading(row: verdicts.Row):
    file, _, anchor = row.page.partition("#")
    heads = re.findall(r"^#+ (.*)$", (RESULTS / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\s-]", "", head).strip().lower().replace(" ", "-") for head in heads}


def test_whatever_stands_between_markers_is_the_record():
    """Tables, verdicts, notes and pictures: every measured number of these parts came out of a run folder."""
    written, compared = blocks(), set()
    for page in RESULTS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert fill(text, written) == text, page.name
        compared |= {place["name"] for place in PLACE.finditer(text)} & set(written)
    assert {name for name, told in verdicts.recorded().items() if "grids" in told} <= compared


@pytest.mark.parametrize("system", ["biasvar", "cares", "cdpb", "eezofl"])
def test_numbers_in_the_text_are_those_of_the_runs_or_of_the_presets(system: str):
    """Outside the markers, too: whatever has a decimal point was measured, or is a setting."""
    page = (RESULTS / f"{system}.md").read_text(encoding="utf-8")
    names = {place["name"] for place in PLACE.finditer(page)}
    sources = [json.dumps(verdicts.recorded()[name], ensure_ascii=False) for name in names & set(verdicts.recorded())]
    sources += [packaged()[name].read_text(encoding="utf-8") for name in names & set(packaged())]
    known = set(NUMBER.findall(" ".join(sources)))
    text = re.sub(r"```.*?```|\(errata [\d.]+\)|\([\d.]+\)|arXiv:\S+", "", PLACE.sub("", page), flags=re.DOTALL)
    assert not {number for number in NUMBER.findall(text) if number not in known}


@pytest.mark.parametrize("name", [name for name, preset in presets().items() if preset.targets.get("claims")])
def test_every_claim_of_a_preset_is_on_record_with_its_place(name: str):
    """A claim that is reworded or added later is not on record until the preset is run again."""
    told = [(one["claim"], one["place"]) for one in verdicts.on_record()[name]]
    asked = [(one["text"], one.get("place", "")) for one in presets()[name].targets["claims"]]
    assert not [text for text, place in asked if not any(text in claim and place == at for claim, at in told)]


@pytest.mark.parametrize("name", verdicts.recorded())
def test_a_claim_on_record_has_its_words_place_and_rule(name: str):
    told = verdicts.recorded()[name]
    assert told["folder"] and all(one["claim"] and one["rule"] for one in told["verdicts"])
    published = next((row for row in ROWS if row.preset == name and row.says), None)
    assert not published or all(one["place"] for one in told["verdicts"])
    undecided = [one for one in told["verdicts"] if one["verdict"] == "undecided"]
    assert all("decide it" in one["evidence"] for one in undecided)


def test_no_row_says_the_same_twice():
    """One number stands once, behind what it measures: two scores of one pair of schemes look alike without."""
    for row in ROWS:
        told = verdicts.measured(row.own(verdicts.on_record()))
        parts = told.removesuffix(" …").split("; ")
        assert "…" not in told.removesuffix(" …") and len(parts) == len(set(parts)), row.source
    row = next(row for row in ROWS if row.source == "CARES, Table 2")
    assert "best acc: CARES adaptive − CARES static" in verdicts.measured(row.own(verdicts.on_record()))
    assert "| acc@ε\\*: CARES static" in verdicts.page_table(), "two stars in one cell would lean what is between them"


def test_only_what_a_paper_prints_is_called_its_own():
    """CDPB prints no value for Figure 5; by its accounting or not, all of them are ours."""
    told = verdicts.recorded()["cdpb-fig5"]
    assert "paper" not in {*told["grids"][0]["head"]} and not [v for v in told["verdicts"] if "paper:" in v["evidence"]]
    assert "Figure 5: as measured]" in markdown_of(told, "x.svg")
    assert "beside what the paper prints" in markdown_of(verdicts.recorded()["cares-table1"], "x.svg")
