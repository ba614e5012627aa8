"""Tables of a run, computed from its store and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from otafl.privacy.card_text import round_up
from otafl.runs.afford import without_rounds
from otafl.runs.results import figures
from otafl.runs.statistics import mean_sd, numbers, paired
from otafl.runs.store import RunFolder
from otafl.runs.summaries import by_seed, summaries

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


def named(entry: dict[str, Any]) -> str:
    """A scheme's label, and beside it that it ran no round."""
    none = without_rounds(entry)
    return f"{entry['label']} ({none})" if none else str(entry["label"])


def result(entry: dict[str, Any], metric: str) -> str:
    """Mean and deviation over seeds; none where no round was run: what the initial model does is no result."""
    return "–" if without_rounds(entry) else mean_sd(numbers(entry[metric]))


def share(values: np.ndarray) -> str:
    """A mean share in percent; what rounding leaves of zero is zero.

    >>> share(np.array([-1e-17])), share(np.array([0.25, np.nan])), share(np.array([np.nan]))
    ('0.0%', '25.0%', '–')
    """
    good = values[~np.isnan(values)]
    return f"{max(float(np.mean(good)), 0.0):.1%}" if good.size else "–"


def energy(values: np.ndarray) -> str:
    good = values[~np.isnan(values)]
    return f"{np.mean(good):.2g} J" if good.size else "–"


def paired_difference(a: dict[str, Any], b: dict[str, Any], metric: str) -> dict[str, float]:
    """a - b over the seeds both have: mean, half width of the 95 % t interval (NaN below two pairs), pairs."""
    gap = paired(by_seed(a, metric), by_seed(b, metric))
    half = gap.half_width if np.isfinite(gap.half_width) else float("nan")
    return {"mean": gap.mean, "half_width": half, "pairs": gap.pairs}


def comparison(folder: Path) -> tuple[Table, str]:
    """The main table of a run, and the footer that says what its epsilon means."""
    found = summaries(folder)
    title = RunFolder.open(folder).manifest["title"]
    table = Table(title=escape(title) if title else None, title_justify="left")
    metric = metric_of(found)
    heads = f"scheme|{metric}|worst client|ε|μ|TPR@1 %|rounds|silent weight|energy/round|time"
    for name in heads.split("|"):
        table.add_column(name, justify="left" if name == "scheme" else "right")
    for entry in found:
        table.add_row(
            escape(named(entry)),
            *(result(entry, name) for name in (figures(metric)[0], "worst_client")),
            mean_sd(numbers(entry["final_eps"]), 1) if entry["private"] else "∞",
            *attack_cells(entry),
            f"{np.mean(numbers(entry['rounds'])):.0f}",
            share(numbers(entry["silent_weight"])),
            energy(numbers(entry["energy_per_round"])) if entry["uplink"] == "analog" else "–",
            f"{entry['seconds']:.1f} s",
        )
    return table, footer(found)


def metric_of(found: list[dict[str, Any]]) -> str:
    """What the results of one run are told in; runs of before are told in accuracy."""
    return next((str(entry["metric"]) for entry in found if "metric" in entry), "accuracy")


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
    alarms += [f"\n{entry['label']}: hindsight, told the whole channel." for entry in found if entry.get("hindsight")]
    return f"{'; '.join(said)}{cap}{diagnostic}. Mean ± sd over {seeds} paired seeds; last round.{''.join(alarms)}"
