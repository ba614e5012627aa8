"""Running an experiment: all its schemes, into one folder. Pages are drawn by `report`, above.

The same config and seeds give the same bytes, whether or not the run was interrupted in between.
"""

from datetime import UTC, datetime
from pathlib import Path

from otafl import systems
from otafl.core.errors import BudgetExceeded, InputError, Interrupted
from otafl.core.files import sweep
from otafl.runs import build, doctor, limits
from otafl.runs.beside import named_by
from otafl.runs.compilation import use_compilation_cache
from otafl.runs.execution import Execution
from otafl.runs.folder.disk import locked, storage
from otafl.runs.folder.store import RunFolder
from otafl.runs.interrupts import GOES_ON, graceful_stop
from otafl.runs.lanes import run_all
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, Own, config_hash, load, resolved
from otafl.runs.streamed.choice import goes_by
from otafl.runs.streamed.execution import StreamedExecution
from otafl.runs.workbench import Workbench


def default_folder(name: str) -> Path:
    """runs/<name>, or the first free runs/<name>-2, -3, ..."""
    folder, number = Path("runs") / name, 1
    while (folder / "manifest.json").exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def start(
    experiment: Experiment, path: Path, reporter: Reporter | None = None, shared: Workbench | None = None
) -> Path:
    """Run an experiment into a new folder; returns the folder. All schemes are planned before the folder is made."""
    config, reporter, shared = resolved(experiment), reporter or Reporter(), shared or Workbench()
    RunFolder.free(path, config)
    task = _task(experiment, shared)
    files = named_by(experiment)
    folder = RunFolder(path, config_hash(experiment), task.sources, files)
    executions = _prepare(experiment, task, folder, reporter)
    refuse_all_unaffordable(executions)
    manifest = {
        "title": experiment.title,
        "schemes": experiment.labels,
        "seeds": experiment.seed_list,
        "created": datetime.now(UTC).date().isoformat(),  # a day: what one machine runs twice has the same bytes
        "data": task.sources,
        "files": files,
        "parameters": task.model.num_params,
        "versions": doctor.versions(),
        "machine": doctor.machine(),
    }
    with locked(folder.path):
        return _run(RunFolder.create(path, config, manifest), executions, reporter, shared)


def resume(
    path: Path, reporter: Reporter | None = None, own: Own | None = None, shared: Workbench | None = None
) -> Path:
    """Continue a run to the same bytes as if it had never stopped; what was its `own` must be given again."""
    folder, reporter, shared = RunFolder.open(path), reporter or Reporter(), shared or Workbench()
    with locked(folder.path):
        with storage(folder.path):
            sweep(folder.path)
        experiment = load(folder.path / "config.toml").bring(own or Own())
        if config_hash(experiment) != folder.config:
            raise InputError(f"{path}/config.toml: is read otherwise by this version; start a new run instead")
        folder.check_files(named_by(experiment))
        task = _task(experiment, shared)
        _refuse_another(task, folder)
        executions = _prepare(experiment, task, folder, reporter)
        return _run(folder, executions, reporter, shared)


def run_in(
    folder: Path, experiment: Experiment, reporter: Reporter | None = None, shared: Workbench | None = None
) -> Path:
    """Run into this folder: a finished run is used as it is, an interrupted one goes on; another one is refused."""
    shared = shared or Workbench()
    begun = (folder / "manifest.json").exists()
    if begun:
        found = held_in(folder, experiment, shared)
        if all(found.scheme(label).finished for label in found.labels()):
            return folder
    try:
        if not begun:
            return start(experiment, folder, reporter, shared)
        return resume(folder, reporter, experiment.own, shared)
    except Interrupted:  # the command that asked for this run is the one to repeat
        raise Interrupted(GOES_ON) from None


def held_in(folder: Path, experiment: Experiment, shared: Workbench) -> RunFolder:
    """The run in a folder; InputError unless it is of this experiment, with files, code, data and model as they were.

    Data and models that were given in Python, or in a file, stand in a config by their kind alone.
    """
    found = RunFolder.open(folder)
    if found.config != config_hash(experiment):
        raise InputError(f"{folder}: holds a run with other settings; use another folder")
    found.check_files(named_by(experiment))
    if experiment.own != Own() or experiment.task.data.path is not None:
        _refuse_another(shared.task(experiment), found)
    return found


def _refuse_another(task: build.Task, folder: RunFolder) -> None:
    if task.sources != folder.data:
        changed = "data set" if task.sources["sha256"] != folder.data["sha256"] else "model"
        raise InputError(f"{folder.path}: its {changed} has changed since the run began; start a new run instead")


def _task(experiment: Experiment, shared: Workbench) -> build.Task:
    """Data and model, where they fit into this machine."""
    limits.check_traces(experiment)
    task = shared.task(experiment)
    limits.check_model(experiment, task.model.num_params)
    return task


def _prepare(experiment: Experiment, task: build.Task, folder: RunFolder, reporter: Reporter) -> list[Execution]:
    """Plans of all schemes that are not finished: whatever is to be refused is refused here."""
    executions: list[Execution] = []
    kind = StreamedExecution if goes_by(experiment) else Execution
    for scheme in experiment.scheme:
        place = folder.scheme(scheme.label or scheme.name)
        if place.finished:
            place.verify()
            place.clear_checkpoints()
        else:
            executions.append(kind(experiment, scheme, task, place, reporter))
    return executions


def _run(folder: RunFolder, executions: list[Execution], reporter: Reporter, shared: Workbench) -> Path:
    """Schemes that are planned ahead differ only in their links: one program serves all."""
    use_compilation_cache()
    for execution in executions:
        if (mark := _without_target(execution, folder)) is not None:
            execution.end = shared.end(execution.experiment, mark)
    try:
        with graceful_stop() as stop:
            run_all(executions, stop, shared.engines(execution.experiment) if executions else {})
            if stop.requested:  # in the last chunk: whoever runs more than this must hear of it
                raise Interrupted("all rounds are done")
    except Interrupted as where:
        raise Interrupted(f"interrupted; {where}; continue with: otafl run --resume {folder.path}") from None
    finally:
        reporter.close()
    return folder.path


def _without_target(execution: Execution, folder: RunFolder) -> str | None:
    """All that the rounds of a scheme without privacy depend on: what its run is, but for the target and other schemes.

    None for any other scheme: those with privacy plan for the target, and one of somebody else's may.
    """
    if systems.SCHEMES[execution.scheme.name].private or execution.foreign:
        return None
    privacy = execution.experiment.privacy.model_copy(update={"eps": None})
    alone = execution.experiment.model_copy(update={"privacy": privacy, "scheme": [execution.scheme]})
    return RunFolder(folder.path, config_hash(alone), folder.data, folder.files).identity


def refuse_all_unaffordable(executions: list[Execution]) -> None:
    """A scheme that can afford no round stands in the results with none; a run of such schemes alone is refused."""
    if executions and not any(execution.affordable for execution in executions):
        raise BudgetExceeded(executions[0].unaffordable)
