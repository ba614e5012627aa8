"""Training runs side by side: final values per seed, paired differences, verdicts, and curves over rounds.

A *pair* is one run and one seed: all schemes see the same data, channels and initial model in it. Final values are
means of the last five evaluations, as in the tuning rule.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.reproductions import claims as rules
from otafl.reproductions.findings import Grid, Record, Verdict
from otafl.reproductions.pictures import Line, line
from otafl.runs.comparing.statistics import Gap, paired
from otafl.runs.comparing.tune import LAST
from otafl.runs.folder.store import RunFolder

Pair = tuple[str, int]
COLUMNS = ("accuracy", "worst_client", "cross_entropy", "penalty", "objective", "eps")


class Scheme(NamedTuple):
    """One scheme over several runs."""

    label: str
    finals: dict[str, dict[Pair, float]]  # metric -> pair -> value
    summaries: dict[str, Record]  # run -> what the store says
    curves: dict[str, dict[Pair, tuple[np.ndarray, np.ndarray]]]  # metric -> pair -> (rounds, values)


def collect(runs: dict[str, Path]) -> list[Scheme]:
    """All schemes of these runs, in the order of the first one's config."""
    return [_scheme(label, runs) for label in RunFolder.open(next(iter(runs.values()))).labels()]


def _scheme(label: str, runs: dict[str, Path]) -> Scheme:
    found = Scheme(label, {m: {} for m in COLUMNS}, {}, {m: {} for m in COLUMNS})
    for name, path in runs.items():
        place = RunFolder.open(path).scheme(label)
        found.summaries[name] = {**place.json("summary"), "card": place.json("card")}
        table = place.read("evaluations")
        table |= {"cross_entropy": table["loss"], "objective": table["loss"] + table["penalty"]}
        for seed in np.unique(table["seed"]).tolist():
            own = table["seed"] == seed
            for metric in COLUMNS:
                value = table[metric][own]
                found.curves[metric][name, seed] = table["round"][own], value
                found.finals[metric][name, seed] = float(value[-1] if metric == "eps" else np.mean(value[-LAST:]))
    return found


def data_of(run: RunFolder) -> str:
    """For a note."""
    manifest = run.manifest
    name, digest = (manifest["data"][key] for key in ("name", "sha256"))
    return f"data: {name} (sha256 {digest[:12]}), {manifest['parameters']} parameters"


def about(claims: Sequence[Record], known: set[str]) -> list[Record]:
    """The claims about these schemes alone."""
    return [claim for claim in claims if {claim["better"], *rules.rivals_of(claim.get("than", ()))} <= known]


def difference(a: dict[Pair, float], b: dict[Pair, float], run: str | None = None) -> Gap:
    """a - b over the pairs that both have, of one run or of all."""
    return paired({pair: value for pair, value in a.items() if run in (None, pair[0])}, b)


def judge(claims: Sequence[Record], schemes: list[Scheme]) -> list[Verdict]:
    """The claims of a preset, by the rules of `claims`; what is judged stands behind the claim."""
    known = {scheme.label: scheme for scheme in schemes}
    out = []
    for record in claims:
        claim = parse(rules.Claim, {"digits": 3, **record}, "claim")
        asked = claim.model_copy(update={"lower": True}) if claim.measure == "rounds" else claim
        verdict = rules.judge(asked, partial(measured, known, claim))
        out.append(verdict._replace(claim=f"{claim.text} ({claim.metric.replace('_', ' ')})"))
    return out


def measured(known: dict[str, Scheme], claim: rules.Claim, label: str) -> dict[Pair, float]:
    """What a claim compares, of one scheme: the last evaluations, the mean over all rounds, or rounds to a target."""
    curves = known[label].curves
    if claim.measure == "area":
        until = max(rounds[-1] for one in known.values() for rounds, _ in one.curves[claim.metric].values())
        found = {pair: area(*curve, until) for pair, curve in curves[claim.metric].items()}
    elif claim.measure == "rounds":
        found = {pair: rounds_to(*curve, claim) for pair, curve in curves[claim.metric].items()}
    else:
        found = known[label].finals[claim.metric]
    return {pair: value for pair, value in found.items() if claim.run in (None, pair[0])}


def area(rounds: np.ndarray, values: np.ndarray, until: int) -> float:
    """Mean of a curve from its first evaluation to round `until`; a run that has stopped keeps its last value.

    >>> area(np.array([0, 10]), np.array([0.0, 1.0]), 20)
    0.75
    """
    x, y = np.append(rounds, until), np.append(values, values[-1])
    return float(np.trapezoid(y, x) / (until - x[0]))


def rounds_to(rounds: np.ndarray, values: np.ndarray, claim: rules.Claim) -> float:
    """The first evaluated round with a value as good as the claim's target; infinite if there is none."""
    if claim.target is None:
        raise InputError(f"claim '{claim.text}': measure = 'rounds' needs a target")
    there = np.flatnonzero(values <= claim.target if claim.lower else values >= claim.target)
    return float(rounds[there[0]]) if there.size else float("inf")


def lines(schemes: list[Scheme], metric: str, run: str | None = None) -> list[Line]:
    """Curves for a panel: a run that has stopped keeps its last value."""
    out = []
    for scheme in schemes:
        own = [curve for pair, curve in scheme.curves[metric].items() if run in (None, pair[0])]
        x = max((rounds for rounds, _ in own), key=len)
        out.append(line(scheme.label, x, [np.pad(v, (0, len(x) - len(v)), mode="edge") for _, v in own]))
    return out


def step_size_of(experiment: Any, label: str) -> float:
    from otafl.runs.server import server_of

    return float(server_of(experiment, experiment.scheme[experiment.labels.index(label)]).step_size)


def privacy_grid(schemes: list[Scheme], run: str) -> Grid:
    """eps of the worst client and the worst seed of one run by every accountant, from the privacy cards."""
    cards = {scheme.label: scheme.summaries[run]["card"] for scheme in schemes if scheme.summaries[run]["private"]}
    names = list(dict.fromkeys(spent["accountant"] for card in cards.values() for spent in card["spent"]))
    rows = []
    for label, card in cards.items():
        eps = {s["accountant"]: f"{float(s['eps_worst']):.4g}" for s in card["spent"]}
        kinds = {f"{s['accounting']}, {('design value', 'certified')[s['certified']]}" for s in card["spent"]}
        unit = f"{card['unit']}, {card['adjacency']}"
        rows.append([label, unit, "; ".join(sorted(kinds)), *(eps.get(name, "–") for name in names)])
    delta = next(iter(cards.values()))["delta"]
    return Grid(f"ε at δ = {delta:g} by accountant", ("scheme", "unit, adjacency", "participation", *names), rows)


def curve_records(schemes: list[Scheme], metrics: Sequence[str]) -> list[Record]:
    """Every evaluation as one flat record."""
    return [
        {"scheme": scheme.label, "run": pair[0], "seed": pair[1], "round": int(round_)}
        | {metric: float(scheme.curves[metric][pair][1][i]) for metric in metrics}
        for scheme in schemes
        for pair, (rounds, _) in scheme.curves[metrics[0]].items()
        for i, round_ in enumerate(rounds)
    ]
