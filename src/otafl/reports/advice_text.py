"""An advice on a terminal: the sentence first, then one table, then what would help."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from otafl.reports.tables import short_csi
from otafl.runs.advice.value import Advice, option_dict
from otafl.systems.screen import Fitted, say

COLUMNS = ("scheme", "Q", "e", "rounds", "J/device", "heard", "cover", "dB", "s", "CSI", "noise")  # 80 characters
LEGEND = (
    "Q: learning signal over noise, 25 is useful and 10 marginal. e: share of the limit that no power control passes. "
    "heard: weight that arrives. cover: share of the wanted weights that the mean follows. dB: below the power limit. "
    "s: seconds on the air."
)


def show(advice: Advice, console: Console, wide: bool = False, folder: Path = Path()) -> None:
    """Print it, saved in `folder`; numbers are never cut."""
    say(console, advice.sentence, style="bold")
    if caution := advice.caution(folder):
        say(console, caution, style="yellow", soft_wrap=True)
    options = [option_dict(option) for option in advice.options]
    rows = (_cells(row) for row in options if row["Q"] is not None)
    style = {"box": None, "padding": (0, 1, 0, 0), "header_style": "dim"}
    Fitted.of(COLUMNS, rows, words=("scheme", "CSI", "noise"), **style).show(console, wide)
    say(console, f"{LEGEND} *: error-free links, not the radio: the limit.", style="dim")
    for row in options:
        if row["Q"] is None:
            say(console, f"No setting: {row['scheme']}: {row['why_not']}")
    if advice.tied:
        say(console, f"Cannot be told from the first by Q: {', '.join(advice.tied)}.")
    if advice.free:
        changes = "; ".join(f"{lever.said}: Q = {lever.quality:.1f}" for lever in advice.free)
        together = (
            f"; together Q = {advice.after_free.quality:.1f}" if advice.after_free and len(advice.free) > 1 else ""
        )
        say(console, f"Free: {changes}{together}.")
    if advice.single:
        then = "Then any" if advice.free else "Any"
        say(console, f"{then} one of: {'; '.join(lever.said for lever in advice.single)}.")
    for note in advice.notes:
        say(console, f"- {note}", style="dim")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        escape(row["scheme"] + ("*" if row["reference"] else "")), f"{row['Q']:.1f}", f"{row['e']:.2f}",
        str(row["rounds"]), _number(row["energy_mean"]), _share(row["heard"]), _share(row["covered"]),
        _number(row["power_margin_db"], ".0f"), _number(row["seconds"]), short_csi(row["csi"]),
        "devices" if "devices" in row["noise_of"] else row["noise_of"],
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _number(value: float | None, spec: str = ".2g") -> str:
    return "" if value is None else f"{value:{spec}}"
