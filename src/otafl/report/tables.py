"""Tables of a run, computed from its store and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from scipy import special

from otafl.experiments.store import RunFolder
from otafl.privacy.card_text import round_up

METRICS = {  # of a scheme's summary, as heads of narrow columns
    "best_accuracy": "best acc",
    "accuracy_at_eps": "acc@ε*",
    "final_accuracy": "last acc",
    "worst_client_at_eps": "worst@ε*",
    "worst_client": "worst client",
    "final_loss": "last loss",
    "final_eps": "final ε",
    "rounds": "rounds",
}


def summaries(folder: Path) -> list[dict[str, Any]]:
    """The summary of every finished scheme, in the order of the config, with its time."""
    run = RunFolder.open(folder)
    found = []
    for label in run.labels():
        place = run.scheme(label)
        if place.finished:
            seconds = place.json("timing")["seconds"]
            found.append({**place.json("summary"), "seconds": seconds, "card": place.json("card")})
    return found


def numbers(values: list[Any]) -> np.ndarray:
    """A list as stored (null for NaN, "inf" for infinity) as floats."""
    return np.array([np.nan if value is None else float(value) for value in values])


def mean_sd(values: np.ndarray, digits: int = 3) -> str:
    """Mean and sample standard deviation, with the number of seeds where not all contribute."""
    good = values[~np.isnan(values)]
    if good.size == 0:
        return "–"
    if np.any(np.isinf(good)):
        return "∞"
    spread = f" ± {np.std(good, ddof=1):.{digits}f}" if good.size > 1 else ""
    count = f" ({good.size} of {values.size})" if good.size < values.size else ""
    return f"{np.mean(good):.{digits}f}{spread}{count}"


def paired_difference(a: dict[str, Any], b: dict[str, Any], metric: str, level: float = 0.95) -> dict[str, float]:
    """a - b over the seeds both have: mean, half width of the t interval, number of pairs."""
    common = [seed for seed in a["seeds"] if seed in b["seeds"]]
    first, second = dict(zip(a["seeds"], numbers(a[metric]))), dict(zip(b["seeds"], numbers(b[metric])))
    usable = [seed for seed in common if np.isfinite(first[seed]) and np.isfinite(second[seed])]
    gaps = np.array([first[seed] - second[seed] for seed in usable])
    if gaps.size < 2:
        mean = float(np.mean(gaps)) if gaps.size else float("nan")
        return {"mean": mean, "half_width": float("nan"), "pairs": int(gaps.size)}
    half = float(special.stdtrit(gaps.size - 1, (1 + level) / 2) * np.std(gaps, ddof=1) / np.sqrt(gaps.size))
    return {"mean": float(np.mean(gaps)), "half_width": half, "pairs": int(gaps.size)}


def comparison(folder: Path) -> tuple[Table, str]:
    """The main table of a run, and the footer that says what its epsilon means."""
    found = summaries(folder)
    table = Table(title=RunFolder.open(folder).manifest["title"] or None, title_justify="left")
    for name in (
        "scheme",
        "accuracy",
        "worst client",
        "ε",
        "μ",
        "TPR@1 %",
        "rounds",
        "silent weight",
        "energy/round",
        "time",
    ):
        table.add_column(name, justify="left" if name == "scheme" else "right")
    for entry in found:
        table.add_row(
            entry["label"],
            mean_sd(numbers(entry["final_accuracy"])),
            mean_sd(numbers(entry["worst_client"])),
            mean_sd(numbers(entry["final_eps"]), 1) if entry["private"] else "∞",
            *attack_cells(entry),
            f"{np.mean(numbers(entry['rounds'])):.0f}",
            f"{np.mean(numbers(entry['silent_weight'])):.1%}",
            f"{np.mean(numbers(entry['energy_per_round'])):.2g} J" if entry["uplink"] == "analog" else "–",
            f"{entry['seconds']:.1f} s",
        )
    return table, footer(found)


def attack_cells(entry: dict[str, Any]) -> list[str]:
    """μ (never under sampling) and true positives at 1 % false ones of the worst seed; runs of before have neither."""
    mu, power = (numbers(entry.get(name) or [None]) for name in ("mu", "tpr_at_1pct"))
    worst = lambda values: "–" if np.any(np.isnan(values)) else round_up(np.max(values), "∞")  # noqa: E731
    return [worst(mu), worst(100 * power)]


def footer(found: list[dict[str, Any]]) -> str:
    """Unit, adjacency, delta, accountant and target of every epsilon in the table."""
    said = []
    for entry in found:
        level = f"{entry['unit']} level, {entry['adjacency']}, worst client, {entry['accountant']}"
        text = f"ε at δ={entry['delta']:g}, {level}"
        if text not in said:
            said.append(text)
    targets = {entry["target_eps"] for entry in found if entry["target_eps"] is not None}
    cap = f"; cap ε={', '.join(f'{t:g}' for t in sorted(targets))}" if targets else ""
    aimed = [entry for entry in found if entry["target_eps"] is not None and entry["private"]]
    past = [entry["label"] for entry in aimed if not entry["capped"]]
    diagnostic = f"; not stopped at the cap: {', '.join(past)}" if past else ""
    seeds = max((len(entry["seeds"]) for entry in found), default=0)
    alarms = [f"\n{entry['label']}: {entry['alarm']}." for entry in found if entry.get("alarm")]
    return f"{'; '.join(said)}{cap}{diagnostic}. Mean ± sd over {seeds} paired seeds; last round.{''.join(alarms)}"
