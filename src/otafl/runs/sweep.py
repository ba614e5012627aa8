"""A sweep: every combination of some keys' values is a run of its own, in one folder, on any executor.

    SWEEP/sweep.json               what was asked for, and what became of every point
    SWEEP/points/<point>-<hash>/   its run folder: the hash is that of its config
    SWEEP/index.html, index.md, table.csv, metric.svg

A point is its resolved config. Called again, a sweep goes on: finished points are compared with their seals and used,
interrupted ones go on from their checkpoints, failed ones are tried again. More values, later, add points.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from otafl.core.errors import InputError
from otafl.core.files import as_toml, slug, to_json, write_atomic
from otafl.core.validate import shown
from otafl.runs.board import Board
from otafl.runs.executors import DONE, Executor, Outcome, each
from otafl.runs.folder.disk import locked, storage
from otafl.runs.folder.sealed import read_sealed, reading, with_seal
from otafl.runs.folder.shapes import Count, Label, Said, Text, check
from otafl.runs.folder.store import RunFolder
from otafl.runs.interrupts import graceful_stop
from otafl.runs.remote import confirm, finished, run_point, task_of
from otafl.runs.schema import Experiment, config_hash

FILE = "sweep.json"
MOST = 10_000  # points of one sweep
OPEN, CLOSE = "[{(", "]})"


class Point(NamedTuple):
    """One run of a sweep."""

    values: dict[str, str]  # of the swept keys, as they were written
    folder: Path
    experiment: Experiment

    @property
    def name(self) -> str:
        return point_name(self.values)


def point_name(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def axis(text: str) -> tuple[str, list[str]]:
    """A key and its values out of `key=a,b,c`; commas inside brackets and quotes belong to a value.

    >>> axis("privacy.eps=2, 8"), axis('task.data={name="mnist",size=2},digits')
    (('privacy.eps', ['2', '8']), ('task.data', ['{name="mnist",size=2}', 'digits']))
    """
    key, separator, rest = text.partition("=")
    if not separator or not key.strip() or not rest.strip():
        raise InputError(f"-m {text!r} must have the form key=value,value,...")
    values, depth, quote = [""], 0, ""
    for letter in rest:
        quote = "" if letter == quote else quote or (letter if letter in "\"'" else "")
        depth += 0 if quote else (letter in OPEN) - (letter in CLOSE)
        if letter == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += letter
    if any(not value.strip() for value in values):
        raise InputError(f"-m {text!r}: a value is empty")
    return key.strip(), [value.strip() for value in values]


def axes_of(over: Any) -> dict[str, list[str]]:
    """Keys and their values out of a dict as Python has it.

    >>> axes_of({"privacy.eps": [2, 8], "channel": ["cares"]})
    {'privacy.eps': ['2', '8'], 'channel': ['"cares"']}
    """
    if over is not None and not isinstance(over, Mapping):
        raise InputError(f"over={shown(over)} must be a dict of keys and the values each takes")
    for key, values in (over or {}).items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"over: {key}={shown(values)} must be a list of values")
    return {key: [as_toml(value) for value in values] for key, values in (over or {}).items()}


def points(folder: Path, axes: Mapping[str, Sequence[str]], made: Callable[[list[str]], Experiment]) -> list[Point]:
    """Every combination, in the order of the keys as written; `made` gives the experiment of some `key=value`."""
    if not axes:
        raise InputError("give keys to sweep over: -m key=value,value,... (see otafl sweep --help)")
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST:
        raise InputError(f"{count:,} points are more than {MOST:,}; sweep over less at a time")
    found: dict[str, Point] = {}
    for combination in itertools.product(*axes.values()):
        chosen = dict(zip(axes, combination))
        experiment = made([f"{key}={value}" for key, value in chosen.items()])
        config = config_hash(experiment)
        named = slug("-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in chosen.items()))[:60].strip("-.")
        point = Point(chosen, folder / "points" / f"{named}-{config[:8]}", experiment)
        if config in found:
            raise InputError(f"{point.name} is the same experiment as {found[config].name}; leave one of them out")
        found[config] = point
    return list(found.values())


def run_all(
    found: list[Point], folder: Path, executor: Executor, live: Board, after: Callable[[], Any] = lambda: None
) -> dict[str, Outcome]:
    """Run what is not done; returns what became of every point. One that fails does not stop the others.

    `after` is called whenever `sweep.json` has changed.
    """
    with locked(folder), graceful_stop() as stop:
        outcomes: dict[str, Outcome] = {}
        _write(folder, found, outcomes)
        for point in found:
            if (outcome := verified(point)) is not None:
                outcomes[point.name] = outcome
                live.told(point.name, outcome, len(outcomes), len(found))
        _write(folder, found, outcomes)
        after()
        left = {
            point.name: task_of(point.experiment, point.folder, folder) for point in found if point.name not in outcomes
        }
        named = {point.name: point for point in found}
        for name, said in each(executor, run_point, left, stop, live.note):
            outcomes[name] = outcome = _confirmed(named[name], said)
            if outcome.fault:
                write_atomic(folder / "faults.txt", _faults(outcomes))
            live.told(name, outcome, len(outcomes), len(found))
            _write(folder, found, outcomes)
            after()
    return outcomes


def verified(point: Point) -> Outcome | None:
    """A point that needs no run: done before and as it was sealed, or not to be touched. None: to be run."""
    if not (point.folder / "manifest.json").exists():
        return None
    try:
        return Outcome(DONE) if finished(point.experiment, point.folder) else None
    except InputError as refusal:
        return Outcome(str(refusal), refusal.exit_code)


def _confirmed(point: Point, said: Outcome) -> Outcome:
    """What a worker says of a point, if its folder says so too."""
    try:
        if said.done:
            confirm(point.experiment, point.folder)
    except InputError as refusal:
        return said._replace(said=str(refusal), exit_code=refusal.exit_code)
    return said


class Told(Said):
    """One point in `sweep.json`."""

    values: dict[Label, Text]
    folder: Annotated[Text, Field(pattern=r"^points/[^/\\]+-[0-9a-f]{8}$")]
    outcome: Text
    exit_code: Count


class Index(Said):
    """`sweep.json`."""

    keys: Annotated[list[Label], Field(min_length=1)]
    points: Annotated[list[Told], Field(min_length=1)]


def read(folder: Path) -> list[dict[str, Any]]:
    """Points of a sweep's folder: values, folder, outcome, exit code."""
    mend = "call otafl sweep again with the same arguments"
    with reading(folder / FILE, mend):
        told = check(Index, read_sealed(folder / FILE, mend))
        if any(list(point["values"]) != told["keys"] for point in told["points"]):
            raise ValueError("a point has other keys than the sweep")
        return list(told["points"])


def run_of_point(folder: Path, point: Mapping[str, Any]) -> Path:
    """The run folder of a point that is done; InputError where another run lies in its place."""
    place = folder / str(point["folder"])
    if not place.name.endswith(RunFolder.open(place).config[:8]):
        raise InputError(f"{place}: is the run of another point; remove it and call otafl sweep again")
    return place


def _write(folder: Path, found: list[Point], outcomes: Mapping[str, Outcome]) -> None:
    entries = []
    for point in found:
        outcome = outcomes.get(point.name)
        said = {"outcome": "open", "exit_code": 0} if outcome is None else {
            "outcome": outcome.said, "exit_code": outcome.exit_code,
        }  # fmt: skip
        entries.append({"values": point.values, "folder": str(point.folder.relative_to(folder)), **said})
    with storage(folder):
        write_atomic(folder / FILE, to_json(with_seal({"keys": list(found[0].values), "points": entries})))


def _faults(outcomes: Mapping[str, Outcome]) -> str:
    return "\n".join(f"{name}\n{outcome.fault}" for name, outcome in outcomes.items() if outcome.fault)


def number(text: str) -> float | None:
    """A value as a number, where it is one.

    >>> number("1e-3"), number("mnist"), number("true")
    (0.001, None, None)
    """
    return float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) else None
