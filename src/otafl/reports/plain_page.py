"""Pages without charts of their own: one frame, one kind of table. Everything that a user named is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from otafl.reports.page import asset
from otafl.reports.sections import LEFT, WORDS, boxed


def plain_page(verb: str, title: str, main: str, script: str = "", style: str = "") -> str:
    """A page that stands on its own; `main` is HTML."""
    name = escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{name}</title><link rel="icon" href="data:,">'
        f"<style>{asset('page.css')}@page {{ size: landscape; }}{style}</style>"
        f"<script>{asset('theme.js')}</script></head>"
        f'<body><header><div><p class="brand">otafl {verb}</p><h1>{name}</h1></div></header>'
        f"<main>{main}</main>{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def scrolling_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str, links: Sequence[str] = ()) -> str:
    """Cells as text, the scheme at the head of its row; `links`, HTML, are a last column."""
    lines = ["".join(map(_cell, heads, row)) for row in rows]
    ends = [f"<td>{link}</td>" for link in links] if links else [""] * len(lines)
    body = "".join(f"<tr>{line}{end}</tr>" for line, end in zip(lines, ends, strict=True))
    return boxed(label, [*heads, *(["run"] if links else [])], body, "class=sortable")


def _cell(name: str, text: str) -> str:
    kind = "th scope=row" if name == "scheme" else "td"
    return f"<{kind}{LEFT if name in WORDS else ''}>{escape(text)}</{kind[:2]}>"
