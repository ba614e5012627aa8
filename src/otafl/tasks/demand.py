"""Training samples that are made when a round needs them: never more of them in memory than one chunk of clients has.

Sample j of client k is a function of (seed, k, j): every round, every scheme and every restart makes the same one. JAX.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.authors import program_digest
from otafl.core.errors import InputError, first_line
from otafl.core.messages import Consecutive
from otafl.tasks.own_arrays import MOST_CLASSES
from otafl.tasks.partitions import Partition

Pair = tuple[Any, Any]
SampleOf = Callable[[Array, Array], Pair]  # (key, client) -> (x, y) of one sample
AT_ONCE = 2**18  # samples whose labels are counted together


@dataclass(frozen=True, eq=False)
class Source:
    """What is known of samples that are brought on demand. K clients, C classes (1 where targets are no labels)."""

    x: np.ndarray  # (0, ...): shape and type of features
    y: np.ndarray  # (0, ...): int32 labels, or float32 targets
    classes: int
    partition: Partition  # rows are `Consecutive`
    mix: Floats  # (K, C) share of each label
    sha256: str
    data: Callable[..., Any]  # (whole_numbers) -> what takes the place of `messages.Data`
    held_out: Pair | None = None  # made together with them

    def widened(self, classes: int) -> "Source":
        """The same with labels that no client has."""
        more = ((0, 0), (0, max(classes, 1) - self.mix.shape[1]))
        return replace(self, classes=classes, mix=np.pad(self.mix, more))


@partial(jax.tree_util.register_dataclass, data_fields=["key"], meta_fields=["sample", "width", "as_float"])
@dataclass(frozen=True)
class Made:
    """Takes the place of `messages.Data`: sample number `client * width + j` is made where it is asked for."""

    key: Array
    sample: SampleOf
    width: int
    as_float: bool = False  # features that are whole numbers become floating-point ones

    def at(self, rows: Array) -> Pair:
        x, y = jax.vmap(self._one)(jnp.asarray(rows, jnp.int32).reshape(-1))
        x = x.astype(np.float32) if self.as_float else x
        return x.reshape(*rows.shape, *x.shape[1:]), y.reshape(*rows.shape, *y.shape[1:])

    def _one(self, row: Array) -> Pair:
        client = row // np.int32(self.width)
        key = jax.random.fold_in(jax.random.fold_in(self.key, client), row % np.int32(self.width))
        with jax.enable_x64(False):  # a run mixes precisions; what somebody else wrote expects JAX's own
            x, y = (jnp.asarray(value) for value in self.sample(key, client))
        x = x[None] if x.ndim == 0 else x
        return _plain(x), _plain(y)

    def check(self) -> None:
        """Nothing can be missing."""


def _plain(value: Array) -> Array:
    return value.astype(np.float32 if jnp.issubdtype(value.dtype, jnp.floating) else np.int32)


def consecutive(sizes: np.ndarray) -> Partition:
    """Every client has a room of the largest size; what a smaller one does not use counts as padding."""
    width, clients = int(sizes.max()), len(sizes)
    if clients * width >= 2**31:
        raise InputError(f"{clients} clients of {width} samples are more than 2^31 samples; give fewer of them")
    first = (np.arange(clients) * width).astype(np.int32)
    return Partition(Consecutive(first, width), sizes.astype(np.int32), np.zeros(0, np.int32))


def generated(sample: SampleOf, clients: int, samples: Any, seed: int, held_out: int | None) -> Source:
    """Samples made by a JAX function; so many `held_out` come from clients that take no part."""
    sizes = np.asarray(samples)
    if sizes.ndim > 1 or sizes.dtype.kind not in "ui" or np.any(sizes < 1) or sizes.shape not in ((), (clients,)):
        raise InputError("samples must be a whole number from 1 on, or one per client")
    sizes = np.broadcast_to(sizes, (clients,))
    partition = consecutive(sizes)
    made = Made(jax.random.key(seed), sample, partition.rows.width)
    x, y = _tried(made)
    classes, mix = count_labels(partition, jax.jit(lambda rows: made.at(rows)[1])) if y.dtype == np.int32 else (0, None)
    return Source(
        x, y, classes, partition, np.ones((clients, 1)) if mix is None else mix, _fingerprint(made, sizes),
        lambda whole_numbers: replace(made, as_float=not whole_numbers), _others(made, clients, held_out),
    )  # fmt: skip


def _others(made: Made, clients: int, count: int | None) -> Pair | None:
    if count is None:
        return None
    validate.whole("held_out", count)
    if clients * made.width + count >= 2**31:
        raise InputError(f"held_out={count} makes more than 2^31 samples with those of the clients; give fewer")
    x, y = jax.jit(made.at)(clients * made.width + np.arange(count, dtype=np.int32))
    return np.asarray(x), np.asarray(y)


def _tried(made: Made) -> tuple[np.ndarray, np.ndarray]:
    """Empty arrays like what the function makes; whatever else it does is refused in one line."""
    try:
        x, y = jax.eval_shape(made.at, jax.ShapeDtypeStruct((0,), jnp.int32))
    except Exception as problem:  # somebody else's function
        first = first_line(problem)
        raise InputError(f"x(key, client) must be a JAX function that returns one sample (x, y): {first}") from None
    if y.dtype == np.int32 and y.ndim > 1:
        raise InputError(f"x(key, client) must return one label, or floating-point targets, but y is {y.shape[1:]}")
    return np.zeros(x.shape, x.dtype), np.zeros(y.shape, y.dtype)


def count_labels(partition: Partition, labels: Callable[[Array], Array]) -> tuple[int, Floats]:
    """How many classes there are, and the share of each label among each client's samples; some clients at a time."""
    clients, width = partition.rows.shape
    step = max(1, min(clients, AT_ONCE // width))
    counts = []
    for start in range(0, clients, step):
        ids = np.minimum(np.arange(start, start + step), clients - 1)  # one shape: nothing is compiled twice
        y = np.asarray(labels(partition.rows[ids]))[: clients - start]
        held = np.arange(width) < partition.sizes[start : start + step][:, None]
        most, least = int(y[held].max()), int(y[held].min())
        if least < 0 or most >= MOST_CLASSES:
            raise InputError(f"labels from {least} to {most}: they must be whole numbers from 0 to {MOST_CLASSES - 1}")
        place = (np.arange(len(y))[:, None] * (most + 1) + y)[held]
        counts.append(np.bincount(place, minlength=len(y) * (most + 1)).reshape(len(y), most + 1))
    classes = max(some.shape[1] for some in counts)
    whole = np.concatenate([np.pad(some, ((0, 0), (0, classes - some.shape[1]))) for some in counts])
    return classes, whole / partition.sizes[:, None]


def _fingerprint(made: Made, sizes: np.ndarray) -> str:
    """SHA-256 of the function as a program, with its constants, of its key and of how many samples it makes."""
    digest = hashlib.sha256(program_digest(made.at, jax.ShapeDtypeStruct((1,), jnp.int32)).encode())
    for array in (jax.random.key_data(made.key), sizes):
        digest.update(np.asarray(array).tobytes())
    return digest.hexdigest()
