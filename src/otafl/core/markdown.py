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


def inert(page: str) -> str:
    """A page whose names cannot become HTML where it is shown; ours has none.

    >>> inert("label <script>, a < b")
    'label &lt;script>, a < b'
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", page)
