"""The page in a real browser: it draws, answers its controls, fits a phone, prints, and fetches nothing."""

import io
import json
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from browsing import violations
from otafl.reports.data import collect
from otafl.reports.page import render

pytestmark = pytest.mark.browser

LONG = "a scheme with a very long name that nobody would want to see in a legend, </script><b>bold</b> " * 2
SCHEMES = {
    "plain": {"queue": True, "penalty": 0.1, "certificate": {"feasible": True, "targets": {"eps": 5}}},
    LONG: {"private": False, "noiseless": True, "silence": 0.0},
    "third": {"devices": False, "fused": True, "shorter": 9},
}


@pytest.fixture
def page(make_run, tmp_path) -> Path:
    run = make_run("run", SCHEMES, title=f"{LONG} {'x' * 200}", clients=40)
    path = tmp_path / "report.html"
    path.write_text(render(collect([run])), encoding="utf-8")
    return path


def curves(browser, chart: str) -> list[str]:
    """Which schemes have a drawn curve in a chart."""
    found = f"document.querySelectorAll('[data-chart={chart}] svg g[data-scheme]')"
    return browser.run(f"[...{found}].map(g => g.dataset.scheme)")


def colours(png: bytes) -> int:
    from PIL import Image

    return len(set(Image.open(io.BytesIO(png)).convert("RGB").resize((200, 150), Image.Resampling.NEAREST).getdata()))


def test_every_figure_is_drawn_and_nobody_complains(browser, page):
    browser.open(page)
    assert browser.complaints == []
    frames = "[...document.querySelectorAll('figure.chart')]"
    assert browser.run(f"{frames}.filter(f => !f.querySelector('svg, canvas')).length") == 0
    assert browser.run("document.querySelectorAll('figure.chart').length") >= 14
    assert browser.run("document.querySelectorAll('b').length") == 2 * len(SCHEMES) + browser.run(
        "document.querySelectorAll('.read b').length"
    )  # only our own bold: two per privacy card, one per filled read-out
    assert colours(browser.screenshot()) > 20


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("axis", ["round", "eps"])
def test_nothing_is_wider_than_the_window(browser, page, width, axis):
    browser.open(page, width, 844)
    browser.run(f"document.querySelector('input[value={axis}]').click()")
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= width
    wide = browser.run(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && !e.closest('svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_legend_hides_and_shows_a_scheme(browser, page):
    browser.open(page)
    assert curves(browser, "accuracy") == ["0", "1", "2"]
    button = "document.querySelector('#legend button[data-scheme=\"1\"]')"
    browser.run(f"{button}.click()")
    assert curves(browser, "accuracy") == ["0", "2"]
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    browser.run(f"{button}.click()")
    assert curves(browser, "accuracy") == ["0", "1", "2"]
    browser.run(f"{button}.dispatchEvent(new MouseEvent('dblclick'))")
    assert curves(browser, "accuracy") == ["1"]
    assert browser.complaints == []


def test_hiding_everything_leaves_a_sentence(browser, page):
    browser.open(page)
    browser.run("document.querySelectorAll('#legend button').forEach(b => b.click())")
    assert browser.run("document.querySelector('[data-chart=accuracy] .empty').textContent") == "nothing to show"
    assert browser.complaints == []


def test_log_axis_changes_the_picture_and_says_so(browser, page):
    browser.open(page)
    shape = "document.querySelector('[data-chart=loss] g[data-scheme=\"0\"] .mean').getAttribute('d')"
    label = "[...document.querySelectorAll('[data-chart=loss] svg text')].map(t => t.textContent)"
    before = browser.run(shape)
    browser.run("document.querySelector('[data-chart=loss] .log').click()")
    assert browser.run(shape) != before and "loss (log)" in browser.run(label)
    browser.run("document.querySelector('[data-chart=loss] .log').click()")
    assert browser.run(shape) == before


def test_eps_axis_shows_the_scheme_without_privacy_as_a_level(browser, page):
    browser.open(page)
    browser.run("document.querySelector('input[value=eps]').click()")
    texts = browser.run("[...document.querySelectorAll('[data-chart=accuracy] svg text')].map(t => t.textContent)")
    assert any(text.startswith("ε of the worst client") for text in texts)
    assert any(text.endswith(": ε = ∞") for text in texts)
    assert browser.run("document.querySelector('[data-chart=accuracy] g[data-scheme=\"1\"] .mean')") is None


def test_read_out_gives_the_stores_mean_and_deviation(browser, page, tmp_path):
    stored = pd.read_parquet(tmp_path / "run" / "schemes" / "plain" / "evaluations.parquet")
    values = stored[stored["round"] == 20].accuracy.tolist()
    browser.open(page)
    chart = "document.querySelector('[data-chart=accuracy] svg')"
    for _ in range(2):  # from the left: round 10, then 20
        browser.run(f"{chart}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowRight'}}))")
    said = browser.run("document.querySelector('[data-chart=accuracy] .read').innerText")
    assert said.startswith("round 20")
    line = next(line for line in said.splitlines() if "plain" in line)
    mean, deviation = (float(part) for part in line.split(": ")[1].split(" (")[0].split(" ± "))
    assert mean == pytest.approx(statistics.mean(values), rel=1e-3)
    assert deviation == pytest.approx(statistics.stdev(values), rel=2e-2)
    assert browser.run("document.getElementById('said').textContent").startswith("round 20")


def test_statistics_of_the_script_equal_numpys(browser, page):
    browser.open(page)
    rows = np.random.default_rng(0).normal(size=(7, 3))
    got = browser.run(f"[0, 1, 2].map(n => column({rows.tolist()}, n))")
    np.testing.assert_allclose([c["mean"] for c in got], rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose([c["sd"] for c in got], rows.std(0, ddof=1), rtol=1e-12)
    assert browser.run("column([[null], [2]], 0).count") == 1
    assert browser.run("column([['inf'], [2]], 0).mean === Infinity")


def test_pointer_over_the_heat_map_counts_silence(browser, page, tmp_path):
    stored = pd.read_parquet(tmp_path / "run" / "schemes" / "plain" / "devices.parquet")
    cell = stored[(stored.client == 0) & (stored["round"] == 0)]
    browser.open(page)
    said = browser.run(
        "(() => { const c = document.querySelector('.map[data-scheme=\"0\"] canvas'), r = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent('pointermove', {clientX: r.left + 1, clientY: r.top + 1}));"
        "return document.querySelector('.map[data-scheme=\"0\"] .read').innerText; })()"
    )
    assert said.split("\n") == ["device 0, round 0", f"silent in {int((~cell.sent).sum())} of {len(cell)}"]


def test_reference_and_metric_can_be_chosen(browser, page, tmp_path):
    report = collect([tmp_path / "run"])
    browser.open(page)
    browser.run(
        "(() => { for (const [id, value] of [['metric', 'final_loss'], ['reference', '2']]) {"
        "const s = document.getElementById(id); s.value = value; s.dispatchEvent(new Event('change')); } })()"
    )
    cell = "document.querySelector('#comparison tr[data-scheme=\"NUMBER\"] .difference').textContent"
    shown = [browser.run(cell.replace("NUMBER", str(number))) for number in range(3)]
    gap = report["differences"]["final_loss"][0][2]
    assert shown[2] == "reference"
    assert shown[0].startswith(f"{'−' if gap['mean'] < 0 else '+'}{abs(gap['mean']):.3f} ± {gap['half_width']:.3f}")
    assert ("cannot be separated" in shown[0]) == (abs(gap["mean"]) <= gap["half_width"])


def test_script_and_page_use_the_same_words(browser, page):
    from otafl.reports.sections import verdict

    browser.open(page)
    for mean, half in ((0.1234, 0.01), (-0.01, 0.02), (0.5, None), (None, None), (-2e-4, 7e-5), (3e-6, None), (0, 0)):
        gap = {"mean": mean, "half_width": half, "pairs": 3}
        assert browser.run(f"verdict({json.dumps(gap)})") == verdict(gap)
    assert browser.run("verdict(null)") == verdict(None)


def test_dark_and_light(browser, page):
    background = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    dark = browser.run(background)
    browser.run("document.getElementById('theme').click()")
    light = browser.run(background)
    assert brightness(dark) < 60 < 200 < brightness(light)
    browser.open(page, dark=False)
    assert browser.run(background) == light


def brightness(colour: str) -> float:
    return float(np.mean([int(part) for part in colour.strip("rgb()").split(",")]))


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast(browser, page, dark):
    browser.open(page, dark=dark)
    grounds = {"--ink": "--paper", "--soft": "--paper", "--accent": "--card", "--warn-ink": "--warn"}
    for text, ground in grounds.items():
        assert contrast(browser, text, ground) >= 4.5, (text, ground)
    for n in range(8):
        assert contrast(browser, f"--c{n}", "--card") >= 2.2, n  # lines also differ by dash and marker


def contrast(browser, first: str, second: str) -> float:
    def luminance(token: str) -> float:
        value = browser.run(f"getComputedStyle(document.documentElement).getPropertyValue('{token}').trim()")
        parts = [int(value[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_prints_on_white_and_comes_back(browser, page):
    browser.open(page, dark=True)
    folded = browser.run("document.querySelectorAll('details:not([open])').length")
    printed = browser.pdf()
    assert printed.startswith(b"%PDF") and len(printed) > 20_000
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.run("document.querySelectorAll('details:not([open])').length") == folded > 0
    assert browser.complaints == []


def cut(browser, boxes: str) -> list[str]:
    """Tables with columns that one has to scroll to."""
    assert browser.run(f"document.querySelectorAll('{boxes}').length") > 0
    wide = f"[...document.querySelectorAll('{boxes}')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    return browser.run(f"{wide}.map(e => e.textContent.slice(0, 60))")


def test_no_column_of_a_card_or_the_ranking_is_cut_on_paper(browser, page):
    browser.open(page, 690, 1000)  # A4 between its margins, in CSS pixels
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert cut(browser, ".card .scroll, #comparison") == []


@pytest.mark.parametrize("width", [390, 1280, 1440, 1920])
def test_the_eps_of_every_observer_is_seen_without_scrolling(browser, page, width):
    browser.open(page, width, 900)
    assert cut(browser, ".card .scroll") == []


def test_no_tick_stands_between_two_rounds_or_devices(browser, make_run, tmp_path):
    run = make_run("short", {"one": {}}, seeds=(0,), rounds=3, clients=3)
    path = tmp_path / "short.html"
    path.write_text(render(collect([run])), encoding="utf-8")
    browser.open(path)
    labels = "[...document.querySelectorAll('figure.chart svg text[text-anchor=middle]')].map(t => t.textContent)"
    told = browser.run(labels)
    assert {"round", "device", "1", "2", "3"} <= set(told)
    assert [text for text in told if "." in text] == []


def test_ten_thousand_devices(browser, make_run, tmp_path):
    run = make_run("big", {"one": {}}, seeds=(0,), rounds=12, clients=10_000)
    path = tmp_path / "big.html"
    path.write_text(render(collect([run])), encoding="utf-8")
    browser.open(path, 390, 844)
    assert browser.complaints == []
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.run("document.querySelector('[data-chart=energy] svg') !== null")


def test_headings_descend_and_controls_have_names(browser, page):
    browser.open(page)
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    unnamed = browser.run(
        "[...document.querySelectorAll('button, select, svg[role=img], canvas, [role=region]')].filter(e => "
        "!(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).length"
    )
    assert unnamed == 0


ORDINARY = {"first": {"queue": True}, "second": {"shorter": 9}, "free": {"private": False, "noiseless": True}}


@pytest.fixture
def ordinary(make_run, tmp_path) -> Path:
    run = make_run("ordinary", ORDINARY, clients=40)
    path = tmp_path / "ordinary.html"
    path.write_text(render(collect([run])), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
def test_no_barrier_that_axe_core_knows(browser, ordinary, width):
    browser.open(ordinary, width)
    assert violations(browser) == []


def test_the_page_opens_with_a_sentence_and_the_ranking(browser, ordinary):
    browser.open(ordinary)
    said = browser.run("document.querySelector('.verdict').textContent")
    order = browser.run("[...document.querySelectorAll('#comparison tbody th')].map(th => th.textContent)")
    assert said.startswith(f"{order[0]} is first with accuracy 0.") and "Without privacy: 0." in said
    assert order[-1] == "free"  # a reference, whatever it reaches
    cells = "[...document.querySelectorAll('#comparison tbody td:nth-child(2)')]"
    scores = browser.run(f"{cells}.map(td => parseFloat(td.textContent))")
    assert scores[0] >= scores[1]


def test_nothing_of_the_table_is_cut_at_1280_pixels(browser, ordinary):
    browser.open(ordinary, 1280)
    assert browser.run("(s => s.scrollWidth <= s.clientWidth)(document.querySelector('#comparison').parentElement)")


def test_a_click_on_a_head_sorts_and_a_second_turns(browser, ordinary):
    browser.open(ordinary)
    button = "[...document.querySelectorAll('#comparison thead button')].find(b => b.textContent === 'loss')"
    column = browser.run(f"{button}.parentElement.cellIndex + 1")
    cells = f"[...document.querySelectorAll('#comparison tbody tr :nth-child({column})')]"
    values = f"{cells}.map(cell => parseFloat(cell.textContent))"
    browser.run(f"{button}.click()")
    assert browser.run(values) == sorted(browser.run(values), reverse=True)
    assert browser.run(f"{button}.parentElement.ariaSort") == "descending"
    browser.run(f"{button}.click()")
    assert browser.run(values) == sorted(browser.run(values))


def test_a_phone_has_the_results_first_and_the_rest_folded(browser, ordinary):
    browser.open(ordinary, 390, 844)
    assert browser.run("document.documentElement.scrollHeight") < 6000
    assert browser.run("document.querySelectorAll('details.fold[open]').length") == 0
    browser.run("document.querySelector('nav a[href=\"#privacy\"]').click()")
    assert browser.run("document.querySelector('#privacy > details').open")
    assert browser.run("document.querySelector('[data-chart=tradeoff] svg, [data-chart=eps] svg').clientWidth") > 200


def test_seeds_that_stop_are_carried_forward_and_marked(browser, ordinary):
    browser.open(ordinary)
    found = browser.run("series(report.schemes[1], charts.snr, false).points.map(p => [p.count, p.stopped])")
    assert {count for count, _ in found} == {3} and found[-1][1] == 2  # "second": each seed ends nine rounds earlier
    assert browser.run("document.querySelectorAll('[data-chart=snr] g[data-scheme=\"1\"] .stop').length") == 2
