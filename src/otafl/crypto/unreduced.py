"""The published protocol as a simulation in real numbers has it: nothing is ever reduced mod q. No secrecy at all.

`lifted` for the compiled round (`realchannel.lifted_round` is the same in Python integers). Gains are real, that is
multiples of 2^-52. Every symbol is an integer far beyond q, and no reduction happens on the way; what the server opens
at the end is small. Reduction modulo some larger Q is a ring homomorphism, so the whole protocol may be computed mod Q
and gives that same integer as long as Q leaves room for it: Q replaces big integers here, it protects nothing. What the
devices would send are the integers, and b_i / a is the secret key (`realchannel.divide`).
"""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.crypto import randomness, round_sum, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.budget import FAIL_SIGMAS, Fading, average_variance
from otafl.crypto.parameters import GUARD_BITS, Parameters
from otafl.crypto.ring import Ring
from otafl.crypto.round_sum import Draws, Keys

REAL_BITS = 52  # binary places of a gain: those of a float64 between 1 and 2


def wide(p: Parameters, channel: Fading) -> Parameters:
    """The same job over a modulus without q's limits: room for the opened integer, its check and its guard copies."""
    largest = p.Mmax + FAIL_SIGMAS * 2**GUARD_BITS * math.sqrt(average_variance(p, channel, "lifted"))
    bits = decode_bits(p) + math.log2(largest) + 4
    limbs = math.ceil(bits / (rings.PRIME_BITS - 1))
    return dataclasses.replace(p, ring=rings.toy_ring(p.ring.n, limbs), f=REAL_BITS, allow_insecure=True)


def decode_bits(p: Parameters) -> int:
    """log2 between a decoded scalar and the opened integer: gains enter the large terms twice."""
    return 2 * REAL_BITS + p.scale_bits


def keys(p: Parameters, ring: Ring, count: int, seed: int) -> Keys:
    """`a` uniform mod q, b_i = -s_i a + e_i over the integers, both stored mod Q."""
    source = randomness.insecure_test_rng(seed)
    a = rings.residues(ring, rings.integers(p.ring, randomness.uniform(source, p.ring)))
    s = xmkckks.secret_polynomial(p, source, (count,))
    e = randomness.gaussian(source, p.sigma_e, (count, p.ring.n))
    a_hat = xmkckks.to_ntt(ring, a)
    return Keys(a_hat, xmkckks.public_batch(ring, a_hat, s, e), s)


def lifted_round(ring: Ring, keys: Keys, draws: Draws, message_sum: Array, weights: Array) -> Array:
    """2^104 (c0 + D) of EEZOFL 3.4 as residues (L, n); `message_sum` is sum_i 2^52 h_i m_i.

    `fused_round` scales all terms by the gains' 2^52 once or twice. Here the message has no factor of its own to match,
    so everything linear in the gains is raised by the missing 2^52.
    """
    lift = np.array([[pow(2, REAL_BITS, prime)] for prime in ring.primes], dtype=np.uint32)
    e0 = round_sum.weighted(ring, weights, rings.small_residues(ring, draws.e0))
    flood = round_sum.weighted(ring, weights, draws.e_star)
    linear = rings.add(ring, rings.add(ring, message_sum, e0), rings.add(ring, flood, draws.w_c0))
    linear = rings.pointwise(ring, rings.add(ring, linear, draws.w_share), lift)
    quiet = draws._replace(
        e0=jnp.zeros_like(draws.e0),
        e_star=jnp.zeros_like(draws.e_star),
        w_c0=jnp.zeros_like(draws.w_c0),
        w_share=jnp.zeros_like(draws.w_share),
    )
    return round_sum.fused_round(ring, keys, quiet, linear, weights)
