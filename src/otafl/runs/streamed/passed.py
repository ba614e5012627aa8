"""What is told of rounds that have passed, on the host: nothing in it has an axis of clients."""

from typing import NamedTuple

import numpy as np

from otafl.runs.folder.chunks import Evaluation
from otafl.runs.folder.results import Columns
from otafl.runs.streamed.tally import TOLD


class Passed(NamedTuple):
    """Rounds of one scheme, all seeds: leaves (S, T, ...), evaluations (S, E, ...)."""

    live: np.ndarray  # (S, T) bool
    update_norm: np.ndarray  # (S, T)
    columns: Columns  # (S, T) figures of a round, (S, T, Q) quantiles over its clients
    eval: Evaluation

    def arrays(self) -> Columns:
        """As a file has it."""
        found = {f"eval.{name}": leaf for name, leaf in self.eval._asdict().items()}
        return {"live": self.live, "update_norm": self.update_norm, **self.columns, **found}


REQUIRED = {"live", "update_norm", *TOLD, *(f"eval.{n}" for n in Evaluation._fields)}


def read(arrays: Columns) -> Passed:
    """What `Passed.arrays` wrote, where it has all that is `REQUIRED`."""
    columns = dict(arrays)
    live, update_norm = columns.pop("live"), columns.pop("update_norm")
    return Passed(live, update_norm, columns, Evaluation(*(columns.pop(f"eval.{n}") for n in Evaluation._fields)))


def merge(chunks: list[Passed]) -> Passed:
    """Join along the round axis."""
    named = [chunk.arrays() for chunk in chunks]
    return read({name: np.concatenate([one[name] for one in named], axis=1) for name in named[0]})
