"""Arrays of your own as a task: numbers, labels, who holds what, and what is held out. NumPy, host.

    task(x, y, held_out=(x_test, y_test), owner=ids)          arrays, lists, frames
    task("data.csv", y="label", owner="site", held_out=0.2)   a table: the other columns are the features
    task("data.npz", y="y", held_out=("x_test", "y_test"))    named arrays; x is called x

Features are used as they stand: floating-point numbers as float32, whole numbers (tokens) as int32. Whole numbers from
zero on are labels; text and other whole numbers become labels in sorted order; floating-point targets are regressed.
"""

import dataclasses
import warnings
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, parse
from otafl.tasks.demand import Pair, Source, generated
from otafl.tasks.features import DataOptions, Part, Task, split, split_of
from otafl.tasks.own_arrays import (
    array_of,
    features_of,
    fingerprint,
    kept,
    labels_of,
    owners_of,
    same_length,
    targets_of,
)
from otafl.tasks.own_files import Columns, columns_of
from otafl.tasks.reading import read_by

SHARED = (
    "held-out samples were drawn from the clients' own data: what is reported or rewarded on them says something about "
    "them that no eps covers"
)
OPTIONS = {"reward_fraction", "validation_fraction", "split_seed"}
USED = ("name", "reward_fraction", "validation_fraction", "train_size", "split_seed")  # of an experiment's task.data


@dataclasses.dataclass(frozen=True, eq=False)
class OwnTask:
    """Data that were given in Python. N training samples, M held out, K clients."""

    x: np.ndarray  # (N, ...) float32 or int32
    y: np.ndarray  # (N,) int32 labels, or float32 targets (N, ...)
    x_held_out: np.ndarray  # (M, ...)
    y_held_out: np.ndarray
    classes: int  # 0: targets are no labels
    clients: int
    owner: np.ndarray | None  # (N,) int32 clients 0..K-1; None: dealt out by `partition`
    names: tuple[str, ...]  # of the clients; () where the samples are dealt out
    labels: tuple[str, ...]  # what the labels were called; () where they were numbers from zero on
    partition: dict[str, Any]
    options: dict[str, Any]  # of `features.DataOptions`
    weights: Any
    notes: tuple[str, ...]  # what lies outside the guarantee, for the card
    sha256: str  # of all of the above that is trained or reported on
    source: Source | None = None  # brings the training samples on demand; x and y are then empty

    def table(self) -> dict[str, Any]:
        """The [task] table of an experiment on these data, without its model."""
        data = {"name": "arrays", **self.options}
        return {"data": data, "clients": self.clients, "partition": self.partition, "weights": self.weights}

    def __repr__(self) -> str:
        kind = f"{self.classes} classes" if self.classes else "regression"
        count = len(self.x) if self.source is None else int(self.source.partition.sizes.sum())
        held = f"{count} + {len(self.x_held_out)} samples of shape {self.x.shape[1:]}"
        return f"<otafl task: {held}, {kind}, {self.clients} clients, sha256 {self.sha256[:12]}>"


def task(
    x: Any, y: Any = None, *, held_out: Any = 0.2, owner: Any = None, clients: int | None = None, partition: Any = None,
    samples: Any = None, weights: Any = "samples", reward_fraction: float = 0.2, validation_fraction: float = 0.0,
    split_seed: int = 0,
) -> OwnTask:  # fmt: skip
    """Your own data, to be trained on by `otafl.run`.

    Parameters
    ----------
    x : array, frame (pandas, polars, Arrow), or path of a CSV, Parquet or NPZ file
        (N, ...) features; of a table, all numeric columns that are not named otherwise
    y : array, or the name of a column
        (N,) labels or targets; (N, ...) targets
        x may also be a function that brings each client's samples whenever they are needed, so that all of them are
        never in memory; y is then left out. With `samples`, a JAX function (key, client) -> (x, y) of one sample;
        else a host function client -> (x, y) arrays of its samples, or an iterator over its samples (x, y)
    held_out : (x, y), a path or frame like x, or a share of the samples
        what results are reported on. Of a share, samples are drawn at random by `split_seed`. For a function: (x, y),
        or, where it makes samples, how many to make for clients that take no part
    owner : array or the name of a column, optional
        (N,) who holds each sample; its sorted values are the clients
    clients, partition
        without owners: how many clients, and a partition of `otafl list partitions` (name or table); default iid
    samples : int or list
        how many samples a function makes for each client
    weights : "samples", "equal" or a list
        of the clients in the sum
    reward_fraction : float
        share of the held-out samples that is declared public for policies that look at accuracy while they run
    validation_fraction : float
        share of the training samples kept apart for tuning

    Returns
    -------
    OwnTask
        the arrays as they will be trained on, for `task=` of the verbs

    Examples
    --------
    >>> import numpy as np, otafl
    >>> x = np.random.default_rng(0).normal(size=(60, 4))
    >>> made = otafl.task(x, x[:, 0] > 0, held_out=0.25, owner=np.arange(60) % 3)
    >>> made.x.shape, made.classes, made.clients
    ((45, 4), 2, 3)
    """
    said = parse(Words, {
        "clients": _plain(clients), "partition": partition, "weights": _plain(weights),
        "split_seed": _plain(split_seed), "reward_fraction": _plain(reward_fraction),
        "validation_fraction": _plain(validation_fraction),
    }, "otafl.task")  # fmt: skip
    clients, split_seed = said.clients, said.split_seed
    if callable(x):
        if y is not None or owner is not None or partition is not None or said.validation_fraction:
            raise InputError("a function brings labels too: y, owner, partition, validation_fraction are for arrays")
        return _on_demand(x, said, samples, held_out)
    if samples is not None:
        raise InputError("samples says how many a function makes: x must be a JAX function (key, client) -> (x, y)")
    if y is None:
        raise InputError("give y: labels or targets, one per sample, or the name of their column")
    found = columns_of("x", x, y, owner)
    if found.owner is not None:
        found = found._replace(owner=array_of("owner", found.owner, axes=1))
    train, test, owners = _held_out(found, y, owner, held_out, split_seed)
    y_train, y_test, names, classes = labels_of(train[1], test[1])
    ids, holders = owners_of(owners, clients)
    count = clients if ids is None else len(holders)
    if count is None:
        raise InputError("give owner (who holds each sample) or clients (how many there are)")
    validate.whole("clients", count)
    dealt = _partition(said.partition, ids, classes)
    x_train, y_train, x_test, y_test = map(kept, (train[0], y_train, test[0], y_test))
    arrays = (x_train, y_train, x_test, y_test, *(() if ids is None else (ids,)))
    return OwnTask(
        x_train, y_train, x_test, y_test, classes, int(count), ids, holders, names, dealt,
        said.model_dump(include=OPTIONS), said.weights, (SHARED,) if isinstance(held_out, float) else (),
        fingerprint(arrays),
    )  # fmt: skip


def _on_demand(function: Any, said: "Words", samples: Any, held_out: Any) -> OwnTask:
    if said.clients is None:
        raise InputError("give clients: how many there are")
    if samples is None:
        source = read_by(function, said.clients)
    else:
        source = generated(function, said.clients, _plain(samples), said.split_seed, _count(held_out))
    given = held_out if source.held_out is None else source.held_out
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError("held_out must be (x, y), or how many samples to make where x is given with samples")
    x, y = _pair("held_out ", given[0], given[1], like=(source.x, source.y))
    known = np.arange(source.classes) if source.classes else source.y
    _, y, names, classes = labels_of(known, y)
    if names or (classes == 0) != (source.classes == 0):
        raise InputError("labels that a function brings must be whole numbers from zero on, those of held_out too")
    x, y, source = kept(x), kept(y), source.widened(max(classes, source.classes))
    return OwnTask(
        source.x, source.y, x, y, source.classes, said.clients, None, (), (), {"kind": "owner"},
        said.model_dump(include=OPTIONS), said.weights, (),
        fingerprint((x, y, np.frombuffer(bytes.fromhex(source.sha256), np.uint8))), source,
    )  # fmt: skip


def _count(held_out: Any) -> int | None:
    """How many samples are to be made for it; None where they are given."""
    return held_out if isinstance(held_out, int) and not isinstance(held_out, bool) else None


def _pair(part: str, x: Any, y: Any, like: Pair | None = None) -> Pair:
    found = features_of(f"{part}x", x), targets_of(f"{part}y", y)
    same_length(f"{part}x", found[0], f"{part}y", found[1])
    if like is not None and any(one.shape[1:] != other.shape[1:] for one, other in zip(found, like)):
        raise InputError(f"{part}samples have shape {found[0].shape[1:]}, training ones {like[0].shape[1:]}")
    return found


class Words(FileModel):
    """What must be right about the plain arguments of `task`."""

    clients: Annotated[int, Field(ge=1)] | None
    partition: str | dict[str, Any] | None
    weights: str | list[float]
    split_seed: Annotated[int, Field(ge=0, lt=2**32)]
    reward_fraction: Annotated[float, Field(ge=0, le=1)]
    validation_fraction: Annotated[float, Field(ge=0, lt=1)]


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _held_out(found: Columns, y: Any, owner: Any, held_out: Any, split_seed: int) -> tuple[Any, Any, Any]:
    """Training pair, held-out pair and the owners of the training samples."""
    training = features, targets = _pair("", found.x, found.y)
    if found.owner is not None:
        same_length("x", features, "owner", found.owner)
    if isinstance(held_out, bool) or not isinstance(held_out, int | float):
        other = _other(found, y, owner, held_out)
        mine, theirs = (", ".join(map(repr, one.features or ())) for one in (found, other))
        if mine and theirs and mine != theirs:
            raise InputError(f"held_out has the columns {theirs}, training has {mine}; give both the same in order")
        return training, _pair("held_out ", other.x, other.y, like=training), found.owner
    if not 0 < held_out < 1:
        raise InputError(f"held_out={validate.shown(held_out)} must be a share between 0 and 1, or (x, y)")
    rng = np.random.default_rng([split_seed, 1])
    test, train = split(len(features), float(held_out), rng)
    if not len(test) or not len(train):
        raise InputError(f"held_out={validate.shown(held_out)} of {len(features)} samples leaves an empty part")
    owners = None if found.owner is None else found.owner[train]
    if owners is not None:
        _name_who_is_left_out(owners_of(found.owner, None)[1], owners_of(owners, None)[1], held_out)
    return (features[train], targets[train]), (features[test], targets[test]), owners


def _name_who_is_left_out(everybody: tuple[str, ...], left: tuple[str, ...], held_out: float) -> None:
    """A share of all samples may take all that somebody has, who is then no client."""
    if lost := sorted(set(everybody) - set(left)):
        named = ", ".join(lost[:5]) + (", ..." if len(lost) > 5 else "")
        warnings.warn(
            f"held_out={held_out:g} takes all samples of {len(lost)} of {len(everybody)} owners, who do not take part: "
            f"{named}; give a held_out=(x, y) of its own, or another split_seed",
            UserWarning, stacklevel=4,
        )  # fmt: skip


def _other(found: Columns, y: Any, owner: Any, held_out: Any) -> Columns:
    """Held-out samples: a pair of arrays (or names of arrays in the same file), or a table like the training one's."""
    if isinstance(held_out, tuple | list) and len(held_out) == 2:
        first, second = held_out
        if found.named is not None and isinstance(first, str) and first in found.named:
            if not isinstance(second, str) or second not in found.named:
                raise InputError(f"held_out: there is no array {second!r}; there are {validate.listed(found.named)}")
            return Columns(found.named[first], found.named[second], None, None)
        return columns_of("held_out", first, second, None)
    if not isinstance(y, str):
        raise InputError("held_out must be (x, y), or a share of the samples, where y is an array")
    return columns_of("held_out", held_out, y, None, skip=owner if isinstance(owner, str) else None)


def _partition(partition: Any, ids: np.ndarray | None, classes: int) -> dict[str, Any]:
    from otafl.tasks.partitions import NEED_LABELS, PARTITIONS

    if ids is not None:
        if partition is not None:
            raise InputError("owner says who holds what: give no partition besides")
        return {"kind": "owner"}
    table = {"kind": "iid"} if partition is None else {"kind": partition} if isinstance(partition, str) else partition
    validate.one_of("partition", table.get("kind"), PARTITIONS)
    if not classes and table["kind"] in NEED_LABELS:
        raise InputError(f"partition={table['kind']!r} needs labels; use iid, sizes or shards to regress")
    return dict(table)


def prepare(own: OwnTask, options: DataOptions, whole_numbers: bool = True) -> tuple[Task, np.ndarray | None]:
    """The parts that are trained, tuned, rewarded and reported on, and the owners of the first.

    whole_numbers: whether features that are whole numbers stay so; networks by name want floating-point numbers.
    """
    default = DataOptions()
    for field in dataclasses.fields(DataOptions):
        if field.name not in USED and getattr(options, field.name) != getattr(default, field.name):
            raise InputError(f"task.data.{field.name} is for images by name; transform arrays of your own yourself")
    train, validation, reward, report = split_of(options, len(own.y), len(own.y_held_out))
    if not len(report):
        raise InputError(f"reward_fraction={options.reward_fraction} leaves no held-out sample to report on")
    kind = own.x.dtype if whole_numbers else np.float32
    trained, tuned = (Part(own.x[rows].astype(kind), own.y[rows]) for rows in (train, validation))
    rewarded, reported = (Part(own.x_held_out[rows].astype(kind), own.y_held_out[rows]) for rows in (reward, report))
    parts = Task(trained, tuned, rewarded, reported, own.classes, "arrays", own.sha256, own.notes)
    return parts, None if own.owner is None else own.owner[train]
