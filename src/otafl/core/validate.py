"""Checks at the edge: every message gives the name, the value and the rule.

>>> from otafl.core import validate
>>> validate.in_open("delta", 1.5, 0, 1)
Traceback (most recent call last):
otafl.core.errors.InputError: delta=1.5 must lie in (0, 1)
"""

import difflib
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import InputError

MAX_DB = 400.0  # beyond any radio, and safe to convert
NUMPY_WHOLE = {np.dtype(code).type for code in np.typecodes["AllInteger"]}
LARGEST = 1e40  # of any number in a file, MAX_DB in linear units: products of a few of their squares are still numbers
SMALLEST = 1e-40  # of any that is not 0
LEAST_NORM = 1e-9  # of a bound on norms: in float32 squares below 1e-38 are zero, and what they add up to is lost
MAX_DISTANCE_M = 1e9  # beyond the moon; path losses of any law stay within MAX_DB
LONGEST_NAME, LONGEST_PATH = 255, 4096  # bytes that a file's name, and its path, can have
DECIBELS = ("_db", "_dbm", "_dbm_per_hz")  # how keys in dB end


def in_range(name: str, value: float) -> None:
    """The range of a number in a file, by the unit that its name ends in; inf and NaN are the schema's matter.

    >>> in_range("radio.noise_dbm", 1e12)
    Traceback (most recent call last):
    otafl.core.errors.InputError: radio.noise_dbm=1000000000000.0 must lie in [-400, 400] dB
    """
    size, key = abs(value), name.rstrip("0123456789.")  # a.b_m.3 is an entry of b_m
    if not np.isfinite(size):
        return
    if key.endswith(DECIBELS):
        if size > MAX_DB:
            raise InputError(f"{name}={value!r} must lie in [-{MAX_DB:.0f}, {MAX_DB:.0f}] dB")
    elif key.endswith("_m") and size > MAX_DISTANCE_M:
        raise InputError(f"{name}={value!r} must be at most {MAX_DISTANCE_M:.0e} m")
    elif size > LARGEST or 0 < size < SMALLEST:
        raise InputError(f"{name}={value!r} must be 0 or of a size within [{SMALLEST:.0e}, {LARGEST:.0e}]")


def first_place(bad: Any) -> tuple[int, ...]:
    """The index of the first entry that is true.

    >>> first_place([[False, False], [True, True]])
    (1, 0)
    """
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _first(value: Any, bad: Any) -> str:
    """Name the first offending entry, so that a message about 10,000 devices stays one line."""
    array = np.asarray(value)
    if array.ndim == 0:
        return f"={array.item()!r}"
    index = first_place(bad)
    return f"[{', '.join(map(str, index))}]={array[index].item()!r}"


def _require(name: str, value: Any, good: Any, rule: str) -> None:
    good = np.asarray(good)
    if not np.all(good):
        raise InputError(f"{name}{_first(value, ~good)} must {rule}")


def _numbers(name: str, value: Any) -> Any:
    """The value as an array, where it is one of numbers: neither text nor nothing, nor digits without end."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # ragged lists
        array = np.asarray(None)
    if array.dtype.kind not in "biufc":
        told = value if isinstance(value, int | str) else type(value).__name__
        raise InputError(f"{name}={shown(told)} must be a number")
    return array


def masked(values: Any) -> bool:
    """Whether anything is masked, which NumPy would bring back to light, also out of lists of masked arrays.

    >>> masked([np.ma.masked, 1.0])
    True
    """
    if isinstance(values, list | tuple):
        return any(map(masked, values))
    return isinstance(values, np.ma.MaskedArray) and bool(np.any(np.ma.getmaskarray(values)))


def single(name: str, value: Any) -> None:
    """One real number: lists of numbers, which the other checks look into, would pass them, empty ones any."""
    if _numbers(name, value).ndim or np.iscomplexobj(value) or masked(value):
        raise InputError(f"{name}={shown(value)} must be one number")


def finite(name: str, value: Any) -> None:
    _require(name, value, np.isfinite(_numbers(name, value)), "be finite")


def positive(name: str, value: Any) -> None:
    array = _numbers(name, value)
    _require(name, value, np.isfinite(array) & (array > 0), "be finite and > 0")


def norm_bound(name: str, value: Any) -> None:
    """A bound that norms in float32 can be held to; those above float32's largest number hold by themselves."""
    positive(name, value)
    _require(name, value, np.asarray(value) >= LEAST_NORM, f"be at least {LEAST_NORM:g}: norms are counted in float32")


def not_negative(name: str, value: Any) -> None:
    array = _numbers(name, value)
    _require(name, value, np.isfinite(array) & (array >= 0), "be finite and >= 0")


def in_open(name: str, value: Any, low: float, high: float) -> None:
    array = _numbers(name, value)
    _require(name, value, (array > low) & (array < high), f"lie in ({low}, {high})")


def in_closed(name: str, value: Any, low: float, high: float) -> None:
    array = _numbers(name, value)
    _require(name, value, (array >= low) & (array <= high), f"lie in [{low}, {high}]")


def in_left_open(name: str, value: Any, low: float, high: float) -> None:
    array = _numbers(name, value)
    _require(name, value, (array > low) & (array <= high), f"lie in ({low}, {high}]")


def whole(name: str, value: Any, low: int = 1, high: int | None = None) -> None:
    array = _numbers(name, value)
    good = np.isfinite(array) & (array == np.round(np.real(array))) & (array >= low)
    if high is not None:
        _require(name, value, good & (array <= high), f"be a whole number from {low} to {high}")
    _require(name, value, good, f"be a whole number >= {low}")


def one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    if not isinstance(value, str | int) or value not in allowed:
        known = list(map(str, sorted(allowed)))
        near = meant(value, known) if isinstance(value, str) else ""
        raise InputError(f"{name}={shown(value)} must be one of {', '.join(known)}{near}")


def path(name: str, value: Any) -> Path:
    """What names a file or a folder, there or not; InputError where no file can have that name."""
    if not isinstance(value, str | Path):
        raise InputError(f"{name}={shown(value)} must be a path")
    try:
        parts = [os.fsencode(part) for part in (str(value), *Path(value).parts)]
    except UnicodeEncodeError:  # half of a pair of surrogates
        parts = [b"\0"]
    if b"\0" in parts[0] or len(parts[0]) >= LONGEST_PATH or max(map(len, parts[1:]), default=0) > LONGEST_NAME:
        raise InputError(f"{name}={shown(str(value))} must be a path: no file can have this name")
    return Path(value)


def plain_whole(value: Any) -> int | None:
    """A whole number, read once; None for anything else, and for what only derives from one and may change."""
    return int(value) if type(value) is int or type(value) in NUMPY_WHOLE else None


OTHERS_SAY = {  # of other libraries, for what stands here on the right
    "lr": "step_size", "learning_rate": "step_size", "epochs": "rounds", "iterations": "rounds", "batch_size": "batch",
    "num_clients": "clients", "n_clients": "clients", "max_grad_norm": "clip_norm", "C": "clip_norm", "seed": "seeds",
    "epsilon": "eps",
}  # fmt: skip


def meant(text: str, known: Iterable[str]) -> str:
    """The end of a message about a name that nothing has: the one that it may be a misspelling of.

    >>> meant("fedavgg", ["constant", "fedavg"])
    "; did you mean 'fedavg'?"
    >>> meant("lr", ["rounds", "step_size"])
    "; did you mean 'step_size'?"
    """
    known = list(known)
    elsewhere = [OTHERS_SAY[text]] if OTHERS_SAY.get(text) in known else []
    near = elsewhere or difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def other_separator(header: list[str]) -> str | None:
    """What separates the cells of a table that was read by commas and has a single column for it.

    >>> other_separator(["distance_m;power_dbm"])
    ';'
    """
    return next((mark for mark in ";\t" if len(header) == 1 and mark in header[0]), None)


def shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    if isinstance(value, dict | list):
        return type(value).__name__
    if isinstance(value, int) and value.bit_length() > 2000:  # Python writes no number of more than 4300 digits
        return f"(a number of {value.bit_length()} bits)"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else f"{str(value)[:10]}..."
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def listed(names: Iterable[Any], most: int = 20) -> str:
    """Names in a message, each on its one line; of very many the first.

    >>> listed(["a", "b", "c"], most=2)
    'a, b, ... (3 in all)'
    """
    known = [str(name) for name in names]
    told = [name if name.isprintable() and len(name) <= 80 else shown(name) for name in known[:most]]
    return ", ".join([*told, f"... ({len(known)} in all)"] if len(known) > most else told)


def shape(name: str, value: Any, expected: Sequence[int]) -> None:
    if np.shape(value) != tuple(expected):
        raise InputError(f"{name} has shape {np.shape(value)} but must have shape {tuple(expected)}")


def double(name: str, value: Any) -> None:
    """Refuse numbers that have already lost the digits that design and accounting need."""
    dtype = np.asarray(value).dtype
    if dtype.kind in "fc" and np.finfo(dtype).eps > np.finfo(np.float64).eps:
        raise InputError(f"{name} has dtype {dtype} but must be in double precision (float64, complex128)")


def ascending(name: str, value: Any) -> None:
    array = np.asarray(value)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} must be a non-empty list")
    if np.any(np.diff(array) <= 0):
        raise InputError(f"{name}={array.tolist()} must be strictly ascending")


def at_most(what: str, count: int, limit: float, advice: str) -> None:
    """A size beyond which work or memory would not end; `what` spells the numbers that make it up."""
    if count > limit:
        raise InputError(f"{what} = {count} is more than {limit:g}, the most that is planned; {advice}")


def sums_to_one(name: str, value: Any, tolerance: float) -> None:
    total = float(np.sum(value))
    if not abs(total - 1) <= tolerance:
        raise InputError(f"{name} sums to {total!r} but must sum to 1 within {tolerance}")
