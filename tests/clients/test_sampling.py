"""Batches of fixed shape: exact laws, honest flags. Chi-square tests reject a right sampler once in a million."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from otafl.clients import distinct_kernel
from otafl.clients.per_sample import PerSample, draw_cohort
from otafl.clients.per_sample_promise import rooms
from otafl.clients.sampling import first_distinct, poisson_capacity, without_replacement
from otafl.core.messages import Seed

LEVEL = 1e-6


def keys(count: int, seed: int = 0):
    return jax.random.split(jax.random.key(seed), count)


def distinct_loop(draws, count):
    seen = []
    for value in draws:
        if value not in seen:
            seen.append(int(value))
    return seen[:count], len(seen) >= count


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.sampled_from([1, 4, 6]))
def test_first_distinct_is_the_naive_loop(draws, count):
    got, enough = first_distinct(jnp.asarray(draws, jnp.int32), count)
    naive, naive_enough = distinct_loop(draws, count)
    assert bool(enough) == naive_enough
    assert np.asarray(got)[: len(naive)].tolist() == naive


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_gpus_kernel_finds_the_same(count):
    draws = np.random.default_rng(count).integers(0, 9, (200, 12))
    with jax.enable_x64(True):  # as rounds are traced
        found = jax.vmap(lambda own: distinct_kernel.first_distinct(own, count))(jnp.asarray(draws, jnp.int32))
    for own, got, enough in zip(draws, *map(np.asarray, found)):
        naive, naive_enough = distinct_loop(own, count)
        assert enough == naive_enough and got[: len(naive)].tolist() == naive


# (batch, size, max_size, min_size): sorted keys; first distinct draws; both compiled, small and large client.
BRANCHES = {
    "sorted": (3, 6, 6, 1),
    "distinct": (2, 300, 400, 300),
    "both, small": (3, 6, 400, 1),
    "both, large": (2, 300, 400, 1),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_without_replacement_is_uniform_over_pairs(name):
    """The first two positions are a uniform ordered pair of different values (hashed to 30 cells for large sizes)."""
    batch, size, max_size, min_size = BRANCHES[name]
    draw = jax.jit(jax.vmap(lambda key: without_replacement(key, jnp.asarray(size), batch, max_size, min_size)))
    positions, mask, flag = map(np.asarray, draw(keys(20_000, 1)))
    assert not flag.any() and mask.all()
    assert positions.min() >= 0 and positions.max() < size
    assert all(len(set(row)) == batch for row in positions[:500].tolist())
    cell = lambda a, b: (a, b) if size < 10 else (a * 6 // size, b * 5 // size)  # noqa: E731
    expected = Counter(cell(a, b) for a, b in itertools.permutations(range(size), 2))
    seen = Counter(cell(a, b) for a, b in positions[:, :2].tolist())
    assert set(seen) <= set(expected)
    share = len(positions) / (size * (size - 1))
    p = stats.chisquare([seen[c] for c in expected], [share * expected[c] for c in expected]).pvalue
    assert p > LEVEL, name


def test_a_client_smaller_than_the_batch_gives_all_it_has():
    for max_size in (20, 400):  # sorted keys alone, or beside the other branch
        draw = lambda key, m=max_size: without_replacement(key, jnp.asarray(4), 9, m)  # noqa: E731
        positions, mask, flag = map(np.asarray, jax.jit(jax.vmap(draw))(keys(50)))
        assert mask.sum(1).tolist() == [4] * 50 and not flag.any()
        assert all(sorted(row[m].tolist()) == [0, 1, 2, 3] for row, m in zip(positions, mask))


def test_small_clients_take_the_least_keys_in_order_and_equal_ones_by_place():
    """Of 20,000 times 200 keys of 23 bits, dozens are equal to another."""
    many = keys(20_000, 2)
    ranks = np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (200,), jnp.float32))(many))
    assert any(len(set(row)) < 200 for row in ranks.tolist())
    positions = jax.jit(jax.vmap(lambda key: without_replacement(key, jnp.asarray(200), 32, 200)[0]))(many)
    np.testing.assert_array_equal(positions, np.argsort(ranks, kind="stable")[:, :32])


def test_too_few_distinct_values_raise_the_flag():
    """At a size where the branch is never used, so that repeats are certain."""
    draws = jnp.zeros(8, jnp.int32)
    assert not first_distinct(draws, 2)[1] and first_distinct(draws, 1)[1]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 20_000), st.floats(1e-4, 1.0), st.sampled_from([1e-3, 1e-9, 1e-12, 1e-15]), st.integers(1, 12))
def test_capacity_keeps_its_promise_against_the_exact_tail(size, rate, tail, clients):
    capacity, bound = poisson_capacity(np.full(clients, rate), np.full(clients, size), tail)
    total = clients * size
    assert 1 <= capacity <= total and 0 <= bound <= tail
    exact = stats.binom.sf(capacity, total, rate)  # P(X > capacity)
    assert exact <= bound * (1 + 1e-9)


def test_capacity_is_not_wasteful():
    """One slot less would break the promise, where all rates are equal."""
    for size, rate, tail in [(6000, 0.01, 1e-12), (6000, 0.01, 1e-15), (5000, 0.08, 1e-12)]:
        capacity, _ = poisson_capacity(np.array([rate]), np.array([size]), tail)
        assert stats.binom.sf(capacity, size, rate) <= tail < stats.binom.sf(capacity - 1, size, rate)


def test_unequal_rates_have_a_valid_capacity():
    """The exact tail of a sum of unequal binomials, by convolution."""
    rates, sizes = np.array([0.01, 0.3, 0.9]), np.array([500, 40, 10])
    capacity, bound = poisson_capacity(rates, sizes, 1e-6)
    law = np.ones(1)
    for q, n in zip(rates, sizes):
        law = np.convolve(law, stats.binom.pmf(np.arange(n + 1), n, q))
    assert law[capacity + 1 :].sum() <= bound * (1 + 1e-9) <= 1e-6


OWN = [np.arange(4), np.arange(4, 14)]  # records of two clients


def cohorts(count: int, seed: int, **options):
    """Records (count, 14) that were taken, and the flags, of many independent draws of both clients."""
    rows = jnp.asarray([[*OWN[0], *[0] * 6], OWN[1]], jnp.int32)
    site = Seed(jax.random.key(0), rows, jnp.array([4, 10], jnp.int32))
    ids, config = jnp.arange(2), PerSample(batch=2, **options)
    split = jax.vmap(lambda key: jax.random.split(key, 2))(keys(count, seed))
    drawn, overflow = jax.jit(jax.vmap(lambda own: draw_cohort(config, site, own, ids)))(split)
    taken = np.zeros((count, 14), int)
    for n, k in itertools.product(range(count), range(2)):
        found = np.asarray(drawn.rows)[n][np.asarray(drawn.slots)[n, k, : drawn.counts[n, k]]]
        if not overflow[n]:
            assert set(found) <= set(OWN[k])
            np.add.at(taken[n], found, 1)
    return taken, np.asarray(overflow)


def test_a_cohort_takes_each_record_with_its_clients_rate_and_nobody_elses():
    taken, overflow = cohorts(5_000, 2)
    assert not overflow.any() and taken.max() == 1
    rates = np.repeat([0.5, 0.2], [4, 10])
    for record in range(14):
        assert stats.binomtest(int(taken[:, record].sum()), len(taken), rates[record]).pvalue > LEVEL
    for one, other in itertools.combinations(range(14), 2):  # independent of each other
        both = int(np.sum(taken[:, one] & taken[:, other]))
        assert stats.binomtest(both, len(taken), rates[one] * rates[other]).pvalue > LEVEL / 91


def test_a_cohort_flags_exactly_the_draws_that_do_not_fit():
    taken, never = cohorts(400, 3)
    _, overflow = cohorts(400, 3, overflow_tail=0.9)
    _, room, own, *_ = rooms(PerSample(batch=2, overflow_tail=0.9), 2, 2, 10)
    counts = np.stack([taken[:, one].sum(1) for one in OWN], 1)
    assert not never.any() and 0 < overflow.sum() < 400
    np.testing.assert_array_equal(overflow, (counts.sum(1) > room) | np.any(counts > own, axis=1))
