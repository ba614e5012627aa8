"""CARES' certificates on the sites of an experiment: the noise sweep and Figure 2. No training."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl import systems
from otafl.core.plan import cut
from otafl.core.rounds import observe
from otafl.reports.plots import COLOURS, DASHES
from otafl.reproductions.findings import (
    FAILS,
    HOLDS,
    Grid,
    Record,
    Verdict,
    draw,
    each,
    publish,
    write_records,
)
from otafl.runs import build
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, load, options_of
from otafl.systems.cares.certifier import Certificate, Problem, certify
from otafl.systems.cares.policy import PAPER_ARMS, problem_of

CURVE_POINTS = 200


def problems(experiment: Experiment) -> list[Problem]:
    """The certifier's problem of every seed, as the experiment's CARES scheme would pose it before round 0."""
    task = build.build_task(experiment)
    scheme = next(scheme for scheme in experiment.scheme if scheme.name.startswith("cares-"))
    config = options_of(scheme, systems.scheme(scheme.name).config)
    found = []
    sites = build.build_scheme(experiment, scheme, task).sites
    for seed, site, part in zip(experiment.seed_list, sites, task.partitions):
        first = cut(site.trace, 0)
        context = build.context_of(experiment, scheme, task.classes, seed, site.trace, part.sizes)
        found.append(problem_of(config, observe(site.policy, first, 0), site.deployment, site.message, context))
    return found


def certificates(problem: Problem, version: Record) -> list[tuple[Problem, Certificate]]:
    """One per noise level, all held against the target that the first of them sets (twice its best bound)."""
    levels = [replace(problem, noise_std=noise, grad_var=version["grad_var"]) for noise in version["noise_std"]]
    target = certify(levels[0], PAPER_ARMS).conv_target
    return [(level, certify(level, PAPER_ARMS, target)) for level in levels]


def sweep(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
          console: Console) -> None:  # fmt: skip
    """Feasible arms per noise level and seed, with published values and with data-free constants (E7)."""
    experiment = load(path, overrides)
    posed = problems(experiment)
    records: list[Record] = []
    for version in preset.settings["versions"]:
        for seed, problem in zip(experiment.seed_list, posed):
            for noise, (_, answer) in zip(version["noise_std"], certificates(problem, version)):
                where = {"version": version["name"], "seed": seed, "noise_std": noise}
                found = {"arms": int(answer.verdict.feasible.sum()), "eta_init": answer.eta_init}
                records.append({**where, **found, "p_max": float(problem.weights.max())})
    write_records(folder, "sweep", records)
    verdicts = [_pattern(records, version, preset.targets["pattern"]) for version in _names(preset)]
    note = f"{len(posed)} seeds, {len(PAPER_ARMS)} arms from {PAPER_ARMS[0]:g} to {PAPER_ARMS[-1]:g}"
    publish(folder, preset, [_grid(records, preset)], verdicts, [note], console, records=records)


def _names(preset: Preset) -> list[str]:
    return [version["name"] for version in preset.settings["versions"]]


def _counts(records: list[Record], version: str) -> dict[float, list[int]]:
    own = [record for record in records if record["version"] == version]
    return {
        noise: [r["arms"] for r in own if r["noise_std"] == noise]
        for noise in dict.fromkeys(r["noise_std"] for r in own)
    }


def _grid(records: list[Record], preset: Preset) -> Grid:
    rows = []
    for version in _names(preset):
        for (noise, counts), said in zip(_counts(records, version).items(), preset.targets["pattern"]):
            spread = f"{np.mean(counts):.1f} ({min(counts)} to {max(counts)})"
            chosen = sorted(
                {
                    r["eta_init"]
                    for r in records
                    if r["version"] == version and r["noise_std"] == noise and r["eta_init"]
                }
            )
            rows.append([version, f"{noise:g}", spread, ", ".join(f"{eta:.3f}" for eta in chosen) or "none", said])
    return Grid(
        "feasible arms", ("version", "noise_std", "arms of ten, mean (range over seeds)", "η chosen", "paper"), rows
    )


def _pattern(records: list[Record], version: str, said: list[str]) -> Verdict:
    """Wide, narrow, empty: the number of arms falls from more than half to some to none, on every seed."""
    wide, narrow, empty = _counts(records, version).values()
    held = [w > len(PAPER_ARMS) / 2 and 0 < n < w and e == 0 for w, n, e in zip(wide, narrow, empty)]
    word = HOLDS if all(held) else f"holds on {sum(held)} of {len(held)} seeds" if any(held) else FAILS
    return Verdict(
        f"feasible set {', '.join(said)} ({version})",
        word,
        f"{np.mean(wide):.1f} / {np.mean(narrow):.1f} / {np.mean(empty):.1f} arms",
    )


def trilemma(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
             console: Console) -> None:  # fmt: skip
    """Figure 2: the four certified quantities over the scaling, one panel per noise level, first seed."""
    problem, rounds = problems(load(path, overrides))[0], int(preset.settings["reference_rounds"])
    for n, version in enumerate(preset.settings["versions"]):
        levels = certificates(problem, version)
        panels = [partial(_panel, level, answer, rounds) for level, answer in levels]
        draw(folder, f"fig2{'ab'[n]}", len(levels), 1, each(*panels))
    notes = [f"fig2{'ab'[n]}: {name}" for n, name in enumerate(_names(preset))]
    publish(
        folder,
        preset,
        [],
        [],
        [*notes, f"convergence bound at each scaling's own horizon, ε after {rounds} rounds"],
        console,
    )


def _panel(problem: Problem, answer: Certificate, rounds: int, axes: Any) -> None:
    arms = answer.arms.rx_scale
    eta = np.linspace(arms[0], arms[-1], CURVE_POINTS)
    own = problem.zcdp_budget / problem.zcdp_cost(eta)  # horizons as real numbers: curves, not stairs
    curves = {
        "bound / target, own horizon": problem.conv_bound(eta, own).total / answer.conv_target,
        f"ε / ε*, {rounds} rounds": problem.eps_of(rounds * problem.zcdp_cost(eta)) / problem.eps_target,
        "dropped weight / limit": problem.dropped_weight(eta) / problem.max_dropped,
        "asymmetry / limit": problem.asymmetry(eta) / problem.max_asymmetry,
    }
    for n, (name, values) in enumerate(curves.items()):
        axes.plot(eta, values, label=name, color=COLOURS[n], linestyle=DASHES[n])
    half = np.diff(arms).mean() / 2
    for arm in arms[answer.verdict.feasible]:
        axes.axvspan(max(arm - half, arms[0]), min(arm + half, arms[-1]), color="#56B4E9", alpha=0.2, lw=0)
    axes.axhline(1, color="black", lw=0.8)
    count = int(answer.verdict.feasible.sum())
    axes.set(
        yscale="log",
        xlabel="receive scaling η",
        title=f"noise_std {problem.noise_high:g}: {count} of {len(arms)} arms feasible",
    )
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend()
