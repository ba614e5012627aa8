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


CODE = r"(?<![\w`\\])`(?:otafl [\w ]*\w|[\w.-]+)`(?![\w`])"  # as ours stands: one word, or a command


def inert(page: str) -> str:
    """A page whose names cannot become HTML, links or code where it is shown; ours has none but CODE.

    >>> inert("label <script>, a < b, [here](http://x), `zcdp`, it`s, `a and b`")
    'label &lt;script>, a < b, [here]\\\\(http:\\\\//x), `zcdp`, it\\\\`s, \\\\`a and b\\\\`'
    """
    page = re.sub(rf"({CODE})|(?<!\\)((?:\\\\)*)`", lambda found: found[1] or rf"{found[2]}\`", page)
    page = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", page)
    page = re.sub(r"\](?=[(:])", r"]\\", page)  # a link, and where a link leads
    return re.sub(r":(?=//)|(?i:www)(?=\.)|(?<=\w)(?=@\w)", r"\g<0>\\", page)  # addresses that some readers link
