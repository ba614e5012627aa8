"""What the tests of security share: looking at residues, and opening them with whatever secret one has."""

from functools import partial

import jax
import numpy as np

from otafl.crypto import ring as rings
from otafl.crypto import scaling, xmkckks

multiply = partial(jax.jit, static_argnums=0)(rings.multiply)


def fractions_of_q(ring, residues):
    return np.array(rings.integers(ring, residues), dtype=object).astype(float).ravel() / float(ring.q)


def channel_of(rng, count=4):
    return scaling.quantise_channel(rng.normal(1, 1, count), 16).h


def opened_by(ring, s, c0, c1):
    """c0 + s c1: what somebody with the secret s makes of a ciphertext."""
    with jax.enable_x64(True):
        product = multiply(ring, rings.small_residues(ring, s), np.asarray(c1))
    return xmkckks.reconstruct(ring, c0, np.asarray(product))


def constant(ring, value):
    """The polynomial that is one number."""
    c1 = np.zeros((ring.limbs, ring.n), dtype=np.uint32)
    c1[:, 0] = [value % p for p in ring.primes]
    return c1


def inverse(ring, x):
    """x^-1 in the ring: number by number after the transformation."""
    turned = xmkckks.to_ntt(ring, x)
    found = np.array([[pow(int(v), -1, p) for v in row] for row, p in zip(turned, ring.primes)], dtype=np.uint32)
    with jax.enable_x64(True):
        return np.asarray(jax.jit(rings.untransform, static_argnums=0)(ring, found))
