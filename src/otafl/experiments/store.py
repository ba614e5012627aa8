"""The run folder: everything a run leaves behind, written so that a kill at any moment loses little and breaks nothing.

    RUN/config.toml, manifest.json, report.html, plots/
    RUN/schemes/<label>/rounds.parquet    one row per seed and round
                        devices.parquet   one row per seed, round and client
                        evaluations.parquet  one row per seed and evaluation
                        ledger-<seed>.bin, card.json, card.md, model.npz, summary.json, timing.json
                        certificate.json  what its rounds amount to under CARES (12)-(13)
                        done.json         written last: the scheme is finished
                        checkpoints/      state and record segments of an unfinished run

A checkpoint is a file with its own SHA-256 in front; it lists the record segments that belong to it. If one of them
is torn, altered or missing, the checkpoint before is used.
Every file is written beside its place and then renamed.
"""

import errno
import hashlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from otafl.errors import InputError, OtaflError
from otafl.files import sweep, to_json, write_atomic

MAGIC = b"otafl-1 "
KEPT_CHECKPOINTS = 2
SEGMENTS = "segments"  # entry of a checkpoint: last rounds of the record segments before it

Arrays = dict[str, np.ndarray]


class StorageError(OtaflError):
    """The folder cannot be written; what was saved before is still whole."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into one clear line."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EROFS: "it is read-only",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EDQUOT: "the disk quota is used up",
    }
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(
            f"{path}: cannot be written ({reason}); everything saved before is whole, and "
            "--resume continues from the last checkpoint"
        ) from error


# --- sealed files: npz with a checksum ----------------------------------------------------------------------------


def npz(arrays: Arrays) -> bytes:
    """Arrays as NumPy's own file, the same bytes for the same arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def pack(arrays: Arrays) -> bytes:
    """Arrays as a sealed file: their SHA-256, then the npz."""
    body = npz(arrays)
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unpack(content: bytes) -> Arrays | None:
    """The arrays, or None if a single bit is not as it was written."""
    head, _, body = content.partition(b"\n")
    if head != MAGIC + hashlib.sha256(body).hexdigest().encode():
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def seal(path: Path, arrays: Arrays) -> None:
    with storage(path):
        write_atomic(path, pack(arrays))


def unseal(path: Path) -> Arrays | None:
    """The arrays of a sealed file; None if it is missing or damaged."""
    try:
        return unpack(path.read_bytes())
    except OSError:
        return None


# --- one scheme ----------------------------------------------------------------------------------------------------


class SchemeFolder:
    """Checkpoints, record segments and results of one scheme."""

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"

    @property
    def finished(self) -> bool:
        return (self.path / "done.json").exists()

    def prepare(self) -> None:
        """Make the folders, and remove what a killed process was just writing."""
        with storage(self.path):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            sweep(self.path)
            sweep(self.checkpoints)

    def save(self, round_: int, state: Arrays, records: Arrays) -> None:
        """A checkpoint at `round_` with the records since the one before; older checkpoints but one are dropped."""
        seal(self._file("records", round_), records)
        seal(self._file("checkpoint", round_), {**state, SEGMENTS: np.array(self._rounds("records"))})
        with storage(self.checkpoints):
            for old in self._rounds("checkpoint")[:-KEPT_CHECKPOINTS]:
                self._file("checkpoint", old).unlink(missing_ok=True)

    def latest(self) -> tuple[int, Arrays, list[Arrays], list[str]]:
        """The newest checkpoint that is whole, with all records before it: (round, state, records, warnings)."""
        warnings: list[str] = []
        saved = self._rounds("checkpoint")
        for round_, before in zip(saved[::-1], [*saved[-2::-1], 0]):
            state = unseal(self._file("checkpoint", round_)) or {SEGMENTS: np.zeros(0)}
            segments = [unseal(self._file("records", int(r))) for r in state.pop(SEGMENTS)]
            whole = [segment for segment in segments if segment is not None]
            if whole and len(whole) == len(segments):
                self._drop_after(round_)
                return round_, state, whole, warnings
            back = f"going back to the one at round {before}" if before else "starting from the beginning"
            warnings.append(f"checkpoint at round {round_} is damaged (checksum); {back}")
        self._drop_after(0)
        return 0, {}, [], warnings

    def checkpoint(self, round_: int) -> Path:
        return self._file("checkpoint", round_)

    def _file(self, kind: str, round_: int) -> Path:
        return self.checkpoints / f"{kind}-{round_:07d}"

    def _rounds(self, kind: str) -> list[int]:
        names = (re.fullmatch(rf"{kind}-(\d+)", file.name) for file in self.checkpoints.glob(f"{kind}-*"))
        return sorted(int(match.group(1)) for match in names if match)

    def _drop_after(self, round_: int) -> None:
        """Forget what a resumed run writes again."""
        with storage(self.checkpoints):
            for kind in ("checkpoint", "records"):
                for later in (other for other in self._rounds(kind) if other > round_):
                    self._file(kind, later).unlink(missing_ok=True)

    def clear_checkpoints(self) -> None:
        """Checkpoints of a finished scheme; a kill may have come between its last file and this."""
        with storage(self.checkpoints):
            sweep(self.path)
            for file in self.checkpoints.glob("*"):
                file.unlink(missing_ok=True)
            if self.checkpoints.exists():
                self.checkpoints.rmdir()

    def table(self, name: str, columns: Arrays) -> None:
        """Write a Parquet file that pandas and polars open."""
        write_table(self.path / f"{name}.parquet", columns)

    def read(self, name: str) -> Arrays:
        return read_table(self.path / f"{name}.parquet")

    def json(self, name: str) -> Any:
        return json.loads((self.path / f"{name}.json").read_text())


def write_table(path: Path, columns: Arrays) -> None:
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}),
        buffer,
        compression="zstd",
    )
    with storage(path):
        write_atomic(path, buffer.getvalue())


def read_table(path: Path) -> Arrays:
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


# --- the whole run ---------------------------------------------------------------------------------------------------


class RunFolder:
    """A run: its resolved config, its manifest and one folder per scheme."""

    def __init__(self, path: Path):
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path, config: str, manifest: dict[str, Any]) -> "RunFolder":
        """Start a new run; a folder that already holds one is refused, never overwritten."""
        path = cls.free(path)
        with storage(path):
            path.mkdir(parents=True, exist_ok=True)
            sweep(path)
            write_atomic(path / "config.toml", config)
            write_atomic(path / "manifest.json", to_json(manifest))
        return cls(path)

    @staticmethod
    def free(path: Path) -> Path:
        """Refuse a folder that a new run must not use, before any work is done."""
        path = Path(path)
        if (path / "manifest.json").exists():
            raise InputError(f"{path}: holds a run already; use --resume {path}, or another --out")
        return path

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        path = Path(path)
        if not (path / "manifest.json").exists():
            raise InputError(f"{path}: is not a run folder (no manifest.json)")
        folder = cls(path)
        with storage(path):
            sweep(path)
        return folder

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / "manifest.json").read_bytes())
            missing = {"config_sha256", "schemes"} - set(content)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{self.path}/manifest.json: cannot be read ({error})") from None
        if missing:
            raise InputError(f"{self.path}/manifest.json: is damaged ({', '.join(sorted(missing))} missing)")
        return content

    def scheme(self, label: str) -> SchemeFolder:
        return SchemeFolder(self.path / "schemes" / slug(label))

    def labels(self) -> list[str]:
        """Labels of the schemes, in the order of the config."""
        labels: list[str] = self.manifest["schemes"]
        return labels


def slug(label: str) -> str:
    """A label as a folder name.

    >>> slug("CARES static (η=0.40)")
    'cares-static-0.40'
    """
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "scheme"
