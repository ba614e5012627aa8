"""Pages without charts of their own: one frame, one kind of table. Everything that a user named is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from otafl.reports.page import framed
from otafl.reports.sections import LEFT, WORDS, boxed


def plain_page(verb: str, title: str, main: str, script: str = "", style: str = "") -> str:
    """A page that stands on its own and is printed across; `main` is HTML."""
    header = f'<header><div><p class="brand">otafl {verb}</p><h1>{escape(title)}</h1></div></header>'
    body = f"{header}\n<main>{main}</main>\n{f'<script>{script}</script>' if script else ''}"
    return framed(title, body, f"@page {{ size: landscape; }}{style}")


def scrolling_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str, links: Sequence[str] = ()) -> str:
    """Cells as text, the scheme at the head of its row; `links`, HTML, are a last column."""
    lines = ["".join(map(_cell, heads, row)) for row in rows]
    ends = [f"<td>{link}</td>" for link in links] if links else [""] * len(lines)
    body = "".join(f"<tr>{line}{end}</tr>" for line, end in zip(lines, ends, strict=True))
    return boxed(label, [*heads, *(["run"] if links else [])], body, "class=sortable")


def _cell(name: str, text: str) -> str:
    kind = "th scope=row" if name == "scheme" else "td"
    return f"<{kind}{LEFT if name in WORDS else ''}>{escape(text)}</{kind[:2]}>"
