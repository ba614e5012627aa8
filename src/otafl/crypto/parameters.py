"""What all parties of a job agree on before the first round, and the public table that says how safe it is.

Scale: a scalar x becomes the integer round(2^f Lambda x) in `fixed-point` (section "modes" of the documentation).
Lambda is a power of two, so that encoding is exact shifting.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.crypto import randomness
from otafl.crypto.ring import Ring

STANDARD = "HomomorphicEncryption.org standard (2018), Table 1: classical attacks, ternary secret"
# largest log2 q for (degree, security level), for errors of at least the level's width
LIMITS = {
    128: {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881},
    192: {1024: 19, 2048: 37, 4096: 75, 8192: 152, 16384: 305, 32768: 611},
    256: {1024: 14, 2048: 29, 4096: 58, 8192: 118, 16384: 237, 32768: 476},
}
# Least width of the errors that a level of the table assumes: 8 / sqrt(2 pi), cut to two places (rounding to integers
# more than restores it). A share s C1 + e* is a sample of the same problem under the same key, so e* needs it too.
LEAST_WIDTH = {128: 3.19, 192: 3.19, 256: 3.19}
WIDEST_BITS = 500  # log2 of the largest width: its square is still a float64
SECRETS = {"sign": 1.0, "ternary": 2.0 / 3.0}  # law of a secret coefficient -> its variance
EPHEMERAL_VAR = 2.0 / 3.0  # v is uniform on {-1, 0, 1}
GUARD_BITS = 10  # a second copy of each scalar is sent this many bits lower
CHECK_COEFFICIENTS = 32  # empty coefficients that suffice to see a failed round


def security_level(n: int, q_bits: int, width: float = LEAST_WIDTH[128]) -> int:
    """The largest level of the standard's table that (n, q) and errors of this width reach; 0 if none.

    >>> security_level(4096, 109), security_level(4096, 110), security_level(8192, 150)
    (128, 0, 192)
    >>> security_level(4096, 109, width=0.1)
    0
    """
    reached = (level for level, limits in LIMITS.items() if q_bits <= limits.get(n, 0) and width >= LEAST_WIDTH[level])
    return max(reached, default=0)


class Layout(NamedTuple):
    """Which coefficient carries what: P messages, their guard copies, the empty ones that show a failure."""

    messages: np.ndarray
    guards: np.ndarray
    empty: np.ndarray
    kept: np.ndarray  # coefficients of c0 and of the shares that are sent; all of them unless shares are short


@dataclass(frozen=True)
class Parameters:
    """Public parameters of one training job. Hashable.

    f           fractional bits of the channel grid
    scale_bits  Lambda = 2^scale_bits
    sigma_phi   standard deviation of the share noise e*, in ring units
    Mmax        bound on |x_i| at encode and on |M| in the headroom
    P           scalars per round, one coefficient each
    guard       send a second, smaller copy of every scalar, to see the message itself wrap
    short_shares  send only the needed coefficients of c0 and of the shares
    allow_insecure  permit sizes and widths outside the security table; `security_bits` then says 0: none
    count_rounding  noise budgets know that errors are whole numbers (`error_var`)
    """

    ring: Ring
    f: int = 16
    scale_bits: int = 60
    sigma_phi: float = 2.0**66.3
    sigma_e: float = 3.2
    sigma_w: float = 1.0
    secret: str = "sign"
    Mmax: float = 1024.0
    P: int = 1
    guard: bool = True
    short_shares: bool = False
    allow_insecure: bool = False
    count_rounding: bool = True

    def __post_init__(self) -> None:
        for name in ("f", "scale_bits", "P", "sigma_phi", "sigma_e", "sigma_w", "Mmax"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise InputError(f"{name} must be one number, not {type(value).__name__}")
        validate.whole("f", self.f, 0)
        validate.whole("scale_bits", self.scale_bits, 0)
        validate.whole("P", self.P, 1)
        for name in ("f", "scale_bits"):
            validate.in_closed(name, getattr(self, name), 0, WIDEST_BITS)
        for name in ("sigma_phi", "sigma_e", "Mmax"):
            validate.positive(name, getattr(self, name))
        validate.not_negative("sigma_w", self.sigma_w)
        for name in ("sigma_phi", "sigma_e", "sigma_w", "Mmax"):
            if getattr(self, name) > 2.0**WIDEST_BITS:
                raise InputError(f"{name}={getattr(self, name):g} must be <= 2^{WIDEST_BITS}")
        for name in ("sigma_e", "sigma_w"):
            if getattr(self, name) >= self.ring.q:
                raise InputError(f"{name}={getattr(self, name):g} must be below q=2^{self.log2_q:.1f}, or all is noise")
        validate.one_of("secret", self.secret, SECRETS)
        for name in ("sigma_e", "sigma_phi"):
            randomness.check_width(name, getattr(self, name))
        if not self.allow_insecure:
            self._check_security()
        needed = self.P * (2 if self.guard else 1) + min(CHECK_COEFFICIENTS, self.ring.n // 4)
        if needed > self.ring.n:
            raise InputError(
                f"P={self.P} scalars{' with guard copies' if self.guard else ''} and the check coefficients need "
                f"{needed} of n={self.ring.n} coefficients; use fewer{', or guard=False' if self.guard else ''}"
            )

    def _check_security(self) -> None:
        """Refuse what the security table does not cover: the sizes, and widths of the errors and of the share noise."""
        way_out = "allow_insecure=True permits it for experiments that hide nothing"
        if security_level(self.ring.n, self.ring.bits) == 0:
            raise InputError(
                f"n={self.ring.n}, log2 q={self.ring.bits}: below 128 bits of security ({STANDARD}: at most "
                f"{LIMITS[128].get(self.ring.n, 'no entry')}); {way_out}"
            )
        for name, secret in (("sigma_e", "public keys and ciphertexts"), ("sigma_phi", "shares")):
            if getattr(self, name) < LEAST_WIDTH[128]:
                raise InputError(
                    f"{name}={getattr(self, name):g} must be >= {LEAST_WIDTH[128]}: with less noise {secret} give away "
                    f"the keys, whatever n and q; {way_out}"
                )

    @property
    def security_bits(self) -> int:
        """What the table says of this ring with this noise; 0: nothing here is secret."""
        return security_level(self.ring.n, self.ring.bits, min(self.sigma_e, self.sigma_phi))

    @property
    def Lambda(self) -> float:
        return 2.0**self.scale_bits

    @property
    def secret_var(self) -> float:
        return SECRETS[self.secret]

    @property
    def error_var(self) -> float:
        """Variance of the rounded Gaussian errors; sigma_e^2, as the paper writes it, without `count_rounding`."""
        return randomness.gaussian_variance(self.sigma_e) if self.count_rounding else self.sigma_e**2

    @property
    def log2_q(self) -> float:
        return math.log2(self.ring.q)

    @cached_property
    def layout(self) -> Layout:
        """Messages at 0 .. P-1, guards at n/2 .. n/2+P-1, the rest empty."""
        n = self.ring.n
        messages = np.arange(self.P)
        guards = n // 2 + messages if self.guard else messages[:0]
        empty = np.setdiff1d(np.arange(n), np.concatenate([messages, guards]))
        if self.short_shares:
            empty = empty[: min(CHECK_COEFFICIENTS, n // 4)]
        return Layout(messages, guards, empty, np.sort(np.concatenate([messages, guards, empty])))
