"""Which leaves of a model travel over the air, and the way from a reply, which is a model, to an update. NumPy.

An update is a difference of models. Integer leaves have none, and batch-norm statistics are averages of private data
that no clipping rule was made for: both are left out by name (`exclude`), or the model is refused.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from otafl.core.errors import InputError

Leaves = dict[str, np.ndarray]
STATISTICS = (
    "*running_mean", "*running_var", "*num_batches_tracked", "*moving_mean", "*moving_variance", "*batch_stats*"
)  # fmt: skip


def on_air(record: ArrayRecord, exclude: str | Sequence[str] = ()) -> list[str]:
    """Names of the leaves that are sent, in the order of the model. `exclude`: names, or patterns such as "bn*"."""
    if not isinstance(record, ArrayRecord):
        raise InputError(f"arrays is a {type(record).__name__}; give an ArrayRecord, e.g. of model.state_dict()")
    exclude = [exclude] if isinstance(exclude, str) else exclude
    unused = [pattern for pattern in exclude if not any(fnmatchcase(name, pattern) for name in record)]
    if unused:
        raise InputError(f"exclude={unused[0]!r} names no leaf of the model; its leaves are {', '.join(record)}")
    kept = [name for name in record if not any(fnmatchcase(name, pattern) for pattern in exclude)]
    for name in kept:
        if np.dtype(record[name].dtype).kind != "f":
            raise InputError(f"leaf {name!r} holds {record[name].dtype}, not floating point; exclude it by name")
        if any(fnmatchcase(name, pattern) for pattern in STATISTICS):
            raise InputError(f"leaf {name!r} looks like batch-norm statistics of private data; exclude it by name")
    if not kept:
        raise InputError("no leaf of the model is left to send; exclude fewer")
    return kept


def num_params(record: ArrayRecord, exclude: Sequence[str] = ()) -> int:
    """Numbers sent per round: what `otafl.Air` wants to know.

    >>> num_params(ArrayRecord([np.zeros((2, 3)), np.zeros(4)]))
    10
    """
    return sum(int(np.prod(record[name].shape, dtype=np.int64)) for name in on_air(record, exclude))


def arrays_of(record: ArrayRecord, names: Sequence[str]) -> Leaves:
    missing = [name for name in names if name not in record]
    if missing:
        raise InputError(f"leaf {missing[0]!r} is missing")
    return {name: _read(name, record[name]) for name in names}


def _read(name: str, array: Array) -> np.ndarray:
    """A leaf that somebody sent: bytes of anything, with a header that may ask for any amount of memory."""
    try:
        return np.asarray(array.numpy())
    except Exception as problem:
        raise InputError(f"leaf {name!r} cannot be read ({type(problem).__name__})") from None


def update_of(reply: ArrayRecord, model: Mapping[str, np.ndarray]) -> Leaves:
    """reply - model, leaf by leaf in the model's precision; InputError where the reply is no such model."""
    out = {}
    for name, own in arrays_of(reply, list(model)).items():
        leaf = model[name]
        if own.shape != leaf.shape or own.dtype != leaf.dtype:
            raise InputError(f"leaf {name!r} is {own.dtype}{own.shape}, expected {leaf.dtype}{leaf.shape}")
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is reported by its name
            out[name] = own - leaf
    return out


def replaced(record: ArrayRecord, leaves: Mapping[str, Any]) -> ArrayRecord:
    """The model with some leaves changed, in its own order and precision."""
    return ArrayRecord(
        {
            name: Array(np.asarray(leaves[name], array.numpy().dtype)) if name in leaves else array
            for name, array in record.items()
        }
    )


def norm(leaves: Mapping[str, np.ndarray]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(np.sum(np.square(leaf, dtype=np.float64)) for leaf in leaves.values())))
