"""What bias-variance designs promise without training: yardsticks, solver times and the frontier of one deployment."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from otafl.channels import place as placement
from otafl.reproductions.findings import Grid, draw
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.presets import find
from otafl.runs.schema import Experiment, load
from otafl.systems.biasvar.design import Radio, params_from_rho, solve_exact
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.tradeoff import Frontier, frontier
from otafl.systems.biasvar.yardsticks import design_common_gamma, design_min_noise, design_zero_bias

DESIGN_RHO = (0.05, 0.2, 1.0, 4.0)


def radio_of(experiment: Experiment, devices: int, seed: int) -> Radio:
    """The deployment as the designs see it; d drops out of them."""
    gains = placement(experiment.channel, devices, seed).mean_power_gain
    return Radio(gains, experiment.radio.energy(1), 2 * experiment.radio.noise_var(), 1)


def designs(job: Reproduction) -> None:
    """The design side alone: no data, no training."""
    settings = job.settings
    grids, line = design_side(job, load(find(settings["like"])))
    draw(job.folder, "frontier", 1, 1, partial(paint_frontier, line))
    job.publish([*grids, frontier_grid(line)], [], [], settings=settings)


def frontier_grid(line: Frontier) -> Grid:
    """A few points of the frontier, from the least variance to no bias."""
    chosen = [0, *(int(np.argmin(np.abs(line.rho - rho))) for rho in (0.01, 0.1, 1.0, 10.0, 100.0)), len(line.rho) - 1]
    columns = zip(line.rho, line.bias, line.variance, line.kkt_residual)
    cells = [[f"{rho:.3g}", f"{bias:.4f}", f"{variance:.4f}", f"{kkt:.0e}"] for rho, bias, variance, kkt in columns]
    return Grid("frontier", ("rho", "bias N Σ(p − 1/N)²", "variance ζ/G²", "KKT residual"), [cells[i] for i in chosen])


def design_side(job: Reproduction, experiment: Experiment) -> tuple[list[Grid], Frontier]:
    """Yardsticks, solver times and the frontier of the first deployment."""
    settings, number = job.settings, job.settings["deployment"]
    first = load_channel(experiment, number)
    radio = radio_of(first, experiment.task.clients, number)
    grids = [yardsticks(radio), solvers(first, settings["sizes"])]
    span = settings["frontier"]
    rhos = np.concatenate([[0.0], np.geomspace(span["low"], span["high"], int(span["points"])), [np.inf]])
    line = frontier(radio, params_from_rho(1.0, 1.0), rhos)
    job.record([
        {"rho": float(r), "bias": float(b), "variance": float(v), "kkt_residual": float(k)}
        for r, b, v, k in zip(line.rho, line.bias, line.variance, line.kkt_residual)
    ], "frontier")  # fmt: skip
    return grids, line


def load_channel(experiment: Experiment, number: int) -> Experiment:
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


def paint_frontier(line: Frontier, panels: list[Any]) -> None:
    (axes,) = panels
    axes.plot(line.bias, line.variance, ".-", label="optimal designs, rho from 0 to inf")
    axes.set(xlabel="bias  N Σ (p − 1/N)²", ylabel="variance  ζ/G²")
    axes.legend()
