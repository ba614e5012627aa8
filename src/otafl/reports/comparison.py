"""A comparison as people read it: a table for 80 columns, one sentence per target, and a page with all columns."""

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from otafl.core.files import write_atomic
from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.card_text import round_up
from otafl.reports import write_report
from otafl.reports.run import Run
from otafl.reports.tables import attack_cells, either, footer, named, result, short_csi
from otafl.runs.comparing.compare import Comparison, Part, Question, compare, not_separated
from otafl.runs.comparing.statistics import Gap, numbers, seeds_needed
from otafl.runs.folder.disk import ready
from otafl.runs.folder.store import RunFolder
from otafl.runs.folder.summaries import on_air
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere
from otafl.runs.schema import Own
from otafl.systems.screen import Fitted, say

COLUMNS = [entry for entry in ACCOUNTANTS.values() if entry.name != "zcdp-optimal"]
HEAD = [
    "#", "scheme", "accuracy", "worst client", *(f"ε {entry.label}" for entry in COLUMNS), "μ", "TPR@1 %", "S", "e",
    "rounds", "J/device", "J, most", "bits/device", "channel uses", "s on air", "digital: uses", "CSI", "time",
]  # fmt: skip
LABEL_WIDTH = 24
SPENT = 0.95  # share of a budget from which on it counts as used


def row(entry: dict[str, Any], place: str) -> list[str]:
    """One line with all columns."""
    spent = {item["accountant"]: item for item in entry["card"]["spent"]}
    eps = ["∞" if not entry["private"] else _eps(spent[one.name]) if one.name in spent else "–" for one in COLUMNS]
    return [
        place,
        named(entry),
        result(entry, "final_accuracy"),
        result(entry, "worst_client"),
        *eps,
        *attack_cells(entry),
        _mean(entry, "snr", ".4g") if entry["private"] else "–",
        _mean(entry, "efficiency", ".2f") if entry["private"] else "–",
        _mean(entry, "rounds", ".0f"),
        joules(entry, "joules_mean"),
        joules(entry, "joules_max"),
        *traffic_cells(entry),
        entry["csi"],
        f"{entry['seconds']:.1f} s",
    ]


def traffic_cells(entry: dict[str, Any]) -> list[str]:
    """Of the whole run: bits of a device, channel uses, seconds, and uses of a digital link for the same message."""
    rounds, bits = float(np.mean(numbers(entry["rounds"]))), entry.get("bits")
    digital, bandwidth = entry.get("digital_uses"), entry.get("bandwidth_hz")
    each = entry["channel_uses"] if bits is None else digital
    uses = None if each is None else rounds * each
    seconds = None if uses is None or bandwidth is None else uses / bandwidth
    return [
        "–" if value is None else f"{value:.3g}"
        for value in (bits and rounds * bits, uses, seconds, digital and rounds * digital)
    ]


def _mean(entry: dict[str, Any], name: str, form: str) -> str:
    """Mean over seeds; runs of before may lack it."""
    values = numbers(entry.get(name) or [None])
    good = values[np.isfinite(values)]
    return format(float(np.mean(good)), form) if good.size else "–"


def joules(entry: dict[str, Any], name: str = "joules_mean") -> str:
    """Energy of a device over the whole run; none on a link that is not analog."""
    return _mean(entry, name, ".1e") if on_air(entry) else "–"


def _eps(spend: dict[str, Any]) -> str:
    """A number that leaves sampling out must not stand there as if it could be compared with one that does not."""
    without = " (without sampling)" if spend.get("without_sampling") else ""
    return round_up(spend["eps_worst"], "∞") + without


def placed(found: Comparison) -> list[tuple[dict[str, Any], str]]:
    """All entries with their places: references, the ranking, those not ranked."""
    return [
        *((entry, "ref") for entry in found.references),
        *((entry, str(n + 1)) for n, entry in enumerate(found.ranked)),
        *((entry, "–") for entry, _ in found.refused),
    ]


def rows(found: Comparison) -> list[list[str]]:
    return [row(entry, place) for entry, place in placed(found)]


def folder_of(parts: list[Part]) -> Path:
    """Of the whole comparison: several targets have a folder each in it."""
    return parts[-1].folder.parent if len(parts) > 1 else parts[-1].folder


def notes_of(parts: list[Part]) -> list[str]:
    """How settings were found, each note once."""
    return list(dict.fromkeys(note for part in parts for note in part.notes))


def terms(*found: Comparison) -> str:
    """What every ε of these tables means, and what it does not."""
    return footer([entry for one in found for entry, _ in placed(one)])


def verdicts(found: Comparison) -> list[str]:
    """What may be said about neighbours in the ranking, and what each scheme leaves."""
    said = [
        f"{first['label']} − {second['label']}: {_size(gap)}{_tie(gap)}"
        for (first, second), gap in zip(pairwise(found.ranked), found.gaps)
    ]
    return said + [text for entry in found.ranked if (text := unspent(entry))]


def not_ranked(found: Comparison) -> list[str]:
    """Who is not in the ranking, and why."""
    return [f"not ranked: {entry['label']}: {why}" for entry, why in found.refused]


def unspent(entry: dict[str, Any]) -> str:
    """What a scheme leaves of the privacy target, and why it cannot use the rest; empty where it leaves little."""
    share = float(np.mean(numbers(entry["final_eps"]))) / entry["target_eps"]
    if share >= SPENT:
        return ""
    full = float(np.mean(numbers(entry.get("full_power") or [0.0])))
    joules = entry.get("run_energy")
    unheard = sum(not float(count or 0) for count in entry["rounds"])
    why = "its rule stays below"
    if unheard:
        why = f"in {unheard} of {len(entry['rounds'])} seeds not one round fits"
    elif entry.get("loop", "open") != "open":
        why = "its loop decides how loud it is"
    elif joules is not None and float(np.mean(numbers(entry["joules_max"]))) >= SPENT * joules:
        why = "devices have spent the energy of the run"
    elif on_air(entry) and full >= 0.5:
        why = f"a device is at its power limit in {full:.0%} of the rounds"
    return f"{entry['label']} leaves {1 - share:.0%} of ε unspent: {why}"


def _size(gap: Gap) -> str:
    if not np.isfinite(gap.half_width):
        return f"{gap.mean:+.3f} (one paired seed: no interval)" if gap.pairs else "no paired seeds"
    return f"{gap.mean:+.3f} ± {gap.half_width:.3f} ({gap.pairs:.0f} paired seeds)"


def _tie(gap: Gap) -> str:
    if gap.apart:
        return ""
    needed = seeds_needed(gap)
    return ": cannot be separated" + (f" (at this spread {needed} seeds would)" if needed else "")


def sentence(found: Comparison, target: float) -> str:
    """The verdict of one target."""
    if not found.ranked:
        return f"ε = {target:g}: no scheme is ranked."
    first = found.ranked[0]
    accuracy = float(np.mean(numbers(first["final_accuracy"])))
    tied = [entry["label"] for entry, _ in not_separated(found)]
    seeds = len(first["seeds"])
    leads = "is first with" if len(found.ranked) > 1 else "reaches"
    lead = f"ε = {target:g}: {first['label']} {leads} {accuracy:.3f}"
    if seeds < 2 and tied:
        told = "; one seed, no interval"
    elif len(tied) == len(found.ranked) - 1:
        told = f"; {seeds} seeds tell nobody from it" if tied else ""
    elif tied:
        told = f"; {seeds} seeds cannot tell it from {either(tied)}"
    else:
        told = "; all others are behind"
    cheap = _cheapest([first, *(entry for entry, _ in not_separated(found))])
    return f"{lead}{told}{cheap}."


def attackers(parts: list[tuple[float, Comparison]]) -> list[str]:
    """What every target is worth, against the ranked scheme that gives most away; nothing of runs of before."""
    said = []
    for target, found in parts:
        known = [(float(power), power, mu) for mu, power in map(attack_cells, found.ranked) if power != "–"]
        if known:
            _, power, mu = max(known)
            said.append(f"{power} % at ε = {target:g}" + ("" if mu == "–" else f" (μ = {mu})"))
    return [f"True cases that an attacker finds at 1 % false alarms, at most: {', '.join(said)}."] if said else []


def _cheapest(alike: list[dict[str, Any]]) -> str:
    """Among those that cannot be told apart, energy decides."""
    analog = [entry for entry in alike if on_air(entry) and entry.get("joules_mean")]
    if not analog:
        return ""
    least = min(analog, key=lambda entry: float(np.mean(numbers(entry["joules_mean"]))))
    others = [entry for entry in analog if entry is not least]
    text = f"{least['label']} needs least energy of them, {joules(least)} J per device" if others else ""
    return f"; {text}" if text else ""


# --- the screen ---------------------------------------------------------------------------------------------------


def table(parts: list[tuple[float, Comparison]]) -> Fitted:
    """At most 80 columns: accuracy at every target, what the last one costs. Ordered by the last target."""
    last = parts[-1][1]
    made = Fitted(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    made.elsewhere = "; all columns with --wide"
    made.add_column("scheme", max_width=LABEL_WIDTH)
    for target, _ in parts:
        made.add_column(f"ε = {target:g}", justify="right", no_wrap=True)
    single = len(parts) == 1  # room for more
    for name in ("e", "J/device", *(("rounds", "CSI") if single else ())):
        made.add_column(name, justify="right", no_wrap=True)
    known = [{entry["label"]: entry for entry, _ in placed(found)} for _, found in parts]
    for entry, _ in placed(last):
        label = entry["label"]
        accuracy = [result(own[label], "final_accuracy") if label in own else "–" for own in known]
        efficiency = _mean(entry, "efficiency", ".2f") if entry["private"] else "–"
        more = [_mean(entry, "rounds", ".0f"), short_csi(entry["csi"])] if single else []
        made.add_row(escape(named(entry)), *accuracy, efficiency, joules(entry), *more)
    return made


def show(parts: list[Part], console: Console, wide: bool = False) -> None:
    """Print the table, the verdict, and where the rest is."""
    found = [(part.target, part.found) for part in parts]
    if wide:
        for target, one in found:
            made = Table(title=f"ε = {target:g}", title_justify="left")
            for name in HEAD:
                made.add_column(name, no_wrap=True)
            for cells in rows(one):
                made.add_row(*map(escape, cells))
            console.width = max(console.width, 400)
            console.print(made)
    else:
        console.print(table(found))
    last = parts[-1]
    said = [sentence(one, target) for target, one in found]
    refused = [f"ε = {target:g}: {text}" for target, one in found for text in not_ranked(one)]
    costs = f"e and J/device at ε = {last.target:g}. " if len(parts) > 1 and not wide else ""
    worth = attackers(found)
    for text in [*said, *worth, *refused, *notes_of(parts), terms(*(one for _, one in found)), costs + E_NOTE]:
        say(console, text)
    files = (str(folder_of(parts) / f"compare.{kind}") for kind in ("html", "md"))
    say(console, f"All columns and pairs: {', '.join(files)}", soft_wrap=True)


class Compared(dict[float, Run]):
    """Runs by privacy target, printed as their ranking."""

    def __init__(self, parts: list[Part], own: Own):
        super().__init__({part.target: Run(part.run, own) for part in parts})
        self._parts = parts

    def __repr__(self) -> str:
        page = io.StringIO()
        show(self._parts, Console(file=page, width=100))
        return page.getvalue().rstrip()

    def _repr_markdown_(self) -> str:
        return brief(self._parts)


E_NOTE = (
    "e: learning signal S over its limit S_max = K μ C / sensitivity, which no power control can pass at this privacy. "
    "Holm over all pairs, paired by seed."
)


DIGITAL_NOTE = (
    "Digital: each device in turn, at the mean rate log2(1 + SNR) of its channel at full power, without headers or "
    "pilots; messages of the air as 32-bit numbers. Schemes without a radio are given this link."
)


# --- files --------------------------------------------------------------------------------------------------------


def lines(found: Comparison, target: float) -> list[str]:
    """One target as Markdown."""
    return [
        f"## ε = {target:g}",
        "",
        sentence(found, target),
        "",
        *markdown_table(HEAD, rows(found)),
        "",
        *(f"- {text}" for text in (*terms(found).splitlines(), *not_ranked(found), *verdicts(found))),
        "",
    ]


def write(parts: list[Part]) -> Path:
    """compare.md of all targets, beside their folders."""
    text: list[str] = []
    for part in parts:
        text += lines(part.found, part.target)
    text += [f"- {note}" for note in notes_of(parts)]
    text += ["", E_NOTE, DIGITAL_NOTE]
    path = folder_of(parts) / "compare.md"
    write_atomic(path, inert("\n".join(text)) + "\n")
    return path


def brief(parts: list[Part]) -> str:
    """All targets in one table for a page, then what may be said."""
    last = parts[-1].found
    known = [{entry["label"]: entry for entry, _ in placed(part.found)} for part in parts]
    heads = ["scheme", *(f"ε = {part.target:g}" for part in parts), "e", "J per device", "rounds", "bits per device",
             "s on air", "CSI"]  # fmt: skip
    cells = []
    for entry, _ in placed(last):
        own = [one[entry["label"]] for one in known if entry["label"] in one]
        efficiency = ", ".join(_mean(one, "efficiency", ".2f") for one in own) if entry["private"] else "–"
        paid = ", ".join(joules(one) for one in own) if on_air(entry) else "–"
        bits, _, seconds, _ = traffic_cells(entry)
        cells.append([named(entry), *(result(one, "final_accuracy") for one in own), efficiency, paid,
                      _mean(entry, "rounds", ".0f"), bits, seconds, entry["csi"]])  # fmt: skip
    said = [sentence(part.found, part.target) for part in parts]
    said += attackers([(part.target, part.found) for part in parts])
    for part in parts:
        said += [f"ε = {part.target:g}: {text}" for text in not_ranked(part.found)]
        said += [f"ε = {part.target:g}: {text}." for entry in part.found.ranked if (text := unspent(entry))]
    made = RunFolder.open(parts[-1].run).manifest if (parts[-1].run / "manifest.json").exists() else {}
    when = f"Run of {made['created']}. " if "created" in made else ""
    page = [*markdown_table(heads, cells), "", *(f"- {text}" for text in said), "", f"{when}{terms(last)}"]
    return inert("\n".join(page)) + "\n"


def run_and_write(
    question: Question, folder: Path, reporter: Reporter | None = None, elsewhere: Elsewhere | None = None
) -> list[Part]:
    """A comparison with its files."""
    ready(folder, "compare.md", "compare.html")
    parts = compare(question, folder, reporter, elsewhere)
    write(parts)
    for part in parts:
        write_report([part.run], plots=False)  # `otafl report` draws them for print: most of a report's time
    from otafl.reports.compare_page import write_page  # it shows what this module makes

    write_page(parts, question)
    return parts
