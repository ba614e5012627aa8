"""Tables on narrow terminals: whole columns go, digits never."""

import io

import pytest
from rich.console import Console

from otafl.systems.screen import Fitted

HEADS = ["scheme", "rounds", "ε", "energy", "verdict"]
ROW = ["a scheme with a long label", "12345", "7.5363e-11", "0.318 ± 0.160", "cannot be told from the first"]


def shown(width: int, wide: bool | None = None) -> str:
    table = Fitted()
    for head in HEADS:
        table.add_column(head, justify="left" if head in ("scheme", "verdict") else "right")
    table.add_row(*ROW)
    console = Console(width=width, file=io.StringIO())
    console.print(table) if wide is None else table.show(console, wide)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [36, 50, 60, 80, 100, 200])
def test_a_column_is_whole_or_named_below(width):
    text = shown(width)
    above, _, below = text.partition("no room for ")
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    left_out = [name for name in " ".join(below.partition(";")[0].split()).split(", ") if name]
    assert left_out == HEADS[len(HEADS) - len(left_out) :]
    for head, cell in list(zip(HEADS, ROW))[1:4]:
        assert (cell in above) == (head not in left_out)


def test_everything_has_room_on_a_wide_screen():
    assert all(cell in shown(200) for cell in ROW)


def test_wide_shows_every_column_on_any_screen():
    assert all(cell in shown(40, wide=True) for cell in ROW)
    assert "no room for" in shown(40, wide=False) and "--wide" in " ".join(shown(40, wide=False).split())
