"""The ring against python-flint and against plain integers."""

from fractions import Fraction
from functools import partial

import flint
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.crypto import ntt, ring
from otafl.crypto.scaling import scaled_residues

SMALL = ring.toy_ring(16, limbs=3)
multiply = partial(jax.jit, static_argnums=0)(ring.multiply)
decode = partial(jax.jit, static_argnums=(0, 2))(ring.centred_float)
scale = partial(jax.jit, static_argnums=(0, 2))(scaled_residues)


def random_integers(rng, count, q):
    return [int.from_bytes(rng.bytes(64), "little") % q - q // 2 for _ in range(count)]


def flint_product(x, y, q, n):
    context = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(q))
    product = context(x) * context(y) % context([1] + [0] * (n - 1) + [1])
    values = [int(product[i]) for i in range(n)]
    return [v - q if v > q // 2 else v for v in values]


def naive_product(x, y, q):
    n = len(x)
    out = [0] * n
    for i in range(n):
        for j in range(n):
            sign = 1 if i + j < n else -1
            out[(i + j) % n] += sign * x[i] * y[j]
    return [(v + q // 2) % q - q // 2 for v in out]


@pytest.mark.parametrize("chosen", [ring.toy_ring(8, 1), ring.toy_ring(128, 5), ring.RING_4096, ring.RING_8192])
def test_product_equals_flint(chosen, rng):
    x, y = random_integers(rng, chosen.n, chosen.q), random_integers(rng, chosen.n, chosen.q)
    with jax.enable_x64(True):
        product = multiply(chosen, ring.residues(chosen, x), ring.residues(chosen, y))
    assert ring.integers(chosen, product) == flint_product(x, y, chosen.q, chosen.n)


ELEMENT = st.lists(st.integers(-(SMALL.q // 2), SMALL.q // 2), min_size=16, max_size=16)


@settings(max_examples=40, deadline=None)
@given(ELEMENT, ELEMENT)
def test_product_equals_schoolbook_on_any_input(x, y):
    with jax.enable_x64(True):
        product = multiply(SMALL, ring.residues(SMALL, x), ring.residues(SMALL, y))
    assert ring.integers(SMALL, product) == naive_product(x, y, SMALL.q)


def test_extreme_residues_survive_the_lazy_reduction():
    chosen = ring.RING_4096
    largest = np.broadcast_to(chosen.moduli - 1, (chosen.limbs, chosen.n)).astype(np.uint32)
    one = np.zeros_like(largest)
    one[:, 0] = 1
    with jax.enable_x64(True):
        assert np.array_equal(multiply(chosen, largest, one), largest)
        assert not np.any(multiply(chosen, largest, 0 * one))
        squared = ring.integers(chosen, multiply(chosen, largest, largest))  # (1 + X + ..)^2: k + 1 ones less n - 1 - k
    assert squared == [2 * k + 2 - chosen.n for k in range(chosen.n)]


@pytest.mark.parametrize("count", [1, 10, 23])
def test_batches_are_the_same_bits_chunked_mapped_or_one_by_one(rng, monkeypatch, count):
    x = np.stack([ring.residues(SMALL, random_integers(rng, 16, SMALL.q)) for _ in range(count)])
    monkeypatch.setattr(ring, "DEVICES_AT_ONCE", 7)
    with jax.enable_x64(True):
        square = jax.jit(lambda v: ring.over_devices(lambda row: ring.multiply(SMALL, row, row), v))
        mapped = square(x)
        chunked = np.concatenate(ring.in_chunks(lambda v: multiply(SMALL, v, v), x))
        one_by_one = np.stack([multiply(SMALL, row, row) for row in x])
    assert np.array_equal(mapped, one_by_one)
    assert np.array_equal(chunked, one_by_one)


@settings(max_examples=60, deadline=None)
@given(ELEMENT)
def test_integers_leave_as_they_came(x):
    assert ring.integers(SMALL, ring.residues(SMALL, x)) == x


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(ring.RING_8192.q // 2), ring.RING_8192.q // 2), min_size=3, max_size=3))
def test_float_decoding_is_correct_to_a_few_ulp(x):
    values = ring.residues(ring.RING_8192, x)
    exact = np.array([v / 2**100 for v in x])
    np.testing.assert_allclose(ring.centred_float(ring.RING_8192, values, 100), exact, rtol=1e-15, atol=0)
    with jax.enable_x64(True):
        inside = decode(ring.RING_8192, values, 100)
    np.testing.assert_allclose(inside, exact, rtol=1e-15, atol=0)


@settings(max_examples=100, deadline=None)
@given(st.floats(-(2.0**60), 2.0**60), st.integers(0, 140))
def test_scaling_a_float_is_exact_for_any_power(x, bits):
    exact = round(Fraction(x) * 2**bits)
    assert np.array_equal(scaled_residues(SMALL, np.array([x]), bits), ring.residues(SMALL, [exact]))


@pytest.mark.released
@pytest.mark.parametrize("bits", [0, 16, 140])
def test_scaling_inside_jit_gives_the_same_bits(bits, rng):
    x = np.concatenate([rng.normal(size=40) * 2.0 ** rng.integers(-70, 60, 40), [0.0, 0.5, -0.5, 1.5, 2.0**-200]])
    with jax.enable_x64(True):
        inside = scale(SMALL, jnp.asarray(x), bits)
    assert np.array_equal(inside, scaled_residues(SMALL, x, bits))


def test_published_moduli_are_what_they_are_called():
    for chosen, bits in ((ring.RING_4096, 109), (ring.RING_8192, 218)):
        assert chosen.bits == bits
        assert all(flint.fmpz(p).is_prime() and p % (2 * chosen.n) == 1 for p in chosen.primes)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**7))
def test_primality_agrees_with_flint(value):
    assert ring.is_prime(value) == bool(flint.fmpz(value).is_prime())


@pytest.mark.parametrize(
    ("n", "primes", "words"),
    [
        (12, (97,), "power of two"),
        (4, (17,), "n=4"),
        (8, (2,), "even"),
        (8, (17, 17), "distinct"),
        (8, (33,), "not prime"),
        (8, (19,), "2n-th roots"),
        (8, (4611686018427387137,), "2\\^28"),
    ],
)
def test_bad_rings_are_refused_by_name(n, primes, words):
    with pytest.raises(InputError, match=words):
        ring.Ring(n, primes)


def test_without_64_bit_integers_the_ring_refuses_to_compute():
    with jax.enable_x64(False), pytest.raises(InputError, match="64-bit"):
        ntt.forward(jnp.zeros((3, 16), dtype=jnp.uint32), SMALL.table)
