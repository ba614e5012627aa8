"""Secret randomness: the operating system's generator, and exact samplers on top of it. NumPy, host.

Every key and every noise polynomial is drawn from a `Source` of bytes. The default is the operating system: each draw
takes 256 fresh bits from it and, where more are needed, expands them by ChaCha20 (RFC 8439; OpenSSL's, by way of
`cryptography`). That assumes that ChaCha20's key stream cannot be told from random bytes, as the generator of Linux
does; ring learning with errors is the other assumption. A deterministic source exists for tests only, under the name
`insecure_test_rng`, and whatever is made from it carries that mark. Nothing here is constant-time: a neighbour who can
time this process is outside the security model.

Distributions, all exact up to the stated precision and free of modulo bias (rejection, never a remainder):

* `uniform`   residues uniform mod q, prime by prime (the Chinese remainder map is a bijection);
* `signs`     {-1, +1};  `ternary` {-1, 0, 1} uniform;
* `gaussian`  the rounded normal, cut at 6 sigma, its variance is `gaussian_variance`; probabilities to 2^-48;
* `flooding`  wide integers, the sum of four uniform ones. Its density is smooth enough that hiding many values costs
  the square root of their number, as for a normal, and its low bits are as random as the high ones (a float64 normal
  times 2^66 would leave the 13 low bits zero, and they would go out unmasked).
"""

import hashlib
import math
import os
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto import ntt
from otafl.crypto.ring import Ring, small_residues

GAUSSIAN_CUT = 6.0  # sigmas
GAUSSIAN_WIDEST = 20.0  # 6 sigma still fit int8
GAUSSIAN_NARROWEST = 0.06  # narrower ones are 0 but for a chance below 2^-50
SHEPPARD_FROM = 2.0  # from this width on the variance is sigma^2 + 1/12, to 2e-7
FLOOD_TERMS = 4
UNDECIDED = -128  # in a table of values: the first 16 bits do not settle this one
SEED_BYTES = 32  # of a draw; shorter ones are the operating system's own bytes


class Source(Protocol):
    """A stream of bytes; `insecure_test_rng` is True iff it could be repeated by someone else."""

    insecure_test_rng: bool

    def bytes(self, count: int) -> np.ndarray: ...


def expanded(key: bytes, count: int, nonce: int = 0) -> np.ndarray:
    """The first `count` bytes of ChaCha20's key stream under a key of 32 bytes and a nonce of 64 bits, uint8."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # 50 ms that most commands do without

    stream = np.zeros(count, dtype=np.uint8)
    start = bytes(8) + nonce.to_bytes(8, "little")  # the block counter, from 0, and the nonce
    Cipher(algorithms.ChaCha20(key, start), mode=None).encryptor().update_into(stream.data, stream.data)
    return stream


class OperatingSystem:
    """`os.urandom`, expanded by ChaCha20 where a draw is long: a new key for every draw, used once and dropped.

    Nothing is kept between draws, so nothing can be copied, leaked later, or repeated after a fork.
    """

    insecure_test_rng = False

    def bytes(self, count: int) -> np.ndarray:
        seed = os.urandom(min(count, SEED_BYTES))
        return np.frombuffer(seed, dtype=np.uint8) if count <= SEED_BYTES else expanded(seed, count)

    def __repr__(self) -> str:
        return "OperatingSystem()"


class Stream:
    """ChaCha20 under the SHA-256 of a secret seed, one nonce per draw: what is drawn can be drawn again from that seed.

    The seed is never shown.
    """

    __slots__ = ("_draws", "_key", "insecure_test_rng")

    def __init__(self, seed: bytes, insecure_test_rng: bool = False):
        self._key, self._draws, self.insecure_test_rng = hashlib.sha256(seed).digest(), 0, insecure_test_rng

    def bytes(self, count: int) -> np.ndarray:
        self._draws += 1
        return expanded(self._key, count, self._draws)

    def __repr__(self) -> str:
        return "Stream(insecure_test_rng)" if self.insecure_test_rng else "Stream(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret stream is never pickled or copied")


def insecure_test_rng(seed: int) -> Stream:
    """A repeatable source FOR TESTS AND SIMULATION ONLY. Anyone who knows the seed knows every key drawn from it."""
    if not isinstance(seed, int | np.integer) or not -(2**127) <= int(seed) < 2**127:
        raise InputError(f"seed={seed!r} must be a whole number of at most 127 bits")
    return Stream(b"otafl insecure_test_rng" + int(seed).to_bytes(16, "little", signed=True), insecure_test_rng=True)


def _words(source: Source, count: int, dtype: type) -> np.ndarray:
    return source.bytes(count * np.dtype(dtype).itemsize).view(dtype)


def uniform_below(source: Source, limit: int, count: int) -> np.ndarray:
    """`count` integers uniform in [0, limit), limit <= 2^32, by rejection. uint32."""
    bits = (limit - 1).bit_length()
    word = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32  # do not draw bits only to drop them
    mask, accepted = word((1 << bits) - 1), limit / (1 << bits)
    kept = np.empty(0, dtype=word)
    while kept.size < count:
        draw = _words(source, int((count - kept.size) / accepted * 1.02) + 16, word) & mask
        kept = np.concatenate([kept, draw if limit == 1 << bits else draw[draw < limit]])
    return kept[:count].astype(np.uint32)


def uniform(source: Source, ring: Ring, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Uniform ring elements (*shape, L, n)."""
    count = math.prod(shape) * ring.n
    limbs = [uniform_below(source, p, count).reshape(*shape, ring.n) for p in ring.primes]
    return np.stack(limbs, axis=-2)


def signs(source: Source, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform on {-1, +1}, int8."""
    count = math.prod(shape)
    bits = np.unpackbits(source.bytes(-(-count // 8)), count=count)
    return (2 * bits.astype(np.int8) - 1).reshape(shape)


@lru_cache(maxsize=1)
def _trits() -> np.ndarray:
    """Row b < 243: the five base-3 digits of b, minus 1."""
    return np.stack([np.arange(243) // 3**k % 3 - 1 for k in range(5)], axis=1).astype(np.int8)


def ternary(source: Source, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform on {-1, 0, 1}, int8, variance 2/3: five digits from every byte below 243, other bytes are dropped."""
    count = math.prod(shape)
    kept = np.empty(0, dtype=np.uint8)
    while kept.size * 5 < count:
        missing = -(-count // 5) - kept.size
        draw = source.bytes(missing + missing // 8 + 16)
        kept = np.concatenate([kept, draw[draw < 243]])
    return _trits().take(kept, axis=0).reshape(-1)[:count].reshape(shape)


class _GaussianTable(NamedTuple):
    first: np.ndarray  # (65536,) int8: the least value that the first 16 bits allow
    decided: np.ndarray  # the same where they allow no other, else UNDECIDED
    limits: np.ndarray  # (2c,) uint64: value = -c + number of limits <= the 64-bit word
    cut: int


def check_width(name: str, sigma: float) -> None:
    """Refuse a width whose rounded normal is always 0: nothing would be drawn."""
    if not sigma >= GAUSSIAN_NARROWEST:
        raise InputError(f"{name}={sigma:g} must be >= {GAUSSIAN_NARROWEST}: narrower noise is rounded to 0, always")


def _lower_half(sigma: float) -> list[float]:
    """P(X <= k), k = -cut .. -1, of the rounded normal X cut at 6 sigma; the upper half is its mirror image."""
    cut = max(1, math.floor(GAUSSIAN_CUT * sigma))

    def below(k: int) -> float:  # P(X <= k), from the nearer tail so that small probabilities keep their digits
        return 0.5 * math.erfc(-(k + 0.5) / (sigma * math.sqrt(2)))

    low = below(-cut - 1)
    return [(below(k) - low) / (1 - 2 * low) for k in range(-cut, 0)]


def gaussian_variance(sigma: float) -> float:
    """Variance of what `gaussian` draws: sigma^2 + 1/12 (Sheppard) where wide, else summed over its values.

    >>> gaussian_variance(3.2) == 3.2**2 + 1 / 12, round(gaussian_variance(0.3), 4), round(0.3**2 + 1 / 12, 4)
    (True, 0.0956, 0.1733)
    """
    if sigma >= SHEPPARD_FROM:
        return sigma**2 + 1 / 12
    tail = _lower_half(sigma)
    chances = [p - before for p, before in zip(tail, [0.0, *tail])]
    return 2 * sum(k**2 * p for k, p in zip(range(len(tail), 0, -1), chances))


@lru_cache(maxsize=8)
def _gaussian_table(sigma: float) -> _GaussianTable:
    lower_half = _lower_half(sigma)
    cut = len(lower_half)
    left = [round(p * 2**64) for p in lower_half]
    limits = np.array(left + [2**64 - x for x in reversed(left)], dtype=np.uint64)
    starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    first = np.searchsorted(limits, starts, side="right")
    last = np.searchsorted(limits, starts + np.uint64((1 << 48) - 1), side="right")
    least = (first - cut).astype(np.int8)
    return _GaussianTable(least, np.where(first == last, least, np.int8(UNDECIDED)), limits, cut)


def gaussian(source: Source, sigma: float, shape: tuple[int, ...]) -> Array:
    """Rounded normal cut at 6 sigma, int8. 16 bits decide almost always; the rest take 48 more."""
    validate.positive("sigma", sigma)
    check_width("sigma", sigma)
    if sigma > GAUSSIAN_WIDEST:
        raise InputError(f"sigma={sigma} must be <= {GAUSSIAN_WIDEST}: wider noise is drawn by `flooding`")
    table = _gaussian_table(float(sigma))
    head = _words(source, math.prod(shape), np.uint16)
    values = table.decided.take(head)
    open_ = np.flatnonzero(values == UNDECIDED)
    if open_.size:
        tail = _words(source, open_.size, np.uint64) >> np.uint64(16)
        word = (head[open_].astype(np.uint64) << np.uint64(48)) | tail
        values[open_] = np.searchsorted(table.limits, word, side="right") - table.cut
    return values.reshape(shape)


def flood_bound(sigma_phi: float) -> int:
    """The least B such that the sum of four integers uniform on [-B, B] has standard deviation >= sigma_phi."""
    target = 3 * Fraction(sigma_phi) ** 2 / FLOOD_TERMS  # one term has variance B (B + 1) / 3
    bound = max(1, math.isqrt(math.floor(target)))
    while bound > 1 and (bound - 1) * bound >= target:
        bound -= 1
    while bound * (bound + 1) < target:
        bound += 1
    return bound


def flooding(sources: Sequence[Source], ring: Ring, sigma_phi: float) -> Array:
    """Wide noise as residues (N, L, n), one row per source: the sum of four exact uniform integers, std >= sigma_phi.

    A narrow one (sigma_phi <= 20: the published setting, which floods nothing) is the rounded normal instead.
    Refuses a width that would wrap the ring.
    """
    if sigma_phi <= GAUSSIAN_WIDEST:
        return small_residues(ring, np.stack([gaussian(source, sigma_phi, (ring.n,)) for source in sources]))
    bound = flood_bound(sigma_phi)
    if 2 * FLOOD_TERMS * bound >= ring.q:
        raise InputError(f"sigma_phi=2^{math.log2(sigma_phi):.1f} is too wide for q=2^{ring.bits}")
    rows = [wide_uniform(source, 2 * bound + 1, FLOOD_TERMS * ring.n) for source in sources]
    words = np.stack(rows, axis=1).reshape(-1, len(sources), FLOOD_TERMS, ring.n)
    centre = np.array([[-FLOOD_TERMS * bound % p] for p in ring.primes], dtype=np.uint32)
    with jax.enable_x64(True):
        return np.asarray(_sum_of_words(ring, words, centre))


@partial(jax.jit, static_argnums=0)
def _sum_of_words(ring: Ring, words: Any, centre: Any) -> Any:
    """Sum over axis 2 of little-endian words (W, N, terms, n), plus `centre` (L, 1), mod q: (N, L, n)."""
    total = jnp.broadcast_to(centre, (words.shape[1], ring.limbs, ring.n))
    carry = jnp.zeros((words.shape[1], ring.n), dtype=jnp.uint64)
    for j in range(words.shape[0] + 1):
        if j < words.shape[0]:
            carry = carry + jnp.sum(words[j].astype(jnp.uint64), axis=1)
        power = np.array([[pow(2, ntt.WORD * j, p)] for p in ring.primes], dtype=np.uint32)
        low = carry.astype(jnp.uint32)[:, None, :]
        part = ntt.shoup(low, power, ntt.companion(power, ring.moduli), ring.moduli)
        total = ntt.shrink(total + part, ring.moduli, 3)
        carry = carry >> ntt.WORD
    return total


def _at_most(words: np.ndarray, last: list[int]) -> np.ndarray:
    """Whether little-endian numbers (W, count) are <= `last`, word by word from the lowest: the highest decides."""
    good = np.ones(words.shape[1], dtype=bool)
    for word, bound in zip(words, last):
        good = (word < bound) | ((word == bound) & good)
    return good


def wide_uniform(source: Source, limit: int, count: int) -> np.ndarray:
    """`count` integers uniform in [0, limit), any size, by rejection; little-endian words (W, count) uint32.

    The top word is drawn first, uniform up to its own limit, so that a draw is rejected only when it ties there.
    """
    width = max(1, -(-(limit - 1).bit_length() // 32))
    last = [(limit - 1) >> (32 * j) & 0xFFFFFFFF for j in range(width)]
    kept = np.empty((width, 0), dtype=np.uint32)
    while kept.shape[1] < count:
        draw = int((count - kept.shape[1]) * (1 + 1 / (last[-1] + 1))) + 16
        words = np.empty((width, draw), dtype=np.uint32)
        words[:-1] = _words(source, (width - 1) * draw, np.uint32).reshape(width - 1, draw)
        words[-1] = uniform_below(source, last[-1] + 1, draw)
        good = words[-1] < last[-1]
        tied = np.flatnonzero(words[-1] == last[-1])
        good[tied] = _at_most(words[:, tied], last)
        kept = np.concatenate([kept, words.take(np.flatnonzero(good), axis=1)], axis=1)  # 3 times as fast as a mask
    return kept[:, :count]
