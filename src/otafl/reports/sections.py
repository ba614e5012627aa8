"""The parts of the page that are words and tables: they are there without any script, and in print."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from otafl.privacy.card_text import Block, blocks, round_up
from otafl.reports.tables import attack_cells, either, energy, mean_rounds, share, spent
from otafl.runs.comparing.compare import of_another_kind
from otafl.runs.comparing.statistics import SIGNIFICANT, behind, mean_sd, numbers
from otafl.runs.folder.results import figures
from otafl.runs.folder.summaries import by_seed, guaranteed, on_air
from otafl.tasks.losses import METRICS as LOSSES

WORDS = (  # heads of columns of words
    "", "scheme", "verdict", "CSI", "quantity", "difference", "accountant", "participation", "observer", "sees", "why",
)  # fmt: skip
LEFT = ' class="left"'
SENTENCE = 48  # characters; a longer text is no table cell


def facts(data: dict[str, Any]) -> str:
    """One line under the title: how much was run, on what."""
    schemes, runs = data["schemes"], data["runs"]
    seeds = sorted({seed for run in runs for seed in run["seeds"] or []})
    names = sorted({str((run["data"] or {}).get("name", "?")) for run in runs})
    parameters = sorted({run["parameters"] for run in runs if run["parameters"]})
    said = [
        _count(len(schemes), "scheme"),
        _count(len(seeds), "seed"),
        f"data: {', '.join(names)}",
        *(f"{count:,} parameters" for count in parameters),
    ]
    return "".join(f"<li>{escape(text)}</li>" for text in said)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


# --- comparison ------------------------------------------------------------------------------------------------------


def ranked(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Finished schemes, the best first; behind them those that are not comparable, then those without privacy."""
    done = [scheme for scheme in data["schemes"] if scheme["finished"] and scheme["summary"]]
    metric, apart = data["metric"], {id(scheme) for scheme, _ in set_apart(data)}
    sign = -1 if metric not in LOSSES or LOSSES[metric].larger_is_better else 1

    def place(scheme: dict[str, Any]) -> tuple[bool, bool, float]:
        score = float(np.mean(numbers(scheme["summary"][figures(metric)[0]])))
        free = not scheme["summary"]["private"]
        return free, id(scheme) in apart, sign * score if np.isfinite(score) else np.inf

    return sorted(done, key=place)


def set_apart(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Private schemes that are no match for the others, and why."""
    private = [s for s in data["schemes"] if s["finished"] and s["summary"] and s["summary"]["private"]]
    return [(s, why) for s, why in zip(private, of_another_kind([s["summary"] for s in private])) if why]


def opening(data: dict[str, Any]) -> str:
    """One sentence: who is first among the private schemes, from whom it cannot be told, and what no privacy gives."""
    done, apart = ranked(data), {id(scheme): why for scheme, why in set_apart(data)}
    ran = [s for s in done if s["summary"]["private"] and np.mean(numbers(s["summary"]["rounds"])) > 0]
    private = [s for s in ran if id(s) not in apart] or ran
    free = [s for s in done if not s["summary"]["private"]]
    final = figures(data["metric"])[0]

    def score(scheme: dict[str, Any]) -> str:
        return mean_sd([np.mean(numbers(scheme["summary"][final]))])

    if not private:
        return "No private scheme ran a round: nothing here protects anybody." if done else ""
    first, *others = private
    eps = round_up(max(guaranteed(s["summary"]) for s in private), "∞")
    level = private[0]["summary"]["unit"]
    leads = "is first with" if others else "reaches"
    said = f"{first['label']} {leads} {data['metric']} {score(first)} at ε ≤ {eps} ({level} level)"
    gaps = behind([by_seed(s["summary"], final) for s in private])
    equal = [s["label"] for s, (gap, p) in zip(others, gaps) if gap.pairs > 1 and p >= SIGNIFICANT]
    if equal:
        said += f"; {_count(len(first['summary']['seeds']), 'seed')} cannot tell it from {either(equal)}"
    if free:
        whose = f" ({free[0]['label']})" if len(data["runs"]) > 1 else ""
        said += f". Without privacy: {score(free[0])}{whose}"
    unlike = "".join(f" Not ranked: {s['label']}: {apart[id(s)]}." for s in ran if s not in private)
    return f"{said}.{unlike}"


def comparison(data: dict[str, Any]) -> str:
    """The main table. One column is the difference to a reference, which the script lets the reader choose."""
    done = ranked(data)
    if not done:
        return "<p>No scheme has finished yet.</p>"
    values = [_values(scheme, data["metric"]) for scheme in done]
    told = [name for name in values[0] if any(row[name] != "–" for row in values)]
    rows = "".join(_row(scheme, [row[name] for name in told], done[0], data) for scheme, row in zip(done, values))
    heads = ("scheme", data["metric"], "difference", *told)
    return (
        f'<p class="verdict">{escape(opening(data))}</p>'
        f"{_choices(data, done)}{boxed('Comparison of schemes', heads, rows, 'id=comparison')}"
        f'<p class="small">{escape(data["footer"])} Differences are paired by seed; the sentence above corrects for '
        "all pairs (Holm), the 95 % t intervals of the table do not.</p>"
    )


def boxed(label: str, heads: Sequence[str], rows: str, named: str = "") -> str:
    """A table in a box that scrolls by itself. Words stand left, numbers right. `named`: its id or class."""
    cells = "".join(f'<th scope="col"{LEFT if name in WORDS else ""}>{escape(name)}</th>' for name in heads)
    head = f"<thead><tr>{cells}</tr></thead>" if heads else ""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label, quote=True)}">'
        f"<table{named and ' '}{named}>{head}<tbody>{rows}</tbody></table></div>"
    )


def _named(scheme: dict[str, Any]) -> str:
    """A scheme's label with room for the sample of its line, which the script draws."""
    return f'<span class="key"></span>{escape(scheme["label"])}'


def _choices(data: dict[str, Any], done: list[dict[str, Any]]) -> str:
    metrics = "".join(f'<option value="{key}">{escape(name)}</option>' for key, name in data["metrics"].items())
    schemes = "".join(f'<option value="{scheme["id"]}">{escape(scheme["label"])}</option>' for scheme in done)
    return (
        f'<div class="choice"><label>Difference in <select id="metric">{metrics}</select></label>'
        f'<label>to <select id="reference">{schemes}</select></label></div>'
    )


def _values(scheme: dict[str, Any], metric: str) -> dict[str, str]:
    """What the table says about a scheme besides its metric; a dash where it has no value."""
    s = scheme["summary"]
    mu, power = attack_cells(s)
    return {
        "worst client": mean_sd(numbers(s["worst_client"])),
        "ε": spent(s),
        "μ": mu,
        "TPR@1 %": power,
        "at the ε target": mean_sd(numbers(s[figures(metric)[2]])),
        "loss": mean_sd(numbers(s["final_loss"])),
        "rounds": mean_rounds(s),
        "silent weight": share(numbers(s["silent_weight"])),
        "energy/round": energy(numbers(s["energy_per_round"])) if on_air(s) else "–",
        "time": "–" if scheme["seconds"] is None else f"{scheme['seconds']:.1f} s",
    }


def _row(scheme: dict[str, Any], cells: list[str], reference: dict[str, Any], data: dict[str, Any]) -> str:
    final = figures(data["metric"])[0]
    gap = data["differences"][final][scheme["id"]][reference["id"]]
    accuracy = escape(mean_sd(numbers(scheme["summary"][final])))
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return (
        f'<tr data-scheme="{scheme["id"]}"><th scope="row"{LEFT}>{_named(scheme)}</th><td>{accuracy}</td>'
        f'<td class="left difference">{escape(verdict(gap))}</td>{body}</tr>'
    )


def verdict(gap: dict[str, Any] | None) -> str:
    """A paired difference in words; page.js says the same.

    >>> verdict({"mean": 0.02, "half_width": 0.03, "pairs": 5}), verdict({"mean": -0.2, "half_width": 0.03, "pairs": 5})
    ('+0.020 ± 0.030, cannot be separated', '−0.200 ± 0.030')
    >>> verdict({"mean": 2e-4, "half_width": 1e-4, "pairs": 5})
    '+0.00020 ± 0.00010'
    """
    if gap is None:
        return "reference"
    mean, half = gap["mean"], gap["half_width"]
    if mean is None or not np.isfinite(mean):
        return "–"
    known = half is not None and np.isfinite(half)
    size = max(abs(mean), half if known else 0)
    digits = min(8, 1 + math.ceil(-math.log10(size))) if 0 < size < 1e-3 else 3
    shown = f"{'−' if mean < 0 else '+'}{abs(mean):.{digits}f}"
    if not known:
        return f"{shown}, one pair: no interval"
    return f"{shown} ± {half:.{digits}f}" + (", cannot be separated" if abs(mean) <= half else "")


# --- what does not change ---------------------------------------------------------------------------------------------


def constants(data: dict[str, Any]) -> str:
    """Quantities of policies that are the same in every round and seed: a table says it in less room than a chart."""
    rows = []
    for scheme in data["schemes"]:
        for name, matrix in (scheme.get("rounds") or {}).get("columns", {}).items():
            values = {value for row in matrix for value in row if value is not None}
            if name.startswith("info_") and len(values) == 1:
                value = values.pop()
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                what = escape(name.removeprefix("info_").replace("_", " "))
                rows.append(f"<tr><th scope=row{LEFT}>{_named(scheme)}</th><td{LEFT}>{what}</td><td>{shown}</td></tr>")
    if not rows:
        return ""
    table = boxed("Constant throughout", ("scheme", "quantity", "value"), "".join(rows))
    return f"<details><summary>{len(rows)} quantities that never change</summary>{table}</details>"


# --- privacy cards ---------------------------------------------------------------------------------------------------


def cards(schemes: list[dict[str, Any]]) -> str:
    """The privacy card of every scheme that has one."""
    found = "".join(_card(scheme, scheme["card"]) for scheme in schemes if scheme.get("card"))
    return f'<div class="cards">{found}</div>' if found else ""


def _card(scheme: dict[str, Any], card: dict[str, Any]) -> str:
    body = "".join(_block(block) for block in blocks(card))
    return f'<article class="card" data-scheme="{scheme["id"]}"><h3>{_named(scheme)}</h3>{body}</article>'


def _block(block: Block) -> str:
    kind, title, rows = block
    if kind == "table":
        head, *body = rows
        cells = "".join(
            f'<tr><th scope="row"{LEFT}>{escape(first)}</th>'
            + "".join(f"<td{LEFT if name in WORDS else ''}>{escape(cell)}</td>" for name, cell in zip(head[1:], rest))
            + "</tr>"
            for first, *rest in body
        )
        return boxed(title, head, cells) if any(head) else boxed(title, (), cells, "class=pairs")
    if kind == "list":
        return _list(title, [text.replace("`", "") for text in rows])
    if kind == "fact":
        return f"<p><b>{escape(title)}:</b> {escape(rows[0])}</p>"
    if kind == "alarm":
        return f'<p role="alert"><b>{escape(rows[0])}</b></p>'
    if kind == "headline":
        return f'<p class="headline">{escape(rows[0])}</p>'
    return "".join(f"<p>{escape(text.replace('`', ''))}</p>" for text in rows)


def _list(title: str, items: list[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<details><summary>{escape(title)}</summary><ul>{entries}</ul></details>" if items else ""


# --- certificate, config, versions -----------------------------------------------------------------------------------


def certificates(schemes: list[dict[str, Any]]) -> str:
    """What was certified before the run, schemes side by side; sentences stand below the table."""
    found = [(scheme["label"], flat(scheme["certificate"])) for scheme in schemes if scheme.get("certificate")]
    if not found:
        return ""
    keys = dict.fromkeys(key for _, entries in found for key in entries)
    sentences = [key for key in keys if any(len(entries.get(key, "")) > SENTENCE for _, entries in found)]
    rows = "".join(
        f'<tr><th scope="row"{LEFT}>{escape(key)}</th>'
        + "".join(f"<td>{escape(entries.get(key, '–'))}</td>" for _, entries in found)
        + "</tr>"
        for key in keys
        if key not in sentences
    )
    said = dict.fromkeys(f"{key}: {entries[key]}" for key in sentences for _, entries in found if entries.get(key))
    below = "".join(f"<li>{escape(text)}</li>" for text in said)
    table = boxed("Certificates", ("", *(label for label, _ in found)), rows)
    return table + (f'<ul class="small">{below}</ul>' if below else "")


def flat(value: Any, name: str = "") -> dict[str, str]:
    """Nested keys joined by dots, values as text. A list of equal entries is one, of numbers its range if it is long.

    >>> flat({"targets": {"eps": 50}, "arms": [1, 2], "ok": [True, True], "none": []})
    {'targets.eps': '50', 'arms': '1, 2', 'ok': 'yes'}
    >>> flat({"bound": [0.25, 0.5, 1.5, 1.0]})
    {'bound': '0.25 to 1.5 (4)'}
    """
    if isinstance(value, dict):
        return {key: item for k, v in value.items() for key, item in flat(v, f"{name}.{k}" if name else str(k)).items()}
    if not isinstance(value, list):
        return {name: tell(value)}
    if not value:
        return {}
    if all(item == value[0] for item in value):
        return {name: tell(value[0])}
    numeric = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    if numeric and len(value) > 3:
        return {name: f"{tell(min(value))} to {tell(max(value))} ({len(value)})"}
    return {name: ("; " if any(isinstance(item, str) for item in value) else ", ").join(map(tell, value))}


def tell(value: Any) -> str:
    """One value as a reader wants it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in ("inf", "-inf"):
        return "∞" if value == "inf" else "−∞"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _pairs(label: str, entries: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row"{LEFT}>{escape(key)}</th><td{LEFT}>{escape(tell(value))}</td></tr>'
        for key, value in entries.items()
    )
    return boxed(label, (), rows, "class=pairs")


def run_details(run: dict[str, Any]) -> str:
    """The resolved config, hashes and versions of one run."""
    basics = {
        "seeds": ", ".join(map(str, run["seeds"] or [])),
        "parameters": run["parameters"],
        **{f"data {key}": value for key, value in (run["data"] or {}).items()},
        "config sha256": run["config_sha256"],
    }
    versions = _pairs("Versions", {**(run["versions"] or {}), **(run["machine"] or {})})
    return (
        f"<article><h3>{escape(run['name'])}</h3><p>{escape(run['title'])}</p>{_pairs('Identity of the run', basics)}"
        f"<details><summary>Versions and machine</summary>{versions}</details>"
        f"<details><summary>Resolved config</summary><pre tabindex=0>{escape(run['config'])}</pre></details></article>"
    )
