"""advice.html: one file with its style, its script and its data inside. Everything that a user named is escaped."""

import math
from html import escape
from pathlib import Path
from typing import Any

from scipy.special import ndtri

from otafl.bounds import merit
from otafl.core.files import write_atomic
from otafl.privacy.attack import FPR
from otafl.reports.page import asset, embed, framed
from otafl.runs.advice.forms import base_of
from otafl.runs.advice.value import Advice, option_dict

HEADS = (
    "scheme", "Q", "e", "rounds", "heard", "covered", "J per device", "dB below limit", "seconds", "CSI", "noise of",
)  # fmt: skip
SYMBOLS = (
    ("Q", "learning signal over noise with what is known of the data: 25 is useful, 10 marginal"),
    ("e", "share of the limit S_max that no power control passes at this privacy"),
    ("heard", "weight that arrives, of the wanted"),
    ("covered", "how far the mean that is formed follows the wanted weights"),
    ("CSI", "channel knowledge that the scheme needs"),
)


def write_advice(advice: Advice, folder: str | Path) -> list[Path]:
    """advice.html, advice.toml with its site, advice.json; returns the files."""
    written = advice.save(folder)
    page = Path(folder) / "advice.html"
    write_atomic(page, render(advice))
    return [page, *written]


def render(advice: Advice) -> str:
    """The whole page."""
    q, caution = advice.question, advice.caution()
    facts = (
        f"{q.site.num_devices} devices", f"D = {q.num_params:,}", f"ε = {q.eps:g}, δ = {q.delta:g}",
        f"{q.rounds} rounds", f"accountant {q.accountant}", f"weights {q.weights}", advice.protects,
    )  # fmt: skip
    inside = asset("advice.html").format(
        sentence=escape(advice.sentence),
        facts="".join(f"<li>{escape(fact)}</li>" for fact in facts),
        caution=f'<p class="note" role="note"><strong>{escape(caution)}</strong></p>' if caution else "",
        notes="".join(f'<p class="note" role="note">{escape(note)}</p>' for note in advice.notes),
        table=_table(advice),
        help=_help(advice),
        certificate=_certificate(advice),
        toml=escape(advice.to_toml()) or "nothing to run",
        data=embed(page_data(advice)),
        script=asset("advice.js"),
    )
    return framed(f"Advice for {q.site.name}", inside, asset("advice.css"))


def page_data(advice: Advice) -> dict[str, Any]:
    """What the script needs: constants of the forms, the plans they start from, the devices."""
    bases = [
        {"name": o.name, "base": base_of(advice.question, o)._asdict()}
        for o in advice.options
        if o.merit is not None and math.isfinite(o.merit.snr_max)
    ]
    constants = {
        "reference_params": merit.REFERENCE_PARAMS, "size_exponent": merit.SIZE_EXPONENT, "half_at": merit.HALF_AT,
        "rounds_cost": merit.ROUNDS_COST, "steepness": merit.STEEPNESS, "useful": merit.USEFUL,
        "marginal": merit.MARGINAL, "domain": merit.DOMAIN,
        "band": merit.BAND,
        "false_positive_quantile": float(ndtri(FPR)),
    }  # fmt: skip
    return {"constants": constants, "bases": bases, "devices": advice.prepared.devices if advice.prepared else []}


def _table(advice: Advice) -> str:
    head = "".join(f"<th scope=col{' class=left' if name == 'scheme' else ''}>{escape(name)}</th>" for name in HEADS)
    rows = "".join(_row(option_dict(option)) for option in advice.options)
    legend = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in SYMBOLS)
    tied = f"<p>Cannot be told from the first by Q: {escape(', '.join(advice.tied))}.</p>" if advice.tied else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll">{table}</div>{tied}<dl class="symbols">{legend}</dl>'


def _row(row: dict[str, Any]) -> str:
    name = escape(row["scheme"] + (" (no radio: the limit)" if row["reference"] else ""))
    head = f"<th scope=row class=left>{name}</th>"
    if row["Q"] is None:
        return f'<tr>{head}<td colspan="{len(HEADS) - 1}">{escape(row["why_not"])}</td></tr>'
    cells = (
        f"{row['Q']:.1f}", f"{row['e']:.2f}", str(row["rounds"]), _share(row["heard"]), _share(row["covered"]),
        _number(row["energy_mean"]), _number(row["power_margin_db"]), _number(row["seconds"]),
        row["csi"], row["noise_of"],
    )  # fmt: skip
    return f"<tr>{head}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _help(advice: Advice) -> str:
    """Free changes and single ones, each with the Q of its own plan."""
    found = [(lever, "free") for lever in advice.free] + [(lever, "") for lever in advice.single]
    if not found:
        return ""
    items = "".join(
        f"<li>{escape(lever.said)}: Q = {lever.quality:.1f}{' (free)' if kind else ''}</li>" for lever, kind in found
    )
    first = "Free changes first; then any one of the others makes it useful."
    return f"<h3>What would help</h3><p>{first}</p><ul>{items}</ul>"


def _certificate(advice: Advice) -> str:
    best, q = advice.best, advice.question
    if best is None:
        return "<p>Nothing can be planned, so nothing is certain.</p>"
    privacy = (
        f"No client spends more than ε = {q.eps:g} at δ = {q.delta:g} ({best.unit} level, {best.adjacency}; "
        f"{q.accountant}): the ledger ends the run before the round that would."
    )
    if best.certified:
        said = "CARES certifies the convergence of this plan, by a bound that says more than clipping alone."
    else:
        said = "Convergence is not certified: no bound says more than clipping alone. Q is a fit with a band."
    return f"<p>{escape(privacy)}</p><p>{escape(said)}</p>"
