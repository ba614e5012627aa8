"""Keys and draws of a simulated job: the right laws, repeatable, fast, and without any secrecy.

Whatever is made from these is marked `insecure_test_rng` on the privacy card. Devices with keys of their own from the
operating system are in `clients` and `overair`.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.draws import in_a_row
from otafl.crypto import modes, randomness, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters
from otafl.crypto.round_sum import Draws, Keys


def keys(p: Parameters, count: int, seed: int) -> Keys:
    """`count` key pairs and their common polynomial, from a seed."""
    source = randomness.insecure_test_rng(seed)
    a = randomness.uniform(source, p.ring)  # from the run's stream: no device is there to distrust it
    agreed = xmkckks.Setup(p, b"", a, xmkckks.to_ntt(p.ring, a), b"", insecure_test_rng=True)
    drawn = [xmkckks.key_draws(p, source) for _ in range(count)]
    s, e = (np.stack(part) for part in list(zip(*drawn))[:2])
    return Keys(agreed.a_hat, xmkckks.public_batch(p.ring, agreed.a_hat, s, e), s)


def draws(p: Parameters, count: int, phases: tuple[str, ...], key: Array) -> Draws:
    """Randomness of one round from a simulation key, to 16 bits; `phases` are those that meet receiver noise."""
    ring, shape = p.ring, (count, p.ring.n)
    v_key, e0_key, e1_key, share_key, air_key = jax.random.split(key, 5)
    heard = jax.random.split(air_key, len(modes.PHASES))
    silent = jnp.zeros((ring.limbs, ring.n), jnp.uint32)
    noise = [wide_normal(ring, math.ldexp(p.sigma_w, p.f), k, shape[1:]) if phase in phases else silent
             for phase, k in zip(modes.PHASES, heard)]  # fmt: skip
    v = (in_a_row(jax.random.bits, v_key, shape, jnp.uint16).astype(jnp.int32) * 3 >> 16) - 1
    e0, e1 = (_table(p.sigma_e)[in_a_row(jax.random.bits, k, shape, jnp.uint16)] for k in (e0_key, e1_key))
    return Draws(v.astype(jnp.int8), e0, e1, wide_normal(ring, p.sigma_phi, share_key, shape), *noise)


def _table(sigma: float) -> Array:
    """Quantiles of the rounded normal, one for each 16-bit word."""
    return jnp.asarray(randomness._gaussian_table(sigma).first)


def wide_normal(ring: rings.Ring, std: float, key: Array, shape: tuple[int, ...]) -> Array:
    """Residues (.., L, n) of round(std * normal), to 20 bits: the low bits of wide noise are zero, which a device must
    never send (`randomness.flooding` is the real one)."""
    shift = max(0, math.frexp(std)[1] - 20)
    whole = jnp.rint(math.ldexp(std, -shift) * in_a_row(jax.random.normal, key, shape, jnp.float32)).astype(jnp.int32)
    power = np.array([[pow(2, shift, prime)] for prime in ring.primes], dtype=np.uint32)
    return rings.pointwise(ring, rings.small_residues(ring, whole), power)
