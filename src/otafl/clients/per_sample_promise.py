"""What clients that clip every sample promise: rates, divisors, sensitivities, and what is published. NumPy, host.

Two worlds are adjacent only if everything that is published is equal in both. A rate or a divisor that follows the size
publishes the size, so no record may come or go; with constants nothing reads the size and one may.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from otafl.clients.coins import GRID_BITS, MOST_HALVINGS
from otafl.clients.gradient import NO_ROSTER, changed_unit, published_sizes
from otafl.clients.sampling import poisson_capacity
from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Adjacency, Message, Unit

UNIFORM_GRID = 2.0**-GRID_BITS  # probabilities that can be drawn: a rate is rounded up to the next
DEFAULT_BATCH = 60


@dataclass(frozen=True)
class PerSample:
    """Sum of clipped per-sample gradients over a constant.

    Poisson batches come in two ways. `batch`: rate = batch / size and divisor = batch, so sizes are published. `rate`,
    `divisor` and `size_max`: three published constants, and sizes stay secret.
    """

    clip_norm: float = 1.0
    batch: int | None = None  # per client; expected size under Poisson sampling; 0: all samples; None: 60 without rate
    sampling: Literal["poisson", "without-replacement"] = "poisson"
    unit: Unit = "record"
    overflow_tail: float = 1e-15  # some Poisson batch of a round outgrows its fixed shape with at most this probability
    adjacency: Adjacency | None = None  # None: add-remove with `rate`, zero-out with Poisson `batch`, else replace
    rate: float | None = None  # Poisson rate of every record
    divisor: float | None = None  # what every client divides its sum by
    size_max: int | None = None  # no client may hold more samples


def batch_of(config: PerSample) -> int:
    return DEFAULT_BATCH if config.batch is None else config.batch


def adjacency_of(config: PerSample) -> Adjacency:
    """The declared adjacency, or the strongest that is usual for the way of sampling."""
    if config.adjacency is not None:
        return config.adjacency
    if config.sampling == "without-replacement":
        return "replace"
    return "zero-out" if config.rate is None else "add-remove"


def check(config: PerSample) -> None:
    """Refuse, by name, what cannot be promised."""
    validate.norm_bound("clip_norm", config.clip_norm)
    validate.whole("batch", batch_of(config), 0)
    validate.in_open("overflow_tail", config.overflow_tail, 0, 1)
    constants = (config.rate, config.divisor, config.size_max)
    if config.rate is not None and config.divisor is not None and config.size_max is not None:
        validate.in_left_open("rate", config.rate, 0, 1)
        validate.positive("divisor", config.divisor)
        validate.whole("size_max", config.size_max)
        if config.batch is not None or config.sampling != "poisson":
            raise InputError(f"rate={config.rate:g} needs sampling='poisson' and takes the place of batch")
    elif any(value is not None for value in constants):
        raise InputError("rate, divisor and size_max belong together: give all three, or batch")
    if config.sampling == "poisson" and config.unit == "client":
        raise InputError("unit='client' needs sampling='without-replacement': a Poisson sum has no norm bound")
    if adjacency_of(config) == "add-remove":
        _check_add_remove(config)


def _check_add_remove(config: PerSample) -> None:
    if config.unit == "client":
        raise InputError(NO_ROSTER)
    if config.sampling == "poisson" and config.rate is None:
        raise InputError(
            "adjacency='add-remove' with Poisson batch is false: rate = batch / size moves for all records of a client "
            "when one comes or goes; give rate, divisor and size_max, or use adjacency='zero-out'"
        )
    if config.sampling == "without-replacement" and batch_of(config) == 0:
        raise InputError(
            "adjacency='add-remove' with batch=0 is false: the divisor is the size; give rate=1 with divisor and "
            "size_max (Poisson), or use adjacency='zero-out'"
        )


# --- rates and divisors ------------------------------------------------------------------------------------------


def on_grid(rate: np.ndarray | float) -> np.ndarray:
    """The probability that the generator really uses: the rate, rounded up to its grid."""
    return np.minimum(np.ceil(np.asarray(rate, float) / UNIFORM_GRID) * UNIFORM_GRID, 1.0)


def divisors(config: PerSample, sizes: np.ndarray) -> Array:
    """(K,) the constant each client divides by."""
    sizes = np.asarray(sizes)
    if config.divisor is not None:
        return np.full(len(sizes), float(config.divisor))
    wanted = np.where(batch_of(config) == 0, sizes, batch_of(config))
    if np.any(wanted > sizes) and (config.sampling == "poisson" or adjacency_of(config) == "add-remove"):
        worst = int(np.argmin(sizes))
        raise InputError(
            f"batch={batch_of(config)} must be at most the samples of every client, but client {worst} has "
            f"{sizes[worst]}"
        )
    return np.minimum(wanted, sizes).astype(float)


def poisson_rate(config: PerSample, sizes: np.ndarray) -> np.ndarray:
    """(K,) the sampling rates that are really used."""
    rate = divisors(config, sizes) / np.asarray(sizes) if config.rate is None else np.full(len(sizes), config.rate)
    return on_grid(rate)


class Rooms(NamedTuple):
    """Fixed shapes of the Poisson batches of a few clients."""

    tried: int  # samples of all together that pass the first `halvings` bits of their coins
    together: int  # their batches
    own: int  # the batch of each one
    usual: int  # that the batches of all together fit in all but one round of a hundred
    usual_own: int  # that the batch of each one fits as often
    halvings: int
    mean: float  # of a batch, at most


def rooms(config: PerSample, clients: int, of: int, width: int) -> Rooms:
    """The shapes for `clients` of all `of` clients with at most `width` samples.

    A batch that does not fit stops the run, which everyone sees. The coins of all other records are independent of
    everything; given them, the record decides over the stop only if they fill a room to the last place. With
    `overflow_tail` bounding that probability per round, a stop adds at most `overflow_tail` per round to delta: hence
    one place more than the batch itself would need.
    """
    if config.rate is not None and config.size_max is not None:
        width, mean = config.size_max, config.size_max * float(on_grid(config.rate))
        halvings = min(int(1 / on_grid(config.rate)).bit_length() - 1, MOST_HALVINGS)
        tried = width * 2.0**-halvings
    else:
        batch = batch_of(config) or width
        mean = min(batch + width * UNIFORM_GRID, width)  # n times its rounded rate, for any n <= width
        halvings = min((width // batch).bit_length() - 1, MOST_HALVINGS) if width >= batch else 0
        tried = min(max(2 * mean, width * 2.0**-MOST_HALVINGS), width)  # 2^-m < 2 rate, unless m is the most
    tail = config.overflow_tail / (3 * of)

    def room(expected: float, several: int, tail: float = tail) -> int:
        share, each = np.full(several, expected / width), np.full(several, width)
        return min(poisson_capacity(share, each, tail * several)[0] + 1, several * width)

    usual = room(mean, clients, 1e-2 / clients), room(mean, 1, 1e-2 / clients)
    return Rooms(room(tried, clients), room(mean, clients), room(mean, 1), *usual, halvings, mean)


# --- the promise -------------------------------------------------------------------------------------------------


def promise_of(config: PerSample, dim: int) -> Callable[[np.ndarray], Message]:
    """What the messages promise, see `Message`. C the clip norm, d the divisor, one record changed:

    Poisson          zero-out and add-remove C/d, replace 2 C/d; E norm^2 <= (C/d)^2 ((n q)^2 + n q (1 - q)), no bound
    without replacement   zero-out C/B, replace 2 C/B, add-remove 2 C/B (another record takes the free place); bound C
    unit client      zero-out C, replace 2 C
    """
    adjacency, poisson = adjacency_of(config), config.sampling == "poisson"
    factor = 2.0 if adjacency == "replace" or (adjacency == "add-remove" and not poisson) else 1.0

    def promise(sizes: np.ndarray) -> Message:
        sizes = np.asarray(sizes)
        share = config.clip_norm / divisors(config, sizes)
        said = _published(config, sizes)
        if poisson:
            rate, most = poisson_rate(config, sizes), _most(config, sizes)
            square = share**2 * ((most * rate) ** 2 + most * rate * (1 - rate))
            return Message(dim, np.inf, square, factor * share, rate, "record", adjacency, said)
        ones = np.ones(len(sizes))
        change = factor * (share if config.unit == "record" else config.clip_norm * ones)
        return Message(dim, config.clip_norm, config.clip_norm**2 * ones, change, ones, config.unit, adjacency, said)

    return promise


def _most(config: PerSample, sizes: np.ndarray) -> np.ndarray:
    """(K,) samples that each client may hold, as far as is public."""
    if config.size_max is None:
        return sizes
    if np.any(sizes > config.size_max):
        worst = int(np.argmax(sizes))
        raise InputError(f"size_max={config.size_max} must be at least every size: client {worst} has {sizes[worst]}")
    return np.full(len(sizes), config.size_max)


def _published(config: PerSample, sizes: np.ndarray) -> tuple[str, ...]:
    adjacency = adjacency_of(config)
    secret = "; sizes, each at least 1, stay secret" if adjacency == "add-remove" else ""
    if config.rate is not None:
        known = f"rate {config.rate:g} and divisor {config.divisor:g} are constants{secret}"
    elif adjacency == "add-remove":
        known = f"batch {batch_of(config)} is a constant, at most every size{secret}"
    else:
        known = published_sizes(sizes)
    changed = "" if adjacency == "add-remove" else f"{changed_unit(adjacency, config.unit)}; "
    first = f"{adjacency}: {changed}{known}"
    if config.sampling != "poisson":
        return (first,)
    stop = "a Poisson batch that outgrows its room stops the run, which the server sees"
    return first, f"{stop}: at most {config.overflow_tail:g} more delta per round"
