"""The parts of the page that are words and tables: they are there without any script, and in print."""

from html import escape
from typing import Any

import numpy as np

from otafl.report.tables import mean_sd, numbers


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


def comparison(data: dict[str, Any]) -> str:
    """The main table. The last column is the difference to a reference, which the script lets the reader choose."""
    done = [scheme for scheme in data["schemes"] if scheme["finished"] and scheme["summary"]]
    if not done:
        return "<p>No scheme has finished yet.</p>"
    heads = ("scheme", "accuracy", "worst client", "at the ε target", "loss", "ε", "rounds", "silent weight", "energy/round",
             "time", "difference")  # fmt: skip
    head = "".join(f'<th scope="col"{" class=left" if name in ("scheme", "difference") else ""}>{name}</th>' for name in heads)
    rows = "".join(_row(scheme, done[0], data) for scheme in done)
    return (
        f'{_choices(data, done)}<div class="scroll" tabindex="0" role="region" aria-label="Comparison of schemes">'
        f'<table id="comparison"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="small">{escape(data["footer"])} Differences are paired by seed, with 95 % t intervals that are not '
        "corrected for the number of comparisons.</p>"
    )


def _choices(data: dict[str, Any], done: list[dict[str, Any]]) -> str:
    metrics = "".join(f'<option value="{key}">{escape(name)}</option>' for key, name in data["metrics"].items())
    schemes = "".join(f'<option value="{scheme["id"]}">{escape(scheme["label"])}</option>' for scheme in done)
    return (
        f'<div class="choice"><label>Difference in <select id="metric">{metrics}</select></label>'
        f'<label>to <select id="reference">{schemes}</select></label></div>'
    )


def _row(scheme: dict[str, Any], reference: dict[str, Any], data: dict[str, Any]) -> str:
    s = scheme["summary"]
    energy = numbers(s["energy_per_round"])
    cells = [
        mean_sd(numbers(s["final_accuracy"])),
        mean_sd(numbers(s["worst_client"])),
        mean_sd(numbers(s["accuracy_at_eps"])),
        mean_sd(numbers(s["final_loss"])),
        mean_sd(numbers(s["final_eps"]), 1) if s["private"] else "∞",
        f"{np.mean(numbers(s['rounds'])):.0f}",
        f"{abs(np.mean(numbers(s['silent_weight']))):.1%}",
        f"{np.mean(energy):.2g} J" if s["uplink"] == "analog" and np.all(np.isfinite(energy)) else "–",
        "–" if scheme["seconds"] is None else f"{scheme['seconds']:.1f} s",
    ]
    gap = data["differences"]["final_accuracy"][scheme["id"]][reference["id"]]
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return (
        f'<tr data-scheme="{scheme["id"]}"><th scope="row" class="left"><span class="key"></span>{escape(scheme["label"])}</th>'
        f'{body}<td class="left difference">{escape(verdict(gap))}</td></tr>'
    )


def verdict(gap: dict[str, Any] | None) -> str:
    """A paired difference in words; page.js says the same.

    >>> verdict({"mean": 0.02, "half_width": 0.03, "pairs": 5}), verdict({"mean": -0.2, "half_width": 0.03, "pairs": 5})
    ('+0.020 ± 0.030, cannot be separated', '−0.200 ± 0.030')
    """
    if gap is None:
        return "reference"
    mean, half = gap["mean"], gap["half_width"]
    if mean is None or not np.isfinite(mean):
        return "–"
    shown = f"{'−' if mean < 0 else '+'}{abs(mean):.3f}"
    if half is None or not np.isfinite(half):
        return f"{shown}, one pair: no interval"
    return f"{shown} ± {half:.3f}" + (", cannot be separated" if abs(mean) <= half else "")


# --- privacy card ----------------------------------------------------------------------------------------------------


def card(scheme: dict[str, Any]) -> str:
    """The privacy card of one scheme."""
    found = scheme.get("card")
    if not found:
        return ""
    eps, cap = found["guarantee"]["eps"], found["cap"]
    infinite = eps == "inf"
    kind = "cap: the policy looks at the training" if found["guarantee"]["is_cap"] else "what the worst client has spent"
    headline = "No guarantee: ε = ∞" if infinite else f"ε = {round_up(eps)}"
    limit = "no cap" if cap["eps"] == "inf" else f"cap ε = {cap['eps']:g}, counted by {cap['accountant']}"
    basics = f"δ = {found['delta']:g}, {found['unit']} level, {found['adjacency']} adjacency; {limit}; {found['rounds']} rounds, {found['clients']} clients"
    return (
        f'<article class="card{" open" if infinite else ""}" data-scheme="{scheme["id"]}">'
        f'<h3><span class="key"></span>{escape(scheme["label"])}</h3>'
        f'<p class="headline">{escape(headline)}</p><p>{escape(kind if not infinite else "nothing protects the clients")}</p>'
        f"<p>{escape(basics)}</p>{_spent(found)}"
        f'<p><b>Trusted noise:</b> {escape(found["trusted_noise"])}</p><p><b>Sampling:</b> {escape(found["sampling"])}</p>'
        f'{_list("Assumptions", found["assumptions"])}{_list("Outside the guarantee", found["outside_the_guarantee"])}</article>'
    )


def _spent(found: dict[str, Any]) -> str:
    rows = "".join(
        f'<tr><th scope="row" class="left">{escape(s["accountant"])}</th><td class="left">{escape(s["accounting"])}</td>'
        f"<td>{round_up(s['eps_worst'])}</td><td>{round_up(s['eps_mean'])}</td><td>{'yes' if s['certified'] else 'design value'}</td></tr>"
        for s in found["spent"]
    )
    remarks = [f"{s['accountant']}: {note}" for s in found["spent"] for note in s["notes"]]
    remarks += [f"{name} does not apply: {why}" for name, why in found["not_applicable"].items()]
    heads = '<th scope="col" class="left">accountant</th><th scope="col" class="left">participation</th>' + "".join(
        f'<th scope="col">{name}</th>' for name in ("ε worst", "ε mean", "certified")
    )
    table = f'<div class="scroll" tabindex="0" role="region" aria-label="ε by accountant"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    return table + (_list("Remarks", remarks) if remarks else "")


def _list(title: str, items: list[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<details><summary>{escape(title)}</summary><ul>{entries}</ul></details>" if items else ""


def round_up(eps: Any) -> str:
    """Four digits, never below the value: a printed guarantee must hold.

    >>> round_up(29.3974), round_up("inf"), round_up(0.0)
    ('29.4', '∞', '0')
    """
    value = float(eps)
    if value == 0 or not np.isfinite(value):
        return "0" if value == 0 else "∞"
    unit = 10.0 ** (np.floor(np.log10(value)) - 3)
    return f"{np.ceil(value / unit) * unit:.4g}"


# --- certificate, config, versions -----------------------------------------------------------------------------------


def certificate(scheme: dict[str, Any]) -> str:
    """What was certified before the run, if anything."""
    if not scheme.get("certificate"):
        return ""
    return f'<article data-scheme="{scheme["id"]}"><h3><span class="key"></span>{escape(scheme["label"])}</h3>{_pairs(flat(scheme["certificate"]))}</article>'


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested keys joined by dots; long lists are told by their ends.

    >>> flat({"targets": {"eps": 50}, "arms": [1, 2]})
    {'targets.eps': 50, 'arms': '1, 2'}
    """
    if isinstance(value, dict):
        return {key: item for k, v in value.items() for key, item in flat(v, f"{name}.{k}" if name else str(k)).items()}
    if isinstance(value, list):
        shown = [tell(item) for item in value]
        value = ", ".join(shown if len(shown) <= 12 else [*shown[:5], "…", *shown[-3:], f"({len(shown)} in all)"])
    return {name: value}


def tell(value: Any) -> str:
    """One value as a reader wants it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _pairs(entries: dict[str, Any]) -> str:
    rows = "".join(f'<tr><th scope="row" class="left">{escape(key)}</th><td class="left">{escape(tell(value))}</td></tr>' for key, value in entries.items())
    return f'<div class="scroll" tabindex="0" role="region" aria-label="values"><table class="pairs"><tbody>{rows}</tbody></table></div>'


def run_details(run: dict[str, Any]) -> str:
    """The resolved config, hashes and versions of one run."""
    hashes = {**{f"data {key}": value for key, value in (run["data"] or {}).items()}, "config sha256": run["config_sha256"]}
    seeds = {"seeds": flat(run["seeds"], "s")["s"], "parameters": run["parameters"]}
    return (
        f"<article><h3>{escape(run['name'])}</h3><p>{escape(run['title'])}</p>"
        f'{_pairs({**seeds, **hashes})}'
        f"<details><summary>Versions and machine</summary>{_pairs({**(run['versions'] or {}), **(run['machine'] or {})})}</details>"
        f'<details><summary>Resolved config</summary><pre tabindex="0">{escape(run["config"])}</pre></details></article>'
    )
