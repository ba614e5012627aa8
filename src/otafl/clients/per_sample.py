"""Clients that clip every sample's gradient: the message of AdaScale (Poisson batches) and of record-level CARES."""

import functools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl import validate
from otafl.clients.base import Clients, Data, Seed, clip_factors, identity_lift, per_client
from otafl.clients.gradient import Batch, draw_batch, take
from otafl.clients.sampling import poisson_capacity
from otafl.errors import InputError
from otafl.plan import Array, Message, Unit
from otafl.tasks.ghost import Saved
from otafl.tasks.layers import Groups
from otafl.tasks.models import Model
from otafl.tasks.models import per_sample as per_sample_gradients

UNIFORM_GRID = 2.0**-23  # spacing of float32 uniforms: the probability of `u < rate` is the rate rounded up to it


@dataclass(frozen=True)
class PerSample:
    """Sum of clipped per-sample gradients over a constant, the (expected) batch size."""

    clip_norm: float = 1.0
    batch: int = 60  # per client; expected size under Poisson sampling; 0 takes all samples
    sampling: Literal["poisson", "without-replacement"] = "poisson"
    unit: Unit = "record"
    overflow_tail: float = 1e-12  # a Poisson batch outgrows its fixed shape with at most this probability per round


class Cohort(NamedTuple):
    """Samples of a few clients, laid flat, and where each client's own samples stand among them."""

    rows: Array  # (C,) positions in the data
    slots: Array  # (n, B) positions among the C
    used: Array  # (n, B) bool


def expected_batch(config: PerSample, sizes: np.ndarray) -> np.ndarray:
    """(K,) the constant each client divides by."""
    sizes = np.asarray(sizes)
    wanted = np.where(config.batch == 0, sizes, config.batch)
    if config.sampling == "poisson" and np.any(wanted > sizes):
        worst = int(np.argmin(sizes))
        raise InputError(
            f"batch={config.batch} must be at most the samples of every client, but client {worst} has {sizes[worst]}"
        )
    return np.minimum(wanted, sizes).astype(float)


def poisson_rate(config: PerSample, sizes: np.ndarray) -> np.ndarray:
    """(K,) the sampling rates that are really used: batch / size on the grid of the generator, rounded up."""
    return np.minimum(np.ceil(expected_batch(config, sizes) / sizes / UNIFORM_GRID) * UNIFORM_GRID, 1.0)


def promise_of(config: PerSample, dim: int) -> Any:
    """What the messages promise, see `Message`.

    Poisson: add-remove of one record moves the sum by clip_norm / batch; the norm has no bound, its mean square is
    (1 + (1 - rate)/batch) clip_norm^2. Without replacement: replacing one record moves it by 2 clip_norm / batch.
    Unit client (without replacement only): replacing all of a client's data moves it by 2 clip_norm.
    """

    def promise(sizes: np.ndarray) -> Message:
        expected, ones = expected_batch(config, sizes), np.ones(len(sizes))
        if config.sampling == "poisson":
            rate = poisson_rate(config, sizes)
            square = (1 + (1 - rate) / expected) * config.clip_norm**2
            return Message(dim, np.inf, square, config.clip_norm / expected, rate, "record", "add-remove")
        square = config.clip_norm**2 * ones
        change = 2 * config.clip_norm / expected if config.unit == "record" else 2 * config.clip_norm * ones
        return Message(dim, config.clip_norm, square, change, ones, config.unit, "replace")

    return promise


def draw_cohort(config: PerSample, seed: Seed, keys: Array, ids: Array) -> tuple[Cohort, Array]:
    """Poisson batches of a few clients in one fixed shape, and whether they did not fit it."""
    rows, sizes = seed.rows[ids], seed.sizes[ids]
    clients, width = rows.shape
    wanted = jnp.where(config.batch == 0, sizes, config.batch).astype(jnp.float32)
    rate = jnp.minimum(jnp.ceil(wanted / sizes / np.float32(UNIFORM_GRID)) * np.float32(UNIFORM_GRID), 1)
    # The shapes must do for any sizes up to `width`; equal rates give the largest mean for a given batch.
    share = min(config.batch / width, 1.0) if config.batch else 1.0
    room, _ = poisson_capacity(np.full(clients, share), np.full(clients, width), config.overflow_tail / 2)
    own, _ = poisson_capacity(np.array([share]), np.array([width]), config.overflow_tail / (2 * clients))
    inside = jnp.arange(width, dtype=jnp.int32) < sizes[:, None]
    draws = jax.vmap(lambda k: jax.random.uniform(k, (width,), jnp.float32))(keys)
    hit = inside & (draws < rate[:, None])
    flat = jnp.nonzero(hit.reshape(-1), size=room, fill_value=0)[0].astype(jnp.int32)
    counts = jnp.sum(hit, axis=1, dtype=jnp.int32)
    starts = jnp.cumsum(counts, dtype=jnp.int32) - counts
    place = jnp.arange(own, dtype=jnp.int32)
    slots = jnp.minimum(starts[:, None] + place, room - 1)
    overflow = (jnp.sum(counts) > room) | jnp.any(counts > own)
    return Cohort(rows.reshape(-1)[flat], slots, place < counts[:, None]), overflow


def per_sample(config: PerSample, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`; norms come without forming per-sample gradients where the model can do that."""
    validate.positive("clip_norm", config.clip_norm)
    validate.whole("batch", config.batch, 0)
    validate.in_open("overflow_tail", config.overflow_tail, 0, 1)
    if config.sampling == "poisson" and config.unit == "client":
        raise InputError("unit='client' needs sampling='without-replacement': a Poisson sum has no norm bound")
    ghost = per_sample_gradients(model)

    def clipped(saved: Saved) -> tuple[Saved, Array, Array]:
        """What was saved, each sample's clip factor, and whether its gradient is finite.

        A gradient that is not finite counts as zero and its sample as taken (AdaScale 6): one record can neither stop a
        run nor move a message by more than the clip norm.
        """
        norms = jnp.sqrt(ghost.sq_norms(saved))
        sound = jnp.isfinite(norms)
        kept = jax.tree.map(lambda leaf: jnp.where(per_client(sound, leaf), leaf, 0), saved.kept)
        return saved._replace(kept=kept), clip_factors(jnp.where(sound, norms, 0), config.clip_norm), sound

    def poisson_messages(
        params: Any, data: Data, seed: Seed, drawn: Cohort, ids: Array, round_: Array
    ) -> tuple[Any, Array]:
        saved, factor, sound = clipped(ghost.trace(params, data.x[drawn.rows], data.y[drawn.rows]))
        wanted = jnp.where(config.batch == 0, seed.sizes[ids], config.batch).astype(jnp.float32)
        weights = jnp.where(drawn.used, factor[drawn.slots], np.float32(0)) / wanted[:, None]
        left_out = jnp.sum(drawn.used & ~sound[drawn.slots], axis=1, dtype=jnp.int32)
        return ghost.sums(saved, Groups(weights, drawn.slots)), left_out

    def draw_fixed(seed: Seed, keys: Array, ids: Array) -> tuple[Batch, Array]:
        return draw_batch(seed, keys, ids, config.batch, min_size)

    def fixed_messages(
        params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array
    ) -> tuple[Any, Array]:
        x, y, weights = take(data, seed, drawn, ids)
        saved, factor, sound = clipped(ghost.trace(params, x.reshape(-1, *x.shape[2:]), y.reshape(-1)))
        left_out = jnp.sum((weights > 0) & ~sound.reshape(weights.shape), axis=1, dtype=jnp.int32)
        return ghost.sums(saved, Groups(weights * factor.reshape(weights.shape))), left_out

    promise = promise_of(config, model.num_params)
    if config.sampling == "poisson":
        return Clients(functools.partial(draw_cohort, config), poisson_messages, identity_lift, promise, np.inf)
    # The mean of clipped gradients is within the clip norm anyway; fold checks it once more.
    return Clients(draw_fixed, fixed_messages, identity_lift, promise, config.clip_norm)
