"""The common polynomial `a` of a job, expanded from a public seed by SHAKE-256: nothing up anybody's sleeve.

Whoever could choose `a` freely could choose a = 2^k / r with a small r; it looks uniform, and every public key
-s a + e then gives away its s. From a seed `a` cannot be steered, and every device expands it again for itself. The
seed is public and may be anyone's; it must be new for every job.
"""

import hashlib

import numpy as np

from otafl.core.errors import InputError
from otafl.crypto.ring import Ring

SEED_BYTES = 32
DOMAIN = b"otafl xMK-CKKS common polynomial 1"


def expand(ring: Ring, seed: bytes) -> np.ndarray:
    """`a` (L, n), uniform mod every prime by rejection; a function of n, the primes and the seed alone."""
    if type(seed) is not bytes or len(seed) != SEED_BYTES:
        raise InputError(f"the public seed of a job must be {SEED_BYTES} bytes")
    named = DOMAIN + b"".join(x.to_bytes(8, "little") for x in (ring.n, ring.limbs, *ring.primes))
    return np.stack([_limb(named + i.to_bytes(8, "little") + seed, p, ring.n) for i, p in enumerate(ring.primes)])


def _limb(name: bytes, prime: int, count: int) -> np.ndarray:
    """The first `count` 32-bit words of the stream, cut to the prime's bits, that lie below the prime. uint32."""
    mask, words = np.uint32((1 << prime.bit_length()) - 1), count + count // 8 + 16
    while True:
        stream = hashlib.shake_256(name).digest(4 * words)  # a longer one begins with the shorter
        drawn = np.frombuffer(stream, dtype="<u4").astype(np.uint32) & mask
        kept = drawn[drawn < prime]
        if kept.size >= count:
            return kept[:count]
        words *= 2
