"""Experiments that travel to other processes and machines: as text, which every machine reads with its own otafl."""

import socket
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from otafl.core.errors import InputError, OtaflError
from otafl.core.files import parse
from otafl.runs import runner
from otafl.runs.board import Board
from otafl.runs.executors import Executor, Outcome, attempt, each
from otafl.runs.folder.disk import storage
from otafl.runs.interrupts import graceful_stop
from otafl.runs.schema import Experiment, Own, config_hash, resolved
from otafl.runs.workbench import Workbench


class NotDone(OtaflError):
    """Some tasks failed; `exit_code` is the gravest of theirs."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


class Elsewhere(NamedTuple):
    """Where tasks are done, and where that is told."""

    executor: Executor
    live: Board


class Task(NamedTuple):
    """One experiment and the folder it belongs into."""

    config: str
    sha256: str
    folder: str
    shared: str  # a folder that every machine must see


def task_of(experiment: Experiment, folder: Path, shared: Path) -> Task:
    """The task of an experiment; `shared` is there before any task is given out."""
    if experiment.own != Own():
        raise InputError("data and models given in Python stay in this process; give files and names")
    return Task(resolved(experiment), config_hash(experiment), str(folder.absolute()), str(shared.absolute()))


def arrived(task: Task) -> Experiment:
    """The experiment as this machine reads it; InputError where that is another one, or its folder is out of sight."""
    if not Path(task.shared).is_dir():
        here = socket.gethostname()
        raise InputError(f"{task.shared}: cannot be seen on {here}; use a folder that all machines share")
    experiment = parse(Experiment, tomllib.loads(task.config), task.folder)
    if config_hash(experiment) != task.sha256:
        raise InputError(f"{socket.gethostname()} reads the config otherwise; install the same otafl everywhere")
    return experiment


def run_point(task: Task) -> Outcome:
    """Run an experiment into its folder, or go on with it there; in a worker."""
    return attempt(lambda: str(runner.run_in(Path(task.folder), arrived(task))))


def finished(experiment: Experiment, folder: Path) -> bool:
    """Whether a folder holds this experiment, run to its end; InputError where it holds another, or a damaged one.

    Whoever says that a task is done is not believed: workers, and what they share, get mixed up.
    """
    run = runner.held_in(folder, experiment, Workbench())
    return all(place.finished for place in run.verified())


def confirm(experiment: Experiment, folder: Path) -> None:
    """InputError unless `finished`, after a worker has said so."""
    if not finished(experiment, folder):
        raise InputError(f"{folder}: its worker said that it is done, and it is not; call again to go on")


def values_of(
    executor: Executor, function: Callable[[Any], Outcome], tasks: Mapping[str, Any], live: Board
) -> dict[str, Any]:
    """What every task returned; all are tried, then NotDone is raised for those that failed."""
    found: dict[str, Outcome] = {}
    with graceful_stop() as stop:
        for name, outcome in each(executor, function, tasks, stop, live.note):
            found[name] = outcome
            live.told(name, outcome, len(found), len(tasks))
    check(found)
    return {name: found[name].value for name in tasks}


def check(outcomes: Mapping[str, Outcome]) -> None:
    """NotDone where a task failed, with every reason and the gravest exit code."""
    failed = {name: outcome for name, outcome in outcomes.items() if not outcome.done}
    if failed:
        said = "; ".join(f"{name}: {outcome.said} (exit code {outcome.exit_code})" for name, outcome in failed.items())
        gravest = max(outcome.exit_code for outcome in failed.values())
        raise NotDone(f"{len(failed)} of {len(outcomes)} not done: {said}", gravest)


def made(folder: Path) -> Path:
    """A folder that is there."""
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder
