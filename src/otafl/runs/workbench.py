"""What runs on the same data with the same seeds share: the task, dealt out once, and programs already compiled."""

from typing import Any

from otafl.core.engine import Engine
from otafl.runs.build import Task, build_task
from otafl.runs.folder.sealed import Arrays
from otafl.runs.schema import Experiment

End = tuple[int, Arrays, list[Arrays]]  # what a checkpoint after the last round holds: round, state, records


class Workbench:
    """One for all runs of a comparison. It can change no result: programs take links and steps as arguments."""

    def __init__(self) -> None:
        self._tasks: dict[Any, Task] = {}
        self._engines: dict[Any, dict[Any, Engine]] = {}
        self.ends: dict[Any, list[End]] | None = None  # of schemes without privacy, while targets follow each other

    def task(self, experiment: Experiment) -> Task:
        """Data, model and partitions; built where this is the first run on them."""
        key = _key(experiment)
        if key not in self._tasks:
            self._tasks[key] = build_task(experiment)
        return self._tasks[key]

    def engines(self, experiment: Experiment) -> dict[Any, Engine]:
        """Programs by `Execution.program`; a run adds those that it had to compile."""
        return self._engines.setdefault((_key(experiment), experiment.engine.model_dump_json()), {})

    def end(self, experiment: Experiment, mark: str) -> list[End] | None:
        """Where the end of a scheme is kept, empty before its first training; None: it is not trained again."""
        return None if self.ends is None else self.ends.setdefault((_key(experiment), mark), [])


def _key(experiment: Experiment) -> Any:
    """All that a task is made of; what was brought in Python counts by identity."""
    own = tuple(id(part) for part in experiment.own)
    return experiment.task.model_dump_json(), tuple(experiment.seed_list), own
