"""Schemes side by side at one privacy target: same clients, same channel draws, same seeds, same ledger.

Each private scheme runs until its budget is spent; a scheme whose unit, adjacency, delta or accountant differs from the
others', or that spent more than the target, is not ranked. Where a tuning grid is given, every scheme has its own step
size by one rule (`tune`). The ranking is by mean accuracy after the last round over paired seeds, and says where two
neighbours cannot be told apart.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from otafl.core.errors import InputError
from otafl.core.files import to_json, write_atomic
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.card_text import round_up
from otafl.report.tables import attack_cells, footer, named, numbers, paired_difference, result, summaries
from otafl.runs.afford import without_rounds
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.runner import run_in
from otafl.runs.schema import Experiment, load
from otafl.runs.tune import tune_step_size, tuned, with_step_sizes

COLUMNS = [entry for entry in ACCOUNTANTS.values() if entry.name != "zcdp-optimal"]
OUTSIDE_NOTE = "step sizes were tuned on a validation split of the private data"


class Comparison(NamedTuple):
    """What a comparison found; entries are summaries with their card."""

    ranked: list[dict[str, Any]]  # best first
    references: list[dict[str, Any]]  # without privacy
    refused: list[tuple[dict[str, Any], str]]  # and why
    gaps: list[dict[str, float]]  # paired differences between neighbours in the ranking


def compare(path: Path, folder: Path, overrides: list[str], grid: list[float] | None, reporter: Reporter) -> Path:
    """Tune where asked, run all schemes, write compare.json and compare.md; returns the run folder."""
    experiment = load(path, overrides)
    target = experiment.privacy.eps
    if target is None:
        raise InputError(f"{path}: a comparison needs a common privacy target; set privacy.eps")
    if grid:
        steps = tune_step_size(
            path, grid, folder / "tuning", reporter, overrides=[*overrides, *_with_validation(experiment)]
        )
    else:
        steps = tuned(path, folder / "tuning", overrides, reporter)
    if steps:
        experiment = with_step_sizes(experiment, steps).model_copy(
            update={"outside": [*experiment.outside, OUTSIDE_NOTE]}
        )
    run = run_in(folder / "run", experiment, reporter)
    found = rank(summaries(run), target)
    write_atomic(folder / "compare.json", to_json({"step_sizes": steps, **_plain(found)}))
    text = [*lines(found), *(f"- {note}" for note in tuning_notes(folder))]
    write_atomic(folder / "compare.md", "\n".join(text) + "\n")
    return run


def tuning_notes(folder: Path) -> list[str]:
    """Step sizes that were tried and taken; one at an edge of the grid may not be the best there is."""
    file = folder / "tuning" / "step_sizes.json"
    if not file.exists():
        return []
    told = json.loads(file.read_text(encoding="utf-8"))
    taken = ", ".join(f"{label} {step:g}" for label, step in told["best"].items())
    notes = [f"step sizes from {', '.join(f'{step:g}' for step in told['grid'])} by {told['rule']}: {taken}"]
    edge = ", ".join(told["edge"])
    return notes + ([f"at an edge of that grid, so a wider one might do better: {edge}"] if edge else [])


def _with_validation(experiment: Experiment) -> list[str]:
    return [] if experiment.task.data.validation_fraction else ["task.data.validation_fraction=0.2"]


def rank(found: list[dict[str, Any]], target: float) -> Comparison:
    """Sort the schemes that kept to the common target; set apart references and those that did not."""
    private = [entry for entry in found if entry["private"]]
    promise = ("unit", "adjacency", "delta", "accountant")
    common = [tuple(entry[key] for key in promise) for entry in private]
    usual = max(common, key=common.count) if common else ()
    ranked, refused = [], []
    for entry, own in zip(private, common):
        spent = float(np.max(numbers(entry["final_eps"])))
        if none := without_rounds(entry):
            refused.append((entry, none))
        elif own != usual:
            refused.append((entry, f"its ε is of another kind ({', '.join(map(str, own))})"))
        elif not spent <= target * (1 + 1e-9):
            refused.append((entry, f"it spent ε = {spent:.4g}, more than the target {target:g}"))
        else:
            ranked.append(entry)
    ranked.sort(key=lambda entry: -float(np.mean(numbers(entry["final_accuracy"]))))
    gaps = [paired_difference(a, b, "final_accuracy") for a, b in pairwise(ranked)]
    return Comparison(ranked, [entry for entry in found if not entry["private"]], refused, gaps)


def row(entry: dict[str, Any], place: str) -> list[str]:
    """One line of the comparison table."""
    spent = {item["accountant"]: item for item in entry["card"]["spent"]}
    eps = ["∞" if not entry["private"] else _eps(spent[one.name]) if one.name in spent else "–" for one in COLUMNS]
    rounds, energy = numbers(entry["rounds"]), numbers(entry["energy_per_round"])
    total = f"{np.mean(np.nan_to_num(rounds * energy)):.3g} J" if entry["uplink"] == "analog" and any(rounds) else "–"
    uses = f"{np.mean(rounds) * entry['channel_uses']:.3g}"
    return [
        place,
        named(entry),
        result(entry, "final_accuracy"),
        result(entry, "worst_client"),
        *eps,
        *attack_cells(entry),
        f"{np.mean(rounds):.0f}",
        total,
        uses,
        entry["csi"],
        f"{entry['seconds']:.1f} s",
    ]


def _eps(spend: dict[str, Any]) -> str:
    """A number that leaves sampling out must not stand there as if it could be compared with one that does not."""
    without = " (without sampling)" if spend.get("without_sampling") else ""
    return round_up(spend["eps_worst"], "∞") + without


HEAD = [
    "#",
    "scheme",
    "accuracy",
    "worst client",
    *(f"ε {entry.label}" for entry in COLUMNS),
    "μ",
    "TPR@1 %",
    "rounds",
    "energy/device",
    "channel uses",
    "CSI",
    "time",
]


def rows(found: Comparison) -> list[list[str]]:
    placed = [row(entry, str(n + 1)) for n, entry in enumerate(found.ranked)]
    return [
        *(row(entry, "ref") for entry in found.references),
        *placed,
        *(row(entry, "–") for entry, _ in found.refused),
    ]


def verdicts(found: Comparison) -> list[str]:
    """What may be said about neighbours in the ranking, and who is not in it."""
    said = []
    for (first, second), gap in zip(pairwise(found.ranked), found.gaps):
        apart = np.isfinite(gap["half_width"]) and abs(gap["mean"]) > gap["half_width"]
        text = "" if apart else ": cannot be separated"
        size = f"{gap['mean']:+.3f} ± {gap['half_width']:.3f} ({gap['pairs']:.0f} paired seeds)"
        if not np.isfinite(gap["half_width"]):
            size = f"{gap['mean']:+.3f} (one paired seed: no interval)" if gap["pairs"] else "no paired seeds"
        said.append(f"{first['label']} − {second['label']}: {size}{text}")
    return said + [f"not ranked: {entry['label']}: {why}" for entry, why in found.refused]


LABEL_WIDTH = 16  # below that a label is hard to read


def widths(found: Comparison) -> dict[str, int]:
    """The least width of every column: a label may break, a number may not."""
    columns = zip(HEAD, *rows(found))
    needed = {name: max(map(cell_len, (name, *cells))) for name, *cells in columns}
    return {**needed, "scheme": LABEL_WIDTH}


def table(found: Comparison, target: float, shown: list[str]) -> Table:
    """The ranking with these of the columns; labels may break, numbers never do."""
    made = Table(title=f"Same clients, channel and seeds; privacy target ε = {target:g}", title_justify="left")
    least = widths(found)
    for name in shown:
        made.add_column(name, justify="left" if name == "scheme" else "right", min_width=least[name])
    for cells in rows(found):
        made.add_row(*(escape(cell) for name, cell in zip(HEAD, cells) if name in shown))
    return made


def print_table(found: Comparison, target: float, console: Console, wide: bool) -> None:
    """All columns where they fit or were asked for, otherwise the few that a ranking needs."""
    needed = 1 + sum(3 + width for width in widths(found).values())
    if wide:
        console.width = max(needed, console.width)
    if needed <= console.width:
        console.print(table(found, target, HEAD))
    else:
        entry = next(iter([*found.ranked, *(entry for entry, _ in found.refused)]), None)
        own = ACCOUNTANTS.get(entry["accountant"] if entry else "", "zCDP")
        console.print(table(found, target, ["#", "scheme", "accuracy", f"ε {own}", "rounds"]))
        console.print("--wide shows all columns; compare.md has them too", style="dim")


def show(folder: Path, run: Path, target: float, console: Console, wide: bool = False) -> None:
    """Print the table, the verdicts and where the report is."""
    found = rank(summaries(run), target)
    print_table(found, target, console, wide)
    for text in [*verdicts(found), *tuning_notes(folder)]:
        console.print(text, markup=False, highlight=False)
    everyone = [*found.references, *found.ranked, *(entry for entry, _ in found.refused)]
    said = (footer(everyone), f"95 % t intervals, paired by seed. Report: {run / 'report.html'}")
    console.print(*said, sep="\n", markup=False, highlight=False)


def lines(found: Comparison) -> list[str]:
    body = ["| " + " | ".join(cells) + " |" for cells in rows(found)]
    return [
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *body,
        "",
        *(f"- {text}" for text in verdicts(found)),
    ]


def _plain(found: Comparison) -> dict[str, Any]:
    return {
        "ranked": found.ranked,
        "references": found.references,
        "refused": [{"entry": e, "why": w} for e, w in found.refused],
        "gaps": found.gaps,
    }


def compare_preset(
    path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter, console: Console
) -> None:
    """`otafl reproduce` of a comparison preset."""
    run = compare(path, folder, overrides, None, reporter)
    show(folder, run, load(path, overrides).privacy.eps or np.inf, console)
    write_atomic(folder / "results.md", (folder / "compare.md").read_text(encoding="utf-8"))
