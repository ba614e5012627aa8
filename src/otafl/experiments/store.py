"""The run folder: everything a run leaves behind, written so that a kill at any moment loses little and breaks nothing.

    RUN/config.toml, manifest.json, report.html, plots/
    RUN/schemes/<label>/rounds.parquet    one row per seed and round
                        devices.parquet   one row per seed, round and client
                        evaluations.parquet  one row per seed and evaluation
                        ledger.npz, card.json, card.md, model.npz
                        work/             checkpoints and record segments of an unfinished run

A checkpoint is a file with its own SHA-256 in front; a torn or altered one is recognised and the one before is used.
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
from otafl.files import to_json, write_atomic

MAGIC = b"otafl-1 "
KEPT_CHECKPOINTS = 2


class StorageError(OtaflError):
    """The folder cannot be written; what was saved before is still whole."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into one clear line."""
    reasons = {errno.ENOSPC: "the disk is full", errno.EROFS: "it is read-only", errno.EACCES: "permission denied",
               errno.EPERM: "permission denied", errno.EDQUOT: "the disk quota is used up"}
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"{path}: cannot be written ({reason}); everything saved before is whole, and "
                           "--resume continues from the last checkpoint") from error


# --- sealed files: npz with a checksum ----------------------------------------------------------------------------


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays to bytes, the same bytes for the same arrays, with their SHA-256 in front."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    body = buffer.getvalue()
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unpack(content: bytes) -> dict[str, np.ndarray] | None:
    """The arrays, or None if a single bit is not as it was written."""
    head, _, body = content.partition(b"\n")
    if head != MAGIC + hashlib.sha256(body).hexdigest().encode():
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def seal(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with storage(path):
        write_atomic(path, pack(arrays))


def unseal(path: Path) -> dict[str, np.ndarray] | None:
    try:
        return unpack(path.read_bytes())
    except OSError:
        return None


# --- one scheme's work ---------------------------------------------------------------------------------------------


class SchemeFolder:
    """Checkpoints, record segments and results of one scheme."""

    def __init__(self, path: Path):
        self.path = path
        self.work = path / "work"

    @property
    def finished(self) -> bool:
        return (self.path / "done.json").exists()

    def prepare(self) -> None:
        with storage(self.path):
            self.work.mkdir(parents=True, exist_ok=True)

    def save(self, round_: int, state: dict[str, np.ndarray], records: dict[str, np.ndarray]) -> None:
        """A checkpoint at `round_` with the records since the one before; older checkpoints but one are dropped."""
        seal(self.work / f"records-{round_:07d}", records)
        seal(self.work / f"checkpoint-{round_:07d}", state)
        for old in self._rounds("checkpoint")[:-KEPT_CHECKPOINTS]:
            (self.work / f"checkpoint-{old:07d}").unlink(missing_ok=True)

    def latest(self) -> tuple[int, dict[str, np.ndarray], list[dict[str, np.ndarray]], list[str]]:
        """The newest checkpoint that is whole, with all records before it: (round, state, records, warnings)."""
        warnings: list[str] = []
        for round_ in reversed(self._rounds("checkpoint")):
            state = unseal(self.work / f"checkpoint-{round_:07d}")
            segments = [unseal(self.work / f"records-{r:07d}") for r in self._rounds("records") if r <= round_]
            if state is not None and segments and all(segment is not None for segment in segments):
                self._drop_after(round_)
                return round_, state, [segment for segment in segments if segment is not None], warnings
            warnings.append(f"checkpoint at round {round_} is damaged (checksum); going back to the one before")
        self._drop_after(-1)
        return 0, {}, [], warnings

    def _rounds(self, kind: str) -> list[int]:
        names = (re.fullmatch(rf"{kind}-(\d+)", file.name) for file in self.work.glob(f"{kind}-*"))
        return sorted(int(match.group(1)) for match in names if match)

    def _drop_after(self, round_: int) -> None:
        for kind in ("checkpoint", "records"):
            for other in self._rounds(kind):
                if other > round_:
                    (self.work / f"{kind}-{other:07d}").unlink(missing_ok=True)

    def clear_work(self) -> None:
        for file in self.work.glob("*"):
            file.unlink(missing_ok=True)
        if self.work.exists():
            self.work.rmdir()

    def table(self, name: str, columns: dict[str, np.ndarray]) -> None:
        """Write a Parquet file that pandas and polars open."""
        write_table(self.path / f"{name}.parquet", columns)

    def read(self, name: str) -> dict[str, np.ndarray]:
        return read_table(self.path / f"{name}.parquet")

    def json(self, name: str) -> Any:
        return json.loads((self.path / f"{name}.json").read_text())


def write_table(path: Path, columns: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}), buffer,
                   compression="zstd")
    with storage(path):
        write_atomic(path, buffer.getvalue())


def read_table(path: Path) -> dict[str, np.ndarray]:
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
        path = Path(path)
        if (path / "manifest.json").exists():
            raise InputError(f"{path}: holds a run already; use --resume {path}, or another --out")
        with storage(path):
            path.mkdir(parents=True, exist_ok=True)
            write_atomic(path / "config.toml", config)
            write_atomic(path / "manifest.json", to_json(manifest))
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        path = Path(path)
        if not (path / "manifest.json").exists():
            raise InputError(f"{path}: is not a run folder (no manifest.json)")
        return cls(path)

    @property
    def manifest(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"{self.path}/manifest.json: cannot be read ({error})") from None
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
