"""The table of `otafl plan FILE`: as many columns as fit, numbers never cut, and below it what they mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from otafl.bounds.merit import MARGINAL, USEFUL
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.privacy.card_text import round_up
from otafl.runs.planning.afford import least
from otafl.runs.planning.table import PlanTable, Row
from otafl.systems.screen import LIGHT, Fitted, say

NONE = "–"


def _number(value: float | None, text: str) -> str:
    return NONE if value is None or np.isnan(value) else "∞" if np.isinf(value) else format(value, text)


def _rounds(row: Row) -> str:
    if row.rounds is None:
        return f"≤ {row.horizon}" if row.feasible else "0"
    low, high = min(row.rounds), max(row.rounds)
    return str(low) if low == high else f"{low}–{high}"


def _worst(values: list[Any] | None) -> str:
    """The largest over seeds, never rounded down."""
    return NONE if not values or any(value is None for value in values) else round_up(max(values), "∞")


def _of_merit(name: str, text: str) -> Callable[[Row], str]:
    return lambda row: NONE if row.merit is None else _number(getattr(row.merit, name), text)


def _quality(row: Row) -> str:
    """In brackets where it was not calibrated."""
    text = _of_merit("quality", ".3g")(row)
    return text if row.calibrated or text == NONE else f"({text})"


# Head and cell, the most important first: so many are shown as fit.
COLUMNS: dict[str, Callable[[Row], str]] = {
    "scheme": lambda row: row.label,
    "rounds": _rounds,
    "ε": lambda row: _worst(row.eps),
    "TPR@1 %": lambda row: NONE if row.tpr_at_1pct is None else f"{round_up(100 * row.tpr_at_1pct)}%",
    "Q": _quality,
    "e": _of_merit("efficiency", ".2f"),
    "silent": lambda row: _number(row.dropped_weight, ".1%"),
    "J/device": lambda row: _number(row.energy_mean, ".2g"),
    "binds": lambda row: row.binding.partition(":")[0] if row.loop == "open" else "closed loop",
    "μ": lambda row: _worst(row.mu),
    "noise/clip": lambda row: _number(row.noise_over_clip, ".3g"),
    "seconds": lambda row: _number(row.seconds, ".3g"),
    "channel uses": lambda row: _number(row.channel_uses, ".3g"),
    "CSI": lambda row: row.csi or NONE,
    "noise of": lambda row: row.noise_of or NONE,
    "lift": lambda row: NONE if row.merit is None else f"{row.merit.band[0]:.2f}–{row.merit.band[1]:.2f}",
    "verdict": lambda row: NONE if row.merit is None else row.merit.verdict,
    "bias": lambda row: _number(row.bias, ".1%"),
    "J worst": lambda row: _number(row.energy_max, ".2g"),
    "dB to limit": lambda row: _number(row.power_margin_db, ".1f"),
    "constraint": lambda row: row.binding,
}
LEFT = ("scheme", "binds", "CSI", "noise of", "verdict", "constraint")


def table(found: PlanTable) -> Fitted:
    """All columns that say something."""
    shown = [name for name, cell in COLUMNS.items() if any(cell(row) != NONE for row in found.rows)]
    rows = [[escape(COLUMNS[name](row)) for name in shown] for row in found.rows]
    return Fitted.of(shown, rows, LEFT, **LIGHT)


def show(found: PlanTable, console: Console, wide: bool = False) -> None:
    """Print sentence, table, refusals and terms."""
    made = table(found)
    made.elsewhere = "; all columns with --wide or --json"
    say(console, sentence(found))
    made.show(console, wide)
    for text in [*refusals(found), *terms(found), *found.notes]:
        say(console, text)


def refusals(found: PlanTable) -> list[str]:
    """Why a scheme has no figures, one line each."""
    return [f"{row.label}: {row.reason}{least(row.least_eps)}" for row in found.rows if not row.feasible]


def sentence(found: PlanTable) -> str:
    """What the table comes to."""
    private = [row for row in found.feasible if row.calibrated and np.isfinite(max(row.eps or [np.inf]))]
    scored = [(row.merit.quality, row) for row in private if row.merit]
    if not scored:
        return "No scheme with privacy can be planned to its end." if found.feasible else "No scheme affords a round."
    best, row = max(scored, key=lambda pair: (pair[1].csi != "hindsight", pair[0]))  # which no server can run
    low, high = row.merit.band if row.merit else (0.0, 0.0)
    who = f"{row.label} in hindsight" if row.csi == "hindsight" else row.label
    said = "Useful" if best >= USEFUL else "Marginal" if best >= MARGINAL else "Not usefully feasible"
    return (
        f"{said}: {who} reaches Q = {best:.3g} ({USEFUL:g} is useful, {MARGINAL:g} marginal), {low:.0%} to "
        f"{high:.0%} of the attainable accuracy if your task resembles digits."
    )


def terms(found: PlanTable) -> list[str]:
    """What every ε and every Q rests on."""
    t = found.terms
    units = sorted({f"{row.unit} level, {row.adjacency}" for row in found.rows if row.unit})
    cap = "" if t["eps"] is None else f"; cap ε={t['eps']:g}"
    weights = t["weights"] if isinstance(t["weights"], str) else "given"
    worst = f"worst client and seed of {len(t['seeds'])}"
    return [
        f"ε at δ={t['delta']:g}, {'; '.join(units)}, {worst}, {t['accountant']}{cap}.",
        f"{t['clients']} devices, {t['num_params']} parameters, weights: {weights}; devices agree by "
        f"{t['agreement']:.2g} ({t['agreement_basis']}).",
        "Q: learning over noise; e: share of the best possible; silent: weight not heard; J/device: whole run at most.",
    ]


def markdown(found: PlanTable) -> str:
    """All columns, for a file."""
    body = ([cell(row) for cell in COLUMNS.values()] for row in found.rows)
    lines = [sentence(found), "", *markdown_table(list(COLUMNS), body), ""]
    lines += [f"- {text}" for text in [*refusals(found), *terms(found), *found.notes]]
    return inert("\n".join(lines)) + "\n"
