"""The verbs of the command line as functions: the same names, the same words, results as values.

run = otafl.run(task=task, model=net, schemes=["fedavg-dp", otafl.constant(rx_scale=0.3)], channel="cares", eps=8.0)
"""

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

from otafl.core.errors import InputError
from otafl.report import write_report
from otafl.report.run import Run
from otafl.runs.described import described, own_of
from otafl.runs.plan import PlanTable
from otafl.runs.plan import plan as plan_all
from otafl.runs.progress import Reporter, reporter


def run(
    experiment: Any = None, *, task: Any = None, model: Any = None, schemes: Any = None, channel: Any = None,
    rounds: int | None = None, seeds: Any = None, eps: float | None = None, delta: float | None = None,
    accountant: str | None = None, clients: Any = None, clip_norm: float | None = None, step_size: float | None = None,
    max_energy: float | None = None, power_dbm: float | None = None, noise_std: float | None = None,
    noise_dbm: float | None = None, out: str | Path | None = None, resume: str | Path | None = None,
    progress: bool = True, **keys: Any,
) -> Run:  # fmt: skip
    """Train every scheme on the same data, channels and seeds, and return the results.

    Parameters
    ----------
    experiment : path, preset's name, dict or Experiment, optional
        where to start from; the keywords below replace what it says
    task : `otafl.task(...)`, the name of a data set, or a [task] table
        what is learned, from whose data
    model : `otafl.model(...)`, a name of `otafl list models`, or a table
        what is trained
    schemes : list of names, scheme values or tables; or a dict of them by label
        `otafl.constant(rx_scale=0.3)`, your own, "fedavg-dp"
    channel : str, dict or Channel
        a published channel's name or a description
    rounds, seeds : int
        the horizon, which a budget may end before; how many seeds (or which)
    eps, delta, accountant
        the privacy target, a cap; without eps everything is counted and nothing is stopped
    clients, clip_norm
        what clients send: a kind or a table, and the bound on it
    step_size : float
        of the server
    max_energy, noise_std; power_dbm, noise_dbm
        the radio: of the whole vector, or per symbol
    out : path, optional
        the run folder; without it results live as long as this process, or until `run.save`
    resume : path
        continue an interrupted run; with the same task and model, where these were given in Python
    progress : bool
        a live line on a terminal
    **keys
        any other key of an experiment file: devices, radio, server, privacy, engine, evaluate_every, outside, title

    Examples
    --------
    >>> import otafl
    >>> run = otafl.run(task="digits", model="logistic", schemes=[otafl.constant(rx_scale=0.3)], channel="cares",
    ...                 eps=500.0, rounds=4, seeds=1)
    >>> bool(run.table.loc["constant", "eps"] < 500)
    True
    """
    from rich.console import Console

    from otafl.runs import runner

    said = {
        "task": task, "model": model, "schemes": schemes, "channel": channel, "rounds": rounds, "seeds": seeds,
        "eps": eps, "delta": delta, "accountant": accountant, "clients": clients, "clip_norm": clip_norm,
        "step_size": step_size, "max_energy": max_energy, "power_dbm": power_dbm, "noise_std": noise_std,
        "noise_dbm": noise_dbm, **keys,
    }  # fmt: skip
    live = reporter(Console(stderr=True)) if progress else Reporter()
    if resume is not None:
        others = [experiment, out, *(value for name, value in said.items() if name not in ("task", "model"))]
        if any(one is not None for one in others):
            raise InputError("resume takes all from the run folder; give no more than task and model with it")
        own = own_of(None, task, model)
        return _drawn(Run(runner.resume(Path(resume), live, own), own))
    made = described(experiment, said, "otafl.run")
    if out is None:
        return Run(runner.start(made, _kept_for_now(), live), made.own)
    return _drawn(Run(runner.start(made, Path(out), live), made.own))


def plan(experiment: Any = None, *, agreement: float | None = None, **said: Any) -> PlanTable:
    """Plan and charge every scheme without training: rounds affordable, eps, noise, energy, figure of merit.

    Parameters
    ----------
    experiment, **said
        as for `otafl.run`; a task={"num_params": 9610, "clients": 20} will do, since nothing is trained
    agreement : float, optional
        norm of the mean of clipped messages over the clip norm, in (0, 1]; None guesses it from the samples

    Examples
    --------
    >>> import otafl
    >>> made = otafl.plan(task={"num_params": 650, "clients": 20}, schemes=["fedavg-dp"], channel="cares", eps=8.0)
    >>> [row.label for row in made.feasible]
    ['fedavg-dp']
    """
    return plan_all(described(experiment, said, "otafl.plan"), agreement)


def _drawn(run: Run) -> Run:
    """A folder that stays gets its page."""
    write_report([run.folder])
    return run


def _kept_for_now() -> Path:
    """A folder that goes with the process."""
    place = Path(tempfile.mkdtemp(prefix="otafl-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place / "run"
