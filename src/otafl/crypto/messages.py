"""What devices publish, the commitments that precede it, and the refusal of anything malformed.

A commitment is a hash of everything that a message says, its sender and its job included: nobody can take over
another's, and nobody can choose a key or a ciphertext after seeing the others'. Public keys are committed to with a
secret nonce. A c1 part needs none: it is pseudo-random and new.
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError

COMMITMENT_BYTES = 32
LARGEST_COUNT = 1 << 62  # of rounds and attempts


class PublicKey(NamedTuple):
    device: str
    b: np.ndarray  # (L, n)
    setup: bytes  # digest of the agreement it belongs to
    insecure_test_rng: bool
    nonce: bytes = b""  # opens the commitment


class Ciphertext(NamedTuple):
    device: str
    round: int
    attempt: int
    c0: np.ndarray  # (L, n)
    c1: np.ndarray
    insecure_test_rng: bool


class Share(NamedTuple):
    device: str
    round: int
    attempt: int
    c1: bytes  # digest of the c1 it opens
    d: np.ndarray  # (L, n)
    insecure_test_rng: bool


def digest(x: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest()


def _bound(domain: bytes, *parts: bytes) -> bytes:
    """SHA3-256 of the parts, each after its length, so that no two lists of parts read the same."""
    framed = b"".join(len(part).to_bytes(8, "little") + part for part in (domain, *parts))
    return hashlib.sha3_256(framed).digest()


def key_commitment(key: PublicKey) -> bytes:
    """Binds a device to its public key before it has seen the others'; hides it until the nonce is shown."""
    return _bound(b"otafl public key", key.device.encode(), key.setup, key.nonce, key.b.tobytes())


def commitment(part: Ciphertext) -> bytes:
    """Binds a device to its c1 before it has seen the others'; hiding because c1 is pseudo-random."""
    when = f"{part.round}/{part.attempt}".encode()
    return _bound(b"otafl c1", part.device.encode(), when, part.c1.tobytes())


# --- refusals: whatever arrives may be anything ----------------------------------------------------------------------


def whole(name: str, value: Any, most: int = LARGEST_COUNT) -> int:
    """A whole number 0 .. most; no float, no truth value, no NaN."""
    own = validate.plain_whole(value)
    if own is None or not 0 <= own <= most:
        raise InputError(f"{name} must be a whole number from 0 to {most}")
    return own


def real(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Real numbers of this shape as float64; complex ones, texts and ragged lists are refused, never converted."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu" or array.shape != shape or validate.masked(values):
        raise InputError(f"{name} must be real numbers of shape {shape}")
    return array.astype(np.float64)


def same_bytes(found: Any, expected: bytes) -> bool:
    """Equality of what somebody sent with bytes; anything that is no bytes is another."""
    return type(found) is bytes and found == expected


def name_of(device: Any) -> str:
    if type(device) is not str or not device:
        raise InputError("a device id must be a text that is not empty")
    return device


def promises(name: str, promised: Any) -> dict[str, bytes]:
    """Commitments by device."""
    if not isinstance(promised, dict) or not promised:
        raise InputError(f"{name} must be a table from device ids to commitments")
    for device, value in promised.items():
        name_of(device)
        if type(value) is not bytes or len(value) != COMMITMENT_BYTES:
            raise InputError(f"{name}: the commitment of {device!r} must be {COMMITMENT_BYTES} bytes")
    return dict(promised)


def one_each(name: str, kind: type, found: Any, members: Any) -> list[Any]:
    """One message of this kind from every member, read once; anything else is refused."""
    own: list[Any] = list(found) if type(found) in (list, tuple) else [None]
    if not all(type(item) is kind for item in own):
        raise InputError(f"{name} must be a list of {kind.__name__}")
    if sorted(name_of(item.device) for item in own) != sorted(members):
        raise InputError(f"{name} do not come from the agreed devices, one each")
    return own
