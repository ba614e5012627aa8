"""A device: its key, what it remembers, and what it refuses.

A device answers one c1 per attempt, never the same c1 twice, and only for the attempt it encrypted for last. Where keys
travel digitally it adds up the aggregated key itself from the published ones; where c1 parts do too it adds up C1.
Over the air neither sum can be checked: a server that chooses its broadcasts is outside the security model there.
"""

import hashlib
import hmac
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from otafl.crypto import scaling, xmkckks
from otafl.crypto.randomness import OperatingSystem, Source
from otafl.crypto.xmkckks import Ephemeral, SecretKey, Setup
from otafl.errors import InputError


class PublicKey(NamedTuple):
    device: str
    b: np.ndarray  # (L, n)
    setup: bytes  # digest of the agreement it belongs to
    insecure_test_rng: bool


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


def commitment(part: Ciphertext) -> bytes:
    """Binds a device to its c1 before it has seen the others'; hiding because c1 is pseudo-random."""
    head = f"{part.device}/{part.round}/{part.attempt}/".encode()
    return hashlib.sha256(head + part.c1.tobytes()).digest()


class Client:
    """One device of a job. Secrets stay inside; `public` is for everyone."""

    def __init__(self, device: str, agreed: Setup, source: Source | None = None):
        self.device, self.agreed = device, agreed
        self._source = source or OperatingSystem()
        self._key, b = xmkckks.keygen(agreed, self._source)
        self.public = PublicKey(device, b, agreed.digest, self._source.insecure_test_rng)
        self._board: np.ndarray | None = None
        self._members: tuple[str, ...] = ()
        self._attempt: tuple[int, int] | None = None  # the one it encrypted for last
        self._own_c1: bytes = b""
        self._promised: dict[str, bytes] | None = None  # commitments to the c1 parts of this attempt
        self._open = False  # may still send one share for that attempt
        self._answered: set[bytes] = set()
        self._sent: set[bytes] = set()  # keyed digests of the scalars of the current round

    def __repr__(self) -> str:
        mark = ", insecure_test_rng" if self.insecure_test_rng else ""
        return f"Client({self.device!r}{mark})"

    def __reduce__(self) -> str:
        raise TypeError("a client holds a secret key and is never pickled or copied")

    @property
    def insecure_test_rng(self) -> bool:
        return self._source.insecure_test_rng or self.agreed.insecure_test_rng

    def accept_board(self, board: Sequence[PublicKey]) -> np.ndarray:
        """Check the published partial keys, fix the members, and add the keys up: the only b this client will use."""
        names = [key.device for key in board]
        if len(set(names)) != len(names):
            raise InputError(f"duplicate device id on the board: {sorted(n for n in names if names.count(n) > 1)[0]!r}")
        for key in board:
            if key.setup != self.agreed.digest:
                raise InputError(f"device {key.device!r} agreed on another a, q, n, f or scale than {self.device!r}")
        if not any(key.device == self.device and np.array_equal(key.b, self.public.b) for key in board):
            raise InputError(f"the board does not hold the key of {self.device!r} as it was published")
        if len(board) < 2:
            warnings.warn("a single device: the decrypted sum is its own scalar", stacklevel=2)
        self._members = tuple(names)
        self._board = xmkckks.add_up(self.agreed.parameters.ring, np.stack([key.b for key in board]))
        return self._board

    def check_key(self, broadcast: np.ndarray) -> None:
        """Refuse an aggregated key that is not the sum of the board."""
        if self._board is None:
            raise InputError(f"{self.device!r} has seen no board of public keys; call accept_board first")
        if not np.array_equal(broadcast, self._board):
            raise InputError("the broadcast key is not the sum of the published keys: refusing to encrypt under it")

    def begin(self, values: np.ndarray, round: int, attempt: int) -> None:
        """Open an attempt; abandons the one before. Scalars that went out in a failed attempt never go out again."""
        if self._attempt is not None and (round, attempt) <= self._attempt:
            raise InputError(
                f"round={round}, attempt={attempt} does not follow {self._attempt}: nothing is encrypted twice"
            )
        if self._attempt is None or round != self._attempt[0]:
            self._sent.clear()
        mark = hmac.digest(self._key._prf, np.asarray(values, dtype=np.float64).tobytes(), "sha256")
        if mark in self._sent and np.any(values):
            raise InputError(
                f"the scalars of round {round} were sent in an earlier attempt: draw a fresh direction and minibatch"
            )
        self._sent.add(mark)
        self._attempt, self._open, self._promised = (round, attempt), True, None

    def sent(self, c1: np.ndarray) -> None:
        self._own_c1 = digest(c1)

    def allow_share(self, round: int, attempt: int, c1: np.ndarray) -> None:
        """Refuse a share for another attempt, a second c1 in one attempt, or a c1 that was answered before."""
        if (round, attempt) != self._attempt:
            raise InputError(
                f"share asked for round={round}, attempt={attempt}, but {self.device!r} is at {self._attempt}"
            )
        name = digest(xmkckks.reduced(self.agreed.parameters.ring, "c1", c1))
        if name in self._answered:
            raise InputError("this c1 was answered before: replay refused")
        if not self._open:
            raise InputError(f"a second c1 for round={round}, attempt={attempt} is refused")
        self._open = False
        self._answered.add(name)

    def accept_commitments(self, promised: dict[str, bytes]) -> None:
        """Take every member's commitment to its c1, once per attempt; the parts are checked against them."""
        if self._promised is not None:
            raise InputError("commitments for this attempt were accepted before: they cannot change")
        if sorted(promised) != sorted(self._members):
            raise InputError("the commitments do not come from the agreed devices, one each")
        self._promised = dict(promised)

    def check_parts(self, c1: np.ndarray, parts: Sequence[Ciphertext]) -> None:
        """Digital mode: C1 must be the sum of one published c1 from every member, as committed to, mine unchanged."""
        if self._promised is None:
            raise InputError(f"{self.device!r} has no commitments to the c1 parts; call accept_commitments first")
        if sorted(part.device for part in parts) != sorted(self._members):
            raise InputError("the published c1 parts do not come from the agreed devices, one each")
        for part in parts:
            if (part.round, part.attempt) != self._attempt:
                raise InputError(f"the c1 part of {part.device!r} belongs to another round or attempt")
            if part.device == self.device and digest(part.c1) != self._own_c1:
                raise InputError(f"the c1 part of {self.device!r} was changed")
            if commitment(part) != self._promised[part.device]:
                raise InputError(f"the c1 part of {part.device!r} is not the one it committed to")
        if not np.array_equal(c1, xmkckks.add_up(self.agreed.parameters.ring, np.stack([part.c1 for part in parts]))):
            raise InputError("C1 is not the sum of the published parts: refusing to decrypt")

    def encrypt(self, values: np.ndarray, bits: int, round: int, attempt: int, key: np.ndarray) -> Ciphertext:
        """One device alone; `values` (P,), scaled by 2^bits, under the aggregated `key` (L, n)."""
        return encrypt_together([self], np.asarray(values)[None], bits, round, attempt, key)[0]

    def share(self, round: int, attempt: int, c1: np.ndarray, parts: Sequence[Ciphertext] | None = None) -> Share:
        """The partial decryption of C1, after every check this client can make."""
        return share_together([self], round, attempt, c1, parts)[0]


def encrypt_together(
    clients: Sequence[Client], values: np.ndarray, bits: int, round: int, attempt: int, key: np.ndarray
) -> list[Ciphertext]:
    """Every client encrypts its row of `values` (N, P); one compiled call, each with its own randomness."""
    agreed = clients[0].agreed
    p = agreed.parameters
    key = xmkckks.reduced(p.ring, "the aggregated key", key)  # before anything counts as sent
    messages = scaling.encode(p, values, bits)
    for client, row in zip(clients, values):
        client.begin(row, round, attempt)
    draws = [xmkckks.ephemeral(p, client._source, 1) for client in clients]
    draw = Ephemeral(*(np.concatenate(part) for part in zip(*draws)))
    c0, c1 = xmkckks.encrypt_batch(agreed, key, draw, messages)
    for client, part in zip(clients, c1):
        client.sent(part)
    return [
        Ciphertext(client.device, round, attempt, c0[i], c1[i], client.insecure_test_rng)
        for i, client in enumerate(clients)
    ]


def share_together(
    clients: Sequence[Client], round: int, attempt: int, c1: np.ndarray, parts: Sequence[Ciphertext] | None = None
) -> list[Share]:
    """Shares of all clients; none is computed unless every one of them agrees."""
    for client in clients:
        if parts is not None:
            client.check_parts(c1, parts)
        client.allow_share(round, attempt, c1)
    keys: list[SecretKey] = [client._key for client in clients]
    opened = xmkckks.share_batch(clients[0].agreed, keys, c1)
    name = digest(c1)
    return [
        Share(client.device, round, attempt, name, opened[i], client.insecure_test_rng)
        for i, client in enumerate(clients)
    ]


def collect(shares: Sequence[Share], members: Sequence[str], round: int, attempt: int, c1: np.ndarray) -> np.ndarray:
    """The server's side of digital shares: one from every member, all for this c1; stacked (N, L, n)."""
    names = [share.device for share in shares]
    missing = sorted(set(members) - set(names))
    if missing:
        raise InputError(f"missing share of {missing[0]!r}: all {len(members)} are needed; redo the round from phase 1")
    if sorted(names) != sorted(members):
        raise InputError("a share came twice or from a device outside the round")
    for share in shares:
        if (share.round, share.attempt) != (round, attempt) or share.c1 != digest(c1):
            raise InputError(f"the share of {share.device!r} is for another round, attempt or c1")
    return np.stack([share.d for share in shares])
