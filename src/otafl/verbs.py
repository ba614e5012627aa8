"""The verbs of the command line as functions: the same names, the same words, results as values.

run = otafl.run(task=task, model=net, schemes=["fedavg-dp", otafl.constant(rx_scale=0.3)], channel="cares", eps=8.0)
"""

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otafl.connect.executors import elsewhere
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.reports import compared, write_report
from otafl.reports.advice import write_advice
from otafl.reports.audits import FILES as AUDITED
from otafl.reports.audits import write_audit
from otafl.reports.run import Run
from otafl.reports.sweep import Sweep, run_and_write
from otafl.runs import runner
from otafl.runs.advice.value import Advice
from otafl.runs.advice.value import advise as give_advice
from otafl.runs.audit.audit import Audit
from otafl.runs.audit.audit import audit as attack_all
from otafl.runs.comparing.compare import question_from
from otafl.runs.described import changed, described, own_of
from otafl.runs.folder.disk import ready
from otafl.runs.planning.table import PlanTable
from otafl.runs.planning.table import plan as plan_all
from otafl.runs.presets import find
from otafl.runs.progress import of_a_call
from otafl.runs.schema import Experiment, load
from otafl.runs.sweep import axes_of


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

    Returns
    -------
    Run
        its `table`, `frame`, `card`, `plot`, `params`

    Examples
    --------
    >>> import otafl
    >>> run = otafl.run(task="digits", model="logistic", schemes=[otafl.constant(rx_scale=0.3)], channel="cares",
    ...                 eps=500.0, rounds=4, seeds=1)
    >>> bool(run.table.loc["constant", "eps"] < 500)
    True
    """
    said = {
        "task": task, "model": model, "schemes": schemes, "channel": channel, "rounds": rounds, "seeds": seeds,
        "eps": eps, "delta": delta, "accountant": accountant, "clients": clients, "clip_norm": clip_norm,
        "step_size": step_size, "max_energy": max_energy, "power_dbm": power_dbm, "noise_std": noise_std,
        "noise_dbm": noise_dbm, **keys,
    }  # fmt: skip
    live = of_a_call(progress)
    if resume is not None:
        others = [experiment, out, *(value for name, value in said.items() if name not in ("task", "model"))]
        if any(one is not None for one in others):
            raise InputError("resume takes all from the run folder; give no more than task and model with it")
        own = own_of(None, task, model)
        return _drawn(Run(runner.resume(validate.path("resume", resume), live, own), own))
    made = described(experiment, said, "otafl.run")
    if out is None:
        return Run(runner.start(made, _kept_for_now(), live), made.own)
    return _drawn(Run(runner.start(made, validate.path("out", out), live), made.own))


def plan(experiment: Any = None, *, agreement: float | None = None, **said: Any) -> PlanTable:
    """Plan and charge every scheme without training: rounds affordable, eps, noise, energy, figure of merit.

    Parameters
    ----------
    experiment, **said
        as for `otafl.run`; a task={"num_params": 9610, "clients": 20} will do, since nothing is trained
    agreement : float, optional
        norm of the mean of clipped messages over the clip norm, in (0, 1]; None guesses it from the samples

    Returns
    -------
    PlanTable
        `rows`, those that are `feasible`, and the `terms` and `notes` they rest on

    Examples
    --------
    >>> import otafl
    >>> made = otafl.plan(task={"num_params": 650, "clients": 20}, schemes=["fedavg-dp"], channel="cares", eps=8.0)
    >>> [row.label for row in made.feasible]
    ['fedavg-dp']
    """
    return plan_all(described(experiment, said, "otafl.plan"), agreement)


def compare(
    experiment: Any = None, *, trials: int | None = None, eps: float | Sequence[float] | None = None,
    out: str | Path | None = None, overrides: Sequence[str] = (), executor: Any = None, progress: bool = True,
    **said: Any,
) -> dict[float, Run]:  # fmt: skip
    """Compare schemes at each privacy target: the same clients, channels and seeds, settings by one rule for all.

    Parameters
    ----------
    experiment, **said
        as for `otafl.run`, own data and models too; a preset brings its privacy targets and its trials
    trials : int, optional
        None takes settings as they stand, 0 from plans alone, more are tried on a validation split
    eps : float or list of floats
        privacy targets
    out : path, optional
        the result folder, with the ranking in compare.json; default runs/compare-<name> for a file, else results live
        as long as this process
    overrides : list of str
        "key=value" each, of a file
    executor : optional
        where trials and targets run side by side, as for `otafl.sweep`
    progress : bool
        a live line on a terminal

    Returns
    -------
    dict of Run
        by privacy target; printed, the ranking

    Examples
    --------
    >>> import otafl
    >>> runs = otafl.compare(task="digits", model="logistic", schemes=["fedavg-dp", otafl.constant(rx_scale=0.3)],
    ...                      channel="cares", eps=500.0, rounds=2, seeds=2)
    >>> runs[500.0].labels
    ['fedavg-dp', 'constant']
    """
    path = find(experiment) if isinstance(experiment, str | Path) else None
    question = question_from(experiment if path is None else path, said, eps, trials, list(overrides))
    kept = Path("runs") / f"compare-{path.stem}" if path is not None else None
    folder = validate.path("out", out) if out is not None else kept or _kept_for_now()
    live = of_a_call(progress)
    with elsewhere(executor, progress=progress) as where:
        parts = compared.run_and_write(question, folder, live, where)
    return compared.Compared(parts, question.experiment.own)


def sweep(
    experiment: Any = None, over: Mapping[str, Sequence[Any]] | None = None, *, out: str | Path,
    executor: Any = "local", progress: bool = True, **said: Any,
) -> Sweep:  # fmt: skip
    """Run an experiment for every combination of some keys' values; called again, it goes on where it was.

    Parameters
    ----------
    experiment, **said
        as for `otafl.run`, but for data and models given in Python, which do not travel to other processes
    over : dict
        keys of an experiment file, with dots, and the values each takes: {"privacy.eps": [2, 8], "rounds": [50, 100]}
    out : path
        folder of the sweep: a run folder for every point, index.html over all of them. A cluster must share it
    executor : str or anything with submit(function, argument) -> Future
        "local", "local:4", "ray", "ray:ADDRESS", a `concurrent.futures` or submitit executor
    progress : bool
        say what is done

    Returns
    -------
    Sweep
        its `table`, `runs` and `failed`; points that fail do not stop the others

    Examples
    --------
    >>> import concurrent.futures, otafl, tempfile
    >>> with concurrent.futures.ThreadPoolExecutor(1) as here:  # in this process
    ...     found = otafl.sweep(None, {"rounds": [1, 2]}, out=tempfile.mkdtemp(), executor=here, progress=False,
    ...                         task="digits", model="logistic", schemes=["fedavg"], seeds=1)
    >>> found.table["rounds_mean"].tolist()
    [1.0, 2.0]
    """
    axes = axes_of(over)
    if said or isinstance(experiment, Mapping | Experiment) or experiment is None:
        made = described(experiment, said, "otafl.sweep")
        at = lambda values: changed(made, values, "otafl.sweep")  # noqa: E731
    else:
        path = find(experiment)
        at = lambda values: load(path, values)  # noqa: E731
    folder = validate.path("out", out)
    with elsewhere(executor, progress=progress) as where:
        assert where is not None
        run_and_write(folder, axes, at, where)
    return Sweep(folder)


def audit(
    experiment: Any = None, *, runs: int = 1000, only: list[str] | None = None, out: str | Path | None = None,
    executor: Any = None, **said: Any,
) -> Audit:  # fmt: skip
    """Attack the compiled round of every scheme with canaries: lower bounds on eps beside what was charged.

    Parameters
    ----------
    experiment, **said
        as for `otafl.run`; or a `Run`, or the folder of one, which is audited under what its own ledgers say
    runs : int
        of each world of each pattern
    only : list of labels, optional
        of the schemes to attack
    out : path, optional
        a folder for audit.html and audit.json
    executor : optional
        where schemes are attacked side by side, as for `otafl.sweep`

    Returns
    -------
    Audit
        verdicts; its `check()` raises PrivacyViolation where a charge was refuted

    Examples
    --------
    >>> import otafl
    >>> otafl.audit(task={"num_params": 20, "clients": 2}, schemes=["fedavg"], rounds=2, seeds=1, runs=10)
    fedavg: not attacked: charged ε = ∞: there is no promise to refute
    """
    done = experiment if isinstance(experiment, Run) else None
    is_folder = isinstance(experiment, str | Path) and validate.path("experiment", experiment).is_dir()
    if (done is not None or is_folder) and said:
        raise InputError(f"a run is audited as it was made; {', '.join(said)} cannot be given with it")
    what = done.folder if done is not None else Path(experiment) if is_folder else None
    own = None if done is None else done.own
    folder = None if out is None else validate.path("out", out)
    if folder is not None:
        ready(folder, *AUDITED)
    with elsewhere(executor, progress=False) as where:
        made = described(experiment, said, "otafl.audit") if what is None else what
        found = attack_all(made, runs, only, own=own, elsewhere=where)
    if folder is not None:
        write_audit(found, folder)
    return found


def advise(
    site: Any, num_params: int | None = None, eps: float | None = None, *, out: str | Path | None = None, **words: Any
) -> Advice:
    """Which scheme to use on a site at a privacy target, with which settings, and whether it is worth it.

    Parameters
    ----------
    site : path or int
        a CSV of devices, a deployment file (TOML), or a number of equal devices
    num_params : int
        size of the model, unless task= says it
    eps : float
        privacy target of the whole training
    out : path, optional
        a folder that gets advice.html, advice.toml and advice.json
    **words
        delta, rounds, task (an experiment file or a dict like one), weights, accountant, agreement, samples, radio

    Returns
    -------
    Advice
        its `sentence`, `best` option, whether that is `useful`, and the changes that would help

    Examples
    --------
    >>> import otafl
    >>> advice = otafl.advise(200, num_params=650, eps=8.0, rounds=50)
    >>> advice.useful, advice.best.name
    (True, 'constant')
    """
    folder = None if out is None else validate.path("out", out)
    advice = give_advice(site, num_params, eps, **words)
    if folder is not None:
        write_advice(advice, folder)
    return advice


def report(*runs: Run | str | Path, out: str | Path | None = None) -> Path:
    """Write the page of one run, or of several side by side, with print-quality plots beside it.

    Parameters
    ----------
    *runs : Run or path
        results, run folders, or folders of comparisons
    out : path, optional
        an HTML file or a folder; default report.html in the first run's folder

    Returns
    -------
    Path
        the page, which stands on its own

    Examples
    --------
    >>> import otafl
    >>> run = otafl.run(task="digits", model="logistic", schemes=["fedavg"], rounds=2, seeds=1)
    >>> otafl.report(run).name
    'report.html'
    """
    if not runs:
        raise InputError("give a run, or the folder of one")
    folders = [one.folder if isinstance(one, Run) else validate.path("run", one) for one in runs]
    return write_report(folders, None if out is None else validate.path("out", out))[0]


def _drawn(run: Run) -> Run:
    """A folder that stays gets its page."""
    write_report([run.folder])
    return run


def _kept_for_now() -> Path:
    """A folder that goes with the process."""
    place = Path(tempfile.mkdtemp(prefix="otafl-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place / "run"
