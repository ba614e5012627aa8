"""The ring Z_q[X]/(X^n+1) as residues modulo small primes: every value is a uint32 array (..., limb, coefficient).

q is the product of primes p = 1 mod 2n below 2^28, so a product of two residues fits 64 bits. Functions on arrays are
pure and run under jit, scan and vmap inside `jax.enable_x64(True)`. Integers of any size enter by `residues` (Python
integers) or `small_residues` (int8 .. int64), and leave only by `integers` (exact) or `centred_float` (decoding).

>>> ring = toy_ring(8, limbs=2)
>>> integers(ring, residues(ring, [3, -5, 0, 0, 0, 0, 0, 1]))
[3, -5, 0, 0, 0, 0, 0, 1]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto import ntt

PRIME_BITS = 28
DEVICES_PER_CHUNK = 10  # on a CPU a larger batch leaves the cache
DEVICES_AT_ONCE = 200  # bounds the memory of one compiled program


def is_prime(value: int) -> bool:
    """Miller-Rabin with the bases that decide every integer below 3.3e24."""
    if value < 2:
        return False
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if value in bases:
        return True
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        x = pow(base, odd, value)
        if x in (1, value - 1):
            continue
        if not any((x := x * x % value) == value - 1 for _ in range(twos - 1)):
            return False
    return True


@dataclass(frozen=True)
class Ring:
    """Degree and primes; hashable, so it may be a static argument of a compiled function."""

    n: int
    primes: tuple[int, ...]

    def __post_init__(self) -> None:
        validate.whole("n", self.n, 8)
        if self.n & (self.n - 1):
            raise InputError(f"n={self.n} must be a power of two")
        if not self.primes or len(set(self.primes)) != len(self.primes):
            raise InputError(f"primes={self.primes} must be distinct and not empty: q has to be squarefree")
        for p in self.primes:
            if type(p) is not int:
                raise InputError(f"primes: {p!r} is no whole number")
            if p % 2 == 0:
                raise InputError(f"q is even (prime {p}): an even channel weight would then lose information")
            if p >= 1 << PRIME_BITS:
                raise InputError(f"prime={p} must be below 2^{PRIME_BITS} so that products fit 64 bits")
            if not is_prime(p):
                raise InputError(f"primes: {p} is not prime")
            if p % (2 * self.n) != 1:
                raise InputError(f"prime={p} must be 1 mod {2 * self.n}: without 2n-th roots there is no NTT")

    @cached_property
    def q(self) -> int:
        return prod(self.primes)

    @property
    def bits(self) -> int:
        """ceil(log2 q): the width of one coefficient on a digital link."""
        return self.q.bit_length()

    @property
    def limbs(self) -> int:
        return len(self.primes)

    @property
    def table(self) -> ntt.Tables:
        return ntt.tables(self.n, self.primes)

    @property
    def moduli(self) -> np.ndarray:
        """(L, 1) uint32, to stand beside residues."""
        return self.table.primes[:, None]


RING_4096 = Ring(4096, (268369921, 134176769, 134111233, 134012929))  # 109 bit
RING_8192 = Ring(
    8192, (268369921, 268271617, 133857281, 133644289, 133611521, 133513217, 133251073, 132825089)
)  # 218 bit


def find_primes(n: int, limbs: int, bits: int = PRIME_BITS) -> tuple[int, ...]:
    """The largest `limbs` primes below 2^bits that are 1 mod 2n, descending."""
    found: list[int] = []
    candidate = ((1 << bits) - 2) // (2 * n) * (2 * n) + 1
    while len(found) < limbs:
        if candidate <= 2 * n:
            raise InputError(f"fewer than {limbs} primes below 2^{bits} are 1 mod {2 * n}")
        if is_prime(candidate):
            found.append(candidate)
        candidate -= 2 * n
    return tuple(found)


def toy_ring(n: int, limbs: int = 4) -> Ring:
    """A ring for tests and demonstrations. Far too small to hide anything."""
    return Ring(n, find_primes(n, limbs))


def residues(ring: Ring, values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Python integers (..., n) of any size and sign -> (..., L, n)."""
    array = np.asarray(values, dtype=object)
    return np.stack([(array % p).astype(np.uint32) for p in ring.primes], axis=-2)


def small_residues(ring: Ring, values: Array) -> Array:
    """Signed machine integers (..., n) with |x| < p -> (..., L, n). Jax or NumPy."""
    wide = values[..., None, :]
    xp = np if isinstance(values, np.ndarray) else jnp
    if wide.dtype.itemsize < 4:
        wide = wide.astype(xp.int32)
    moduli = ring.moduli.astype(wide.dtype)
    return xp.where(wide < 0, wide + moduli, wide).astype(xp.uint32)


def mixed_radix(ring: Ring, values: Array) -> list[Array]:
    """Garner digits of the representatives in [0, q): x = d0 + p0 (d1 + p1 (d2 + ..)), L arrays from (..., L, n)."""
    digits: list[Array] = []
    for i, p in enumerate(ring.primes):
        modulus = np.uint64(p)
        x = values[..., i, :].astype(np.uint64)
        for digit, earlier in zip(digits, ring.primes):
            x = (x + modulus - digit % modulus) * np.uint64(pow(earlier, -1, p)) % modulus
        digits.append(x)
    return digits


def _integer_digits(ring: Ring, value: int) -> list[int]:
    digits = []
    for p in ring.primes:
        value, digit = divmod(value, p)
        digits.append(digit)
    return digits


def _above_half(ring: Ring, digits: list[Array], xp: Any) -> Array:
    """x > (q-1)/2, digit by digit from the top."""
    above, equal = False, True
    for digit, limit in zip(reversed(digits), reversed(_integer_digits(ring, ring.q // 2))):
        above = above | (equal & (digit > limit))
        equal = equal & (digit == limit)
    return xp.asarray(above)


def integers(ring: Ring, values: Array) -> list[Any]:
    """Exact centred integers in (-q/2, q/2] from residues (..., L, n), as nested lists (..., n)."""
    digits = [digit.astype(object) for digit in mixed_radix(ring, np.asarray(values))]
    value = digits[-1]
    for digit, p in zip(digits[-2::-1], ring.primes[-2::-1]):
        value = value * p + digit
    return np.where(value > ring.q // 2, value - ring.q, value).tolist()


def centred_float(ring: Ring, values: Array, scale_bits: int) -> Array:
    """Centred value / 2^scale_bits in float64 from residues (..., L, n); jax inside jit, NumPy on the host.

    The digits and the sign are exact, so the relative error is that of a few float64 additions.
    """
    xp = np if isinstance(values, np.ndarray) else jnp
    negated = xp.where(values == 0, values, ring.moduli - values)
    if xp is jnp:
        ntt.require_x64()
    digits, mirror = mixed_radix(ring, values), mixed_radix(ring, negated)
    negative = _above_half(ring, digits, xp)
    size, weight = 0.0, 1
    for digit, other, p in zip(digits, mirror, ring.primes):
        size = size + xp.where(negative, other, digit).astype(xp.float64) * (weight / (1 << scale_bits))
        weight *= p
    return xp.where(negative, -size, size)


def transform(ring: Ring, x: Array) -> Array:
    """Coefficients -> NTT values, (..., L, n)."""
    return ntt.forward(x, ring.table)


def untransform(ring: Ring, x: Array) -> Array:
    """NTT values -> coefficients, (..., L, n)."""
    return ntt.inverse(x, ring.table)


def add(ring: Ring, x: Array, y: Array) -> Array:
    return ntt.shrink(x + y, ring.moduli, 2)


def subtract(ring: Ring, x: Array, y: Array) -> Array:
    return ntt.shrink(x + (ring.moduli - y), ring.moduli, 2)


def pointwise(ring: Ring, x: Array, y: Array) -> Array:
    """x y mod p, entry by entry (Barrett). With 2^(b-1) < p < 2^b the quotient estimate is at most 2 too small."""
    ntt.require_x64()
    product = x.astype(jnp.uint64) * y.astype(jnp.uint64)
    low = np.array([[p.bit_length() - 1] for p in ring.primes], dtype=np.uint64)
    high = np.array([[p.bit_length() + 1] for p in ring.primes], dtype=np.uint64)
    factor = np.array([[(1 << (2 * p.bit_length())) // p] for p in ring.primes], dtype=np.uint64)
    quotient = ((product >> low) * factor) >> high
    rest = product - quotient * ring.moduli.astype(np.uint64)
    return ntt.shrink(rest.astype(jnp.uint32), ring.moduli, 3)


def total(ring: Ring, x: Array) -> Array:
    """Sum over the first axis (devices), mod q."""
    return (jnp.sum(x.astype(jnp.uint64), axis=0) % ring.moduli.astype(np.uint64)).astype(jnp.uint32)


def multiply(ring: Ring, x: Array, y: Array) -> Array:
    """Negacyclic product of coefficient arrays (..., L, n)."""
    return untransform(ring, pointwise(ring, transform(ring, x), transform(ring, y)))


def over_devices(function: Callable[..., Any], *arrays: Array) -> Any:
    """Map a one-device function over the leading axis inside a compiled program; many devices in bounded memory."""
    if arrays[0].shape[0] <= DEVICES_AT_ONCE:
        return jax.vmap(function)(*arrays)
    return jax.lax.map(lambda row: function(*row), arrays, batch_size=DEVICES_AT_ONCE)


def in_chunks(compiled: Callable[..., Any], *arrays: Array) -> list[Any]:
    """Call a compiled batch function on cache-sized pieces of the leading axis (on a CPU; elsewhere at once).

    Measured on a CPU, calls on ten devices each are up to twice as fast as one on a hundred or a loop inside the
    program. All pieces have one shape, so nothing is compiled twice: the last one reaches back and drops what it
    repeats.
    """
    count = arrays[0].shape[0]
    if count <= DEVICES_PER_CHUNK or jax.default_backend() != "cpu":
        return [compiled(*arrays)]
    pieces = []
    for start in range(0, count, DEVICES_PER_CHUNK):
        first = min(start, count - DEVICES_PER_CHUNK)
        piece = compiled(*(x[first : first + DEVICES_PER_CHUNK] for x in arrays))
        pieces.append(jax.tree.map(lambda x, skip=start - first: x[skip:], piece) if first < start else piece)
    return pieces


def on_host(pieces: Sequence[Array]) -> np.ndarray:
    """The pieces of `in_chunks` as one NumPy array; a single one is not copied a second time."""
    return np.asarray(pieces[0]) if len(pieces) == 1 else np.concatenate(pieces)
