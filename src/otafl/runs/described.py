"""From a call to an experiment: the keywords of `otafl.run` and its like as the tables of an experiment file."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otafl import systems
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.runs.presets import find
from otafl.runs.schema import Experiment, Own, load, override_all, resolved
from otafl.runs.schemes import Chosen, chosen
from otafl.tasks.models import Model
from otafl.tasks.own_data import OwnTask

FLAT = {  # keywords that stand in a table of the experiment file
    "eps": "privacy", "delta": "privacy", "accountant": "privacy", "max_energy": "radio", "power_dbm": "radio",
    "noise_std": "radio", "noise_dbm": "radio", "step_size": "server", "clip_norm": "clients",
}  # fmt: skip


def own_of(start: Any, task: Any, model: Any) -> Own:
    """What was given as a value: by keyword, or by the experiment to start from."""
    before = start.own if isinstance(start, Experiment) else Own()
    return Own(
        task if isinstance(task, OwnTask) else before.task if task is None else None,
        model if isinstance(model, Model) else before.model if model is None else None,
    )


def described(start: Any, said: dict[str, Any], verb: str) -> Experiment:
    """The experiment that a call of this verb describes, checked as a file is; None leaves a keyword out."""
    given = {name: value for name, value in said.items() if value is not None}
    known = [*FLAT, *Experiment.model_fields, "schemes", "model"]
    if unknown := [name for name in given if name not in known]:
        raise InputError(f"{verb}: {unknown[0]}: unknown key{validate.meant(unknown[0], known)}")
    task, model, schemes, clients = (given.pop(name, None) for name in ("task", "model", "schemes", "clients"))
    own = own_of(start, task, model)
    data = _start(start) | {name: value for name, value in given.items() if name not in FLAT}
    if clients is not None:
        if not isinstance(clients, str | Mapping):
            found = f"{verb}: clients={validate.shown(clients)}"
            raise InputError(f"{found} must be what they send, a kind or a table; how many there are, the task says")
        data["clients"] = {"kind": clients} if isinstance(clients, str) else dict(clients)
    for name in FLAT:
        if name in given:
            table = data.get(FLAT[name], {"kind": "gradient"} if FLAT[name] == "clients" else {})
            data[FLAT[name]] = {**_table(verb, FLAT[name], table), name: given[name]}
    data["task"] = _task(_table(verb, "task", data.get("task", {})), own, task, model)
    if schemes is not None:
        data["scheme"] = _schemes(schemes)
    if "scheme" not in data:
        raise InputError("give schemes: names such as 'fedavg-dp', or values such as otafl.constant(rx_scale=0.3)")
    return parse(Experiment, data, verb).bring(own)


def changed(experiment: Experiment, overrides: Sequence[str], verb: str) -> Experiment:
    """The experiment with some `key=value` replaced."""
    data = tomllib.loads(resolved(experiment))
    override_all(data, overrides)
    return parse(Experiment, data, verb).bring(experiment.own)


def _table(verb: str, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{verb}: {name}={validate.shown(value)} must be a table")
    return value


def _start(experiment: Any) -> dict[str, Any]:
    """What to start from, as plain tables."""
    if experiment is None:
        return {}
    if isinstance(experiment, Mapping):
        return dict(experiment)
    if isinstance(experiment, str | Path):
        experiment = load(find(Path(experiment)))
    if not isinstance(experiment, Experiment):
        found = f"experiment={validate.shown(experiment)}"
        raise InputError(f"{found} must be a file, a preset's name, a dict or an Experiment; data go by task=...")
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
        raise InputError(f"task={validate.shown(task)} must be otafl.task(...), the name of a data set or a table")
    if own.model is not None:
        return {**table, "model": {"name": "own"}}
    if isinstance(model, str):
        return {**table, "model": {"name": model}}
    if model is not None and not isinstance(model, Mapping):
        raise InputError(f"model={validate.shown(model)} must be otafl.model(init, apply), a name or a table")
    return dict(table) if model is None else {**table, "model": dict(model)}


def _schemes(schemes: Any) -> list[dict[str, Any]]:
    """Tables of the schemes. Two that would share a name are told apart by their settings."""
    if isinstance(schemes, str | Chosen):
        schemes = [schemes]
    if isinstance(schemes, Mapping):
        named = {label if isinstance(label, str) else validate.shown(label): one for label, one in schemes.items()}
        return [{**_scheme(one), "label": label} for label, one in named.items()]
    if not isinstance(schemes, Sequence):
        raise InputError(f"schemes={validate.shown(schemes)} must be a list of schemes, or a dict of them by label")
    tables = [_scheme(one) for one in schemes]
    names = [table.get("label", table.get("name")) for table in tables]
    for table in tables:
        alike = [other for other in tables if other.get("name") == table.get("name")]
        if "label" not in table and names.count(table.get("name")) > 1:
            told = [f"{key}={table[key]}" for key in table if any(other.get(key) != table[key] for other in alike)]
            table["label"] = f"{table['name']} ({', '.join(told)})"[:100]
    return tables


def _scheme(one: Any) -> dict[str, Any]:
    if isinstance(one, Mapping):
        return dict(one)
    if not isinstance(one, str):
        one = chosen(one)
        return {"name": one.name, **dataclasses.asdict(one.config)}
    validate.one_of("scheme", one, systems.SCHEMES)
    return {"name": one}
