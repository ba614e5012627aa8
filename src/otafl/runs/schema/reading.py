"""Experiments from files and back: overrides, paths, the resolved config and its hash."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from otafl.channels import PUBLISHED
from otafl.core.errors import InputError
from otafl.core.files import leaves, parse, read_toml
from otafl.core.validate import shown
from otafl.runs.schema.blocks import WITH_DATA, Task
from otafl.runs.schema.experiment import Experiment
from otafl.tasks.features import DataOptions

CHOICES: dict[str, dict[str, str]] = {  # what a name may stand for, with its default; the channel's is no choice
    "channel": {},
    "clients": Experiment.model_fields["clients"].default,
    "task.data": {"name": DataOptions().name},
    "task.model": Task.model_fields["model"].default,
    "task.partition": Task.model_fields["partition"].default,
}


def load(path: Path, overrides: list[str] | None = None) -> Experiment:
    """Read an experiment file, apply `key=value` overrides, resolve paths beside it, and check it all."""
    path = Path(path)
    use = f'otafl advise takes it, and an experiment names it by devices = "{path.name}"'
    if path.suffix.lower() == ".csv":
        raise InputError(f"{path}: is a table and no experiment; if it lists devices, {use}")
    data = read_toml(path)
    about = data.get("preset")
    others = about.get("experiment") if isinstance(about, dict) else None
    if isinstance(others, str):  # a figure of another preset's runs
        data = {**read_toml(path.parent / f"{others}.toml"), **data}
    if "scheme" not in data and ("device" in data or "devices_file" in data):
        raise InputError(f"{path}: lists devices and no scheme; {use}")
    override_all(data, overrides or [])
    for place in ("devices", "task.data.path", "privacy.already_spent", "channel.trace.file"):
        *outer, key = place.split(".")
        table: Any = data
        for part in outer:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = os.path.normpath(path.parent.absolute() / table[key])
    experiment = parse(Experiment, data, path)
    if experiment.devices is None or "clients" in experiment.task.model_fields_set:
        return experiment
    from otafl.runs.sites import devices_of

    data.setdefault("task", {})["clients"] = len(devices_of(experiment).devices.names)
    return parse(Experiment, data, path)


def override_all(data: dict[str, Any], overrides: Sequence[str]) -> None:
    """Apply overrides to an experiment. What a name or a default chooses is a table to them: `channel.antennas=3`
    keeps the named channel, `task.model.hidden=[64]` the default model, and `clients=per-sample` is a kind of clients.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        for place in CHOICES:
            if key.startswith(f"{place}."):
                _spell_out(data, place, CHOICES[place])
        assign(data, override)
        if key in CHOICES:
            _spell_out(data, key, CHOICES[key])


def _spell_out(data: dict[str, Any], place: str, default: dict[str, str]) -> None:
    """A choice by its name, or by default, becomes the table that it stands for."""
    *outer, key = place.split(".")
    table: Any = data
    for part in outer:
        table = table.setdefault(part, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        return  # `assign` and the schema say what is wrong
    chosen = table.get(key, dict(default))
    if place == "channel" and isinstance(chosen, str):
        chosen = _tomlable(PUBLISHED[chosen]) if chosen in PUBLISHED else chosen
    table[key] = {next(iter(default)): chosen} if default and isinstance(chosen, str) else chosen


def assign(data: dict[str, Any], override: str, option: str = "--set") -> None:
    """Apply one override such as `rounds=50`, `task.model.hidden=[64]` or `scheme.0.rx_scale=0.4`.

    >>> config = {"scheme": [{"name": "constant"}]}
    >>> assign(config, "scheme.0.rx_scale=0.4"); assign(config, "task.data=mnist"); config
    {'scheme': [{'name': 'constant', 'rx_scale': 0.4}], 'task': {'data': 'mnist'}}
    """
    import tomllib

    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise InputError(f"{option} {shown(override)} must have the form key=value")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        value = text.strip()  # a bare word is a string
    node: Any = data
    parts = key.strip().split(".")
    for part in parts[:-1]:
        node = _step(node, part, override)
    if isinstance(node, list):
        node[_index(node, parts[-1], override)] = value
    elif isinstance(node, dict):
        node[parts[-1]] = value
    else:
        raise InputError(f"--set {shown(override)}: {'.'.join(parts[:-1])} is a value, not a table")


def _step(node: Any, part: str, override: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, override)]
    if not isinstance(node, dict):
        raise InputError(f"--set {shown(override)}: {shown(part)} stands inside a value, not a table")
    return node.setdefault(part, {})


def _index(node: list[Any], part: str, override: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) < 10) or int(part) >= len(node):
        raise InputError(f"--set {shown(override)}: {shown(part)} must be a position from 0 to {len(node) - 1}")
    return int(part)


def resolved(experiment: Experiment) -> str:
    """The whole config as TOML, defaults included; reads back to the same experiment."""
    return tomli_w.dumps(_plain(experiment))


def _plain(experiment: Experiment) -> dict[str, Any]:
    """Tables, lists and numbers; a task that is declared by its size has no data and no model to show."""
    data: dict[str, Any] = _tomlable(experiment.model_dump(exclude_none=True))
    if experiment.task.num_params is not None:
        data["task"] = {key: value for key, value in data["task"].items() if key not in WITH_DATA}
    return data


def extreme_numbers(experiment: Experiment) -> str:
    """The keys of an experiment whose numbers are furthest from 1: where a numerical failure comes from, mostly."""
    found = {key: value for key, value in leaves(_plain(experiment)) if isinstance(value, float) and value != 0}
    far = sorted(found, key=lambda key: -abs(np.log10(abs(found[key]))))[:2]
    return ", ".join(f"{key}={found[key]:g}" for key in far)


def config_hash(experiment: Experiment) -> str:
    """What tells one resolved experiment from another; a run's manifest has it."""
    return hashlib.sha256(resolved(experiment).encode()).hexdigest()


def _tomlable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tomlable(item) for key, item in value.items() if item is not None}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _tomlable(dataclasses.asdict(value))
    if isinstance(value, list | tuple):
        return [_tomlable(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return value
