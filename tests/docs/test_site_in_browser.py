"""The built site in a real browser: formulas, pictures, search from a folder, widths, and no barrier for axe-core."""

from pathlib import Path

import pytest

from browsing import violations

SITE = Path(__file__).parents[2] / "site"
PAGES = ["index.html", "results/index.html", "results/compare.html", "systems/cares.html", "systems/ridge.html",
         "privacy.html", "planning.html", "api/front.html"]  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built (make docs)"),
]


@pytest.mark.parametrize("page", PAGES)
def test_page(browser, page):
    browser.open(SITE / page)
    assert browser.complaints == []  # scripts, console, and nothing fetched from elsewhere
    assert browser.run("[...document.images].filter(i => !i.alt || !i.complete || !i.naturalWidth).length") == 0
    assert browser.run("document.querySelectorAll('.arithmatex:not(:has(.katex))').length") == 0
    assert not browser.run("[...document.querySelectorAll('article td, article p')].some(e => "
                           "[...e.childNodes].some(n => n.nodeType === 3 && /\\\\(frac|sum|sqrt|dfrac)/.test(n.data)))")
    wide = browser.run("[...document.querySelectorAll('article table')].filter("
                       "t => t.getBoundingClientRect().right > t.closest('article').getBoundingClientRect().right + 1)"
                       ".map(t => t.innerText.slice(0, 60))")  # fmt: skip
    assert wide == []
    assert violations(browser) == []


def test_formulas_are_drawn(browser):
    browser.open(SITE / "systems/cares.html")
    assert browser.run("document.querySelectorAll('.katex').length") > 10


def test_search_answers_from_a_folder(browser):
    browser.open(SITE / "index.html")
    found = browser.run("""new Promise(async answer => {
        const field = document.querySelector('.md-search__input')
        field.focus()
        field.value = 'eavesdropper'
        field.dispatchEvent(new Event('input', {bubbles: true}))
        field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))
        for (let tries = 0; tries < 100; tries++) {
            const hits = document.querySelectorAll('.md-search-result__item a')
            if (hits.length) return answer([...hits].map(a => a.href).join(' '))
            await new Promise(go => setTimeout(go, 100))
        }
        answer('')
    })""")
    assert "changelog.html" in found


@pytest.mark.parametrize("page", ["index.html", "systems/cares.html"])
def test_phone(browser, page):
    browser.open(SITE / page, width=390, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= 390
