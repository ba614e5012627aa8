"""Pages without charts of their own: one frame, one kind of table. Everything that a user named is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from otafl.reports.page import asset

LEFT = ("scheme", "verdict", "CSI")  # columns of words


def plain_page(verb: str, title: str, main: str, script: str = "") -> str:
    """A page that stands on its own; `main` is HTML."""
    name = escape(title)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{name}</title><link rel="icon" href="data:,">'
        f'<style>{asset("page.css")}</style></head><body><header><div><p class="brand">otafl {verb}</p><h1>{name}</h1>'
        f"</div></header><main>{main}</main>{f'<script>{script}</script>' if script else ''}</body></html>\n"
    )


def scrolling_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str, links: Sequence[str] = ()) -> str:
    """A table that scrolls by itself, its scheme in sight; `links`, HTML, are its last column, called run."""
    head = "".join(f'<th scope="col"{_side(name)}>{escape(name)}</th>' for name in heads)
    lines = ["".join(map(_cell, heads, row)) for row in rows]
    ends = [f"<td>{link}</td>" for link in links] if links else [""] * len(lines)
    body = "".join(f"<tr>{line}{end}</tr>" for line, end in zip(lines, ends, strict=True))
    last = '<th scope="col">run</th>' if links else ""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}"><table class="sortable"><thead>'
        f"<tr>{head}{last}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _side(name: str) -> str:
    return ' class="left"' if name in LEFT else ""


def _cell(name: str, text: str) -> str:
    kind = 'th scope="row"' if name == "scheme" else "td"
    return f"<{kind}{_side(name)}>{escape(text)}</{kind[:2]}>"
