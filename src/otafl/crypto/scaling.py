"""Between real numbers and the ring: exact scaling by powers of two, the channel grid, packing and decoding.

A float64 is an integer times a power of two, so round(x 2^bits) has exact residues however large it is; no value is
ever squeezed through int64 or multiplied in floating point.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto import ring as rings
from otafl.crypto.parameters import GUARD_BITS, Parameters
from otafl.crypto.ring import Ring

MANTISSA_BITS = 53
LARGEST_BITS = 64  # of |x| before scaling


def scaled_residues(ring: Ring, x: Array, bits: int) -> Array:
    """Residues (..., L, n) of round(x 2^bits), half to even, for float64 x (..., n) with |x| < 2^64. NumPy or jax."""
    xp = np if isinstance(x, np.ndarray) else jnp
    fraction, exponent = xp.frexp(x.astype(xp.float64))
    shift = exponent.astype(xp.int64) - MANTISSA_BITS + bits
    whole = xp.where(shift >= 0, fraction * 2.0**MANTISSA_BITS, xp.rint(xp.ldexp(x.astype(xp.float64), bits)))
    whole = xp.where(shift >= 0, whole, xp.where(xp.abs(whole) < 2.0**62, whole, 0.0)).astype(xp.int64)
    left = xp.clip(shift, 0, bits + LARGEST_BITS)
    powers = np.array([[pow(2, k, p) for k in range(bits + LARGEST_BITS + 1)] for p in ring.primes], dtype=np.int64)
    moduli = np.array(ring.primes, dtype=np.int64)[:, None]
    factor = xp.stack([xp.asarray(row)[left] for row in powers], axis=-2)
    return (whole[..., None, :] % moduli * factor % moduli).astype(xp.uint32)


class Quantised(NamedTuple):
    h: np.ndarray
    rms_change: float


def quantise_channel(h: np.ndarray, f: int) -> Quantised:
    """The nearest channel on the grid 2^-f Z and how far it is (rms): never done silently."""
    near = np.ldexp(np.rint(np.ldexp(np.asarray(h, dtype=np.float64), f)), -f)
    return Quantised(near, float(np.sqrt(np.mean((near - h) ** 2))))


def grid_weights(ring: Ring, h: np.ndarray, f: int) -> Array:
    """H = 2^f h as residues (N, L, 1); refuses a channel off the grid or one that erases every device.

    >>> ring = rings.toy_ring(8, limbs=1)
    >>> grid_weights(ring, np.array([0.5, 1 / 3]), 4)
    Traceback (most recent call last):
    otafl.core.errors.InputError: h[1]=0.3333333333333333 must be a multiple of 2^-4; see quantise_channel
    """
    h = np.asarray(h, dtype=np.float64)
    validate.finite("h", h)
    scaled = np.ldexp(h, f)
    off = scaled != np.rint(scaled)
    if off.any():
        index = int(np.argmax(off))
        raise InputError(f"h[{index}]={h[index].item()!r} must be a multiple of 2^-{f}; see quantise_channel")
    weights = scaled_residues(ring, h[:, None], f)
    if not weights.any(axis=0).all():
        raise InputError("every channel weight is zero modulo a prime of q: nothing would be received")
    return weights


def encode(parameters: Parameters, values: np.ndarray, bits: int) -> Array:
    """Scalars (N, P) -> residues (N, L, occupied) of the coefficients that a message occupies: `occupied`, checked."""
    values = np.asarray(values, dtype=np.float64)
    good = np.abs(values) <= parameters.Mmax
    if not good.all():  # the value itself is private and stays out of the message
        row = validate.first_place(~good)[0]
        raise InputError(f"values of row {row} must be finite and lie in [-{parameters.Mmax:g}, {parameters.Mmax:g}]")
    return occupied(parameters, values, bits)


def occupied(parameters: Parameters, values: Array, bits: int) -> Array:
    """Residues of round(x 2^bits), then of the guard copies, GUARD_BITS lower: (..., P) -> (..., L, P or 2P)."""
    xp = np if isinstance(values, np.ndarray) else jnp
    body = scaled_residues(parameters.ring, values, bits)
    if not parameters.guard:
        return body
    return xp.concatenate([body, scaled_residues(parameters.ring, values, bits - GUARD_BITS)], axis=-1)


def spread(parameters: Parameters, few: Array) -> Array:
    """A message's whole polynomial (..., L, n) from the coefficients it occupies; jax in jit, NumPy on the host."""
    xp = np if isinstance(few, np.ndarray) else jnp
    P, width = parameters.P, parameters.ring.n // (2 if parameters.guard else 1)
    parts = (few[..., start : start + P] for start in range(0, few.shape[-1], P))
    space = xp.zeros((*few.shape[:-1], width - P), dtype=xp.uint32)
    return xp.concatenate([x for part in parts for x in (part, space)], axis=-1)


def pack(parameters: Parameters, values: Array, bits: int) -> Array:
    """Scalars (..., P) -> message polynomials (..., L, n), unchecked; jax inside jit or NumPy on the host."""
    return spread(parameters, occupied(parameters, values, bits))


class Decoded(NamedTuple):
    """What leaves the ring: the sums, their guard copies, and one number about the empty coefficients."""

    values: Array  # (P,)
    guards: Array  # (P,) or (0,), same unit as values
    empty_rms: Array  # (), same unit


def decode(parameters: Parameters, received: Array, bits: int) -> Decoded:
    """Residues (L, kept) of M^ -> values in the unit of the messages. Only an rms of the rest is returned."""
    layout = parameters.layout
    at = np.searchsorted(layout.kept, np.concatenate([layout.messages, layout.guards, layout.empty]))
    x = rings.centred_float(parameters.ring, received, bits)[at]
    xp = np if isinstance(x, np.ndarray) else jnp
    P, G = parameters.P, layout.guards.size
    return Decoded(x[:P], x[P : P + G] * 2.0**GUARD_BITS, xp.sqrt(xp.mean(x[P + G :] ** 2)))


def copies_apart(decoded: Decoded, error: float) -> Array:
    """Whether a scalar and its guard copy differ by more than this decoding error and float64's rounding of both."""
    xp = np if isinstance(decoded.values, np.ndarray) else jnp
    scalars = decoded.values[: decoded.guards.size]
    rounding = 8 * np.finfo(np.float64).eps * xp.abs(scalars)
    return xp.any(xp.abs(decoded.guards - scalars) > 2.0**GUARD_BITS * error + rounding)
