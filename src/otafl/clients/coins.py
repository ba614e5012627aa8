"""A coin for every sample of several clients, and where the heads lie: Poisson batches of fixed shape. JAX.

A coin falls heads with a probability r / 2^23 exactly, independently of all others, at less than a random number per
sample: with 2^-m >= r / 2^23, m random bits are all ones with probability 2^-m, 32 samples to a word, and only samples
that pass draw 23 bits more, of which a number below r 2^m is heads.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import kernels
from otafl.core.arrays import Array

WORD = 32  # bits
GRID_BITS = 23  # probabilities are multiples of 2^-23
MOST_HALVINGS = 8  # beyond that a bit for every sample costs more than the samples that it spares
ALL = np.uint32(2**WORD - 1)


class Heads(NamedTuple):
    """Samples that fell heads, client after client."""

    owners: Array  # (room,) int32 whose they are; 0 where there are no more
    places: Array  # (room,) int32 in the owner's list
    counts: Array  # (K,) int32 of each client
    overflow: Array  # () bool: some did not fit; the others are then not to be trusted


def halvings(numerators: Array, most: int) -> Array:
    """The largest m <= `most` with 2^-m >= r / 2^23, for numerators 1 <= r <= 2^23 (int32)."""
    return jnp.minimum(jax.lax.clz(numerators - 1) - (WORD - GRID_BITS), most)


def toss(keys: Array, sizes: Array, numerators: Array, width: int, most: int, tried: int, room: int) -> Heads:
    """Coins for the sizes[k] <= `width` samples of K clients, heads with probability numerators[k] / 2^23.

    There is room for `tried` samples that pass the first bits, at most `most` of them, and for `room` heads.
    """
    words = -(-width // WORD)
    span = words * WORD
    halved = halvings(numerators, most)
    rough_keys, fine_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    passed, passes = first_places(_rough(rough_keys, sizes, halved, words, most).reshape(-1), tried)
    owner = passed // span
    limit = (numerators << halved).astype(jnp.uint32)
    heads = random_words(fine_keys[owner], passed % span)[:, 0] >> np.uint32(WORD - GRID_BITS) < limit[owner]
    heads &= jnp.arange(tried, dtype=jnp.int32) < passes
    chosen, count = first_places(packed(heads), room)
    used = jnp.arange(room, dtype=jnp.int32) < count
    flat = jnp.where(used, passed[chosen], sizes.shape[0] * span)
    borders = span * jnp.arange(sizes.shape[0] + 1, dtype=jnp.int32)
    starts = jnp.searchsorted(flat, borders, method="compare_all").astype(jnp.int32)
    flat = jnp.where(used, flat, 0)
    return Heads(flat // span, flat % span, jnp.diff(starts), (passes > tried) | (count > room))


def _rough(keys: Array, sizes: Array, halved: Array, words: int, most: int) -> Array:
    """(K, words) uint32: each of a client's samples is a bit, set with probability 2^-halved[k]."""
    held = jnp.clip(sizes[:, None] - np.arange(words, dtype=np.int32) * WORD, 0, WORD).astype(jnp.uint32)
    bits = jnp.where(held == 0, np.uint32(0), ALL >> jnp.minimum(WORD - held, WORD - 1))
    numbers = jnp.arange(-(-most // 2) * words, dtype=jnp.int32).reshape(-1, words)
    draws = random_words(keys[:, None, None], numbers)  # (K, most / 2, words, 2)
    for n in range(most):
        bits &= jnp.where(halved[:, None] > n, draws[:, n // 2, :, n % 2], ALL)
    return bits


def random_words(keys: Array, numbers: Array) -> Array:
    """(..., 2) uint32 of each key and number: the hash that `jax.random.bits` makes its streams of, both its words."""
    return jax.random.key_data(jnp.vectorize(jax.random.fold_in)(keys, numbers))


def packed(hit: Array) -> Array:
    """A flat array of bools as words (ceil(size / 32),) uint32, the first in the lowest bit."""
    words = -(-hit.size // WORD)
    flat = jnp.pad(hit, (0, words * WORD - hit.size)).reshape(words, WORD)
    return jnp.sum(jnp.where(flat, np.uint32(1) << np.arange(WORD, dtype=np.uint32), 0), axis=1, dtype=jnp.uint32)


def first_places(words: Array, room: int) -> tuple[Array, Array]:
    """Places (room,) int32 of the first bits that are set, 0 where there are no more, and how many are set in all.

    The running count goes by words, a 32nd of `jnp.nonzero`'s; a place is then found in its word by halving.
    """
    counts = jax.lax.population_count(words).astype(jnp.int32)
    ends = jnp.cumsum(counts, dtype=jnp.int32)
    if kernels.compiled_here():
        from otafl.clients import places_kernel

        return places_kernel.places(words, ends, room), ends[-1]
    number = jnp.arange(room, dtype=jnp.int32)
    # Written out, all steps of the search are one loop over the numbers.
    word = jnp.searchsorted(ends, number, side="right", method="scan_unrolled").astype(jnp.int32)
    word = jnp.minimum(word, words.size - 1)
    rank, left, place = number - (ends[word] - counts[word]), words[word], word * WORD
    for step in (16, 8, 4, 2, 1):
        below = jax.lax.population_count(left & np.uint32((1 << step) - 1)).astype(jnp.int32)
        above = rank >= below
        rank = rank - jnp.where(above, below, 0)
        left = jnp.where(above, left >> np.uint32(step), left)
        place = place + jnp.where(above, step, 0)
    return jnp.where(number < ends[-1], place, 0).astype(jnp.int32), ends[-1]
