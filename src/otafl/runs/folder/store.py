"""The run folder: everything a run leaves behind, written so that a kill at any moment loses little and breaks nothing.

    RUN/config.toml, manifest.json (with the hashes of data, files and code that the config names), report.html, plots/
    RUN/schemes/<label>/rounds.parquet    one row per seed and round
                        devices.parquet   one row per seed, round and client
                        evaluations.parquet  one row per seed and evaluation
                        ledger-<seed>.bin, card.json, card.md, model.npz, summary.json, timing.json
                        certificate.json  what its rounds amount to under CARES (12)-(13)
                        done.json         written last: the scheme is finished, and the SHA-256 of its files
                        checkpoints/      state and record segments of an unfinished run

Nothing is read back unchecked. `manifest.json`, `done.json` and `timing.json` are sealed; the manifest has the hash of
`config.toml`, and `done.json` the hashes of its files, its label and what its run is: the hashes of config and data.
(Seconds are not reproducible: `timing.json` has a seal of its own, so that `done.json` is the same whenever the results
are.) A checkpoint is sealed with its round, label and run; it lists the record segments that belong to it. If one of
them is torn, altered, missing or of another place, the checkpoint before is used.
Every file is written beside its place and then renamed.
"""

import io
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from otafl.core.errors import InputError
from otafl.core.files import slug, sweep, to_json, write_atomic
from otafl.core.validate import listed
from otafl.runs.folder.checkpoints import Checkpoints
from otafl.runs.folder.disk import storage
from otafl.runs.folder.sealed import SEAL, Arrays, digest, file_digest, read_sealed, reading, with_seal
from otafl.runs.folder.shapes import SHAPES, Done, Manifest, Timing, check, check_table

DONE, TIMING = "done.json", "timing.json"
AGAIN = "run the experiment again into another folder"


# --- one scheme ----------------------------------------------------------------------------------------------------


class SchemeFolder(Checkpoints):
    """Checkpoints, record segments and results of one scheme of a run."""

    @property
    def finished(self) -> bool:
        return (self.path / DONE).exists()

    def finish(self, files: dict[str, bytes | str], rounds: int, timing: dict[str, float]) -> None:
        """Write the results, and last of all what seals them; then the checkpoints can go."""
        own = {"label": self.label, "run_sha256": self.run}
        with storage(self.path):
            for name, content in files.items():
                write_atomic(self.path / name, content)
            hashes = {name: digest(c.encode() if isinstance(c, str) else c) for name, c in sorted(files.items())}
            write_atomic(self.path / TIMING, to_json(with_seal({**own, **timing})))
            write_atomic(self.path / DONE, to_json(with_seal({**own, "rounds": rounds, "files": hashes})))
        self.clear_checkpoints()

    def verify(self) -> None:
        """Every file as it was written, or InputError with the name of one that is not."""
        for name, expected in self.hashes().items():
            self._as_sealed(name, expected)
        self.timing()

    def lost_marker(self) -> bool:
        """Whether done.json alone is missing: a scheme that is still running has a folder for checkpoints."""
        return not self.finished and (self.path / "summary.json").exists() and not self.checkpoints.exists()

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every file of the finished scheme, by name."""
        with reading(self.path / DONE, self.mend):
            return check(Done, self._own(DONE))["files"]

    def timing(self) -> dict[str, Any]:
        with reading(self.path / TIMING, self.mend):
            return check(Timing, self._own(TIMING))

    def _own(self, name: str) -> dict[str, Any]:
        """A sealed file, if it is of this scheme of this run."""
        content = read_sealed(self.path / name, self.mend)
        if (content.get("label"), content.get("run_sha256")) != (self.label, self.run):
            raise InputError(f"{self.path / name}: belongs to another scheme or another run; {self.mend}")
        return content

    def whole(self, name: str) -> Path:
        """The path of a file whose content is as it was written."""
        return self._as_sealed(name, self._expected(name))

    def _as_sealed(self, name: str, expected: str) -> Path:
        if file_digest(self.path / name, self.mend) != expected:
            raise self._damaged(name)
        return self.path / name

    def content(self, name: str) -> bytes:
        """The bytes of a file, as they were written."""
        with reading(self.path / name, self.mend):
            content = (self.path / name).read_bytes()
        if digest(content) != self._expected(name):
            raise self._damaged(name)
        return content

    def read(self, name: str) -> Arrays:
        with reading(self.path / f"{name}.parquet", self.mend):
            return check_table(name, read_table(io.BytesIO(self.content(f"{name}.parquet"))))

    def json(self, name: str) -> Any:
        with reading(self.path / f"{name}.json", self.mend):
            return check(SHAPES[name], json.loads(self.content(f"{name}.json")))

    def _expected(self, name: str) -> str:
        hashes = self.hashes()
        if name not in hashes:
            raise InputError(f"{self.path / name}: is not among the files in done.json; {self.mend}")
        return hashes[name]

    def _damaged(self, name: str) -> InputError:
        return InputError(f"{self.path / name}: is damaged (its SHA-256 is not the one in done.json); {self.mend}")

    @property
    def mend(self) -> str:
        run = self.path.parent.parent
        return f"remove {self.path} and compute the scheme again with: otafl run --resume {run}"


def parquet(columns: Arrays) -> bytes:
    """A Parquet file that pandas and polars open."""
    buffer = io.BytesIO()
    table = pa.Table.from_arrays([_arrow(column) for column in columns.values()], list(columns))
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def read_table(source: Path | io.BytesIO) -> Arrays:
    table = pq.ParquetFile(source).read()
    return {name: numbers(table[name].combine_chunks()) for name in table.column_names}


# Arrow's own ways from and to NumPy load pandas, to see that a column is none of its: a fifth of a second.


def _arrow(column: np.ndarray) -> pa.Array:
    """Numbers or booleans, without a copy where they follow each other."""
    own = np.packbits(column, bitorder="little") if column.dtype == bool else np.ascontiguousarray(column)
    return pa.Array.from_buffers(pa.from_numpy_dtype(column.dtype), len(column), [None, pa.py_buffer(own)])


def numbers(column: pa.Array) -> np.ndarray:
    """An array of its own; what is neither numbers nor booleans, or has gaps, as Arrow gives it."""
    if pa.types.is_boolean(column.type):
        return numbers(column.cast(pa.uint8())).astype(bool)
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.array(np.from_dlpack(column))


# --- the whole run ---------------------------------------------------------------------------------------------------


class RunFolder:
    """A run: its resolved config, its manifest and one folder per scheme."""

    def __init__(self, path: Path, config: str, data: dict[str, str], files: dict[str, str] | None = None):
        self.path, self.config, self.data = Path(path), config, data  # config: its hash; data: names and hashes
        self.files = files or {}  # that the config names, and their hashes

    @classmethod
    def create(cls, path: Path, config: str, manifest: dict[str, Any]) -> "RunFolder":
        """Start a new run; a folder that already holds one is refused, never overwritten."""
        path, hashed = cls.free(path, config), digest(config.encode())
        with storage(path):
            path.mkdir(parents=True, exist_ok=True)
            sweep(path)
            write_atomic(path / "config.toml", config)
            write_atomic(path / "manifest.json", to_json(with_seal({**manifest, "config_sha256": hashed})))
        return cls(path, hashed, manifest["data"], manifest.get("files"))

    @staticmethod
    def free(path: Path, config: str = "") -> Path:
        """Refuse a folder that a new run must not use, before any work is done."""
        path = Path(path)
        if (path / "manifest.json").exists():
            raise InputError(
                f"{path}: holds a run already; go on with otafl run --resume {path}, or give another folder"
            )
        if (path / "loop.json").exists():
            raise InputError(f"{path}: holds a loop of otafl.Air; give another folder")
        if (mine := path / "config.toml").exists() and mine.read_bytes() != config.encode():  # a killed start left ours
            raise InputError(f"{mine}: is there already, and a run would replace it; give another folder")
        return path

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A run whose manifest and config are as they were written."""
        path = Path(path)
        if not (path / "manifest.json").exists():
            places = ("run", "*/run", "points/*", "*")  # of a comparison, a sweep, many runs
            found = (run.parent for place in places for run in path.glob(f"{place}/manifest.json"))
            inside = sorted(run.relative_to(path) for run in found)
            hint = f"it holds {listed(inside, most=5)}" if inside else "give one that otafl run has written"
            if whole := next((parent for parent in path.parents if (parent / "manifest.json").exists()), None):
                hint = f"it is a part of {whole}"
            if (path / "loop.json").exists():
                hint = f"of its loop of otafl.Air tells otafl.Air.restore({str(path)!r}).report()"
            raise InputError(f"{path}: is not a run folder (no manifest.json); {hint}")
        for part in [path / "schemes", *path.glob("schemes/*"), *path.glob("schemes/*/checkpoints")]:
            if part.is_symlink():  # checkpoints are removed, and would be wherever it leads
                raise InputError(f"{part}: is a link; a run is written where it lies, put the folder itself there")
        manifest = _manifest(path)
        if file_digest(path / "config.toml", AGAIN) != manifest["config_sha256"]:
            raise InputError(f"{path}/config.toml: was changed since the run began; {AGAIN}")
        _check_named(path, manifest)
        return cls(path, manifest["config_sha256"], manifest["data"], manifest.get("files"))

    @property
    def identity(self) -> str:
        """What tells runs apart: one config may be run with other data, given in Python or changed in their file."""
        named = {"files": self.files} if self.files else {}
        return str(with_seal({"config": self.config, "data": self.data, **named})[SEAL])

    def check_files(self, found: dict[str, str]) -> None:
        """InputError where a file that the config names is not as it was: earlier rounds were charged by that one."""
        for name in sorted({*found, *self.files}):
            if found.get(name) != self.files.get(name):
                raise InputError(f"{self.path}: {name} has changed since the run began; put it back, or run anew")

    @property
    def manifest(self) -> dict[str, Any]:
        return _manifest(self.path)

    def scheme(self, label: str) -> SchemeFolder:
        return SchemeFolder(self.path / "schemes" / slug(label), label, self.identity)

    def labels(self) -> list[str]:
        """Labels of the schemes, in the order of the config."""
        return self.manifest["schemes"]

    def verified(self) -> list[SchemeFolder]:
        """All schemes in the order of the config; those that are finished have been checked, file by file."""
        places = [self.scheme(label) for label in self.labels()]
        for place in places:
            if place.lost_marker():
                raise InputError(f"{place.path / DONE}: is missing; mend it with: otafl run --resume {self.path}")
            if place.finished:
                place.verify()
        return places


def _manifest(path: Path) -> dict[str, Any]:
    with reading(path / "manifest.json", AGAIN):
        return check(Manifest, read_sealed(path / "manifest.json", AGAIN))


def _check_named(path: Path, manifest: dict[str, Any]) -> None:
    """InputError where the manifest names other schemes or seeds than the config: some would be left out."""
    with reading(path / "config.toml", AGAIN):
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        labels, seeds = [scheme.get("label") or scheme["name"] for scheme in config["scheme"]], config["seeds"]
        own = {"schemes": labels, "seeds": range(seeds) if isinstance(seeds, int) else seeds}
        other = [name for name, found in own.items() if list(found[: len(manifest[name]) + 1]) != manifest[name]]
    if other:
        raise InputError(f"{path}/manifest.json: its {other[0]} are not those of config.toml; {AGAIN}")


def runs_of(path: Path) -> list[Path]:
    """The run in a folder: the folder itself, or those that a comparison keeps inside, one for each of its targets."""
    path = Path(path)
    if (path / "manifest.json").exists():
        return [path]
    number = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    targets = sorted(path.glob("eps-*/run"), key=lambda run: [float(n) for n in re.findall(number, run.parent.name)])
    inside = [run for run in (path / "run", *targets) if (run / "manifest.json").exists()]
    return inside or [path]


def run_of(path: Path) -> Path:
    """The one run in a folder; of a comparison at several targets the folder itself, which is none."""
    inside = runs_of(path)
    return inside[0] if len(inside) == 1 else Path(path)
