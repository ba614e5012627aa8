"""One key for everybody: the comparison that shows what phases 1 and 3 buy.

With a single key, sum_i H_i c_i decrypts for any channel on the grid, with no key phase and no shares. The price: any
client opens any other client's ciphertext (`SharedKey.open`), and so does whoever obtains the key from one of them.
"""

import warnings
from functools import partial
from typing import Any

import jax
import numpy as np

from otafl.crypto import modes, scaling, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.budget import decode_bits, message_bits
from otafl.crypto.overair import Transcript
from otafl.crypto.randomness import OperatingSystem, Source
from otafl.crypto.ring import Ring
from otafl.crypto.xmkckks import Setup

MODE = "single-key"


class SharedKey:
    """A key pair that every client holds."""

    def __init__(self, agreed: Setup, source: Source | None = None):
        warnings.warn(
            "ring mode 'single-key' has no secrecy among clients: each can open every ciphertext",
            modes.InsecureModeWarning,
            stacklevel=2,
        )
        self.agreed, self._source = agreed, source or OperatingSystem()
        self._key, self.b = xmkckks.keygen(agreed, self._source)

    def __repr__(self) -> str:
        return "SharedKey(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is never pickled or copied")

    def encrypt(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """c0, c1 (N, L, n) of the rows of `values` (N, P)."""
        p = self.agreed.parameters
        messages = scaling.encode(p, values, message_bits(p, MODE))
        draw = xmkckks.ephemeral(p, self._source, len(values))
        return xmkckks.encrypt_batch(self.agreed, self.b, draw, messages)

    def decrypt(self, c0: np.ndarray, c1: np.ndarray) -> np.ndarray:
        """c0 + s c1 (mod q), residues (L, n)."""
        with jax.enable_x64(True):
            return np.asarray(_open(self.agreed.parameters.ring, self._key._s, c0, c1))

    def open(self, c0: np.ndarray, c1: np.ndarray) -> np.ndarray:
        """The scalars (P,) of one client's ciphertext, by any other client."""
        p = self.agreed.parameters
        return scaling.decode(p, self.decrypt(c0, c1)[:, p.layout.kept], message_bits(p, MODE)).values

    def play(self, values: np.ndarray, h: np.ndarray, rng: np.random.Generator) -> Transcript:
        """Ciphertexts over the air, opened at once."""
        p = self.agreed.parameters
        air = modes.grid_air("hybrid", p, h, rng)  # the same air: only ciphertexts meet the channel
        c0, c1 = self.encrypt(values)
        heard0, heard1 = air("c0", c0), air("c1", c1)
        received = self.decrypt(heard0, heard1)[:, p.layout.kept]
        return Transcript(self.b, heard0, heard1, np.zeros_like(heard0), received, self._source.insecure_test_rng)

    def run(self, values: np.ndarray, h: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """sum_i h_i x_i plus noise, (P,)."""
        p = self.agreed.parameters
        return scaling.decode(p, self.play(values, h, rng).received, decode_bits(p, MODE)).values


@partial(jax.jit, static_argnums=0)
def _open(ring: Ring, s: Any, c0: Any, c1: Any) -> Any:
    return rings.add(ring, c0, rings.multiply(ring, rings.small_residues(ring, s), c1))
