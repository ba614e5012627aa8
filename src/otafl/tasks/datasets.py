"""Data sets by name, found on this machine or fetched with their published hashes. NumPy, host.

Looked for in this order: the path given; the folder in OTAFL_DATA; the cache (OTAFL_CACHE, else ~/.cache/otafl);
where the system's packages put them; the public mirrors, unless OTAFL_OFFLINE is set. A path that is given is the
only place looked at. A subset that stands in for the full data says so in `note`.

>>> digits = load("digits")
>>> digits.x_train.shape, digits.classes
((1437, 8, 8), 10)
"""

import gzip
import hashlib
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import DataMissing, InputError
from otafl.tasks import formats
from otafl.tasks.fetch import download, file_sha256
from otafl.tasks.formats import Arrays, Bytes8, Read
from otafl.tasks.sources import DATASETS, Release, Source


class Dataset(NamedTuple):
    """Images as bytes, N training and M test samples."""

    x_train: Bytes8  # (N, height, width[, channels])
    y_train: Bytes8  # (N,)
    x_test: Bytes8  # (M, height, width[, channels])
    y_test: Bytes8  # (M,)
    classes: int
    name: str
    sha256: str  # of the arrays, however they were stored
    source: str  # where they were read
    note: str  # what a reader of results must know; empty for the complete, official data
    peak: int = 255  # largest pixel value


def load(name: str, path: str | Path | None = None) -> Dataset:
    """A data set by name, from `path` (a folder or a file) or from the first place that has it.

    Raises DataMissing, saying what to do, if it is nowhere; InputError if a file is damaged or not the published one.
    """
    validate.one_of("dataset", name, DATASETS)
    if name == "digits" and path is not None:
        raise InputError(f"data set 'digits' is scikit-learn's own and has no path ({path}); name another, or npz")
    if name == "digits":
        return _digits()
    if name == "npz":
        return _own(path)
    if name == "arrays":
        raise DataMissing(
            "data set 'arrays' is not on this machine's disk: it is given in Python, by otafl.run(..., task=otafl.task("
            "...)); a run of it, finished or not, is opened by otafl.run(resume=FOLDER, task=...)"
        )
    source = DATASETS[name]
    places = [Path(path)] if path is not None else search_places(source)
    found = _search(name, source, places)
    if found is None and path is None and not os.environ.get("OTAFL_OFFLINE"):
        found = _fetch(name, source)
    if found is None:
        raise DataMissing(_what_to_do(name, source, places))
    arrays, where, note = found
    return _dataset(name, source, arrays, where, note)


def cache_folder() -> Path:
    return Path(os.environ.get("OTAFL_CACHE") or Path.home() / ".cache" / "otafl")


def select_labels(dataset: Dataset, labels: Sequence[int]) -> Dataset:
    """Keep only these classes, renumbered 0, 1, ... in the order given."""
    if len(set(labels)) != len(labels) or len(labels) < 2:
        raise InputError(f"labels={list(labels)} must be at least two different classes")
    validate.in_closed("labels", labels, 0, dataset.classes - 1)
    number = np.full(dataset.classes, 255, np.uint8)
    number[list(labels)] = np.arange(len(labels))
    train, test = np.isin(dataset.y_train, labels), np.isin(dataset.y_test, labels)
    arrays = (
        dataset.x_train[train], number[dataset.y_train[train]], dataset.x_test[test], number[dataset.y_test[test]]
    )  # fmt: skip
    note = "; ".join(filter(None, [dataset.note, f"labels {', '.join(map(str, labels))} only"]))
    return Dataset(*arrays, len(labels), dataset.name, fingerprint(arrays), dataset.source, note, dataset.peak)


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 of the four arrays written as IDX files one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(formats.idx_bytes(array))
    return digest.hexdigest()


def _digits() -> Dataset:
    """From scikit-learn's folder; importing the library itself takes longer than most plans."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",").astype(np.uint8)  # 64 pixels and the label
    order = np.random.default_rng(0).permutation(len(table))  # the split is part of the data set's definition
    train, test = order[360:], order[:360]
    x, y = table[:, :64].reshape(-1, 8, 8), table[:, 64]
    arrays = x[train], y[train], x[test], y[test]
    return Dataset(*arrays, 10, "digits", fingerprint(arrays), "scikit-learn", "", peak=16)


def _own(path: str | Path | None) -> Dataset:
    if path is None:
        raise InputError("dataset='npz' needs the path of your file")
    if not Path(path).is_file():
        raise DataMissing(f"{path}: no such file")
    arrays = formats.read_npz(Path(path))
    classes = int(max(arrays[1].max(), arrays[3].max())) + 1
    return Dataset(*arrays, classes, "npz", fingerprint(arrays), str(path), "", peak=255)


def _dataset(name: str, source: Source, arrays: Arrays, where: Path, note: str) -> Dataset:
    x_train, y_train, x_test, y_test = arrays
    for key, y in (("y_train", y_train), ("y_test", y_test)):
        if not y.size or y.max() >= source.classes:
            raise InputError(f"{where}: {key} must hold labels 0..{source.classes - 1}")
    sizes = len(y_train), len(y_test)
    if sizes[0] > source.full[0] or sizes[1] > source.full[1]:
        raise InputError(f"{where}: {sizes[0]} + {sizes[1]} samples, more than {name} has")
    sha256 = fingerprint(arrays)
    if sizes != source.full:
        part = f"subset: {sizes[0]} + {sizes[1]} of {source.full[0]} + {source.full[1]} images"
        note = "; ".join(filter(None, [part, note]))
    elif source.sha256 and sha256 != source.sha256:
        raise InputError(
            f"{where}: its images or labels differ from the published {name} (SHA-256 of content {sha256})"
        )
    return Dataset(x_train, y_train, x_test, y_test, source.classes, name, sha256, str(where), note)


def search_places(source: Source) -> list[Path]:
    """Where a data set is looked for, in this order."""
    given = os.environ.get("OTAFL_DATA")
    return [*([Path(given)] if given else []), cache_folder(), *map(Path, source.system)]


Found = tuple[Arrays, Path, str]  # arrays, where, note


def _search(name: str, source: Source, places: Sequence[Path]) -> Found | None:
    for place in places:
        for folder in (place, place / name):
            if (found := _look(source, folder)) is not None:
                return found
    return None


def _look(source: Source, place: Path) -> Found | None:
    """One folder, or one file given by the user."""
    if place.is_file():
        if place.suffix == ".npz":
            return formats.read_npz(place), place, dict(source.npz).get(place.name, "")
        for release in source.releases:
            if place.name == release.archive:
                return _read_archive(release, place), place, ""
        return None
    for filename, note in source.npz:
        if (place / filename).is_file():
            return formats.read_npz(place / filename), place / filename, note
    for release in source.releases:
        for folder in (place, *(place / below for below in release.folders)):
            if all((folder / filename).is_file() for filename in release.files):
                return release.read(_folder_reader(release, folder)), folder, ""
        if release.archive and (place / release.archive).is_file():
            return _read_archive(release, place / release.archive), place / release.archive, ""
    return None


def _read_archive(release: Release, path: Path) -> Arrays:
    _check_published(release, path)
    return release.read(formats.archive_reader(path))


def _folder_reader(release: Release, folder: Path) -> Read:
    def read(filename: str) -> bytes:
        _check_published(release, folder / filename)
        return (folder / filename).read_bytes()

    return read


def _check_published(release: Release, path: Path) -> None:
    expected = dict(release.sha256).get(path.name)
    if expected and (actual := file_sha256(path)) != expected:
        raise InputError(f"{path}: damaged or not the published file (SHA-256 {actual}, published {expected})")


def _fetch(name: str, source: Source) -> Found | None:
    """Download the first release with mirrors and published hashes into the cache, then read it there."""
    for release in source.releases:
        if release.mirrors:
            folder = cache_folder() / name
            try:
                for filename, sha256 in release.sha256:
                    if not (folder / filename).is_file():
                        download([f"{mirror}/{filename}" for mirror in release.mirrors], folder / filename, sha256)
            except DataMissing as error:
                raise DataMissing(f"{error}. {_what_to_do(name, source, search_places(source))}") from None
            return _look(source, folder)
    return None


def _what_to_do(name: str, source: Source, places: Sequence[Path]) -> str:
    files = [filename for filename, _ in source.npz[:1]]
    files += [release.archive or " + ".join(release.files) for release in source.releases]
    urls = [f"{mirror}/" for release in source.releases for mirror in release.mirrors]
    parts = [
        f"data set {name!r} was not found in {', '.join(map(str, places))}",
        f"put one of [{' | '.join(files)}] into a folder and set OTAFL_DATA to it, or give its path",
        f"original files: {', '.join(urls)}" if urls else "",
        source.advice,
    ]
    return "; ".join(filter(None, parts))
