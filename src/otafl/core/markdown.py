"""Markdown pages, into which names go that somebody else has given."""

import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Its lines; a bar inside a cell must not end it.

    >>> table(["scheme", "eps"], [["a|b", 8]])
    ['| scheme | eps |', '|---|---|', '| a\\\\|b | 8 |']
    """
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


CODE = r"(?<![\w`\\])`(?=\S)[^`\n]+(?<=\S)`(?![\w`])"  # as ours stands: between words, closed in its line


def inert(page: str) -> str:
    """A page whose names cannot become HTML, links or half a span of code where it is shown; ours has none of these.

    >>> inert("label <script>, a < b, [here](http://x), `zcdp`, it`s, 5` and 6`")
    'label &lt;script>, a < b, [here]\\\\(http://x), `zcdp`, it\\\\`s, 5\\\\` and 6\\\\`'
    """
    page = re.sub(rf"({CODE})|(?<!\\)`", lambda found: found[1] or r"\`", page)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", page).replace("](", r"]\(")
