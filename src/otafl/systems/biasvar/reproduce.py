"""Bias-variance Figure 2: accuracy and loss F over rounds on a fixed deployment and on drawn ones, claim by claim."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from otafl.reproductions import curves
from otafl.reproductions.curves import Scheme, collect
from otafl.reproductions.findings import Grid, Record, Verdict, draw
from otafl.reproductions.pictures import Panel
from otafl.reproductions.reproduction import Reproduction
from otafl.runs import build
from otafl.runs.comparing.statistics import mean_sd
from otafl.runs.comparing.tune import Metric, tune_step_size, with_step_sizes
from otafl.runs.schema import Experiment
from otafl.systems.biasvar.probe import Probe, minibatch_variance, probe_kappa_L
from otafl.systems.biasvar.reproduce_designs import design_side, paint_frontier
from otafl.tasks.models import penalty

FIXED, DRAWN = "fixed", "drawn"
PARTS = ("accuracy", "objective", "cross_entropy", "penalty")


def fig2(job: Reproduction) -> None:
    """Measure, tune for what each panel shows, train on a fixed deployment and on drawn ones, judge every sentence."""
    wanted = job.settings["tune"]
    measured, changes = measure(job.experiment(), job.settings.get("measure_sigma2", False))
    job = replace(job, overrides=[*job.overrides, *changes])
    steps = {panel: tuned_by(metric, wanted, job) for panel, metric in wanted["metrics"].items()}
    schemes = trained(job, steps)
    flat = {panel: curves.curve_records(own, PARTS) for panel, own in schemes.items()}
    job.record([{"panel": panel, **record} for panel, own in flat.items() for record in own])
    experiment = job.experiment()
    about, line = design_side(job, experiment)
    draw(job.folder, "frontier", 1, 1, partial(paint_frontier, line))
    claims = curves.about(job.preset.targets["claims"], set(experiment.labels))
    verdicts = judged(claims, schemes, FIXED)
    grids = [
        *(final_grid(own, steps[panel], run, panel) for panel, own in schemes.items() for run in (FIXED, DRAWN)),
        _again(judged(claims, schemes, DRAWN)), curves.privacy_grid(schemes["a"], FIXED), *about,
    ]  # fmt: skip
    panels = [
        Panel(f"Fig. 2{panel}, {run} deployment", "round", label, curves.lines(schemes[panel], metric, run), log=log)
        for run in (FIXED, DRAWN)
        for panel, metric, label, log in (("a", "accuracy", "test accuracy", ""), ("b", "objective", "F(w)", "y"))
    ]
    job.publish(
        grids, verdicts, notes(measured, steps, wanted["step_sizes"]), panels, measured=measured, step_sizes=steps
    )


def tuned_by(metric: Metric, wanted: Record, job: Reproduction) -> dict[str, float]:
    """Step sizes by one metric; both metrics read the same trainings."""
    place = job.folder / "tuning"
    best = tune_step_size(job.path, wanted["step_sizes"], place, job.reporter,
                          overrides=[*job.overrides, *wanted["set"]], metric=metric,
                          reach=wanted.get("reach"))  # fmt: skip
    (place / "step_sizes.json").rename(place / f"step_sizes-{metric}.json")
    return best


def trained(job: Reproduction, steps: dict[str, dict[str, float]]) -> dict[str, list[Scheme]]:
    """The schemes of each panel on both kinds of deployment; what has the same step in both panels is trained once.

    All seeds for the first panel on the fixed deployment; the first `settings.few` of them for everything else.
    """
    found: dict[str, list[Scheme]] = {}
    for panel, own in steps.items():
        first = next(iter(found), None)
        new = {label: step for label, step in own.items() if first is None or step != steps[first][label]}
        runs = {}
        for name, change in ((FIXED, [f"channel.placement_seed={job.settings['deployment']}"]), (DRAWN, [])):
            experiment = with_step_sizes(job.experiment(*change), own)
            some = [scheme for scheme, label in zip(experiment.scheme, experiment.labels) if label in new]
            if some:
                count = None if first is None and name == FIXED else job.settings["few"]
                part = experiment.model_copy(update={"scheme": some, "seeds": experiment.seed_list[:count]})
                runs[name] = job.run(part, f"{name}-{panel}")
        fresh = {scheme.label: _rough(scheme) for scheme in collect(runs)} if runs else {}
        before = {scheme.label: scheme for scheme in found[first]} if first else {}
        found[panel] = [fresh.get(label) or before[label] for label in own]
    return found


def _rough(scheme: Scheme) -> Scheme:
    """With one more metric: the standard deviation of the accuracy's changes in the second half of the run."""
    lines = scheme.curves["accuracy"]
    changes = {pair: np.diff(v[len(v) // 2 :]) for pair, (_, v) in lines.items()}
    scheme.finals["roughness"] = {pair: float(np.std(v)) if v.size else np.nan for pair, v in changes.items()}
    scheme.curves["roughness"] = lines
    return scheme


def judged(claims: list[Record], schemes: dict[str, list[Scheme]], run: str) -> list[Verdict]:
    """Every claim on its panel, on one kind of deployment."""
    out = []
    for claim in claims:
        rule = {key: value for key, value in claim.items() if key != "panel"}
        (verdict,) = curves.judge([{**rule, "run": run}], schemes[claim["panel"]])
        out.append(verdict._replace(claim=f"{claim['text']} (Fig. 2{claim['panel']})"))
    return out


def _again(verdicts: list[Verdict]) -> Grid:
    rows = [[one.claim, one.verdict, one.evidence] for one in verdicts]
    return Grid("the same claims with the devices placed anew for every seed", ("claim", "verdict", "evidence"), rows)


def final_grid(schemes: list[Scheme], steps: dict[str, float], run: str, panel: str) -> Grid:
    """Ends and means of the curves, silence; means over seeds of one kind of deployment."""
    rows = []
    for scheme in schemes:
        last = {metric: [v for pair, v in values.items() if pair[0] == run] for metric, values in scheme.finals.items()}
        mean = {metric: [float(np.mean(v)) for pair, (_, v) in scheme.curves[metric].items() if pair[0] == run]
                for metric in ("accuracy", "objective")}  # fmt: skip
        rows.append([
            scheme.label, f"{steps[scheme.label]:g}", str(len(last["accuracy"])),
            mean_sd(last["accuracy"]), mean_sd(mean["accuracy"]),
            mean_sd(last["worst_client"]), mean_sd(last["objective"]), mean_sd(mean["objective"]),
            mean_sd(last["cross_entropy"]), mean_sd(last["penalty"]),
            f"{np.mean(scheme.summaries[run]['silent_weight']):.1%}",
        ])  # fmt: skip
    head = ("scheme", "step", "seeds", "accuracy, last", "over rounds", "worst client", "F, last", "over rounds",
            "cross-entropy", "l2 part", "silent weight")  # fmt: skip
    tuned_on = {"a": "accuracy", "b": "F"}[panel]
    return Grid(f"steps tuned on {tuned_on}, {run} deployment: mean ± sd over seeds", head, rows)


def notes(measured: Record, steps: dict[str, dict[str, float]], grid: list[float]) -> list[str]:
    """What a reader must know beside the numbers."""
    used = sorted({step for own in steps.values() for step in own.values()})
    rho = ", ".join(f"{measured['rho_times_eta'] / step:.2g} at step {step:g}" for step in used)
    edge = [f"{label} (2{panel}, {step:g})" for panel, own in steps.items() for label, step in own.items()
            if step in (min(grid), max(grid))]  # fmt: skip
    sigma = f", mini-batch variance {measured['sigma2']:.3g}" if measured["sigma2"] else ""
    return [
        f"measured at the start: kappa² = {measured['kappa2']:.3g}, L = {measured['L']:.3g}, largest gradient norm "
        f"{measured['largest_norm']:.3g} of G = {measured['G']:g}{sigma}; rho = {rho}",
        "F and cross-entropy on held-out images; steps tuned per scheme on a validation split: by accuracy for 2a, "
        f"by F for 2b; on the grid {', '.join(f'{step:g}' for step in grid)}; at its edge: {', '.join(edge) or 'none'}",
        "fixed: one placement of the devices for all seeds, as in the paper; drawn: one of its own for every seed; "
        "fading, noise, split and initial model are drawn anew for every seed in both",
        "eps is what the common ledger charges: no privacy is claimed, and none should be expected",
    ]


# --- measured constants ---------------------------------------------------------------------------------------------


def measure(experiment: Experiment, sigma2: bool) -> tuple[Record, list[str]]:
    """kappa, L and the mini-batch variance at the initial model of the first seed; overrides that hand the last on."""
    first = experiment.model_copy(update={"seeds": experiment.seed_list[:1]})
    task = build.build_task(first)
    seed = build.seeds_of(first, task)
    params = task.model.init(seed.key[0])
    rows = seed.rows[0][:, : int(task.partitions[0].sizes.min())]
    data = task.data.at(rows)

    def loss(p: Any, own: Any) -> Any:
        return task.model.loss(p, *own) + penalty(task.model, p)

    seen: Probe = probe_kappa_L(loss, params, data)
    batch, spread = experiment.clients.batch, 0.0
    if sigma2 and batch:
        devices = [(data[0][m], data[1][m]) for m in range(len(rows))]
        spread = float(np.mean([minibatch_variance(loss, params, own, batch) for own in devices]))
    G = experiment.clients.clip_norm
    told = {
        "kappa2": seen.kappa**2, "L": seen.L, "G": G, "sigma2": spread,
        "largest_norm": float(seen.grad_norms.max()), "rho_times_eta": seen.kappa**2 / (seen.L * G**2),
    }  # fmt: skip
    knowing = [n for n, scheme in enumerate(experiment.scheme) if scheme.name == "biasvar"]
    return told, [f"scheme.{n}.sigma2={spread!r}" for n in knowing] if spread else []
