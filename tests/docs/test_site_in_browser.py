"""The built site in a real browser: formulas, pictures, search from a folder, widths, and no barrier for axe-core."""

from pathlib import Path

import pytest

from browsing import Browser, violations

SITE = Path(__file__).parents[2] / "site"
PAGES = sorted(page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html"))
FEW = ["index.html", "gallery.html", "results/compare.html", "systems/cares.html", "api/front.html"]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built (make docs)"),
]

# What each expression finds is wrong with a page.
WRONG = {
    "picture without text or not there": "[...document.images].filter(i => !i.alt || !i.complete || !i.naturalWidth)"
    ".map(i => i.src)",
    "formula not drawn": "[...document.querySelectorAll('.arithmatex:not(:has(.katex))')].map(e => e.innerText)",
    "source of mathematics": "[...document.querySelectorAll('article :is(td, p, li)')].flatMap(e => [...e.childNodes])"
    ".filter(n => n.nodeType === 3 && /\\\\(frac|sum|sqrt|dfrac|mathdefault)|\\$\\$/.test(n.data)).map(n => n.data)",
    "heading out of order": "[...document.querySelectorAll('article :is(h1, h2, h3, h4, h5)')].map(h => +h.tagName[1])"
    ".filter((level, n, all) => n === 0 ? level !== 1 : level === 1 || level > all[n - 1] + 1)",
}
# On a phone a table or formula may scroll in its own frame, on a desk all fit; no page ever scrolls sideways.
SIDEWAYS = "document.documentElement.scrollWidth - innerWidth"
CLIPPED = (
    "[...document.querySelectorAll('article :is(.md-typeset__scrollwrap, .katex-display)')]"
    ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 60))"
)


def faults(browser: Browser, page: str) -> list[str]:
    """Everything wrong with one page: at a desk, then, without loading it again, on a phone."""
    browser.open(SITE / page)
    found = [*browser.complaints, *(f"{name}: {what}" for name, seen in WRONG.items() for what in browser.run(seen))]
    found += [f"does not fit a desk: {what}" for what in browser.run(CLIPPED)]
    for width in (1280, 390):
        browser.resize(width)
        if browser.run(SIDEWAYS) > 0:
            found.append(f"scrolls sideways at {width}")
    return found


def test_every_page(browser):
    assert len(PAGES) > 50
    found = {page: wrong for page in PAGES if (wrong := faults(browser, page))}
    assert found == {}


@pytest.mark.parametrize("page", [one if one in FEW else pytest.param(one, marks=pytest.mark.slow) for one in PAGES])
def test_nobody_is_kept_out(browser, page):
    browser.open(SITE / page)
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
