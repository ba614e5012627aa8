"""Rounds as they were run, on the host, and what their arrays are called in a file: `plan.tx`, `live`, `eval.loss`."""

from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.messages import Stats
from otafl.core.plan import Plan, cut
from otafl.runs.folder.sealed import Arrays


class Evaluation(NamedTuple):
    """A model on held-out data; C classes, one where targets are no labels."""

    right: Array  # (C,) sums of the metric by label
    total: Array  # (C,) samples
    loss: Array  # () without its penalty
    penalty: Array


class Chunk(NamedTuple):
    """Rounds of one scheme, all seeds: leaves (S, T, ...), evaluations (S, E, ...). Names in files are the fields'."""

    plan: Plan
    stats: Stats  # no overflow: such a round stops the run
    live: np.ndarray  # (S, T) bool
    update_norm: np.ndarray  # (S, T)
    refused: np.ndarray  # (S, T) bool
    info: dict[str, np.ndarray]  # (S, T) per-round scalars, by the policy's own names
    eval: Evaluation

    def of_seed(self, seed: int) -> Plan:
        """The plan that one seed played, live where the round was run."""
        return cut(self.plan, seed)._replace(live=self.live[seed])

    def arrays(self) -> Arrays:
        """As a file has it."""
        parts = {name: _fields(part) for name, part in self._asdict().items()}
        return {_name(whole, name): leaf for whole, part in parts.items() for name, leaf in part.items()}

    @classmethod
    def read(cls, arrays: Arrays) -> "Chunk":
        """What `arrays` wrote, where it has all that is `REQUIRED`."""

        def part(whole: str) -> dict[str, np.ndarray]:
            begin = f"{whole}."
            return {name.removeprefix(begin): leaf for name, leaf in arrays.items() if name.startswith(begin)}

        return cls(
            plan=Plan(**part("plan")),
            stats=Stats(**part("stats"), overflow=()),
            live=arrays["live"],
            update_norm=arrays["update_norm"],
            refused=arrays["refused"],
            info=part("info"),
            eval=Evaluation(**part("eval")),
        )


REQUIRED = {
    *("live", "update_norm", "refused"),
    *(f"plan.{name}" for name in Plan._fields),
    *(f"stats.{name}" for name in Stats._fields if name != "overflow"),
    *(f"eval.{name}" for name in Evaluation._fields),
}


def merge(chunks: list[Any]) -> Any:
    """Join chunks of one kind along the round axis."""
    named = [chunk.arrays() for chunk in chunks]
    return chunks[0].read({name: np.concatenate([one[name] for one in named], axis=1) for name in named[0]})


def scalars(info: Any, axes: int) -> dict[str, np.ndarray]:
    """Per-round scalars of a policy's info, which have exactly so many axes: what a rounds table can hold."""
    fields = info._asdict() if hasattr(info, "_asdict") else {}
    return {name: np.asarray(value) for name, value in fields.items() if np.ndim(value) == axes}


def _fields(part: Any) -> dict[str, np.ndarray]:
    if isinstance(part, dict):
        return part
    found = part._asdict() if hasattr(part, "_asdict") else {"": part}
    return {name: leaf for name, leaf in found.items() if not isinstance(leaf, tuple)}


def _name(whole: str, part: str) -> str:
    return f"{whole}.{part}" if part else whole
