"""Training samples that a function of yours brings from wherever they are, client by client, when a round needs them.

`read(client)` returns the client's samples as arrays (x (n, ...), y (n,)), or an iterator over them, (x, y) each. It is
called once for every client at the start, when sizes, labels and hashes are taken, and then in every round; it must
always bring the same.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError, first_line
from otafl.tasks.demand import Pair, Source, consecutive
from otafl.tasks.own_arrays import MOST_CLASSES, array_of, features_of, same_length, targets_of

ReadOf = Callable[[int], Any]


class Reader:
    """Calls the function on the host and holds what it brings against what it brought first."""

    def __init__(self, read: ReadOf, clients: int):
        self._read, self.failure = read, ""
        self._one_at_a_time = threading.Lock()  # seeds ask from threads of their own; a file handle has one position
        self.hashes, sizes, counts = [], [], []
        self.x = self.y = np.zeros(0)
        for client in range(clients):
            x, y = self.of(client)
            if not client:
                self.x, self.y = x[:0], y[:0]
            if (x.dtype, x.shape[1:], y.dtype, y.shape[1:]) != (
                self.x.dtype, self.x.shape[1:], self.y.dtype, self.y.shape[1:]
            ):  # fmt: skip
                raise InputError(
                    f"x({client}): samples are {x.dtype} {x.shape[1:]}, {y.dtype} {y.shape[1:]}, unlike x(0)'s"
                )
            self.hashes.append(_digest(x, y))
            sizes.append(len(x))
            counts.append(np.bincount(y) if y.dtype == np.int32 else np.array([len(y)]))
        self.partition = consecutive(np.array(sizes))
        width = max(map(len, counts))
        self.mix = np.stack([np.pad(each, (0, width - len(each))) for each in counts]) / self.partition.sizes[:, None]

    def of(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """A client's samples in the types that are trained on."""
        with self._one_at_a_time:
            brought = self._asked(client)
        if not isinstance(brought, tuple) or len(brought) != 2:
            kind = type(brought).__name__
            raise InputError(f"x({client}) must bring a pair of arrays (x, y), or an iterator over samples: {kind}")
        x, y = features_of(f"x({client})'s x", brought[0]), targets_of(f"x({client})'s y", brought[1])
        same_length(f"x({client})'s x", x, "its y", y)
        if y.dtype.kind == "f":
            return x, y
        if y.dtype.kind not in "bui" or y.ndim > 1 or y.min() < 0 or y.max() >= MOST_CLASSES:
            raise InputError(f"x({client})'s y must be whole numbers from zero on, or floating-point targets")
        return x, y.astype(np.int32)

    def _asked(self, client: int) -> Any:
        try:
            brought = self._read(client)
            return _stacked(client, list(brought)) if isinstance(brought, Iterator) else brought
        except InputError:
            raise
        except Exception as problem:  # whatever somebody else's function says
            raise InputError(f"x({client}) fails: {first_line(problem)}") from None

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Samples of these numbers; a failure is kept for `check`, because nobody hears it inside a compiled round."""
        rows = np.asarray(rows)
        x = np.zeros((*rows.shape, *self.x.shape[1:]), self.x.dtype)
        y = np.zeros((*rows.shape, *self.y.shape[1:]), self.y.dtype)
        owner, number = np.divmod(rows, self.partition.rows.width)
        try:
            for client in map(int, np.unique(owner)):
                own_x, own_y = self._again(client)
                where = owner == client
                own = np.where(number[where] < len(own_x), number[where], 0)  # padding repeats the first
                x[where], y[where] = own_x[own], own_y[own]
        except Exception as problem:
            self.failure = self.failure or first_line(problem)
        return x, y

    def _again(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.of(client)
        if _digest(x, y) != self.hashes[client]:
            raise InputError(f"x({client}) brought other samples than at the start; it must always bring the same")
        return x, y


def _stacked(client: int, samples: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    if not samples:
        raise InputError(f"x({client}) brought no samples; give every client one at least")
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        raise InputError(f"x({client}) must bring samples that are pairs (x, y)")
    x, y = (np.stack([array_of(f"x({client})", sample[part]) for sample in samples]) for part in (0, 1))
    return x, y


def _digest(x: np.ndarray, y: np.ndarray) -> bytes:
    digest = hashlib.blake2b(f"{x.dtype}{x.shape}{y.dtype}{y.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(x).data)
    digest.update(np.ascontiguousarray(y).data)
    return digest.digest()


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["reader", "as_float"])
@dataclass(frozen=True)
class Brought:
    """Takes the place of `messages.Data`: samples are asked for from inside the compiled round."""

    reader: Reader
    as_float: bool = False

    def at(self, rows: Array) -> Pair:
        like = [
            jax.ShapeDtypeStruct((*rows.shape, *part.shape[1:]), part.dtype) for part in (self.reader.x, self.reader.y)
        ]
        x, y = jax.pure_callback(self.reader.take, tuple(like), rows, vmap_method="expand_dims")
        return (x.astype(np.float32) if self.as_float else x), y

    def check(self) -> None:
        if self.reader.failure:
            raise InputError(self.reader.failure)


def read_by(function: ReadOf, clients: int) -> Source:
    """Samples that a function on the host brings."""
    reader = Reader(function, clients)
    classes = reader.mix.shape[1] if reader.y.dtype == np.int32 else 0
    return Source(
        reader.x, reader.y, classes, reader.partition, reader.mix, hashlib.sha256(b"".join(reader.hashes)).hexdigest(),
        lambda whole_numbers: Brought(reader, as_float=not whole_numbers),
    )  # fmt: skip
