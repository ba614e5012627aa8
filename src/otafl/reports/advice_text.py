"""An advice on a terminal: the sentence first, then one table, then what would help."""

from rich.console import Console
from rich.markup import escape

from otafl.runs.advice.value import Advice, option_dict
from otafl.systems.screen import Fitted

COLUMNS = ("scheme", "Q", "e", "rounds", "J/device", "heard", "cover", "dB", "s", "CSI", "noise")  # 80 characters
CSI = {"statistical": "stat."}
LEGEND = (
    "Q: learning signal over noise, 25 is useful and 10 marginal. e: share of the limit that no power control passes. "
    "heard: weight that arrives. cover: share of the wanted weights that the mean follows. dB: below the power limit. "
    "s: seconds on the air."
)


def show(advice: Advice, console: Console, wide: bool = False) -> None:
    """Print it; numbers are never cut."""

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say(advice.sentence, style="bold")
    table, refused = Fitted(box=None, padding=(0, 1, 0, 0), header_style="dim"), []
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number in (0, 9, 10) else "right")
    for option in advice.options:
        row = option_dict(option)
        name = escape(row["scheme"] + ("*" if row["reference"] else ""))
        if row["Q"] is None:
            refused.append(f"{row['scheme']}: {row['why_not']}")
            continue
        table.add_row(
            name, f"{row['Q']:.1f}", f"{row['e']:.2f}", str(row["rounds"]), _number(row["energy_mean"]),
            _share(row["heard"]), _share(row["covered"]), _number(row["power_margin_db"], ".0f"),
            _number(row["seconds"]),
            CSI.get(row["csi"], row["csi"]), "devices" if "devices" in row["noise_of"] else row["noise_of"],
        )  # fmt: skip
    table.show(console, wide)
    say(f"{LEGEND} *: error-free links, not the radio: the limit.", style="dim")
    for text in refused:
        say(f"No setting: {text}")
    if advice.tied:
        say(f"Cannot be told from the first by Q: {', '.join(advice.tied)}.")
    if advice.free:
        changes = "; ".join(f"{lever.said}: Q = {lever.quality:.1f}" for lever in advice.free)
        together = (
            f"; together Q = {advice.after_free.quality:.1f}" if advice.after_free and len(advice.free) > 1 else ""
        )
        say(f"Free: {changes}{together}.")
    if advice.single:
        then = "Then any" if advice.free else "Any"
        say(f"{then} one of: {'; '.join(lever.said for lever in advice.single)}.")
    for note in advice.notes:
        say(f"- {note}", style="dim")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _number(value: float | None, spec: str = ".2g") -> str:
    return "" if value is None else f"{value:{spec}}"
