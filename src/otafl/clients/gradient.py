"""Clients that send their mini-batch gradient, clipped as a whole: the message of CARES and bias-variance."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.clients.sampling import without_replacement
from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.messages import Clients, Data, Seed, identity_lift, none_left_out, per_client
from otafl.core.plan import Adjacency, Message, Unit
from otafl.core.uplink import FAINTEST, Unformed
from otafl.tasks.layers import Groups
from otafl.tasks.models import Model, client_gradients, penalised, per_sample

NO_ROSTER = "adjacency='add-remove' needs unit='record': the roster is published; use 'zero-out'"


@dataclass(frozen=True)
class Gradient:
    """Mean gradient over a batch without replacement, clipped to `clip_norm`."""

    clip_norm: float = 1.0
    batch: int = 64  # per client; 0 takes all its samples
    adjacency: Adjacency = "replace"
    unit: Unit = "client"


def clipped_promise(dim: int, clip_norm: float, adjacency: Adjacency, unit: Unit) -> Callable[[np.ndarray], Message]:
    """What messages promise that are clipped as a whole, to G = `clip_norm`.

    Unit client: replacing its data moves its message by 2 G, a message that becomes zero by G. Unit record: 2 G
    whatever the adjacency, because one record may turn the whole message.
    """
    if unit == "client" and adjacency == "add-remove":
        raise InputError(NO_ROSTER)
    factor = 1.0 if unit == "client" and adjacency == "zero-out" else 2.0

    def promise(sizes: np.ndarray) -> Message:
        ones = np.ones(len(sizes))
        known = "sizes, each at least 1, stay secret" if adjacency == "add-remove" else published_sizes(sizes)
        said = (f"{adjacency}: {changed_unit(adjacency, unit)}; {known}",)
        return Message(dim, clip_norm, clip_norm**2 * ones, factor * clip_norm * ones, ones, unit, adjacency, said)

    return promise


def changed_unit(adjacency: Adjacency, unit: Unit) -> str:
    """What happens to one unit between two adjacent worlds, for the privacy card."""
    if adjacency == "add-remove":
        return f"a {unit} comes or goes"
    if adjacency == "replace":
        return f"a {unit}'s data become any other"
    if unit == "client":
        return "a client's message becomes zero"
    return "a record becomes an empty one that keeps its place"


def published_sizes(sizes: np.ndarray) -> str:
    low, high = int(np.min(sizes)), int(np.max(sizes))
    return f"sizes {low}…{high} are published" if low < high else f"sizes, all {low}, are published"


class Batch(NamedTuple):
    """Samples of a few clients; () stands for what needs no drawing."""

    rows: Array | tuple[()]  # (n, B) positions in the data; (): all samples of each client
    counts: Array | tuple[()]  # (n,) slots in use, the first ones; (): all


def draw_batch(seed: Seed, keys: Array, ids: Array, batch: int, min_size: int) -> tuple[Batch, Array]:
    """Batches without replacement of a few clients with at least `min_size` samples each, and the sampler's flag."""
    rows, sizes = seed.rows[ids], seed.sizes[ids]
    max_size = rows.shape[1]
    if batch == 0 or batch >= max_size:
        return Batch((), ()), jnp.zeros((), bool)
    positions, _, short = jax.vmap(lambda k, n: without_replacement(k, n, batch, max_size, min_size))(keys, sizes)
    counts = () if min_size >= batch else jnp.minimum(sizes, batch)
    return Batch(jnp.take_along_axis(rows, positions, axis=1), counts), jnp.any(short)


def chosen(seed: Seed, drawn: Batch, ids: Array) -> tuple[Array, Array | None, Any]:
    """Rows (n, B) of the samples, how many are in use (n,) or None for all, and the share of each in the mean, (n,) or
    one for all."""
    if isinstance(drawn.rows, tuple):
        rows, counts = seed.rows[ids], seed.sizes[ids]
    else:
        rows, counts = drawn.rows, drawn.counts
    if isinstance(counts, tuple):
        return rows, None, np.float32(1) / np.float32(rows.shape[1])
    return rows, counts, np.float32(1) / jnp.maximum(counts, 1).astype(jnp.float32)


def take(data: Data, seed: Seed, drawn: Batch, ids: Array) -> tuple[Array, Array, Array]:
    """The samples themselves: x (n, B, ...), y (n, B), and weights (n, B) that average over those in use."""
    rows, counts, share = chosen(seed, drawn, ids)
    if counts is None:
        return (*data.at(rows), jnp.full(rows.shape, share))
    used = jnp.arange(rows.shape[1], dtype=jnp.int32) < counts[:, None]
    return (*data.at(rows), jnp.where(used, share[:, None], np.float32(0)))


def mean_gradients(model: Model, params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array) -> tuple[Any, ...]:
    """Each client's gradient over its batch, and the norms of these where they come along."""
    rows, counts, share = chosen(seed, drawn, ids)
    if model.ghost is None or not (at_once := model.ghost.at_once(rows.shape[1])):
        return (client_gradients(model, params, *take(data, seed, drawn, ids)),)
    sums, _, norms = at_once(params, data, rows, share, counts, None)
    return (penalised(model, params, sums, jnp.ones_like(norms)),) if model.l2 else (sums, norms)


def unformed_gradients(
    model: Model, params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array
) -> tuple[Unformed, Array]:
    """Gradients of clients with one sample each, and their norms. A layer adds up outer products by one product."""
    ghost = per_sample(model)
    x, y, weights = take(data, seed, drawn, ids)
    saved, share = ghost.trace(params, x[:, 0], y[:, 0]), weights[:, 0]

    def mix(weights: Array) -> Any:
        loudest = jnp.maximum(jnp.max(jnp.abs(weights)), np.float32(FAINTEST))  # last, or digits of errors are lost
        kept = jax.tree.map(lambda leaf: jnp.where(per_client(weights != 0, leaf), leaf, 0), saved.kept)
        sums = ghost.sums(saved._replace(kept=kept), Groups((share * (weights / loudest))[None]))
        return jax.tree.map(lambda leaf: loudest * leaf[0], sums)

    made = Unformed(mix, lambda: client_gradients(model, params, x, y, weights))
    return made, share * jnp.sqrt(ghost.sq_norms(saved))


def gradient(config: Gradient, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`, each with at least `min_size` samples.

    Sensitivity: see `clipped_promise`; every round sees every client.
    """
    validate.norm_bound("clip_norm", config.clip_norm)
    validate.whole("batch", config.batch, 0)

    def unformed(samples: int) -> bool:
        """Of several, the sum must be formed before its norm is known; an l2 term is no outer product."""
        return samples == 1 and model.ghost is not None and not model.l2 and jax.default_backend() == "cpu"

    def messages(params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array) -> tuple[Any, ...]:
        alone = unformed(chosen(seed, drawn, ids)[0].shape[1])
        means, *norms = (unformed_gradients if alone else mean_gradients)(model, params, data, seed, drawn, ids)
        return means, none_left_out(ids), *norms

    def occupies(samples: int) -> int:
        return model.footprint if unformed(samples) else model.num_params

    promise = clipped_promise(model.num_params, config.clip_norm, config.adjacency, config.unit)
    draw = partial(draw_batch, batch=config.batch, min_size=min_size)
    return Clients(draw, messages, identity_lift, promise, config.clip_norm, occupies)
