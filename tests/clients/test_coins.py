"""Coins of exact probability and where their heads lie. Tests of chance reject a right coin once in a million."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from otafl.clients import coins
from otafl.clients.coins import MOST_HALVINGS, first_places, halvings, packed, toss
from otafl.core import kernels

LEVEL = 1e-6
ONE = 2**23  # the numerator of certainty


@settings(max_examples=200, deadline=None)
@given(st.integers(1, ONE) | st.integers(0, 23).map(lambda m: 2**m) | st.integers(1, 23).map(lambda m: 2**m - 1))
def test_first_bits_and_fine_draw_have_the_exact_probability_together(numerator):
    """2^-m times (r 2^m) / 2^23 is r / 2^23 as long as the fine draw's limit is no more than certainty."""
    for most in (0, 3, MOST_HALVINGS, 23):
        m = int(halvings(jnp.int32(numerator), most))
        assert 0 <= m <= most and numerator << m <= ONE
        assert m == most or numerator << (m + 1) > ONE  # no more samples pass than need be


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize(("shape", "chance", "room"), [((3, 41), 0.1, 30), ((20, 97), 0.02, 33), ((2, 16), 1.0, 32),
                                                       ((2, 16), 0.0, 5), ((4, 100), 0.9, 140)])  # fmt: skip
def test_first_places_are_those_of_numpy(shape, chance, room, by_kernel, monkeypatch):
    monkeypatch.setattr(kernels, "compiled_here", lambda: by_kernel)
    find = jax.jit(lambda hit: first_places(packed(hit.reshape(-1)), room))
    for seed in range(20):
        hit = np.random.default_rng(seed).random(shape) < chance
        expected = np.flatnonzero(hit)[:room]
        places, count = find(hit)
        assert np.array_equal(places, np.pad(expected, (0, room - expected.size))) and count == hit.sum()


SIZES = np.array([3, 33, 70, 64, 1])
NUMERATORS = np.array([ONE // 2, 3 * 2**17 + 5, ONE // 20, ONE // 300, ONE])  # one and four halvings, and certainty
WIDTH = 70


@pytest.fixture(scope="module")
def tossed():
    """Heads (draws, clients, WIDTH) of many independent draws, read off the flat lists."""
    throw = partial(toss, width=WIDTH, most=6, tried=150, room=120)
    run = jax.jit(jax.vmap(lambda keys: throw(keys, jnp.asarray(SIZES, jnp.int32), jnp.asarray(NUMERATORS, jnp.int32))))
    draws = 20_000
    heads = jax.tree.map(np.asarray, run(jax.random.split(jax.random.key(4), (draws, len(SIZES)))))
    assert not heads.overflow.any()
    found = np.zeros((draws, len(SIZES), WIDTH), int)
    used = np.arange(120) < heads.counts.sum(1)[:, None]
    np.add.at(found, (np.nonzero(used)[0], heads.owners[used], heads.places[used]), 1)
    np.testing.assert_array_equal(found.sum(2), heads.counts)
    return found


def test_every_sample_has_its_clients_probability(tossed):
    assert tossed.max() == 1
    for client, (size, numerator) in enumerate(zip(SIZES, NUMERATORS)):
        assert not tossed[:, client, size:].any()
        for place in range(size):
            seen = int(tossed[:, client, place].sum())
            assert stats.binomtest(seen, len(tossed), numerator / ONE).pvalue > LEVEL, (client, place)


def test_batch_sizes_are_binomial_and_independent_of_each_other(tossed):
    counts = tossed.sum(2)
    for client, (size, numerator) in enumerate(zip(SIZES[:4], NUMERATORS)):
        law = stats.binom(size, numerator / ONE)
        low, high = int(law.ppf(0.01)), max(int(law.ppf(0.99)), int(law.ppf(0.01)) + 1)
        seen = np.bincount(np.clip(counts[:, client], low, high) - low, minlength=high - low + 1)
        expected = len(counts) * np.array([law.cdf(low), *law.pmf(np.arange(low + 1, high)), law.sf(high - 1)])
        assert stats.chisquare(seen, expected).pvalue > LEVEL, client
    assert np.abs(np.corrcoef(counts[:, :4].T)[np.triu_indices(4, 1)]).max() < 5 / np.sqrt(len(counts))


def test_samples_of_one_word_are_drawn_independently(tossed):
    """Pairs of the second client's first 20 samples, which share every random word."""
    rate = NUMERATORS[1] / ONE
    for one, other in itertools.combinations(range(20), 2):
        both = int(np.sum(tossed[:, 1, one] & tossed[:, 1, other]))
        assert stats.binomtest(both, len(tossed), rate**2).pvalue > LEVEL / 190, (one, other)


@pytest.mark.parametrize(("word", "heads"), [(999, 5), (1000, 0)])
def test_of_all_numbers_exactly_those_below_the_numerator_are_heads(monkeypatch, word, heads):
    """One number more would be a rate above the charged one that no count of draws could see."""
    drawn = np.uint32(word << (coins.WORD - coins.GRID_BITS))
    monkeypatch.setattr(coins, "random_words", lambda keys, numbers: jnp.full((*np.shape(numbers), 2), drawn))
    keys = jax.random.split(jax.random.key(0), 1)
    found = coins.toss(keys, jnp.array([5]), jnp.array([1000]), width=32, most=0, tried=32, room=8)
    assert found.counts.tolist() == [heads]


def test_what_does_not_fit_is_flagged():
    """Both rooms, against the same coins with room for all; every draw without a flag is complete."""
    sizes, numerators = jnp.array([20], jnp.int32), jnp.array([ONE // 5], jnp.int32)
    rooms = [(20, 20), (6, 20), (20, 4)]
    throw = lambda key: [toss(key, sizes, numerators, 20, 2, *room) for room in rooms]  # noqa: E731
    whole, *others = jax.jit(jax.vmap(throw))(jax.random.split(jax.random.key(8), (300, 1)))
    assert not whole.overflow.any()
    for tight in others:
        complete = np.asarray(tight.counts == whole.counts)[:, 0]
        assert 20 < tight.overflow.sum() < 280 and not complete.all() and np.all(complete | tight.overflow)
    np.testing.assert_array_equal(others[1].overflow, whole.counts[:, 0] > 4)
