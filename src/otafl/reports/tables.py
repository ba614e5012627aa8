"""Tables of a run, computed from its store and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

from otafl.privacy.card_text import round_up
from otafl.privacy.participation import DESIGN
from otafl.runs.comparing.statistics import mean_sd, numbers
from otafl.runs.folder.results import figures
from otafl.runs.folder.sealed import reading
from otafl.runs.folder.store import AGAIN, RunFolder
from otafl.runs.folder.summaries import guaranteed, is_design, on_air, summaries
from otafl.runs.planning.afford import without_rounds
from otafl.systems.screen import Fitted

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


def either(labels: list[str]) -> str:
    """
    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    return " or ".join(filter(None, (", ".join(labels[:-1]), *labels[-1:])))


def mean_rounds(entry: dict[str, Any]) -> str:
    """Over seeds; whole, unless that would say none where some seed ran one.

    >>> mean_rounds({"rounds": [29.0, 30.0, 31.0]}), mean_rounds({"rounds": [0.0, 1.0, 0.0]})
    ('30', '0.33')
    """
    mean = float(np.mean(numbers(entry["rounds"])))
    return f"{mean:.2g}" if 0 < mean < 1 else f"{mean:.0f}"


def share(values: np.ndarray) -> str:
    """A mean share in percent; what rounding leaves of zero is zero.

    >>> share(np.array([-1e-17])), share(np.array([0.25, np.nan])), share(np.array([np.nan]))
    ('0.0%', '25.0%', '–')
    """
    good = values[~np.isnan(values)]
    return f"{max(float(np.mean(good)), 0.0):.1%}" if good.size else "–"


def short_csi(csi: str) -> str:
    """Of a narrow column."""
    return "stat." if csi == "statistical" else csi


def energy(values: np.ndarray) -> str:
    good = values[~np.isnan(values)]
    return f"{np.mean(good):.2g} J" if good.size else "–"


def comparison(folder: Path) -> tuple[Fitted, str]:
    """The main table of a run, and the footer that says what its epsilon means."""
    with reading(folder, AGAIN):
        found = summaries(folder)
        title = RunFolder.open(folder).manifest["title"]
        columns = _columns(found)
        rows = (map(escape, cells) for cells in zip(*columns.values()))
        return Fitted.of(columns, rows, title=escape(title) if title else None, title_justify="left"), footer(found)


def _columns(found: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Cells of every column, the most important first."""
    metric = metric_of(found)
    attacks = [attack_cells(entry) for entry in found]
    return {
        "scheme": [named(entry) for entry in found],
        metric: [result(entry, figures(metric)[0]) for entry in found],
        "ε": [spent(entry) for entry in found],
        "TPR@1 %": [power for _, power in attacks],
        "rounds": [mean_rounds(entry) for entry in found],
        "μ": [mu for mu, _ in attacks],
        "worst client": [result(entry, "worst_client") for entry in found],
        "energy/round": [energy(numbers(entry["energy_per_round"])) if on_air(entry) else "–" for entry in found],
        "silent": [share(numbers(entry["silent_weight"])) for entry in found],
        "time": [f"{entry['seconds']:.1f} s" for entry in found],
    }


def metric_of(found: list[dict[str, Any]]) -> str:
    """What the results of one run are told in; runs of before are told in accuracy."""
    return next((str(entry["metric"]) for entry in found if "metric" in entry), "accuracy")


def spent(entry: dict[str, Any]) -> str:
    """ε of the worst seed, rounded up: no seed spent more than a table says.

    >>> spent({"private": True, "final_eps": [38.40, 38.441]}), spent({"private": False})
    ('38.45', '∞')
    """
    worst = float(np.max(numbers(entry["final_eps"]))) if entry["private"] else np.inf
    return "–" if np.isnan(worst) else round_up(worst, "∞")


def attack_cells(entry: dict[str, Any]) -> list[str]:
    """μ (never under sampling) and true positives at 1 % false ones of the worst seed; runs of before have neither."""
    mu, power = (numbers(entry.get(name) or [None]) for name in ("mu", "tpr_at_1pct"))
    return ["–" if np.any(np.isnan(v)) else round_up(np.max(v), "∞") for v in (mu, 100 * power)]


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
    seeds = sorted({len(entry["seeds"]) for entry in found} or {0})
    alarms = [f"\n{entry['label']}: {entry['alarm']}." for entry in found if entry.get("alarm")]
    alarms += [f"\n{entry['label']}: hindsight, told the whole channel." for entry in found if entry.get("hindsight")]
    alarms += [f"\n{entry['label']}: {DESIGN}." for entry in found if is_design(entry)]
    alarms += [f"\n{entry['label']}: {_closed(entry)}." for entry in found if entry.get("loop") == "round"]
    alarms += [f"\n{entry['label']}: {_retired(entry)}." for entry in found if entry.get("retired")]
    alarms += [f"\n{entry['label']}: {idle}." for entry in found if (idle := _idle(entry))]
    many = "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    over = "One seed, no spread" if seeds == [1] else f"Mean ± sd over {many} paired seeds, ε of the worst"
    over += "; last round."
    return f"{'; '.join(said)}{cap}{diagnostic}. {over}{''.join(dict.fromkeys(alarms))}"


def _closed(entry: dict[str, Any]) -> str:
    """What the spent eps of a policy that looks at the training is worth."""
    cap = "its guarantee is the cap, of which μ and TPR@1 % tell"
    holds = cap if np.isfinite(guaranteed(entry)) else "it guarantees nothing"
    return f"closed loop, ε is what was spent; {holds}"


def _idle(entry: dict[str, Any]) -> str:
    """Means over seeds count the initial model where a seed ran no round."""
    idle = [seed for seed, rounds in zip(entry["seeds"], numbers(entry["rounds"])) if rounds == 0]
    if not idle or without_rounds(entry):
        return ""
    return f"not one round affordable in {len(idle)} of {len(entry['seeds'])} seeds, which count with the initial model"


def _retired(entry: dict[str, Any]) -> str:
    return f"{np.mean(entry['retired']):.3g} of {entry['clients']} clients had retired at their own cap at the end"
