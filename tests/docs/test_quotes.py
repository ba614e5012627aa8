"""Every claim on record, and every statement that an erratum quotes, stands in its paper.

Needs the papers as text, NAME.txt in the folder that OTAFL_PAPERS names. Letters are compared, formulas are not: their
typesetting is lost in text. Words in brackets in a claim, and what follows its last colon, are ours.
"""

import os
import re
from pathlib import Path

import pytest
from pages import ROOT

from otafl.reproductions import verdicts

FLOATS = re.compile(r"^(Fig\.|Figure|Table) \d+[.:].*$|^.*\t.*$", re.MULTILINE)  # captions and rows between sentences
COMMAND = re.compile(r"\\[A-Za-z]+|_(\{+[^}]*\}+|[^\s$]+)")  # and subscripts
OURS = re.compile(r" ?\((?:[^()]|\([^()]*\))*\) ?")
CUT = re.compile(r"…|\.\.\.")
APART = 1500  # letters between two parts of a quote, at most
NUMBER = re.compile(r"\d+(?:\.\d+)?")
WORDS = 8  # letters, below which a quote is a formula or a cell of a table

needs_papers = pytest.mark.skipif(not os.environ.get("OTAFL_PAPERS"), reason="OTAFL_PAPERS names no folder of papers")


def letters(text: str) -> str:
    """Of words of two letters or more.

    >>> letters("all $\\\\eta$ do a 2.7 step")
    'alldostep'
    """
    return "".join(re.findall(r"[a-z]{2,}", COMMAND.sub("", text).lower()))


def said(quote: str, paper: str) -> bool:
    """Whether the parts of a quote stand in the paper one after the other, and all of its numbers anywhere."""
    parts = [part for part in map(letters, CUT.split(quote)) if part]
    texts = map(letters, (paper, FLOATS.sub("", paper)))
    return numbers(quote, paper) and (sum(map(len, parts)) < WORDS or any(_in_order(parts, text) for text in texts))


def numbers(quote: str, paper: str) -> bool:
    return all(number.removeprefix("0.") in paper for number in NUMBER.findall(quote))


def _in_order(parts: list[str], text: str, first: bool = True) -> bool:
    if not parts:
        return True
    places = (found.start() for found in re.finditer(f"(?={re.escape(parts[0])})", text))
    return any(_in_order(parts[1:], text[at + len(parts[0]) :], False) for at in places if first or at < APART)


def quoted(claim: str, paper: str) -> bool:
    bare = (claim, OURS.sub(" ", claim), re.sub(f"({OURS.pattern})+$", "", claim))
    return any(said(text, paper) for one in bare for text in (one, *([one.rsplit(":", 1)[0]] if ":" in one else [])))


def paper_of(name: str) -> str:
    return (Path(os.environ["OTAFL_PAPERS"]) / f"{name.split('-')[0]}.txt").read_text(encoding="utf-8")


@needs_papers
@pytest.mark.parametrize("name", sorted({row.preset for row in verdicts.record().row if row.says}))
def test_claims_are_the_papers_words(name: str):
    """Of a table's cells the numbers are: names of rows and columns are ours."""
    paper = paper_of(name)
    claims = [one for one in verdicts.on_record()[name] if one["place"] not in ("", "–")]
    strange = [one for one in claims if not quoted(one["claim"], paper)]
    cells = [one for one in strange if one["place"].startswith("Table") and numbers(one["claim"], paper)]
    assert not [one["claim"] for one in strange if one not in cells]


@needs_papers
@pytest.mark.parametrize("name", ["adascale", "biasvar", "cares", "cdpb", "eezofl"])
def test_errata_quote_the_papers_words(name: str):
    page = re.sub(r"```.*?```", "", (ROOT / "docs" / "errata" / f"{name}.md").read_text(encoding="utf-8"), flags=re.S)
    statements = re.findall(r"\*\*Statements?\.\*\*.*?(?=\n\n\*\*|\n## )", page, re.S)
    statements += re.findall(r"^\| [^|]*", page, re.MULTILINE)  # of tables
    quotes = [quote for statement in statements for quote in re.findall(r'"([^"]+)"', statement)]
    assert quotes and not [quote for quote in quotes if not said(quote, paper_of(name))]


@needs_papers
def test_sentences_without_a_claim_are_the_papers_words():
    page = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    quotes = re.findall(r'^\| ([\w-]+), [^|"]*"([^"]+)"', page, re.MULTILINE)
    papers = {name: paper_of(name.lower().replace("bias-variance", "biasvar")) for name, _ in quotes}
    assert quotes and not [quote for name, quote in quotes if not said(quote, papers[name])]


PAPER = "The gain is by 2.7 percentage points\n\nFig. 2. A picture.\n\nat $\\eta$ the same state-of-theart budget."


@pytest.mark.parametrize(
    ("claim", "held"),
    [
        ("(ours) by 2.7 percentage points at the same … budget (of all)", True),
        ("The gain is … state-of-the-art budget: accuracy", True),
        ("by 2.8 percentage points at the same", False),
        ("by 2.7 percentage points of the same", False),
        ("budget … The gain is", False),
    ],
)
def test_a_changed_word_or_number_is_no_quote(claim: str, held: bool):
    assert quoted(claim, PAPER) is held
