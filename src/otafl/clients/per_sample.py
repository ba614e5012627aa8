"""Clients that clip every sample's gradient: the message of AdaScale (Poisson batches) and of record-level CARES."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.clients.coins import GRID_BITS, toss
from otafl.clients.gradient import Batch, chosen, draw_batch, take
from otafl.clients.in_parts import by_parts, part_size
from otafl.clients.per_sample_promise import (
    UNIFORM_GRID,
    PerSample,
    batch_of,
    check,
    on_grid,
    promise_of,
    rooms,
)
from otafl.core.arrays import Array
from otafl.core.messages import Clients, Data, Seed, clip_factors, identity_lift
from otafl.core.uplink import product_slack
from otafl.tasks.ghost import Ghost, Saved
from otafl.tasks.layers import Groups
from otafl.tasks.models import Model
from otafl.tasks.models import per_sample as per_sample_gradients


class Cohort(NamedTuple):
    """Samples of a few clients, laid flat, and where each client's own samples stand among them."""

    rows: Array  # (C,) positions in the data; (n, B) if slots is (): client by client
    slots: Any  # (n, B) positions among the C
    counts: Array  # (n,) int32 slots in use, the first ones


def drawn_rate(config: PerSample, sizes: Array) -> Array:
    """(n,) int32 `poisson_rate` in units of the grid, inside the compiled round.

    In whole numbers, by long division: a float32 quotient may come out a little high on a GPU, and rounded up to the
    grid it would be a rate above the one that is charged.
    """
    if config.rate is not None:
        return jnp.full(sizes.shape, int(on_grid(config.rate) / UNIFORM_GRID), jnp.int32)
    size = sizes.astype(jnp.uint32)
    left_out = size - jnp.minimum(size, np.uint32(batch_of(config))) if batch_of(config) else jnp.zeros_like(size)
    never = jnp.zeros_like(size)  # floor(2^23 (size - batch) / size)
    for _ in range(GRID_BITS):
        left_out = 2 * left_out
        over = left_out >= size
        left_out, never = jnp.where(over, left_out - size, left_out), 2 * never + over.astype(jnp.uint32)
    return (np.uint32(2**GRID_BITS) - never).astype(jnp.int32)


def _wanted(config: PerSample, sizes: Array) -> Array:
    """(n,) float32 what each client divides by."""
    if config.divisor is not None:
        return jnp.full(sizes.shape, np.float32(config.divisor))
    return jnp.where(batch_of(config) == 0, sizes, batch_of(config)).astype(jnp.float32)


def draw_cohort(config: PerSample, seed: Seed, keys: Array, ids: Array) -> tuple[Cohort, Array]:
    """Poisson batches of a few clients in one fixed shape, and whether they did not fit it."""
    rows, sizes = seed.rows[ids], seed.sizes[ids]
    room = rooms(config, ids.shape[0], *seed.rows.shape)
    heads = toss(keys, sizes, drawn_rate(config, sizes), rows.shape[1], room.halvings, room.tried, room.together)
    starts = jnp.cumsum(heads.counts, dtype=jnp.int32) - heads.counts
    place = jnp.arange(room.own, dtype=jnp.int32)
    slots = jnp.minimum(starts[:, None] + place, room.together - 1)
    cohort = Cohort(rows[heads.owners, heads.places], slots, heads.counts)
    return cohort, heads.overflow | jnp.any(heads.counts > room.own)


class Clipped(NamedTuple):
    """Messages of clients whose samples are clipped one by one."""

    config: PerSample
    model: Model
    ghost: Ghost

    @property
    def longest(self) -> float:
        """What a sample is clipped to, less what rounding may add."""
        return self.config.clip_norm * (1 - product_slack())

    def factors(self, saved: Saved) -> tuple[Array, Array]:
        """Each sample's clip factor, and whether its gradient is finite."""
        norms = jnp.sqrt(self.ghost.sq_norms(saved))
        sound = jnp.isfinite(norms)
        return jnp.where(sound, clip_factors(jnp.where(sound, norms, 0), self.longest, 0.0), 0), sound

    def sums(self, saved: Saved, sound: Array, groups: Groups) -> Any:
        """A gradient that is not finite counts as zero and its sample as taken (AdaScale 6): one record can neither
        stop a run nor move a message by more than the clip norm. Its weight is zero; zero times infinity is not.

        By sample, not by number: a GPU's product takes that in, and whoever forms gradients anew must know whose.
        """

        def left(leaf: Array) -> Array:
            return jnp.where(sound.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)

        return self.ghost.sums(saved._replace(kept=jax.tree.map(left, saved.kept)), groups)

    def draw(self, seed: Seed, keys: Array, ids: Array) -> tuple[Cohort, Array]:
        """Poisson batches."""
        cohort, overflow = draw_cohort(self.config, seed, keys, ids)
        if self.ghost.at_once(cohort.slots.shape[1]):
            cohort = cohort._replace(rows=cohort.rows[cohort.slots], slots=())
        return cohort, overflow

    def in_parts(
        self, params: Any, x: Array, y: Array, slots: Array, weights: Array, counts: Array, size: int
    ) -> tuple[Any, Array]:
        """Messages and samples left out, of samples x, y that each client's slots (n, B) point to."""

        def part(own: Array, weights: Array) -> tuple[Any, Array]:
            saved = self.ghost.trace(params, x[own], y[own])
            factor, sound = self.factors(saved)
            total = self.sums(saved, sound, Groups((weights * factor)[None]))
            return jax.tree.map(lambda leaf: leaf[0], total), jnp.sum((weights > 0) & ~sound, dtype=jnp.int32)

        messages, left_out = by_parts(part, slots, weights, counts, size)
        return messages, left_out

    def poisson(self, params: Any, data: Data, seed: Seed, drawn: Cohort, ids: Array, round_: Array) -> tuple[Any, ...]:
        room = rooms(self.config, ids.shape[0], *seed.rows.shape)
        counts, wanted = drawn.counts, _wanted(self.config, seed.sizes[ids])
        if at_once := self.ghost.at_once(room.own):
            return at_once(params, data, drawn.rows, 1 / wanted, counts, self.longest)
        used = jnp.arange(room.own, dtype=jnp.int32) < counts[:, None]
        weights = used.astype(jnp.float32) / wanted[:, None]
        if size := part_size(self.model, room.mean, room.together):
            return self.in_parts(params, *data.at(drawn.rows), drawn.slots, weights, counts, size)

        def within(together: int, own: int) -> tuple[Any, Array]:
            """Messages and samples left out, where no batch needs more than this room."""
            saved = self.ghost.trace(params, *data.at(drawn.rows[:together]))
            factor, sound = self.factors(saved)
            slots = jnp.minimum(drawn.slots[:, :own], together - 1)
            left_out = jnp.sum(used[:, :own] & ~sound[slots], axis=1, dtype=jnp.int32)
            return self.sums(saved, sound, Groups(weights[:, :own] * factor[slots], slots)), left_out

        # Room for the largest batches is much more than most rounds need: on a CPU only a round that needs it pays for
        # it. An accelerator, whose seeds would take both branches, has one.
        if jax.default_backend() != "cpu" or room.usual_own >= room.own:
            return within(room.together, room.own)
        crowded = (jnp.sum(counts) > room.usual) | jnp.any(counts > room.usual_own)
        whole = functools.partial(within, room.together, room.own)
        few = functools.partial(within, room.usual, room.usual_own)
        messages, left_out = jax.lax.cond(crowded, whole, few)
        return messages, left_out

    def fixed(self, params: Any, data: Data, seed: Seed, drawn: Batch, ids: Array, round_: Array) -> tuple[Any, ...]:
        rows, counts, share = chosen(seed, drawn, ids)
        if at_once := self.ghost.at_once(rows.shape[1]):
            return at_once(params, data, rows, share, counts, self.longest)
        x, y, weights = take(data, seed, drawn, ids)
        x, y, (clients, batch) = x.reshape(-1, *x.shape[2:]), y.reshape(-1), weights.shape
        if size := part_size(self.model, batch, clients * batch):
            slots = jnp.arange(clients * batch, dtype=jnp.int32).reshape(clients, batch)
            return self.in_parts(params, x, y, slots, weights, jnp.full(clients, batch, jnp.int32), size)
        saved = self.ghost.trace(params, x, y)
        factor, sound = self.factors(saved)
        left_out = jnp.sum((weights > 0) & ~sound.reshape(weights.shape), axis=1, dtype=jnp.int32)
        return self.sums(saved, sound, Groups(weights * factor.reshape(weights.shape))), left_out


def per_sample(config: PerSample, model: Model, min_size: int = 1) -> Clients:
    """Clients for `model`; norms come without forming per-sample gradients where the model can do that."""
    check(config)
    clipped, promise = Clipped(config, model, per_sample_gradients(model)), promise_of(config, model.num_params)
    if config.sampling == "poisson":
        return Clients(clipped.draw, clipped.poisson, identity_lift, promise, np.inf)

    draw = functools.partial(draw_batch, batch=batch_of(config), min_size=min_size)
    # The mean of clipped gradients is within the clip norm anyway; fold checks it once more.
    return Clients(draw, clipped.fixed, identity_lift, promise, config.clip_norm)
