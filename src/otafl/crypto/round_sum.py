"""The same round with the devices' sums formed first: three ring products instead of three per device.

For simulation only (someone must hold all secrets), pure and jit-able, randomness passed in as arrays, so it may stand
inside `lax.scan`. Bit-equal to the per-device path. Everything runs inside `jax.enable_x64(True)`.
"""

from typing import NamedTuple

import jax.numpy as jnp

from otafl.core.arrays import Array
from otafl.crypto import ring as rings
from otafl.crypto.ring import Ring


class Keys(NamedTuple):
    """A job: fixed over rounds."""

    a_hat: Array  # (L, n) transformed
    b: Array  # (N, L, n) partial public keys
    s: Array  # (N, n) int8 secrets

    def __repr__(self) -> str:
        return "Keys(hidden)"


class Draws(NamedTuple):
    """Randomness of one round."""

    v: Array  # (N, n) int8
    e0: Array  # (N, n) int8
    e1: Array  # (N, n) int8
    e_star: Array  # (N, L, n) residues
    w_key: Array  # (L, n) residues, as are the next three: receiver noise on the grid's scale
    w_c0: Array
    w_c1: Array
    w_share: Array

    def __repr__(self) -> str:
        return "Draws(hidden)"


def weighted(ring: Ring, weights: Array, x: Array) -> Array:
    """sum_i H_i x_i mod q: weights (N, L, 1), residues x (N, L, n) -> (L, n). Partial sums of chunks of devices add."""
    return rings.total(ring, rings.pointwise(ring, weights, x))


def fused_round(
    ring: Ring, keys: Keys, draws: Draws, message_sum: Array, weights: Array, key_weights: Array | None = None
) -> Array:
    """M^ residues (L, n) of one round. EEZOFL 3.5

    message_sum  (L, n) sum_i H_i m_i, from `weighted`
    weights      (N, L, 1) H_i of the ciphertexts;  key_weights: of keys and shares, the same unless given
    """
    key_weights = weights if key_weights is None else key_weights

    def small(w: Array, x: Array) -> Array:
        return weighted(ring, w, rings.small_residues(ring, x))

    def product(x_hat: Array, y_hat: Array) -> Array:
        return rings.pointwise(ring, x_hat, y_hat)

    secret, ephemeral = small(key_weights, keys.s), small(weights, draws.v)  # S^, V^
    key = rings.add(ring, weighted(ring, key_weights, keys.b), draws.w_key)  # B = -S^ a + E^
    error = rings.add(ring, small(weights, draws.e1), draws.w_c1)
    # One transform of four is a quarter of the program, and of a GPU's launches, of four transforms.
    secret_hat, ephemeral_hat, key_hat, error_hat = rings.transform(ring, jnp.stack([secret, ephemeral, key, error]))
    c1_hat = rings.add(ring, product(ephemeral_hat, keys.a_hat), error_hat)
    c0_hat = product(ephemeral_hat, key_hat)
    large = rings.untransform(ring, rings.add(ring, c0_hat, product(secret_hat, c1_hat)))
    rest = rings.add(ring, message_sum, small(weights, draws.e0))
    rest = rings.add(ring, rest, weighted(ring, key_weights, draws.e_star))
    return rings.add(ring, rings.add(ring, large, rest), rings.add(ring, draws.w_c0, draws.w_share))
