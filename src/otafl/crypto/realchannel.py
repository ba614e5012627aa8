"""What happens on a channel that is not on a grid: two demonstrations, neither fit for use.

`literal`  Devices send representatives reduced mod q, the air multiplies them by real numbers. The multiples of q that
           reduction removed come back as q h_i k_i, which is no multiple of q: decoding must fail.
`lifted`   Nothing is ever reduced. The cancellation is exact for any real gain, but b_i = -s_i a + e_i over the
           integers, so dividing by the public a (an ordinary FFT) returns s_i: no secrecy at all. This is what a
           simulation in real numbers silently does.

Real numbers are float64, hence dyadic; both modes compute with them exactly, in Python integers.
"""

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.crypto import randomness
from otafl.crypto import ring as rings
from otafl.crypto.modes import InsecureModeWarning
from otafl.crypto.parameters import Parameters
from otafl.crypto.randomness import Source
from otafl.crypto.ring import Ring
from otafl.crypto.xmkckks import ephemeral, secret_polynomial


def dyadic(h: np.ndarray) -> tuple[list[int], int]:
    """Integers H and k with h = H / 2^k exactly."""
    parts = [Fraction(float(x)) for x in h]
    bits = max(part.denominator.bit_length() - 1 for part in parts)
    return [int(part * 2**bits) for part in parts], bits


class LiteralAir:
    """Superposition of centred representatives with real weights and real noise, rounded to the nearest integer."""

    def __init__(self, p: Parameters, h: np.ndarray, rng: np.random.Generator):
        self._p, self._rng = p, rng
        self._weights, self._bits = dyadic(np.asarray(h, dtype=np.float64))

    def __call__(self, phase: str, x: np.ndarray, kept: np.ndarray | slice = slice(None)) -> np.ndarray:
        ring = self._p.ring
        terms = np.array(rings.integers(ring, x), dtype=object)  # (N, k)
        noise, noise_bits = dyadic(np.asarray(self._rng.normal(0.0, self._p.sigma_w, terms.shape[1])))
        bits = max(self._bits, noise_bits)
        weights = np.array([w << (bits - self._bits) for w in self._weights], dtype=object)
        total = weights @ terms + np.array([w << (bits - noise_bits) for w in noise], dtype=object)
        return rings.residues(ring, (total + (1 << bits >> 1)) >> bits)


def integer_product(x: Sequence[int], y: Sequence[int]) -> list[int]:
    """Product in Z[X]/(X^n+1), exact, through one multiplication of two huge integers (Kronecker).

    >>> integer_product([1, 2], [3, -4])
    [11, 2]
    """
    n = len(x)
    largest = max(map(abs, x)) * max(map(abs, y)) * n
    width = largest.bit_length() // 8 + 2  # bytes per coefficient, with room for a sign
    product = _pack(x, width) * _pack(y, width)
    offset = int.from_bytes((b"\x00" * (width - 1) + b"\x80") * (2 * n), "little")
    raw = (product + offset).to_bytes(2 * n * width + 1, "little")
    half = 1 << (8 * width - 1)
    full = [int.from_bytes(raw[i * width : (i + 1) * width], "little") - half for i in range(2 * n)]
    return [low - high for low, high in zip(full[:n], full[n:])]


def _pack(x: Sequence[int], width: int) -> int:
    positive = b"".join(max(c, 0).to_bytes(width, "little") for c in x)
    negative = b"".join(max(-c, 0).to_bytes(width, "little") for c in x)
    return int.from_bytes(positive, "little") - int.from_bytes(negative, "little")


class Lifted(NamedTuple):
    """A lifted round, with what the air carried: enough to break it."""

    values: np.ndarray  # (P,) decoded
    a: list[int]
    b: list[list[int]]  # (N, n) unreduced partial keys
    insecure_test_rng: bool


def lifted_round(
    p: Parameters, values: np.ndarray, h: np.ndarray, rng: np.random.Generator, source: Source | None = None
) -> Lifted:
    """The published protocol over the integers, any real gains. EEZOFL 3.4. Warns: nothing is hidden."""
    warnings.warn("ring mode 'lifted' has no secrecy: b_i / a is the secret key", InsecureModeWarning, stacklevel=2)
    source, n, count = source or randomness.OperatingSystem(), p.ring.n, len(h)
    validate.shape("values", values, (count, p.P))
    weights, bits = dyadic(np.asarray(h, dtype=np.float64))

    def heard(x: np.ndarray) -> Array:  # sum_i h_i x_i, 2^bits times as large
        return np.array(weights, dtype=object) @ x

    def noise() -> np.ndarray:
        return np.array([round(Fraction(w) * 2**bits) for w in rng.normal(0.0, p.sigma_w, n)], dtype=object)

    def times(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.array(integer_product(x.tolist(), y.tolist()), dtype=object)

    a = np.array(rings.integers(p.ring, randomness.uniform(source, p.ring)), dtype=object)
    s = secret_polynomial(p, source, (count,)).astype(object)
    e = randomness.gaussian(source, p.sigma_e, (count, n)).astype(object)
    b = np.stack([e_i - times(s_i, a) for s_i, e_i in zip(s, e)])
    draw = ephemeral(p, source, count)
    message = np.zeros((count, n), dtype=object)
    message[:, : p.P] = [[round(Fraction(float(x)) * 2**p.scale_bits) for x in row] for row in values]
    flood = np.array(rings.integers(p.ring, randomness.flooding([source] * count, p.ring, p.sigma_phi)), dtype=object)
    key = heard(b) + noise()
    v = heard(draw.v.astype(object))
    lift = 2**bits
    c0 = times(v, key) + lift * (heard(message + draw.e0.astype(object)) + noise())
    c1 = times(v, a) + heard(draw.e1.astype(object)) + noise()
    share = times(heard(s), c1) + lift * (heard(flood) + noise())
    total = (c0 + share)[: p.P]
    decoded = np.array([float(Fraction(x, lift * lift << p.scale_bits)) for x in total])
    return Lifted(decoded, a.tolist(), b.tolist(), source.insecure_test_rng)


def divide(b: Sequence[int], a: Sequence[int]) -> np.ndarray:
    """-b / a modulo X^n + 1 in double precision, as anyone with the broadcast can compute: the attack on `lifted`."""
    n = len(a)
    scale = float(max(map(abs, a)))
    twist = np.exp(-1j * np.pi * np.arange(n) / n)
    top = np.fft.fft(np.array([float(x) / scale for x in b]) * twist)
    bottom = np.fft.fft(np.array([float(x) / scale for x in a]) * twist)
    return np.real(np.fft.ifft(-top / bottom) / twist)


def reduced(ring: Ring, x: Sequence[int]) -> list[int]:
    """Centred representatives mod q, to show that the same division then returns noise."""
    return rings.integers(ring, rings.residues(ring, x))
