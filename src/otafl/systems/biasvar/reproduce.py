"""Bias-variance Figure 2: accuracy and loss F over rounds on several deployments, and what the designs promise."""

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.channels import place as placement
from otafl.reproductions import curves
from otafl.reproductions.curves import Scheme, collect, step_size_of
from otafl.reproductions.findings import Grid, Record, draw, each, publish, write_records
from otafl.reproductions.preset_run import run_in
from otafl.runs import build
from otafl.runs.comparing.statistics import mean_sd
from otafl.runs.comparing.tune import settings_of, tuned, with_step_sizes
from otafl.runs.presets import Preset, find
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, load
from otafl.systems.biasvar.design import Radio, params_from_rho, solve_exact
from otafl.systems.biasvar.probe import Probe, minibatch_variance, probe_kappa_L
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.tradeoff import Frontier, frontier
from otafl.systems.biasvar.yardsticks import design_common_gamma, design_min_noise, design_zero_bias
from otafl.tasks.models import penalty

SMOKE = "smoke version: too few rounds and seeds to mean anything"
DESIGN_RHO = (0.05, 0.2, 1.0, 4.0)
PARTS = (
    ("accuracy", "test accuracy"),
    ("objective", "F"),
    ("cross_entropy", "cross-entropy"),
    ("penalty", "l2 part of F"),
)


def fig2(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
         console: Console) -> None:  # fmt: skip
    """Measure, tune, train on every deployment, and judge the published order in accuracy and in both parts of F."""
    settings = settings_of(path, overrides)
    measured, changes = measure(load(path, overrides), settings.get("measure_sigma2", False))
    overrides = [*overrides, *changes]
    steps = tuned(path, folder / "tuning", overrides, reporter)
    runs = {}
    for number in settings["deployments"]:
        experiment = with_step_sizes(load(path, [*overrides, f"channel.placement_seed={number}"]), steps)
        runs[f"deployment {number}"] = run_in(folder / f"deployment-{number}", experiment, reporter)
    schemes = collect(runs)
    write_records(folder, "records", curves.curve_records(schemes, [metric for metric, _ in PARTS]))
    draw(folder, "fig2", 2, 2, each(*(partial(paint, schemes, *part) for part in PARTS)))
    about, line = design_side(experiment, settings, folder)
    draw(folder, "frontier", 1, 1, each(partial(_paint_frontier, line)))
    claims = preset.targets["claims"]
    judged = [("accuracy", True), ("objective", False), ("cross_entropy", False)]
    verdicts = [one for metric, larger in judged for one in curves.judge(claims, schemes, metric, larger)]
    grids = [final_grid(schemes, experiment), curves.privacy_grid(schemes, next(iter(runs))), *about]
    publish(folder, preset, grids, verdicts, [*([SMOKE] if quick else []), *notes(measured, steps, runs)], console,
            measured=measured, step_sizes=steps)  # fmt: skip


def paint(schemes: list[Scheme], metric: str, label: str, axes: Any) -> None:
    curves.paint(schemes, metric, axes, label=label)
    if metric != "accuracy":
        axes.set_yscale("log")


def final_grid(schemes: list[Scheme], experiment: Experiment) -> Grid:
    """Accuracy, F and its parts, silence and clipping; means over deployments and seeds."""
    rows = []
    for scheme in schemes:
        last = {metric: list(values.values()) for metric, values in scheme.finals.items()}
        silent = np.mean([np.mean(s["silent_weight"]) for s in scheme.summaries.values()])
        rows.append([
            scheme.label, f"{step_size_of(experiment, scheme.label):g}",
            *(mean_sd(last[name]) for name in ("accuracy", "worst_client", "objective", "cross_entropy", "penalty")),
            f"{silent:.1%}", curves.eps_text(scheme),
        ])  # fmt: skip
    told = next(iter(schemes[0].summaries.values()))
    eps = f"ε (δ = {told['delta']:g}, {told['unit']}, {told['adjacency']}, {told['accountant']})"
    head = ("scheme", "step", "accuracy", "worst client", "F", "cross-entropy", "l2 part", "silent weight", eps)
    count = len(schemes[0].finals["accuracy"])
    return Grid(f"last five evaluations, mean ± sd over {count} pairs of deployment and seed", head, rows)


def notes(measured: Record, steps: dict[str, float], runs: dict[str, Path]) -> list[str]:
    """What a reader must know beside the numbers."""
    rho = ", ".join(f"{measured['rho_times_eta'] / step:.2g} at step {step:g}" for step in sorted(set(steps.values())))
    sigma = f", mini-batch variance {measured['sigma2']:.3g}" if measured["sigma2"] else ""
    return [
        f"measured at the start: kappa² = {measured['kappa2']:.3g}, L = {measured['L']:.3g}, largest gradient norm "
        f"{measured['largest_norm']:.3g} of G = {measured['G']:g}{sigma}; rho = {rho}",
        "F and cross-entropy on held-out images; step sizes tuned per scheme on a validation split by accuracy",
        "eps is what the common ledger charges: no privacy is claimed, and none should be expected",
        f"{len(runs)} deployments; one deployment is one placement of the devices",
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


# --- the design side ------------------------------------------------------------------------------------------------


def radio_of(experiment: Experiment, devices: int, seed: int) -> Radio:
    """The deployment as the designs see it; d drops out of them."""
    gains = placement(experiment.channel, devices, seed).mean_power_gain
    return Radio(gains, experiment.radio.energy(1), 2 * experiment.radio.noise_var(), 1)


def designs(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
            console: Console) -> None:  # fmt: skip
    """The design side alone: no data, no training."""
    settings = settings_of(path, overrides)
    folder.mkdir(parents=True, exist_ok=True)
    grids, line = design_side(load(find(settings["like"])), settings, folder)
    draw(folder, "frontier", 1, 1, each(partial(_paint_frontier, line)))
    publish(folder, preset, [*grids, frontier_grid(line)], [], [], console, settings=settings)


def frontier_grid(line: Frontier) -> Grid:
    """A few points of the frontier, from the least variance to no bias."""
    chosen = [0, *(int(np.argmin(np.abs(line.rho - rho))) for rho in (0.01, 0.1, 1.0, 10.0, 100.0)), len(line.rho) - 1]
    columns = zip(line.rho, line.bias, line.variance, line.kkt_residual)
    cells = [[f"{rho:.3g}", f"{bias:.4f}", f"{variance:.4f}", f"{kkt:.0e}"] for rho, bias, variance, kkt in columns]
    return Grid("frontier", ("rho", "bias N Σ(p − 1/N)²", "variance ζ/G²", "KKT residual"), [cells[i] for i in chosen])


def design_side(experiment: Experiment, settings: Record, folder: Path) -> tuple[list[Grid], Frontier]:
    """Yardsticks, solver times and the frontier of the first deployment."""
    number = settings["deployments"][0]
    first = load_channel(experiment, number)
    radio = radio_of(first, experiment.task.clients, number)
    grids = [yardsticks(radio), solvers(first, settings["sizes"])]
    span = settings["frontier"]
    rhos = np.concatenate([[0.0], np.geomspace(span["low"], span["high"], int(span["points"])), [np.inf]])
    line = frontier(radio, params_from_rho(1.0, 1.0), rhos)
    write_records(folder, "frontier", [
        {"rho": float(r), "bias": float(b), "variance": float(v), "kkt_residual": float(k)}
        for r, b, v, k in zip(line.rho, line.bias, line.variance, line.kkt_residual)
    ])  # fmt: skip
    return grids, line


def load_channel(experiment: Experiment, number: int) -> Experiment:
    import dataclasses

    return experiment.model_copy(update={"channel": dataclasses.replace(experiment.channel, placement_seed=number)})


def yardsticks(radio: Radio) -> Grid:
    """J_n of the optimum and of cheaper designs; the optimum is the least by construction, the ratios are the news."""
    rivals: dict[str, Callable[..., Any]] = {
        "best zero-bias": design_zero_bias, "common gamma": design_common_gamma, "least noise": design_min_noise,
    }  # fmt: skip
    rows = []
    for rho in DESIGN_RHO:
        par = params_from_rho(rho, 1.0)
        best = solve_exact(radio, par)
        others = [f"{make(radio, par).normal_objective / best.normal_objective:.2f}" for make in rivals.values()]
        rows.append([f"{rho:g}", f"{best.normal_objective:.4f}", f"{best.p.min():.3f} to {best.p.max():.3f}", *others])
    head = ("rho", "J_n, exact design", "levels p", *(f"{name} / exact" for name in rivals))
    return Grid("designs on the first deployment, noise factor 1/2", head, rows)


def solvers(experiment: Experiment, sizes: list[int]) -> Grid:
    """Exact solver against the published one (where cvxpy is installed), times of this run."""
    published = find_spec("cvxpy") is not None
    rows = []
    for devices, rho in product(sizes, (0.1, 1.0, 10.0)):
        radio, par = radio_of(experiment, devices, 0), params_from_rho(rho, 1.0)
        seconds, exact = timed(partial(solve_exact, radio, par))
        row = [str(devices), f"{rho:g}", f"{exact.iterations}", f"{1e3 * seconds:.2f} ms", f"{exact.kkt_residual:.1e}"]
        if published:
            seconds, sca = timed(partial(solve_sca, radio, par))
            gap = sca.normal_objective / exact.normal_objective - 1
            row += [f"{sca.iterations}", f"{1e3 * seconds:.0f} ms", f"{gap:.1e}", sca.status]
        rows.append(row)
    own, rival = ("exact: steps", "CPU time", "KKT residual"), ("SCA: iterations", "CPU time", "gap", "status")
    return Grid("solvers", ("devices", "rho", *own, *(rival if published else ())), rows)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of the second call; the first one warms up."""
    call()
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def _paint_frontier(line: Frontier, axes: Any) -> None:
    axes.plot(line.bias, line.variance, ".-", label="optimal designs, rho from 0 to inf")
    axes.set(xlabel="bias  N Σ (p − 1/N)²", ylabel="variance  ζ/G²")
    axes.legend()
