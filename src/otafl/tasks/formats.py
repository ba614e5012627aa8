"""Reading image data as it is distributed: NPZ, IDX (MNIST), and the binary and pickled batches of CIFAR. NumPy, host.

Every reader returns (x_train, y_train, x_test, y_test), images and labels uint8, and refuses a file that is cut
short, damaged or not what its name says.
"""

import gzip
import io
import math
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otafl.core.archives import arrays_of, check_room
from otafl.core.errors import InputError, first_line

Bytes8 = NDArray[np.uint8]
Arrays = tuple[Bytes8, Bytes8, Bytes8, Bytes8]
Read = Callable[[str], bytes]  # contents of one file of a folder or an archive, by its bare name

MOST_AXES = 4  # of a set of images
KEYS = ("x_train", "y_train", "x_test", "y_test")


def read_npz(path: Path) -> Arrays:
    """The four arrays of an NPZ file without pickles; the archive's own checksums find damage."""
    try:
        found = arrays_of(path)
    except Exception as error:  # zipfile, zlib and NumPy have an exception of their own for every damage
        raise not_npz(path, error) from None
    if missing := [key for key in KEYS if key not in found]:
        raise InputError(f"{path}: has no array {missing[0]!r}; needs {', '.join(KEYS)}")
    return check(path, *(found[key] for key in KEYS))


def not_npz(path: Path, problem: Exception) -> InputError:
    """NumPy takes whatever is no archive for a pickle, and says how to load it; nobody should."""
    said = "" if "pickle" in str(problem) else f" ({first_line(problem)})"
    return InputError(f"{path}: damaged or not an NPZ file of plain arrays{said}")


def check(path: object, *arrays: NDArray[Any]) -> Arrays:
    """What every data set must satisfy: bytes in, as many labels as images, one image shape."""
    x_train, y_train, x_test, y_test = arrays
    for key, array in zip(KEYS, arrays):
        if array.dtype != np.uint8:
            raise InputError(f"{path}: {key} is {array.dtype} but must be uint8")
    if y_train.shape != x_train.shape[:1] or y_test.shape != x_test.shape[:1]:
        raise InputError(
            f"{path}: images {x_train.shape}, {x_test.shape} and labels {y_train.shape}, {y_test.shape} disagree"
        )
    if x_train.shape[1:] != x_test.shape[1:] or x_train.ndim < 2:
        raise InputError(f"{path}: training images {x_train.shape[1:]} and test images {x_test.shape[1:]} disagree")
    return x_train, y_train, x_test, y_test


def parse_idx(name: str, content: bytes) -> Bytes8:
    """One IDX file of unsigned bytes, gzipped or not: magic 0x0000 08 ndim, big-endian extents, data.

    Of a gzipped one no more is unpacked than its extents say, which must fit into this machine.
    """
    packed = content[:2] == b"\x1f\x8b"
    stream: Any = gzip.GzipFile(fileobj=io.BytesIO(content)) if packed else io.BytesIO(content)
    try:
        magic = stream.read(4)
        if len(magic) < 4 or magic[:3] != b"\x00\x00\x08" or magic[3] > MOST_AXES:
            raise InputError(f"{name}: not an IDX file of unsigned bytes")
        extents = stream.read(4 * magic[3]).ljust(4 * magic[3], b"\xff")
        shape = tuple(int(extent) for extent in np.frombuffer(extents, ">u4"))
        size = math.prod(shape)
        if packed:
            check_room(size)
        data = np.frombuffer(stream.read(size + 1 if packed else -1), np.uint8)
    except (OSError, EOFError, zlib.error, MemoryError) as error:
        raise InputError(f"{name}: damaged gzip file ({error})") from None
    if data.size != size:
        raise InputError(f"{name}: {data.size} bytes of data for an array of shape {shape}: cut short or damaged")
    return data.reshape(shape)


def idx_bytes(array: Bytes8) -> bytes:
    """The IDX file of an array, uncompressed."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def read_idx_set(read: Read, names: tuple[str, str, str, str], transposed: bool) -> Arrays:
    """Four IDX files, in the order of KEYS. EMNIST's images lie on their side (`transposed`)."""
    arrays = [parse_idx(name, read(name)) for name in names]
    if transposed:
        arrays[0], arrays[2] = (np.ascontiguousarray(arrays[i].transpose(0, 2, 1)) for i in (0, 2))
    return check(names[0], *arrays)


def _planes_to_images(rows: NDArray[Any]) -> Bytes8:
    """(N, 3072) red, green, blue planes -> (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _parse_cifar_binary(name: str, content: bytes, label_bytes: int) -> tuple[Bytes8, Bytes8]:
    record = label_bytes + 3072
    if not content or len(content) % record:
        raise InputError(f"{name}: {len(content)} bytes are no multiple of {record}: cut short or damaged")
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    return _planes_to_images(rows[:, label_bytes:]), rows[:, label_bytes - 1].copy()  # the fine label is the last


class _ArraysOnly(pickle.Unpickler):
    """Loads dictionaries, lists, bytes and NumPy arrays: a pickle from elsewhere must not run code here."""

    ALLOWED = frozenset({("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")})

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.ALLOWED:
            return super().find_class(module, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return super().find_class("numpy._core.multiarray", name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _parse_cifar_pickle(name: str, content: bytes) -> tuple[Bytes8, Bytes8]:
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        labels = batch[b"fine_labels"] if b"fine_labels" in batch else batch[b"labels"]
        return _planes_to_images(np.asarray(batch[b"data"], np.uint8)), np.asarray(labels, np.uint8)
    except Exception as error:
        raise InputError(f"{name}: damaged or not a CIFAR batch ({first_line(error)})") from None


def read_cifar(read: Read, train: tuple[str, ...], test: str, label_bytes: int) -> Arrays:
    """Batches of CIFAR-10 (one label byte) or CIFAR-100 (coarse and fine), binary if the names end in .bin."""

    def batch(name: str) -> tuple[Bytes8, Bytes8]:
        content = read(name)
        return (
            _parse_cifar_binary(name, content, label_bytes)
            if name.endswith(".bin")
            else _parse_cifar_pickle(name, content)
        )

    parts = [batch(name) for name in train]
    x_train, y_train = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return check(test, x_train, y_train, *batch(test))


def archive_reader(path: Path) -> Read:
    """Read members of a tar or zip archive by their bare names; a tar is unpacked in memory, in one pass."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                entries = {Path(entry).name: entry for entry in archive.namelist()}
            contents: dict[str, bytes] = {}
        else:
            entries = {}
            with tarfile.open(path) as tar:
                check_room(sum(member.size for member in tar))
                files = ((Path(member.name).name, tar.extractfile(member)) for member in tar)
                contents = {name: file.read() for name, file in files if file}
    except Exception as error:
        raise InputError(f"{path}: damaged archive ({first_line(error)})") from None

    def read(name: str) -> bytes:
        if name in contents:
            return contents[name]
        if name not in entries:
            raise InputError(f"{path}: holds no file {name}")
        try:
            with zipfile.ZipFile(path) as archive:
                check_room(archive.getinfo(entries[name]).file_size)
                return archive.read(entries[name])
        except Exception as error:
            raise InputError(f"{path}: damaged archive ({first_line(error)})") from None

    return read
