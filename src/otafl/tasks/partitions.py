"""Who holds which samples. NumPy, host.

Every recipe takes the labels y (N,), the number of clients and a generator, and returns a `Partition` in which no
sample has two owners, but for `shared`; a recipe that leaves samples over says so by owner -1.

>>> y = np.repeat(np.arange(10), 20)
>>> split = make("dirichlet", y, 4, np.random.default_rng(0), alpha=0.5)
>>> int(split.sizes.sum()), label_mix(split, y, 10).shape
(200, (4, 10))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.core.messages import Consecutive

Rng = np.random.Generator
Labels = NDArray[np.integer[Any]]


class Partition(NamedTuple):
    """K clients, N samples, n_max samples on the largest client."""

    rows: Any  # (K, n_max) int32 sample numbers; padding repeats the client's first (0 if it has none); or Consecutive
    sizes: NDArray[np.int32]  # (K,) how many entries of each row count
    owner: NDArray[np.int32]  # (N,) client of each sample, -1 for nobody


def stacked(parts: Sequence[Partition]) -> tuple[Any, NDArray[np.int32]]:
    """Rows (S, K, n_max) and sizes (S, K) of all seeds, padded to the largest client of any of them."""
    sizes = np.stack([part.sizes for part in parts])
    if isinstance(parts[0].rows, Consecutive):
        return replace(parts[0].rows, first=np.stack([part.rows.first for part in parts])), sizes
    width = max(part.rows.shape[1] for part in parts)
    rows = [np.pad(part.rows, ((0, 0), (0, width - part.rows.shape[1])), mode="edge") for part in parts]
    return np.stack(rows), sizes


def from_lists(lists: Sequence[NDArray[Any]], num_samples: int) -> Partition:
    """One array of sample numbers per client; refuses a sample with two owners."""
    sizes = np.array([len(own) for own in lists], np.int32)
    samples = np.concatenate([np.asarray(own, np.int64) for own in lists])
    client, place = np.repeat(np.arange(len(lists), dtype=np.int32), sizes), np.arange(len(samples))
    if np.any(outside := (samples < 0) | (samples >= num_samples)):
        raise InputError(f"client {client[np.argmax(outside)]} holds a sample outside 0..{num_samples - 1}")
    first = np.zeros(num_samples, np.int64)
    first[samples[::-1]] = place[::-1]  # the first place is written last
    if np.any(again := first[samples] != place):
        raise InputError(f"client {client[np.argmax(again)]} holds a sample that is already owned")
    owner = np.full(num_samples, -1, np.int32)
    owner[samples] = client
    rows = np.zeros((len(lists), max(1, int(sizes.max(initial=0)))), np.int32)
    some = sizes > 0
    rows[some] = samples[(np.cumsum(sizes) - sizes)[some], None]  # the rest of a row repeats its first sample
    rows[np.arange(rows.shape[1]) < sizes[:, None]] = samples
    return Partition(rows, sizes, owner)


def label_mix(partition: Partition, y: Labels, classes: int) -> Floats:
    """(K, C): share of each label among each client's samples; a client without samples has a row of zeros."""
    clients, width = partition.rows.shape
    held = np.arange(width) < partition.sizes[:, None]
    place = np.arange(clients)[:, None] * classes + y[partition.rows]
    counts = np.bincount(place[held], minlength=clients * classes).reshape(clients, classes)
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


@dataclass(frozen=True)
class IidOptions:
    per_client: int | None = None  # samples per client; None: all, sizes equal within one


def iid(options: IidOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Random samples, equally many for each client."""
    order = rng.permutation(len(y))
    if options.per_client is None:
        return from_lists(np.array_split(order, num_clients), len(y))
    return _cut(order, np.full(num_clients, options.per_client), len(y))


@dataclass(frozen=True)
class SizesOptions:
    sizes: tuple[int, ...]  # one per client


def given_sizes(options: SizesOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Random samples, a given number for each client."""
    validate.shape("sizes", options.sizes, (num_clients,))
    validate.whole("sizes", options.sizes, low=0)
    return _cut(rng.permutation(len(y)), np.asarray(options.sizes), len(y))


def _cut(order: NDArray[Any], sizes: NDArray[Any], num_samples: int) -> Partition:
    validate.whole("sizes", sizes, low=0)
    if sizes.sum() > num_samples:
        raise InputError(f"the clients ask for {int(sizes.sum())} samples but there are {num_samples}")
    return from_lists(np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1]), num_samples)


@dataclass(frozen=True)
class DirichletOptions:
    alpha: float = 0.5  # small: few labels per client; large: IID
    min_size: int = 1  # the whole split is drawn again until every client has so many


def dirichlet(options: DirichletOptions, y: Labels, num_clients: int, rng: Rng, tries: int = 1000) -> Partition:
    """Each class is dealt to the clients in shares drawn from Dirichlet(alpha, ..., alpha)."""
    validate.positive("alpha", options.alpha)
    validate.whole("min_size", options.min_size, low=0)
    classes = [np.flatnonzero(y == label) for label in np.unique(y)]
    for _ in range(tries):
        owned: list[list[NDArray[Any]]] = [[] for _ in range(num_clients)]
        for members in classes:
            shares = rng.dirichlet(np.full(num_clients, options.alpha))
            cuts = (np.cumsum(shares)[:-1] * len(members)).astype(int)
            for own, part in zip(owned, np.split(rng.permutation(members), cuts)):
                own.append(part)
        lists = [rng.permutation(np.concatenate(own)) for own in owned]
        if min(map(len, lists)) >= options.min_size:
            return from_lists(lists, len(y))
    raise InputError(
        f"no Dirichlet({options.alpha}) split of {len(y)} samples over {num_clients} clients gave every client "
        f"min_size={options.min_size} samples in {tries} draws; raise alpha or lower min_size"
    )


@dataclass(frozen=True)
class LabelsOptions:
    labels: int = 2  # different labels on each client


def labels_per_client(options: LabelsOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Each client holds exactly k labels; every label on nearly equally many clients, shared equally among them."""
    present = np.unique(y)
    validate.in_closed("labels", options.labels, 1, len(present))
    order = rng.permutation(present)
    places = np.arange(num_clients * options.labels).reshape(num_clients, -1) % len(order)
    wanted = order[places]  # (K, k)
    owned: list[list[NDArray[Any]]] = [[] for _ in range(num_clients)]
    for label in present:
        holders = [client for client in range(num_clients) if label in wanted[client]]
        members = rng.permutation(np.flatnonzero(y == label))
        if len(members) < len(holders):
            raise InputError(f"label {label} has {len(members)} samples for {len(holders)} clients")
        for client, part in zip(holders, np.array_split(members, len(holders)) if holders else []):
            owned[client].append(part)
    return from_lists([rng.permutation(np.concatenate(own)) for own in owned], len(y))


@dataclass(frozen=True)
class TwoDigitsOptions:
    per_class: int | None = 1000  # samples used of each class, chosen at random; None: all


def two_digits(options: TwoDigitsOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Client m holds half A of class m and half B of class m + 1 (mod classes), as bias-variance section VI."""
    present = np.unique(y)
    if num_clients != len(present):
        raise InputError(f"num_clients={num_clients} must equal the number of classes, {len(present)}, for two-digits")
    halves = []
    for label in present:
        members = rng.permutation(np.flatnonzero(y == label))
        count = len(members) if options.per_class is None else options.per_class
        if not 2 <= count <= len(members):
            raise InputError(f"per_class={count} must lie in [2, {len(members)}], the size of class {label}")
        halves.append(np.split(members[:count], [count // 2]))
    lists = [np.concatenate([halves[m][0], halves[(m + 1) % num_clients][1]]) for m in range(num_clients)]
    return from_lists([rng.permutation(own) for own in lists], len(y))


@dataclass(frozen=True)
class ShardsOptions:
    shards_per_client: int = 2


def shards(options: ShardsOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Samples sorted by label, cut into equal shards, dealt at random (McMahan et al. 2017); a remainder is unused."""
    validate.whole("shards_per_client", options.shards_per_client)
    total = num_clients * options.shards_per_client
    size = len(y) // total
    if size < 1:
        raise InputError(f"{total} shards do not fit {len(y)} samples")
    by_label = np.argsort(y, kind="stable")[: total * size].reshape(total, size)
    dealt = rng.permutation(total).reshape(num_clients, options.shards_per_client)
    return from_lists([rng.permutation(by_label[own].ravel()) for own in dealt], len(y))


@dataclass(frozen=True)
class SharedOptions:
    per_client: int = 10


def shared(options: SharedOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    """Different samples for each client, drawn for each from all: many more clients than samples, who share them."""
    validate.whole("per_client", options.per_client)
    if options.per_client**2 > len(y):  # else most draws would have to be repeated
        raise InputError(f"per_client={options.per_client} must be at most the root of the {len(y)} samples")
    rows = rng.integers(0, len(y), (num_clients, options.per_client), dtype=np.int32)
    while (again := np.flatnonzero(np.any(np.diff(np.sort(rows, axis=1)) == 0, axis=1))).size:
        rows[again] = rng.integers(0, len(y), (again.size, options.per_client), dtype=np.int32)
    sizes = np.full(num_clients, options.per_client, np.int32)
    return Partition(rows, sizes, np.full(len(y), -1, np.int32))


@dataclass(frozen=True)
class OwnerOptions:
    """Nothing to set: the data say who holds what."""


def declared(options: OwnerOptions, y: Labels, num_clients: int, rng: Rng) -> Partition:
    raise InputError("partition='owner' needs data that say who holds what: otafl.task(x, y, owner=ids)")


def by_owner(owner: NDArray[np.integer[Any]], num_clients: int) -> Partition:
    """Sample n is held by client owner[n]."""
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(num_clients + 1))
    return from_lists([order[a:b] for a, b in pairwise(ends)], len(owner))


class PartitionKind(NamedTuple):
    summary: str  # one line for `otafl list`
    options: type  # frozen dataclass
    make: Callable[[Any, Labels, int, Rng], Partition]


NEED_LABELS = ("dirichlet", "labels", "two-digits")
PARTITIONS: dict[str, PartitionKind] = {
    "iid": PartitionKind("random, equal sizes", IidOptions, iid),
    "sizes": PartitionKind("random, given sizes", SizesOptions, given_sizes),
    "dirichlet": PartitionKind("each class over clients by Dirichlet(alpha)", DirichletOptions, dirichlet),
    "labels": PartitionKind("exactly k labels on each client", LabelsOptions, labels_per_client),
    "two-digits": PartitionKind("halves of two neighbouring classes on each client", TwoDigitsOptions, two_digits),
    "shards": PartitionKind("sorted by label, cut into shards, some shards each", ShardsOptions, shards),
    "shared": PartitionKind("random samples for each client, shared by many", SharedOptions, shared),
    "owner": PartitionKind("as your own data say: otafl.task(x, y, owner=ids)", OwnerOptions, declared),
}


def make(name: str, y: Labels, num_clients: int, rng: Rng, **options: Any) -> Partition:
    """A partition by name; keyword options are those of its options class."""
    validate.one_of("partition", name, PARTITIONS)
    validate.whole("num_clients", num_clients)
    kind = PARTITIONS[name]
    return kind.make(kind.options(**options), np.asarray(y), num_clients, rng)
