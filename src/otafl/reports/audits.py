"""What `otafl audit` shows: a table and verdicts on the screen, and a page with scores and trade-off curves."""

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape as plain

from otafl.core.files import to_json, write_atomic
from otafl.privacy.audit import Counts
from otafl.privacy.card_text import round_up
from otafl.reports.plain_page import plain_page, scrolling_table
from otafl.reports.plots import COLOURS, STYLE, as_svg
from otafl.runs.audit.attack import Canary
from otafl.runs.audit.audit import LIMITS, Audit, SchemeAudit, rounded_down
from otafl.runs.folder.disk import storage
from otafl.systems.screen import LIGHT, Fitted, say

FILES = PAGE, DATA = "audit.html", "audit.json"
NONE = "–"
HEADS = ("scheme", "charged ε", "measured ε ≥", "verdict", "charged μ", "measured μ ≥", "rounds", "canaries")
FPR = np.logspace(-4, 0, 200)


def row(scheme: SchemeAudit) -> list[str]:
    """The cells of one scheme; charges are rounded up, bounds down."""
    if scheme.reason:
        charged = NONE if np.isnan(scheme.eps) else round_up(scheme.eps, "∞")
        return [scheme.label, charged, NONE, "not attacked", NONE, NONE, str(scheme.rounds), "0"]
    finding = scheme.worst.finding
    shift, mu = finding.sound_shift, finding.charge.mu
    clients = len({canary.client for canary in scheme.canaries})
    verdict = "REFUTED" if scheme.failed else "weak" if scheme.weak else "not refuted"
    return [
        scheme.label, round_up(scheme.eps, "∞"), rounded_down(scheme.measured), verdict,
        NONE if mu is None else round_up(mu), NONE if shift is None else rounded_down(max(shift.low, 0.0)),
        str(scheme.rounds), str(clients),
    ]  # fmt: skip


def show(found: Audit, console: Console, wide: bool = False) -> None:
    """Table, verdicts, what they rest on."""
    rows = (map(plain, row(scheme)) for scheme in found.schemes)
    Fitted.of(HEADS, rows, words=("scheme", "verdict"), show_edge=False, **LIGHT).show(console, wide)
    for text in lines(found):
        say(console, text)


def lines(found: Audit) -> list[str]:
    """Everything beside the table: verdicts where they say more than it."""
    more = [scheme for scheme in found.schemes if scheme.failed or scheme.weak or scheme.reason]
    verdicts = [f"{scheme.label}: {scheme.verdict}" for scheme in more]
    notes = [f"{scheme.label}: {note}" for scheme in found.schemes for note in scheme.notes]
    return [*verdicts, *notes, basis(found), *(f"{text[0].upper()}{text[1:]}." for text in LIMITS)]


def basis(found: Audit) -> str:
    """What every bound rests on."""
    tried = [scheme for scheme in found.schemes if not scheme.reason]
    units = sorted({f"{scheme.unit} level, {scheme.adjacency}, δ={scheme.delta:g}" for scheme in tried})
    return f"{found.runs} runs of each world, total error {found.error:g}; {'; '.join(units) or 'nothing attacked'}."


# --- the page ----------------------------------------------------------------------------------------------------


def write_audit(found: Audit, folder: Path) -> list[Path]:
    """audit.html and audit.json; returns both."""
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / PAGE, render(found))
        write_atomic(folder / DATA, to_json(found.to_dict()))
    return [folder / name for name in FILES]


def render(found: Audit) -> str:
    """A page that stands on its own and needs no script."""
    alarm = "".join(
        f'<p class="note" role="alert"><strong>{escape(scheme.label)}: {escape(scheme.verdict)}</strong></p>'
        for scheme in found.failed
    )
    said = "".join(f"<p>{escape(text)}</p>" for text in lines(found))
    figures = "".join(_section(scheme) for scheme in found.schemes if scheme.canaries)
    made = scrolling_table(HEADS, map(row, found.schemes), "Charged against measured")
    verdicts = f'<section id="verdicts"><h2>Charged against measured</h2>{made}{said}</section>'
    return plain_page("audit", found.title, f"{alarm}{verdicts}{figures}")


def _section(scheme: SchemeAudit) -> str:
    canary = scheme.worst
    caption = (
        f"Client {canary.client}, {canary.pattern}: scores of {len(canary.absent)} runs without and "
        f"{len(canary.present)} runs with the canary, and what their thresholds reach beside what was charged."
    )
    return (
        f'<section><h2>{escape(scheme.label)}</h2><figure class="chart drawn" tabindex="0"><figcaption>'
        f"<p>{escape(caption)}</p></figcaption>{picture(canary, scheme.label)}</figure></section>"
    )


def picture(canary: Canary, label: str = "") -> str:
    """Both histograms and the trade-off curve as one SVG; `label` keeps its names apart from those of other schemes."""
    import matplotlib
    from matplotlib.figure import Figure

    own = {"svg.fonttype": "none", "svg.hashsalt": f"otafl {label}", "figure.subplot.left": 0.07}
    with matplotlib.rc_context(STYLE | own):
        figure = Figure(figsize=(9.6, 3.4))
        left, right = figure.subplots(1, 2)
        _histograms(left, canary)
        _trade_off(right, canary)
        return as_svg(figure, tight=False)


def _histograms(axes: Any, canary: Canary) -> None:
    edges = np.histogram_bin_edges(np.concatenate([canary.absent, canary.present]), "fd")
    if len(edges) > 80:
        edges = np.linspace(edges[0], edges[-1], 80)
    for values, name, colour in ((canary.absent, "absent", COLOURS[0]), (canary.present, "present", COLOURS[1])):
        axes.hist(values, edges, density=True, histtype="stepfilled", alpha=0.35, color=colour, label=f"canary {name}")
        axes.hist(values, edges, density=True, histtype="step", color=colour)
    axes.axvline(_shown(canary).threshold, color="black", linewidth=1, linestyle=(0, (4, 3)), label="threshold")
    axes.set(xlabel="score of a run", ylabel="density")
    axes.legend()


def _shown(canary: Canary) -> Counts:
    """The threshold that refuted the charged curve, else the one for eps."""
    return canary.finding.curve if canary.finding.curve.refutes else canary.finding.point


def _trade_off(axes: Any, canary: Canary) -> None:
    """Charged power, what was counted, and the limit that the verdict rests on."""
    shown, charge = _shown(canary), canary.finding.charge
    cuts = np.unique(np.concatenate([canary.absent, canary.present]))
    false = 1 - np.searchsorted(np.sort(canary.absent), cuts, side="right") / len(canary.absent)
    true = 1 - np.searchsorted(np.sort(canary.present), cuts, side="right") / len(canary.present)
    axes.plot(FPR, charge.power(FPR), color="black", label="charged: the most that may be reached")
    axes.plot(np.maximum(false, FPR[0]), true, color=COLOURS[1], label="counted")
    axes.plot([shown.fpr], [1 - shown.fnr], "o", color=COLOURS[1], label="at least, by the limits at the threshold")
    axes.plot(FPR, FPR, color="#888888", linewidth=1, linestyle=(0, (2, 2)), label="guessing")
    axes.set(xscale="log", xlim=(FPR[0], 1), ylim=(0, 1.02), xlabel="false positives", ylabel="true positives")
    axes.legend(loc="lower right" if float(charge.power(0.01)) > 0.5 else "upper left")
