"""The four-phase protocol: keys up, ciphertexts up, shares up, one number out.

`play` runs every device through the phases of a grid mode and keeps what the server sees; `release` looks at the empty
coefficients, refuses a failed round, and lets only the decoded scalars out. `run_round` is both. The real-channel modes
are in `realchannel.py`, the fused form of the same arithmetic in `round_sum.py`. What devices refuse is in
`participant.py`; nothing here checks on their behalf.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError, OtaflError
from otafl.crypto import messages, modes, scaling, xmkckks
from otafl.crypto import participant as devices
from otafl.crypto.budget import (
    FAIL_SIGMAS,
    Fading,
    average_variance,
    check_headroom,
    decode_bits,
    message_bits,
)
from otafl.crypto.parameters import Parameters
from otafl.crypto.participant import Client
from otafl.crypto.randomness import Source

Superpose = Callable[..., np.ndarray]  # (phase, (N, L, k), kept) -> (L, k)


class RoundFailed(OtaflError):
    """The decrypted polynomial is not a small one, or a scalar wrapped: nothing of it may be used."""


class Transcript(NamedTuple):
    """What the server holds of one round. It never leaves the server."""

    key: np.ndarray  # B (L, n)
    c0: np.ndarray  # (L, kept)
    c1: np.ndarray  # (L, n)
    share: np.ndarray  # (L, kept)
    received: np.ndarray  # M^ (L, kept)
    insecure_test_rng: bool


class RoundResult(NamedTuple):
    """All that leaves the server."""

    values: np.ndarray  # (P,) sum_i h_i x_i plus noise
    empty_rms: float  # of the coefficients without a message, in the unit of the values
    expected_rms: float  # what the budget, averaged over fading, predicts
    insecure_test_rng: bool


def play(
    clients: Sequence[Client],
    values: np.ndarray,
    air: Superpose,
    mode: str = "fixed-point",
    round: int = 0,
    attempt: int = 0,
) -> Transcript:
    """Phases 1 to 4 with one message row per device, `values` (N, P). EEZOFL 3.5"""
    p = devices.same_job(clients).parameters
    for client in clients:
        client.use(mode)
    if len(clients) < 2:
        warnings.warn("a single device: the decrypted sum is its own scalar", stacklevel=2)
    kept = p.layout.kept
    key = air("key", np.stack([client.public.b for client in clients]))
    sent = devices.encrypt_together(clients, values, message_bits(p, mode), round, attempt, key)
    c0 = air("c0", np.stack([part.c0[:, kept] for part in sent]), kept)
    c1 = air("c1", np.stack([part.c1 for part in sent]))
    if mode == "digital":
        promised = {part.device: messages.commitment(part) for part in sent}  # all arrive before any c1 is shown
        for client in clients:
            client.accept_commitments(promised)
    opened = devices.share_together(clients, round, attempt, c1, sent if mode == "digital" else None)
    if mode in ("digital", "hybrid"):
        stacked = devices.collect(opened, [client.device for client in clients], round, attempt, c1)
    else:
        stacked = np.stack([share.d for share in opened])
    share = air("share", stacked[..., kept], kept)
    received = xmkckks.reconstruct(p.ring, c0, share)
    return Transcript(key, c0, c1, share, received, any(client.insecure_test_rng for client in clients))


def release(
    p: Parameters, received: np.ndarray, expected_rms: float, bits: int, insecure_test_rng: bool, z: float = FAIL_SIGMAS
) -> RoundResult:
    """Decode M^ (L, kept) and let the scalars out, or raise `RoundFailed`. EEZOFL 7.5"""
    shape = (p.ring.limbs, p.layout.kept.size)
    if not isinstance(received, np.ndarray) or received.dtype != np.uint32 or received.shape != shape:
        raise InputError(f"received must be uint32 residues of shape {shape}")
    validate.positive("expected_rms", messages.real("expected_rms", expected_rms, ()))
    decoded = scaling.decode(p, received, bits)
    if decoded.empty_rms > z * expected_rms:
        raise RoundFailed(
            f"empty coefficients have rms {decoded.empty_rms / expected_rms:.3g} times the expected one (limit {z:g}): "
            "a share is missing or wrong, the channel moved, or the weights differ; redo with fresh scalars"
        )
    if scaling.copies_apart(decoded, z * expected_rms):
        raise RoundFailed("a scalar and its second copy disagree: the message itself wrapped; lower it or the scale")
    return RoundResult(decoded.values, float(decoded.empty_rms), expected_rms, insecure_test_rng)


def run_round(
    clients: Sequence[Client],
    values: np.ndarray,
    h: np.ndarray,
    channel: Fading,
    rng: np.random.Generator,
    mode: str = "fixed-point",
    round: int = 0,
    attempt: int = 0,
    setup_h: np.ndarray | None = None,
) -> RoundResult:
    """One round of a grid mode: `values` (N, P) = Delta f / mu, gains `h` (N,) on the grid. Raises `RoundFailed`.

    The failing controls end in `RoundFailed` here; use `play` to look at their residues.
    """
    p = devices.same_job(clients).parameters
    modes.named(mode, modes.GRID_MODES)
    h = messages.real("h", h, (len(clients),))
    budget_mode = mode if mode in ("digital", "hybrid") else "fixed-point"
    check_headroom(p, channel, budget_mode)
    air = modes.grid_air(mode, p, h, rng, setup_h=setup_h)
    seen = play(clients, values, air, mode, round, attempt)
    expected = float(np.sqrt(average_variance(p, channel, budget_mode)))
    return release(p, seen.received, expected, decode_bits(p, mode), seen.insecure_test_rng)


def gather_clients(agreed: xmkckks.Setup, count: int, sources: Sequence[Source] | None = None) -> list[Client]:
    """`count` devices with fresh keys that have all accepted each other's public keys."""
    made = [Client(f"device-{i}", agreed, sources[i] if sources else None) for i in range(count)]
    promised = {client.device: client.key_commitment for client in made}
    for client in made:
        client.accept_key_commitments(promised)
    board = [client.public for client in made]
    for client in made:
        client.accept_board(board)
    return made
