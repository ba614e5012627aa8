"""CARES' certificates on the sites of an experiment: the noise sweep and Figure 2. No training."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from otafl import systems
from otafl.core.plan import cut
from otafl.core.rounds import observe
from otafl.reproductions.claims import Claim, fact, judge
from otafl.reproductions.findings import FAILS, HOLDS, NOT_STATED, Grid, Record, Verdict
from otafl.reproductions.pictures import Line, Panel, line
from otafl.reproductions.reproduction import Reproduction
from otafl.runs import build
from otafl.runs.presets import Preset
from otafl.runs.schema import Experiment, load, options_of
from otafl.systems.cares.certifier import Certificate, Problem, certify
from otafl.systems.cares.policy import PAPER_ARMS, problem_of

CURVE_POINTS = 40


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


def past_the_budget(path: Path, text: str, place: str, seeds: int) -> Verdict:
    """Whether the fixed scaling without a stop exceeds ε*: what it spends follows from the partition alone."""
    whole, experiment = load(path), load(path, [f"seeds={seeds}", "rounds=1"])  # no channel is looked at
    unstopped = next(scheme for scheme in whole.scheme if scheme.stop_at_budget is False)
    rounds, scale = whole.horizon(unstopped), np.array(getattr(unstopped, "rx_scale"))  # noqa: B009 (its own key)
    spent = {seed: float(one.eps_of(rounds * one.zcdp_cost(scale))) for seed, one in enumerate(problems(experiment))}
    label, target = str(unstopped.label), experiment.privacy.eps
    assert target is not None
    claim = Claim(text=text, place=place, better=label, margin=target, digits=0)
    verdict = judge(claim, {label: spent}.__getitem__, f"ε after {rounds} rounds, from plans")
    share = np.mean([eps > target for eps in spent.values()])
    return verdict._replace(evidence=f"{verdict.evidence}; above {target:g} on {share:.0%} of them")


def certificates(problem: Problem, version: Record) -> list[tuple[Problem, Certificate]]:
    """One per noise level, all held against the target that the first of them sets (twice its best bound)."""
    levels = [replace(problem, noise_std=noise, grad_var=version["grad_var"]) for noise in version["noise_std"]]
    target = certify(levels[0], PAPER_ARMS).conv_target
    return [(level, certify(level, PAPER_ARMS, target)) for level in levels]


def sweep(job: Reproduction) -> None:
    """Feasible arms per noise level and seed, with published values and with data-free constants (E7)."""
    preset, experiment = job.preset, job.experiment()
    posed = problems(experiment)
    records: list[Record] = []
    for version in preset.settings["versions"]:
        for seed, problem in zip(experiment.seed_list, posed):
            for noise, (_, answer) in zip(version["noise_std"], certificates(problem, version)):
                where = {"version": version["name"], "seed": seed, "noise_std": noise}
                found = {"arms": int(answer.verdict.feasible.sum()), "eta_init": answer.eta_init}
                records.append({**where, **found, "p_max": float(problem.weights.max())})
    job.record(records, "sweep")
    published = [version["noise_std"] == preset.settings["published"] for version in preset.settings["versions"]]
    verdicts = [_pattern(records, version, own) for version, own in zip(_names(preset), published)]
    empty = [record["eta_init"] for record in records if record["arms"] == 0]
    told = f"{len(empty)} empty sets, {sum(eta is None for eta in empty)} without a scaling"
    claim = "In the infeasible case, CARES correctly reports that no certified operating point exists"
    held = bool(empty) and all(eta is None for eta in empty)
    verdicts.append(fact(claim, held, told, "Section 4.2", "no scaling is chosen where no arm is certified"))
    note = f"{len(posed)} seeds, {len(PAPER_ARMS)} arms from {PAPER_ARMS[0]:g} to {PAPER_ARMS[-1]:g}"
    job.publish([_grid(records, preset)], verdicts, [note], _count_panels(records, preset), records=records)


def _count_panels(records: list[Record], preset: Preset) -> list[Panel]:
    """Certified arms over the noise; the paper says wide, narrow, empty and prints no number."""
    lines: list[Line] = []
    for version in _names(preset):
        counts = _counts(records, version)
        lines.append(line(version, list(counts), np.array(list(counts.values()), float).T))
    return [Panel("certified arms of ten", "noise_std", "arms", lines)]


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


def _pattern(records: list[Record], version: str, published: bool) -> Verdict:
    """Wide, narrow, empty: the number of arms falls from more than half to some to none, on every seed."""
    wide, narrow, empty = _counts(records, version).values()
    held = [w > len(PAPER_ARMS) / 2 and 0 < n < w and e == 0 for w, n, e in zip(wide, narrow, empty)]
    word = HOLDS if all(held) else f"holds on {sum(held)} of {len(held)} seeds" if any(held) else FAILS
    counts = f"{np.mean(wide):.1f} / {np.mean(narrow):.1f} / {np.mean(empty):.1f} arms"
    rule = f"{version}: more than half of the arms, fewer, none, on every seed"
    claim = "The feasible set is wide at low noise, narrows at medium noise, and disappears at high noise"
    return Verdict(claim, word if published else NOT_STATED, counts, "Section 4.2", rule)


def _shapes(problem: Problem, levels: list[tuple[Problem, Certificate]]) -> list[Verdict]:
    """What the text says about the curves of Figure 2, on the grid of the paper, first seed."""
    arms = np.array(PAPER_ARMS)
    own = problem.zcdp_budget / problem.zcdp_cost(arms)
    falls, costs, gaps = problem.conv_bound(arms, own).total, problem.zcdp_cost(arms), problem.asymmetry(arms)
    counts = [int(answer.verdict.feasible.sum()) for _, answer in levels]
    place, grid = "Section 4.2", "on all ten arms"
    return [
        fact("The feasible region is nonempty", counts[0] > 0, f"{counts[0]} of {len(arms)} arms at noise_std "
             f"{levels[0][0].noise_high:g}", place, "some arm is certified, with constants that hold without data"),
        fact("Increasing η lowers the normalized OTA noise … and improves the convergence certificate",
             bool(np.all(np.diff(falls) < 0)), f"bound {falls[0]:.1f} at {arms[0]:g}, {falls[-1]:.1f} at {arms[-1]:g}",
             place, f"the bound falls {grid}"),
        fact("but it also increases the per-round privacy cost since ρ_inc ∝ η²",
             bool(np.allclose(costs / arms**2, costs[0] / arms[0] ** 2)), f"{costs[0]:.3g} to {costs[-1]:.3g}", place,
             f"cost / η² is constant {grid}"),
        fact("and may worsen participation imbalance", bool(np.all(np.diff(gaps) > 0)),
             f"asymmetry {gaps[0]:.4f} to {gaps[-1]:.4f}", place, f"the envelope grows {grid}"),
        fact("Increasing σ_z shrinks the feasible set and can make the joint constraints infeasible",
             counts == sorted(counts, reverse=True) and counts[-1] == 0, " / ".join(map(str, counts)) + " arms",
             "Figure 2, caption", "the number of certified arms falls with the noise, to none"),
    ]  # fmt: skip


def trilemma(job: Reproduction) -> None:
    """Figure 2: the four certified quantities over the scaling, one panel per noise level, first seed."""
    problem, settings = problems(job.experiment())[0], job.preset.settings
    rounds, panels = int(settings["reference_rounds"]), []
    for version in settings["versions"]:
        levels = certificates(problem, version)
        panels += [_panel(level, answer, rounds, version["name"]) for level, answer in levels]
    last = certificates(problem, settings["versions"][-1])
    notes = [f"convergence bound at each scaling's own horizon, ε after {rounds} rounds; every curve over its limit",
             "the paper prints no value of these curves"]  # fmt: skip
    job.publish([], _shapes(last[0][0], last), notes, panels)


def _panel(problem: Problem, answer: Certificate, rounds: int, version: str) -> Panel:
    arms = answer.arms.rx_scale
    eta = np.linspace(arms[0], arms[-1], CURVE_POINTS)
    own = problem.zcdp_budget / problem.zcdp_cost(eta)  # horizons as real numbers: curves, not stairs
    curves = {
        "bound / target, own horizon": problem.conv_bound(eta, own).total / answer.conv_target,
        f"ε / ε*, {rounds} rounds": problem.eps_of(rounds * problem.zcdp_cost(eta)) / problem.eps_target,
        "dropped weight / limit": problem.dropped_weight(eta) / problem.max_dropped,
        "asymmetry / limit": problem.asymmetry(eta) / problem.max_asymmetry,
    }
    count = int(answer.verdict.feasible.sum())
    title = f"{version}\nσ_z = {problem.noise_high:g}: {count} of {len(arms)} arms"
    lines = [line(name, eta, [values]) for name, values in curves.items()]
    return Panel(title, "receive scaling η", "share of its limit", lines, log="y")
