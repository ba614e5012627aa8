"""A table of a Markdown page."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Its lines; a bar inside a cell must not end it.

    >>> table(["scheme", "eps"], [["a|b", 8]])
    ['| scheme | eps |', '|---|---|', '| a\\\\|b | 8 |']
    """
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]
