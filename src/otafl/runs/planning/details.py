"""`otafl plan SYSTEM FILE`: FILE is a planning file in the system's symbols, or any experiment file.

Of an experiment the planner is told what the policy of the run would be told: the same draws, limits and promises.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from otafl.core.errors import InputError
from otafl.core.files import naming, parse, read_toml
from otafl.runs import build
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.left import left_of, with_target
from otafl.runs.presets import find
from otafl.runs.schema import Experiment, assign, load, options_of
from otafl.runs.sites import bandwidth_of
from otafl.systems import SYSTEMS, planning, scheme

BLOCKS = ("scheme", "task", "privacy", "radio", "preset")  # tables that an experiment has and no planning file


def inputs_of(system: str, file: Path, overrides: list[str]) -> BaseModel:
    """What the planner of a system reads, from either kind of file, or a preset by name."""
    planner = planning.load(system)
    path = file if file.suffix else find(file)
    data = read_toml(path)
    if not any(isinstance(data.get(block), dict | list) for block in BLOCKS):
        for override in overrides:
            _put(planner.inputs, data, override)
        return parse(planner.inputs, data, path)
    with naming(path):
        asked = asked_of(load(path, overrides), system)
        keys = {name: value for name, value in planner.keys(asked).items() if value is not None}
    return parse(planner.inputs, keys | asked.own, path)


def _put(model: type[BaseModel], data: dict[str, Any], override: str) -> None:
    """Apply an override to a planning file, in place of what stands there under another name of the same key."""
    name, equals, value = override.partition("=")
    name, moved = name.strip(), getattr(model, "MOVED", {})
    table, _, entry = moved.get(name, "").partition(".")
    if isinstance(inside := data.get(table), dict):
        data, names = inside, {symbol: key.partition(".")[2] for symbol, key in moved.items() if key.startswith(table)}
        override = f"{entry}{equals}{value}"
        name = entry
    else:
        names = getattr(model, "SYMBOLS", {})
    key = names.get(name, name)
    for other in (key, *(symbol for symbol, known in names.items() if known == key)):
        if other != name:
            data.pop(other, None)
    assign(data, override)


def asked_of(experiment: Experiment, system: str) -> planning.Asked:
    """The first scheme of a system (or of that name) in an experiment, at the site of the first seed."""
    names = [*SYSTEMS[system].schemes] if system in SYSTEMS else [system]
    mine = [one for one in experiment.scheme if one.name in names]
    if not mine:
        known = ", ".join(names)
        raise InputError(f"no scheme of {system} in this experiment; add a [[scheme]] with one of the names {known}")
    wanted, count = mine[0], experiment.task.clients
    left = left_of(experiment.privacy, experiment.channel, experiment.horizon(wanted), count)
    experiment = with_target(experiment, left)
    facts = facts_of(experiment)
    told = build.told_of(experiment, wanted, build.clients_of(experiment, wanted, facts), facts, 0)
    receiver, error, planner = told[0].receiver, told[0].gain_error, planning.load(system)
    if receiver.antennas > 1 and not planner.antennas:
        raise InputError(
            f"channel.antennas={receiver.antennas}: the planner of {system} counts one antenna; `otafl plan FILE` "
            "charges all of them"
        )
    if error > 0 and not planner.errors:
        raise InputError(
            f"gain_error={error:g}: the planner of {system} counts channels that are known exactly; `otafl plan FILE` "
            "charges the error"
        )
    config: Any = options_of(wanted, scheme(wanted.name).config)
    return planning.Asked(wanted.name, config, *told, bandwidth_of(experiment), experiment.plan)
