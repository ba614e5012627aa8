"""Samplers against the laws they claim. Statistical limits are 5 standard errors (false alarm below 1e-6 each)."""

import copy
import math
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from otafl.core.errors import InputError
from otafl.crypto import randomness, ring

SMALL = ring.toy_ring(64, limbs=4)


@pytest.fixture
def source():
    return randomness.insecure_test_rng(3)


def test_gaussian_has_the_rounded_normal_law(source):
    count, sigma = 400_000, 3.2
    draw = randomness.gaussian(source, sigma, (count,))
    values = np.arange(-19, 20)
    cdf = stats.norm.cdf(np.append(values - 0.5, 19.5) / sigma)
    expected = np.diff(cdf) / (cdf[-1] - cdf[0]) * count
    seen = np.array([(draw == v).sum() for v in values])
    assert seen.sum() == count
    large = expected > 10
    chi2 = float(((seen - expected)[large] ** 2 / expected[large]).sum())
    assert stats.chi2.sf(chi2, large.sum()) > 1e-6


def test_gaussian_refines_the_undecided_words_without_bias():
    table = randomness._gaussian_table(3.2)
    tops = np.flatnonzero(table.decided == randomness.UNDECIDED)
    assert 0 < tops.size <= len(table.limits)
    for top in tops:  # the first decision is right wherever the top 16 bits settle it
        low, high = int(top) << 48, (int(top) << 48) + 2**48 - 1
        assert np.searchsorted(table.limits, np.uint64(low), "right") != np.searchsorted(
            table.limits, np.uint64(high), "right"
        )


def test_gaussian_is_one_search_per_64_bit_word(source):
    """The table of first words changes nothing: 16 bits, and 48 more where those do not decide, against every limit."""
    count, table, twin = 60_000, randomness._gaussian_table(3.2), randomness.insecure_test_rng(3)
    head = twin.bytes(2 * count).view(np.uint16)
    words = head.astype(np.uint64) << np.uint64(48)
    unsettled = np.flatnonzero(np.searchsorted(table.limits, words, "right")
                               != np.searchsorted(table.limits, words + np.uint64(2**48 - 1), "right"))  # fmt: skip
    words[unsettled] |= twin.bytes(8 * unsettled.size).view(np.uint64) >> np.uint64(16)
    expected = np.searchsorted(table.limits, words, "right") - table.cut
    assert unsettled.size > 10
    assert np.array_equal(randomness.gaussian(source, 3.2, (count,)), expected)


@pytest.mark.parametrize(("law", "var"), [(randomness.signs, 1.0), (randomness.ternary, 2 / 3)])
def test_small_laws_are_uniform(source, law, var):
    draw = law(source, (3, 100_000)).astype(int)
    values, counts = np.unique(draw, return_counts=True)
    assert set(values) == ({-1, 1} if var == 1.0 else {-1, 0, 1})
    expected = draw.size / len(values)
    assert np.all(np.abs(counts - expected) < 5 * math.sqrt(expected))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2**32))
def test_uniform_stays_below_any_limit(limit):
    draw = randomness.uniform_below(randomness.insecure_test_rng(limit), limit, 50)
    assert draw.shape == (50,)
    assert np.all(draw.astype(int) < limit)


def test_uniform_has_no_modulo_bias(source):
    limit = 3 * 2**30  # a remainder would hit the lower third twice as often
    draw = randomness.uniform_below(source, limit, 90_000)
    counts = np.bincount(draw // 2**30, minlength=3)
    assert np.all(np.abs(counts - 30_000) < 5 * math.sqrt(20_000))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2**100))
def test_wide_uniform_is_below_its_limit_and_uses_all_words(limit):
    words = randomness.wide_uniform(randomness.insecure_test_rng(1), limit, 200).astype(object)
    values = sum(word << (32 * j) for j, word in enumerate(words))
    assert all(0 <= v < limit for v in values)
    if limit > 2**20:
        assert abs(float(np.mean(values.astype(float) / limit)) - 0.5) < 5 / math.sqrt(12 * 200)


@settings(max_examples=60, deadline=None)
@given(st.floats(1.0, 2.0**80))
def test_flood_bound_is_the_least_that_is_wide_enough(sigma):
    bound = randomness.flood_bound(sigma)
    target = 3 * Fraction(sigma) ** 2 / randomness.FLOOD_TERMS
    assert bound * (bound + 1) >= target
    assert bound == 1 or (bound - 1) * bound < target


def test_flooding_has_its_width_and_random_low_bits(source):
    sigma = 2.0**66.3
    rows = randomness.flooding([source] * 200, SMALL, sigma)
    values = np.array(ring.integers(SMALL, rows), dtype=object)
    std = float(values.astype(float).std())
    assert abs(std / sigma - 1) < 5 / math.sqrt(2 * values.size)
    low = np.array([int(v) & 0xFF for v in values.ravel()])
    counts = np.bincount(low, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("sigma", [15.0, 20.5, 25.0])
def test_narrow_flooding_is_normal_and_wider_is_at_least_as_wide_as_asked(source, sigma):
    rows = randomness.flooding([source] * 200, SMALL, sigma)
    values = np.array(ring.integers(SMALL, rows), dtype=float)
    wanted = math.sqrt(randomness.gaussian_variance(sigma))
    if sigma > randomness.GAUSSIAN_WIDEST:
        bound = randomness.flood_bound(sigma)
        wanted = math.sqrt(4 * bound * (bound + 1) / 3)
    assert abs(values.std() / wanted - 1) < 5 / math.sqrt(2 * values.size) and wanted >= sigma
    assert abs(values.mean()) < 5 * wanted / math.sqrt(values.size)


def test_four_uniform_terms_hide_a_shift_as_a_normal_does():
    """KL divergence of a one-step shift: quadratic in shift/sigma, like a normal's; a uniform's is infinite."""
    half = 200
    one = np.ones(2 * half + 1) / (2 * half + 1)
    law = one
    for _ in range(randomness.FLOOD_TERMS - 1):
        law = np.convolve(law, one)
    sigma = math.sqrt(randomness.FLOOD_TERMS * half * (half + 1) / 3)

    def divergence(shift):
        p, q = law[shift:], law[: law.size - shift]
        inside = float((p * np.log(p / q)).sum())
        return inside, float(law[:shift].sum())  # the second part is where the shifted law vanishes

    normal = 1 / (2 * sigma**2)
    inside, outside = divergence(1)
    assert outside < 1e-9
    assert 0.9 * normal < inside < 2 * normal
    assert divergence(4)[0] / inside == pytest.approx(16, rel=0.1)


@pytest.mark.parametrize(("share", "wraps"), [(9, False), (6, True)])
def test_flooding_fits_where_its_largest_value_is_below_half_of_q(source, share, wraps):
    """Four terms of at most B each: |sum| <= 4 B < q/2."""
    own = ring.toy_ring(64, 1)
    sigma = 2 * (own.q / share) / math.sqrt(3)  # B = q / share
    if wraps:
        with pytest.raises(InputError, match="too wide"):
            randomness.flooding([source], own, sigma)
    else:
        assert randomness.flooding([source], own, sigma).shape == (1, 1, 64)


def test_too_wide_flooding_is_refused(source):
    with pytest.raises(InputError, match="too wide"):
        randomness.flooding([source], ring.toy_ring(64, 1), 2.0**40)


def test_operating_system_is_the_default_and_never_repeats():
    source = randomness.OperatingSystem()
    assert not source.insecure_test_rng
    assert source.bytes(32).tobytes() != source.bytes(32).tobytes()


def rfc_8439(key, count):
    """ChaCha20's key stream, block counter and nonce from 0, by the text of RFC 8439."""

    def turn(x, shift):
        return (x << shift | x >> (32 - shift)) & 0xFFFFFFFF

    def quarter(s, a, b, c, d):
        for add, to, rotated, shift in ((b, a, d, 16), (d, c, b, 12), (b, a, d, 8), (d, c, b, 7)):
            s[to] = (s[to] + s[add]) & 0xFFFFFFFF
            s[rotated] = turn(s[rotated] ^ s[to], shift)

    words = [int.from_bytes(x[i : i + 4], "little") for x in (b"expand 32-byte k", key) for i in range(0, len(x), 4)]
    stream = b""
    for block in range(-(-count // 64)):
        state = [*words, block, 0, 0, 0]
        mixed = list(state)
        for _ in range(10):
            for k in range(4):
                quarter(mixed, k, 4 + k, 8 + k, 12 + k)
            for k in range(4):
                quarter(mixed, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
        stream += b"".join((x + y & 0xFFFFFFFF).to_bytes(4, "little") for x, y in zip(mixed, state))
    return stream[:count]


def test_a_long_draw_is_chacha20_under_fresh_bytes_of_the_operating_system(monkeypatch):
    asked = []

    def urandom(count):
        asked.append(count)
        return bytes(range(len(asked), len(asked) + count))

    monkeypatch.setattr(os, "urandom", urandom)
    source = randomness.OperatingSystem()
    for draw in (1, 2):
        assert source.bytes(1000).tobytes() == rfc_8439(bytes(range(draw, draw + 32)), 1000)
    assert source.bytes(20).tobytes() == bytes(range(3, 23))  # a short one is not expanded
    assert asked == [32, 32, 20]


@pytest.mark.filterwarnings("ignore:os.fork")  # the child draws and ends
def test_after_a_fork_parent_and_child_draw_different_bytes():
    source, (read, write) = randomness.OperatingSystem(), os.pipe()
    source.bytes(100)
    if os.fork() == 0:
        os.write(write, source.bytes(100).tobytes())
        os._exit(0)
    own = source.bytes(100).tobytes()
    os.wait()
    assert os.read(read, 100) != own


def test_draws_of_a_stream_do_not_overlap():
    stream = randomness.Stream(b"seed")
    first, second = stream.bytes(4096), stream.bytes(4096)
    whole = randomness.Stream(b"seed").bytes(8192)
    assert np.array_equal(whole[:4096], first)
    assert not np.array_equal(whole[4096:], second)  # a nonce of its own, not the next block


def test_test_source_repeats_and_says_what_it_is():
    first, second = randomness.insecure_test_rng(5), randomness.insecure_test_rng(5)
    assert first.bytes(40).tobytes() == second.bytes(40).tobytes()
    assert first.insecure_test_rng
    assert "insecure_test_rng" in repr(first)


def test_secret_streams_cannot_be_copied():
    stream = randomness.Stream(b"secret seed")
    assert "secret" not in repr(stream)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never"):
            attempt(stream)
