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

from otafl.clients.sampling import first_distinct, poisson, poisson_capacity, without_replacement

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
    """Exact: 122 and 131 slots for (6000, .01) at 1e-12 and 1e-15, 541 for (5000, .08). Chernoff takes more."""
    for size, rate, tail, exact in [(6000, 0.01, 1e-12, 122), (6000, 0.01, 1e-15, 131), (5000, 0.08, 1e-12, 541)]:
        capacity, _ = poisson_capacity(np.array([rate]), np.array([size]), tail)
        assert exact <= capacity <= 1.1 * exact


def test_unequal_rates_have_a_valid_capacity():
    """The exact tail of a sum of unequal binomials, by convolution."""
    rates, sizes = np.array([0.01, 0.3, 0.9]), np.array([500, 40, 10])
    capacity, bound = poisson_capacity(rates, sizes, 1e-6)
    law = np.ones(1)
    for q, n in zip(rates, sizes):
        law = np.convolve(law, stats.binom.pmf(np.arange(n + 1), n, q))
    assert law[capacity + 1 :].sum() <= bound * (1 + 1e-9) <= 1e-6


def test_poisson_draws_each_member_with_its_rate_and_nobody_else():
    rate = np.array([0.0, 0.1, 0.5, 1.0, 0.7], np.float32)
    member = np.array([True, True, True, True, False])
    draw = jax.jit(jax.vmap(lambda key: poisson(key, jnp.asarray(member), jnp.asarray(rate), 5)))
    positions, mask, overflow = map(np.asarray, draw(keys(20_000, 2)))
    assert not overflow.any()
    drawn = np.zeros((len(mask), 5), bool)
    for row, used, hits in zip(positions, mask, drawn):
        hits[row[used]] = True
    assert np.all(drawn.sum(1) == mask.sum(1))  # nobody twice
    count = drawn.sum(0)
    assert count[0] == 0 and count[3] == len(mask) and count[4] == 0
    for k in (1, 2):
        assert stats.binomtest(int(count[k]), len(mask), float(rate[k])).pvalue > LEVEL
    both = int(np.sum(drawn[:, 1] & drawn[:, 2]))
    assert stats.binomtest(both, len(mask), 0.05).pvalue > LEVEL  # independent of each other


def test_poisson_flags_exactly_the_draws_that_do_not_fit():
    member, rate = jnp.ones(50, bool), jnp.full(50, 0.2, jnp.float32)
    many = keys(400, 3)
    _, full_mask, never = jax.jit(jax.vmap(lambda key: poisson(key, member, rate, 50)))(many)
    _, mask, overflow = jax.jit(jax.vmap(lambda key: poisson(key, member, rate, 10)))(many)
    assert not never.any() and 50 < int(overflow.sum()) < 350
    counts = np.asarray(full_mask).sum(1)
    assert np.array_equal(np.asarray(overflow), counts > 10)
    assert np.array_equal(np.asarray(mask).sum(1), np.minimum(counts, 10))
