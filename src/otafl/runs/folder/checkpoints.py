"""Checkpoints and record segments of a scheme that is still running, and which of them may be gone on from."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from otafl.core.files import sweep, write_atomic
from otafl.runs.folder.chunks import REQUIRED
from otafl.runs.folder.disk import storage
from otafl.runs.folder.sealed import Arrays, pack, unpack

KEPT_CHECKPOINTS = 2
SEGMENTS = "segments"  # entry of a checkpoint: last rounds of the record segments before it


class Checkpoints:
    """What is saved of the scheme with this label, in the run that is `run` (`RunFolder.identity`)."""

    def __init__(self, path: Path, label: str, run: str):
        self.path, self.label, self.run = path, label, run
        self.checkpoints = path / "checkpoints"

    def prepare(self) -> None:
        """Make the folders, and remove what a killed process was just writing."""
        with storage(self.path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            sweep(self.path)
            sweep(self.checkpoints)

    def save(self, round_: int, state: Arrays, records: Arrays) -> None:
        """A checkpoint at `round_` with the records since the one before; older checkpoints but one are dropped."""
        self.seal("records", round_, records)
        self.seal("checkpoint", round_, {**state, SEGMENTS: np.array(self.saved("records"))})
        with storage(self.checkpoints):
            for old in self.saved("checkpoint")[:-KEPT_CHECKPOINTS]:
                self._file("checkpoint", old).unlink(missing_ok=True)

    def latest(
        self, fits: Callable[[int, Arrays, list[Arrays]], bool] = lambda *_: True
    ) -> tuple[int, Arrays, list[Arrays], list[str]]:
        """The newest checkpoint that is whole and fits, with all records before it: (round, state, records, warnings).

        `fits(round, state, records)` says whether a checkpoint is one that this scheme could have written.
        """
        warnings: list[str] = []
        saved = self.saved("checkpoint")
        for round_, before in zip(saved[::-1], [*saved[-2::-1], 0]):
            found = self._whole(round_)
            if found is not None and fits(round_, *found):
                self._drop_after(round_)
                return round_, *found, warnings
            back = f"going back to the one at round {before}" if before else "starting from the beginning"
            warnings.append(f"checkpoint at round {round_} is damaged or of another run (checksum); {back}")
        self._drop_after(0)
        return 0, {}, [], warnings

    def _whole(self, round_: int) -> tuple[Arrays, list[Arrays]] | None:
        state = self.unseal("checkpoint", round_)
        listed = None if state is None else state.pop(SEGMENTS, None)
        if state is None or listed is None or listed.ndim != 1 or listed.dtype.kind != "i":
            return None
        segments = [self.unseal("records", int(last)) for last in listed]
        whole = [segment for segment in segments if segment is not None]
        return (state, whole) if whole and len(whole) == len(segments) else None

    def seal(self, kind: str, round_: int, arrays: Arrays) -> None:
        path = self._file(kind, round_)
        with storage(path):
            write_atomic(path, pack(arrays, self._place(kind, round_)))

    def unseal(self, kind: str, round_: int) -> Arrays | None:
        """The arrays of a sealed file; None if it is missing, damaged, or of another round, scheme or run."""
        try:
            return unpack(self._file(kind, round_).read_bytes(), self._place(kind, round_))
        except OSError:
            return None

    def checkpoint(self, round_: int) -> Path:
        return self._file("checkpoint", round_)

    def saved(self, kind: str = "checkpoint") -> list[int]:
        """Rounds of the checkpoints, or of the record segments, that are there."""
        names = (re.fullmatch(rf"{kind}-([0-9]{{7,}})", file.name) for file in self.checkpoints.glob(f"{kind}-*"))
        return sorted(int(match.group(1)) for match in names if match)

    def _place(self, kind: str, round_: int) -> str:
        return f"{kind} {round_} {self.run} {self.label}"

    def _file(self, kind: str, round_: int) -> Path:
        return self.checkpoints / f"{kind}-{round_:07d}"

    def _drop_after(self, round_: int) -> None:
        """Forget what a resumed run writes again."""
        with storage(self.checkpoints):
            for kind in ("checkpoint", "records"):
                for later in (other for other in self.saved(kind) if other > round_):
                    self._file(kind, later).unlink(missing_ok=True)

    def clear_checkpoints(self) -> None:
        """Checkpoints of a finished scheme; a kill may have come between its last file and this."""
        with storage(self.checkpoints):
            sweep(self.path)
            for file in self.checkpoints.glob("*"):
                file.unlink(missing_ok=True)
            if self.checkpoints.exists():
                self.checkpoints.rmdir()


def leaf_name(number: int) -> str:
    """What a leaf of the state is called in a checkpoint."""
    return f"leaf{number:04d}"


def fits(
    done: int,
    state: Arrays,
    segments: list[Arrays],
    leaves: list[np.ndarray],
    evaluations: int,
    required: set[str] = REQUIRED,
) -> bool:
    """Whether a scheme with these leaves could have written this: the same leaves, and records of every round.

    Leaves have the seeds as their first axis, records (seeds, rounds, ...), evaluations (seeds, evaluations, ...).
    """
    like = {leaf_name(n): (leaf.dtype, leaf.shape) for n, leaf in enumerate(leaves)}
    if {name: (leaf.dtype, leaf.shape) for name, leaf in state.items()} != like:
        return False
    seeds, first = leaves[0].shape[0], segments[0]
    recorded = {name for name in first if not name.startswith("info.")}
    if any(set(one) != set(first) for one in segments) or recorded != required:
        return False
    for name in first:
        parts = [one[name] for one in segments]
        if any(part.ndim < 2 or part.shape[0] != seeds or part.shape[2:] != parts[0].shape[2:] for part in parts):
            return False
        rounds = evaluations if name.startswith("eval.") else done
        if sum(part.shape[1] for part in parts) != rounds:
            return False
    return True
