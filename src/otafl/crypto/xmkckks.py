"""xMK-CKKS: every device owns a key, messages are encrypted under the sum of the keys, all shares are needed.

    b_i = -s_i a + e_i                       partial public key
    c0_i = v_i b + m_i + e0_i,  c1_i = v_i a + e1_i
    D_i = s_i C1 + e*_i                      share, C1 = sum c1_i
    C0 + sum D_i = sum m_i + small           (mod q)

This file is the algebra, batched over devices and compiled, and the objects that hold secrets. Who sends what to
whom is in `participant.py` and `overair.py`. All arrays are residues (..., L, n) uint32; small polynomials are
int8 (..., n).
"""

import dataclasses
import hashlib
import hmac
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto import common, randomness, scaling
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters
from otafl.crypto.randomness import Source
from otafl.crypto.ring import Ring


class Setup(NamedTuple):
    """What every device of a job shares: parameters and the common uniform polynomial. New for every job."""

    parameters: Parameters
    seed: bytes  # public; `a` is expanded from it
    a: np.ndarray  # (L, n)
    a_hat: np.ndarray  # (L, n), transformed
    digest: bytes  # names the agreement: a device with another ring, grid, scale or `a` is found out by it
    insecure_test_rng: bool


def setup(parameters: Parameters, source: Source | None = None) -> Setup:
    """A new job: its public seed from the operating system (or from an explicitly insecure source)."""
    source = source or randomness.OperatingSystem()
    seed = source.bytes(common.SEED_BYTES).tobytes()
    return agreement(parameters, seed, source.insecure_test_rng)


def agreement(parameters: Parameters, seed: bytes, insecure_test_rng: bool = False) -> Setup:
    """The job that these parameters and this public seed name."""
    a = common.expand(parameters.ring, seed)
    named = repr(dataclasses.astuple(parameters)).encode()
    digest = hashlib.sha256(named + a.tobytes()).digest()
    return Setup(parameters, seed, fixed(a), fixed(to_ntt(parameters.ring, a)), digest, insecure_test_rng)


def verified(agreed: Setup) -> Setup:
    """The same agreement, computed again from its seed; refuses one whose `a` (or name) is another's choice."""
    if not isinstance(agreed, Setup) or not isinstance(agreed.parameters, Parameters):
        raise InputError("the agreement of a job must be a Setup, made by `setup` or `agreement`")
    if type(agreed.insecure_test_rng) is not bool or type(agreed.digest) is not bytes:
        raise InputError("the agreement of a job must have bytes as its digest and say whether its keys are for tests")
    own = agreement(agreed.parameters, agreed.seed, agreed.insecure_test_rng)
    same = all(np.array_equal(x, y) for x, y in ((own.a, agreed.a), (own.a_hat, agreed.a_hat)))
    if not same or own.digest != agreed.digest:
        raise InputError("the common polynomial a is not the one that the public seed gives: it may hide a trapdoor")
    return own


class SecretKey:
    """One device's secret polynomial and the key of its share noise. Cannot be printed, pickled or copied."""

    __slots__ = ("_prf", "_s", "insecure_test_rng")

    def __init__(self, s: np.ndarray, prf: bytes, insecure_test_rng: bool):
        self._s, self._prf, self.insecure_test_rng = s, prf, insecure_test_rng

    def __repr__(self) -> str:
        return "SecretKey(insecure_test_rng)" if self.insecure_test_rng else "SecretKey(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is never pickled or copied")

    def nonce(self, b: np.ndarray) -> bytes:
        """What opens the commitment to this device's public key b; unknown to anyone before it is shown."""
        return hmac.digest(self._prf, b"nonce of the public key" + b.tobytes(), "sha256")

    def mark(self, values: np.ndarray) -> bytes:
        """A name of float64 scalars that tells nobody else what they are."""
        return hmac.digest(self._prf, b"scalars" + values.tobytes(), "sha256")

    def share_noise(self, c1: np.ndarray) -> Source:
        """A stream keyed by (this key, c1) and nothing else: the same c1 meets the same noise, in whatever round."""
        return randomness.Stream(hmac.digest(self._prf, c1.tobytes(), "sha256"), self.insecure_test_rng)


def secret_polynomial(p: Parameters, source: Source, shape: tuple[int, ...] = ()) -> np.ndarray:
    draw = randomness.signs if p.secret == "sign" else randomness.ternary
    return draw(source, (*shape, p.ring.n))


def key_draws(p: Parameters, source: Source) -> tuple[np.ndarray, np.ndarray, bytes]:
    """What is random about a device's keys: s (n,), e (n,) and the key of its share noise."""
    s = secret_polynomial(p, source)
    return s, randomness.gaussian(source, p.sigma_e, (p.ring.n,)), source.bytes(32).tobytes()


def keygen(agreed: Setup, source: Source) -> tuple[SecretKey, np.ndarray]:
    """A secret key and its partial public key b = -s a + e (L, n)."""
    s, e, prf = key_draws(agreed.parameters, source)
    b = public_batch(agreed.parameters.ring, agreed.a_hat, s[None], e[None])[0]
    return SecretKey(s, prf, source.insecure_test_rng), b


class Ephemeral(NamedTuple):
    """The randomness of one encryption, int8 (..., n); drawn fresh, used once."""

    v: np.ndarray
    e0: np.ndarray
    e1: np.ndarray

    def __repr__(self) -> str:
        return "Ephemeral(hidden)"

    def __reduce__(self) -> str:  # whoever has v opens the ciphertext
        raise TypeError("encryption randomness is never pickled or copied")


def ephemeral(p: Parameters, source: Source, devices: int) -> Ephemeral:
    shape = (devices, p.ring.n)
    e0, e1 = randomness.gaussian(source, p.sigma_e, (2, *shape))
    return Ephemeral(randomness.ternary(source, shape), e0, e1)


def public_keys(ring: Ring, a_hat: Array, s: Array, e: Array) -> Array:
    """b_i = -s_i a + e_i; s, e (N, n) -> (N, L, n). EEZOFL 3.2"""

    def one(s: Array, e: Array) -> Array:
        product = rings.pointwise(ring, rings.transform(ring, rings.small_residues(ring, s)), a_hat)
        return rings.subtract(ring, rings.small_residues(ring, e), rings.untransform(ring, product))

    return rings.over_devices(one, s, e)


def encrypt(ring: Ring, a_hat: Array, b_hat: Array, v: Array, e0: Array, e1: Array, m: Array) -> tuple[Array, Array]:
    """c0_i = v_i b + m_i + e0_i, c1_i = v_i a + e1_i: one forward and two inverse transforms. EEZOFL 3.3

    v, e0, e1 (N, n) small, m (N, L, n); `a_hat`, `b_hat` transformed (L, n). Returns c0, c1 (N, L, n).
    """

    def one(v: Array, e0: Array, e1: Array, m: Array) -> tuple[Array, Array]:
        v_hat = rings.transform(ring, rings.small_residues(ring, v))
        c0 = rings.untransform(ring, rings.pointwise(ring, v_hat, b_hat))
        c1 = rings.untransform(ring, rings.pointwise(ring, v_hat, a_hat))
        noisy = rings.add(ring, m, rings.small_residues(ring, e0))
        return rings.add(ring, c0, noisy), rings.add(ring, c1, rings.small_residues(ring, e1))

    c0, c1 = rings.over_devices(one, v, e0, e1, m)
    return c0, c1


def shares(ring: Ring, c1: Array, s: Array, e_star: Array) -> Array:
    """D_i = s_i C1 + e*_i; C1 (L, n), s (N, n), e* (N, L, n) -> (N, L, n). EEZOFL 3.3"""
    c1_hat = rings.transform(ring, c1)

    def one(s: Array, e_star: Array) -> Array:
        product = rings.pointwise(ring, rings.transform(ring, rings.small_residues(ring, s)), c1_hat)
        return rings.add(ring, rings.untransform(ring, product), e_star)

    return rings.over_devices(one, s, e_star)


@partial(jax.jit, static_argnums=0)
def _encrypt(p: Parameters, a_hat: Array, b_hat: Array, v: Array, e0: Array, e1: Array, few: Array) -> Any:
    """`encrypt` of messages told by their occupied coefficients: the zeros between them need not travel."""
    return encrypt(p.ring, a_hat, b_hat, v, e0, e1, scaling.spread(p, few))


_public_keys = partial(jax.jit, static_argnums=0)(public_keys)
_shares = partial(jax.jit, static_argnums=0)(shares)
_transform = partial(jax.jit, static_argnums=0)(rings.transform)
_total = partial(jax.jit, static_argnums=0)(rings.total)


def to_ntt(ring: Ring, x: Array) -> np.ndarray:
    """Transform on the host's behalf."""
    with jax.enable_x64(True):
        return np.asarray(_transform(ring, x))


def public_batch(ring: Ring, a_hat: Array, s: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Partial public keys (N, L, n) of secrets s and errors e (N, n)."""
    with jax.enable_x64(True):
        return np.asarray(_public_keys(ring, a_hat, s, e))


def reduced(ring: Ring, name: str, x: np.ndarray) -> np.ndarray:
    """A broadcast as residues (L, n) uint32 below their primes; anything else is refused.

    A copy, and a plain array: what was checked is what is used, whatever becomes of the original or its methods say.
    x and x + p are one ring element in two spellings. A device that took both would answer a repeated c1 with fresh
    noise, and pass no check that compares bytes.
    """
    own = np.array(x) if isinstance(x, np.ndarray) else np.zeros(0)
    good = own.shape == (ring.limbs, ring.n) and own.dtype == np.uint32
    if not good or np.any(own >= ring.moduli):
        raise InputError(f"{name} must be uint32 residues of shape {(ring.limbs, ring.n)}, each below its prime")
    return fixed(own)


def fixed(x: np.ndarray) -> np.ndarray:
    """The same array, which nobody writes into any more."""
    x.flags.writeable = False
    return x


def add_up(ring: Ring, x: Array) -> np.ndarray:
    """Sum of (N, L, n) over devices: the aggregated key, C0, C1, or the sum of all shares."""
    with jax.enable_x64(True):
        return np.asarray(_total(ring, x))


def encrypt_batch(agreed: Setup, key: Array, draw: Ephemeral, messages: Array) -> tuple[np.ndarray, np.ndarray]:
    """Encrypt messages, as `scaling.encode` tells them, under the aggregated key (L, n): c0, c1 (N, L, n)."""
    p = agreed.parameters
    with jax.enable_x64(True):
        call = partial(_encrypt, p, agreed.a_hat, _transform(p.ring, key))
        c0, c1 = zip(*rings.in_chunks(call, draw.v, draw.e0, draw.e1, messages))
        return rings.on_host(c0), rings.on_host(c1)


def share_batch(agreed: Setup, keys: list[SecretKey], c1: np.ndarray) -> np.ndarray:
    """Partial decryptions (N, L, n) of one C1 (L, n), smudged by noise derived from (key, C1)."""
    p = agreed.parameters
    c1 = reduced(p.ring, "c1", c1)
    e_star = randomness.flooding([key.share_noise(c1) for key in keys], p.ring, p.sigma_phi)
    with jax.enable_x64(True):
        secrets = np.stack([key._s for key in keys])
        return rings.on_host(rings.in_chunks(partial(_shares, p.ring, c1), secrets, e_star))


def reconstruct(ring: Ring, c0: Array, share_sum: Array) -> np.ndarray:
    """M^ = C0 + sum D (mod q), residues. EEZOFL 3.3"""
    return np.asarray((c0.astype(np.uint64) + share_sum) % ring.moduli).astype(np.uint32)
