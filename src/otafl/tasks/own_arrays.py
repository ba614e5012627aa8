"""Arrays of somebody's own, checked and brought into the types that are trained on; every refusal is one line. Host."""

import hashlib
from typing import Any

import numpy as np

from otafl.core.errors import InputError, OtaflError, first_line
from otafl.core.validate import first_place, masked, shown

MOST_CLASSES = 10_000


def array_of(name: str, values: Any, axes: int | None = None) -> np.ndarray:
    """Whatever was given as one plain array; what NumPy would guess, or silently unmask, is refused."""
    if masked(values):
        raise InputError(f"{name} has masked values; fill them, or leave these samples out")
    if isinstance(values, dict | set | frozenset | bytes | str) or hasattr(values, "__next__"):
        raise InputError(f"{name} is a {type(values).__name__}; give an array or a list")
    try:
        array = np.array(values, copy=None, subok=False)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name} is no array: its entries have different lengths or kinds") from None
    except (OtaflError, MemoryError):
        raise
    except Exception as problem:  # of somebody else's __array__
        raise InputError(f"{name} is no array: {first_line(problem)}") from None
    if axes is not None and array.ndim != axes:
        raise InputError(f"{name} must be one id per sample but has shape {array.shape}")
    return array


def features_of(name: str, x: Any) -> np.ndarray:
    """(N, ...) float32, or int32 where they are whole numbers; finite."""
    array = array_of(name, x)
    if array.dtype == object or array.dtype.kind not in "buif":
        raise InputError(f"{name} must be numbers but is {array.dtype}; encode text and categories first")
    if array.ndim < 1 or not len(array):
        raise InputError(f"{name} must have samples on its first axis but has shape {array.shape}")
    array = array[:, None] if array.ndim == 1 else array
    if not array.size:
        raise InputError(f"{name} must have at least one feature but has shape {array.shape}")
    if array.dtype.kind in "ui":
        if array.min() < -(2**31) or array.max() >= 2**31:
            raise InputError(f"{name} has whole numbers beyond 32 bits; give them as floating-point numbers")
        return np.ascontiguousarray(array, np.int32)
    return _float32(name, array)


def _float32(name: str, array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(array, np.float32)
    if not np.all(np.isfinite(made)):
        where = first_place(~np.isfinite(made))
        raise InputError(f"{name}{list(where)} is {array[where]}: every value must be a finite float32 number")
    return made


def targets_of(name: str, y: Any) -> np.ndarray:
    array = array_of(name, y)
    if array.ndim < 1 or array.dtype.kind not in "buifUSO":
        raise InputError(f"{name} must be one label or number per sample but is {array.dtype} {array.shape}")
    if array.dtype.kind == "O" and any(map(_missing, array.ravel())):
        raise InputError(f"{name} has samples without a label; leave them out")
    return _float32(name, array) if array.dtype.kind == "f" else array


def _missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal
        return True


def _words(name: str, values: np.ndarray) -> np.ndarray:
    try:
        return values.astype(str)
    except UnicodeError:
        raise InputError(f"{name} has bytes that are no ASCII text; decode them first") from None
    except Exception as problem:  # Python writes no number of thousands of digits, and objects say what they like
        raise InputError(f"{name} has values that cannot be written as text: {first_line(problem)}") from None


def kept(array: np.ndarray) -> np.ndarray:
    """A copy that nobody writes into: its hash says what is trained on whatever becomes of the array that was given."""
    made = np.array(array)
    made.flags.writeable = False
    return made


def same_length(first: str, a: Any, second: str, b: Any) -> None:
    if len(a) != len(b):
        raise InputError(f"{first} has {len(a)} samples but {second} has {len(b)}")


def labels_of(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], int]:
    """Targets as they are trained on, the names of labels that were no numbers from zero on, and how many there are."""
    if train.dtype.kind == "f" or test.dtype.kind == "f":
        if train.dtype.kind != test.dtype.kind:
            raise InputError(f"y is {train.dtype} but held_out y is {test.dtype}: give both as labels or as numbers")
        return train, test, (), 0
    if train.shape[1:] == (1,):
        raise InputError(f"y of shape {train.shape} is a column of labels: give y[:, 0]; or floats to regress on")
    if train.ndim > 1:
        if train.dtype.kind not in "bui":
            raise InputError(f"y of shape {train.shape} must be numbers but is {train.dtype}")
        if max(abs(int(end)) for part in (train, test) for end in (part.min(), part.max())) >= 2**31:
            raise InputError("y has whole numbers beyond 32 bits; give them as floating-point numbers")
        return train.astype(np.int32), test.astype(np.int32), (), 0
    if train.dtype.kind in "bui" and test.dtype.kind in "bui" and min(train.min(), test.min()) >= 0:
        most = int(max(train.max(), test.max()))
        if most >= MOST_CLASSES:
            raise InputError(f"y has labels up to {most}; at most {MOST_CLASSES} classes. Give floats to regress on y")
        return train.astype(np.int32), test.astype(np.int32), (), most + 1
    told, asked = _words("y", train), _words("held_out y", test)
    words = np.unique(np.concatenate([told, asked]))
    unknown = np.setdiff1d(words, np.unique(told))
    if len(unknown):
        raise InputError(f"held_out y has the label {shown(str(unknown[0]))}, which no training sample has")
    numbers = (np.searchsorted(words, y).astype(np.int32) for y in (told, asked))
    return next(numbers), next(numbers), tuple(map(str, words)), len(words)


def owners_of(owner: Any, clients: int | None) -> tuple[np.ndarray | None, tuple[str, ...]]:
    if owner is None:
        return None, ()
    ids = array_of("owner", owner, axes=1)
    if ids.dtype.kind not in "buifUSO":
        raise InputError(f"owner must be one id per sample but is {ids.dtype}")
    if ids.dtype.kind in "fO" and any(map(_missing, ids)):
        raise InputError("owner names nobody for some samples; leave them out, or give them a name")
    ids = ids if ids.dtype.kind in "bui" else _words("owner", ids)
    names, numbers = np.unique(ids, return_inverse=True)
    if clients is not None and clients != len(names):
        raise InputError(f"clients={clients} but owner names {len(names)}; leave clients out")
    return numbers.astype(np.int32), tuple(map(str, names))


def fingerprint(arrays: tuple[np.ndarray, ...]) -> str:
    """SHA-256 of types, shapes and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
