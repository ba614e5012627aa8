"""advice.html in a real browser: its forms are Python's, its sliders move them, its state is in the address."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from otafl.bounds import merit
from otafl.reports.advice import page_data, render
from otafl.runs.advice.forms import State, base_of, forms
from otafl.runs.advice.value import Advice, advise

pytestmark = pytest.mark.browser

SITE = Path(__file__).parents[2] / "examples/site37.toml"


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(SITE, 9610, 8.0, rounds=100, weights="equal")


@pytest.fixture
def page(advice: Advice, tmp_path: Path) -> Path:
    path = tmp_path / "advice.html"
    path.write_text(render(advice), encoding="utf-8")
    return path


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp"])
def test_the_forms_of_the_page_are_those_of_python(browser, page, advice, accountant):
    browser.open(page)
    option = next(o for o in advice.options if o.name == "constant")
    base = base_of(advice.question, option)._replace(accountant=accountant)
    number = [entry["name"] for entry in page_data(advice)["bases"]].index("constant")
    grid = itertools.product((0.3, 8.0, 150.0), (25, 4000), (200, 50_000), (10, 400), (-10.0, 3.0))
    for state in itertools.starmap(State, grid):
        asked = f"{{...given.bases[{number}].base, accountant: '{accountant}'}}"
        got = browser.run(f"otaflForms.forms({asked}, {dict(state._asdict())})")
        want = forms(base, state)
        for key in ("mu", "snr", "snr_max", "quality", "lift", "tpr", "energy", "margin_db"):
            assert got[key] == pytest.approx(want[key], rel=2e-5, abs=1e-9), (key, state)
        assert browser.run(f"otaflForms.band({want['quality']})") == pytest.approx(merit.band(want["quality"]))
        assert got["verdict"] == want["verdict"]
        assert len(got["outside"]) == len(want["outside"])


def test_what_an_attacker_finds_at_most_is_never_rounded_down(browser, page):
    browser.open(page)
    assert [browser.run(f"atMost({value})") for value in (25.41, 9.231, 1, 99.91)] == ["25.5", "9.24", "1", "100"]
    assert "at most" in browser.run("document.getElementById('answer').textContent")


def test_it_draws_everything_without_a_complaint(browser, page, advice):
    browser.open(page)
    assert browser.complaints == []
    assert browser.run("document.querySelectorAll('#map [data-device]').length") == 37
    for figure in ("frontier", "map"):
        assert browser.run(f"document.querySelectorAll('#{figure} svg').length") == 1
    assert advice.sentence in browser.run("document.querySelector('h1').textContent")
    assert browser.run("document.getElementById('toml').textContent") == advice.to_toml()


def test_it_is_dark_where_the_reader_prefers_it(browser, page):
    browser.open(page, dark=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 24)"
    browser.open(page)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 249)"


def test_a_slider_moves_the_answer_and_the_address(browser, page):
    browser.open(page)
    before = float(browser.run("document.getElementById('answer').dataset.quality"))
    browser.run("(() => { const s = document.getElementById('slider-devices'); s.value = 350;"
                " s.dispatchEvent(new Event('input')); })()")  # fmt: skip
    after = float(browser.run("document.getElementById('answer').dataset.quality"))
    assert after > 2 * before
    assert "devices=" in browser.run("location.hash")
    assert browser.run("document.getElementById('answer').classList.contains('outside')")
    browser.run("document.getElementById('reset').click()")
    assert float(browser.run("document.getElementById('answer').dataset.quality")) == pytest.approx(before)
    assert browser.run("location.hash") == ""


def test_the_address_brings_a_state_back(browser, page):
    browser.open(page)
    browser.run("location.hash = '#eps=2&devices=1000'")
    browser.run("state = readAddress(), update(false)")
    assert browser.run("state.devices") == 1000
    assert browser.run("state.eps") == 2


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_is_wider_than_the_window(browser, page, width):
    browser.open(page, width, 844)
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_words_in_figures_keep_their_size(browser, page, width):
    """Scaled with the figure, they were 6 pixels high on a phone and 20 on a desk."""
    browser.open(page, width, 844)
    for figure in ("frontier", "energy"):
        svg = f"document.querySelector('#{figure} svg')"
        assert browser.run(f"{svg}.clientWidth / {svg}.viewBox.baseVal.width") == pytest.approx(1, abs=0.02)


def test_figures_follow_the_window(browser, page):
    browser.open(page, 1280, 844)
    browser.resize(390, 844)
    browser.run("new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")
    assert browser.run("document.querySelector('#frontier svg').viewBox.baseVal.width") < 390


def test_a_name_cannot_leave_its_place(browser, advice, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    site = advice.question.site._replace(name=evil)
    path = tmp_path / "evil.html"
    path.write_text(render(dataclasses.replace(advice, question=dataclasses.replace(advice.question, site=site))))
    browser.open(path)
    assert browser.complaints == []
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_on_paper_the_whole_file_stands_and_no_sliders(browser, page):
    browser.open(page, 690, 1000)  # A4 between its margins, in CSS pixels
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.getElementById('sliders')).display") == "none"
    toml = "document.getElementById('toml')"
    assert browser.run(f"getComputedStyle({toml}).overflow") == "visible"
    assert browser.run(f"{toml}.scrollHeight <= {toml}.clientHeight + 1")
    assert browser.run(f"{toml}.scrollWidth <= {toml}.clientWidth + 1")
    assert browser.run("document.getElementById('answer').textContent").count("false alarms") == 1
