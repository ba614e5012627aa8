"""The verbs of the command line as functions: the same names, the same words, results as values.

    run = otafl.run(task=task, model=net, schemes=["fedavg-dp", otafl.constant(rx_scale=0.3)], channel="cares", eps=8.0)
"""

import atexit
import dataclasses
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.report.run import Run
from otafl.runs.progress import Reporter, reporter
from otafl.runs.schema import Experiment, Own, load, resolved
from otafl.runs.schemes import Chosen, chosen
from otafl.tasks.models import Model
from otafl.tasks.own_data import OwnTask

FLAT = {  # keywords that stand in a table of the experiment file
    "eps": "privacy", "delta": "privacy", "accountant": "privacy", "max_energy": "radio", "power_dbm": "radio",
    "noise_std": "radio", "noise_dbm": "radio", "step_size": "server", "clip_norm": "clients",
}  # fmt: skip


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

    own = Own(task if isinstance(task, OwnTask) else None, model if isinstance(model, Model) else None)
    said = reporter(Console(stderr=True)) if progress else Reporter()
    if resume is not None:
        others = [experiment, schemes, channel, rounds, seeds, eps, clients, out, *keys.values()]
        if any(one is not None for one in others):
            raise InputError("resume takes all from the run folder; give no more than task and model with it")
        return Run(runner.resume(Path(resume), said, own), own)
    given = {name: value for name, value in locals().items() if name in FLAT and value is not None}
    keys |= {"channel": channel, "rounds": rounds, "seeds": seeds}
    made = _experiment(experiment, own, task, model, schemes, clients, given, keys)
    folder = Path(out) if out is not None else _kept_for_now()
    return Run(runner.start(made, folder, said), own)


def _experiment(
    start: Any, own: Own, task: Any, model: Any, schemes: Any, clients: Any, flat: dict[str, Any], keys: dict[str, Any]
) -> Experiment:
    """The experiment that a call describes, checked as a file is."""
    data = _start(start)
    data |= {name: value for name, value in keys.items() if value is not None}
    if clients is not None:
        data["clients"] = {"kind": clients} if isinstance(clients, str) else dict(clients)
    for name, value in flat.items():
        table = data.setdefault(FLAT[name], {"kind": "gradient"} if FLAT[name] == "clients" else {})
        data[FLAT[name]] = {**table, name: value}
    data["task"] = _task(data.get("task", {}), own, task, model)
    if schemes is not None:
        data["scheme"] = _schemes(schemes)
    if "scheme" not in data:
        raise InputError("give schemes: names such as 'fedavg-dp', or values such as otafl.constant(rx_scale=0.3)")
    return parse(Experiment, data, "otafl.run").bring(own)


def _start(experiment: Any) -> dict[str, Any]:
    """What to start from, as plain tables."""
    from otafl.runs.presets import find

    if experiment is None:
        return {}
    if isinstance(experiment, Mapping):
        return dict(experiment)
    if not isinstance(experiment, Experiment):
        experiment = load(find(Path(experiment)))
    return tomllib.loads(resolved(experiment))


def _task(table: Any, own: Own, task: Any, model: Any) -> dict[str, Any]:
    if own.task is not None:
        kept = {key: value for key, value in dict(table).items() if key == "model"}
        table = {**kept, **own.task.table()}
    elif isinstance(task, str):
        table = {**dict(table), "data": task}
    elif isinstance(task, Mapping):
        table = {**dict(table), **task}
    elif task is not None:
        raise InputError(f"task={task!r} must be otafl.task(...), the name of a data set or a table")
    if own.model is not None:
        return {**table, "model": {"name": "own"}}
    if isinstance(model, str):
        return {**table, "model": {"name": model}}
    if model is not None and not isinstance(model, Mapping):
        raise InputError(f"model={model!r} must be otafl.model(init, apply), a name or a table")
    return dict(table) if model is None else {**table, "model": dict(model)}


def _schemes(schemes: Any) -> list[dict[str, Any]]:
    """Tables of the schemes. Two that would share a name are told apart by their settings."""
    if isinstance(schemes, str | Chosen):
        schemes = [schemes]
    if isinstance(schemes, Mapping):
        return [{**_scheme(one), "label": str(label)} for label, one in schemes.items()]
    if not isinstance(schemes, Sequence):
        raise InputError(f"schemes={schemes!r} must be a list of schemes, or a dict of them by label")
    tables = [_scheme(one) for one in schemes]
    names = [table.get("label", table.get("name")) for table in tables]
    for table, one in zip(tables, schemes):
        if "label" not in table and names.count(table["name"]) > 1 and isinstance(one, Chosen):
            table["label"] = repr(one).removeprefix("otafl.")[:100]
    return tables


def _scheme(one: Any) -> dict[str, Any]:
    if isinstance(one, Mapping):
        return dict(one)
    made = chosen(one) if isinstance(one, Chosen) else None
    if made is None:
        validate.one_of("scheme", one, _names())
        return {"name": one}
    return {"name": made.name, **dataclasses.asdict(made.config)}


def _names() -> Any:
    from otafl import systems

    return systems.SCHEMES


def _kept_for_now() -> Path:
    """A folder that goes with the process."""
    place = Path(tempfile.mkdtemp(prefix="otafl-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place / "run"
