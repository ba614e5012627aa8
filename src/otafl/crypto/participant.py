"""A device: its key, what it remembers, and what it refuses. Every refusal lives here, none in whoever drives it.

Keys. A device expands the common `a` itself. It reveals its public key only after every member has committed to one,
and takes no key that does not open its commitment: nobody chooses a key after seeing the others'.

Rounds. A device answers one c1 per attempt, never the same c1 twice, only for the attempt it encrypted for last, and
sends no vector of scalars a second time while its key lives. Unless it is told otherwise before its first encryption
(`use`) it encrypts under the sum of the board alone, and opens only the sum of published c1 parts. Over the air neither
sum can be checked: a server that chooses its broadcasts is outside the security model there.
"""

import warnings
from collections.abc import Sequence
from threading import RLock
from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.crypto import messages, modes, scaling, xmkckks
from otafl.crypto.messages import Ciphertext, PublicKey, Share, commitment, digest
from otafl.crypto.randomness import OperatingSystem, Source
from otafl.crypto.xmkckks import Ephemeral, SecretKey, Setup

CHECKED = {"digital": frozenset({"key", "c1"}), "hybrid": frozenset({"key"})}  # sums a device can check; others: none
MARK_BYTES = 16  # of the memory of a round's scalars


class Client:
    """One device of a job. Secrets stay inside; `public` is for everyone, once all have committed."""

    def __init__(self, device: str, agreed: Setup, source: Source | None = None):
        self.device, self.agreed = messages.name_of(device), xmkckks.verified(agreed)
        self._source = source or OperatingSystem()
        self._key, b = xmkckks.keygen(self.agreed, self._source)
        mark = self._source.insecure_test_rng
        self._public = PublicKey(device, xmkckks.fixed(np.array(b)), self.agreed.digest, mark, self._key.nonce(b))
        self._key_promises: dict[str, bytes] | None = None  # everyone's commitment to a public key
        self._board: np.ndarray | None = None  # the sum of the public keys
        self._checked: frozenset[str] | None = None  # which sums it checks; fixed at the latest by the first encryption
        self._attempt: tuple[int, int] | None = None  # the one it encrypted for last
        self._own_promise = b""  # its commitment to its c1 of that attempt
        self._promised: dict[str, bytes] | None = None  # commitments to the c1 parts of this attempt
        self._open = False  # may still send one share for that attempt
        self._turn = RLock()  # two questions at once would both be the first
        self._answered: set[bytes] = set()
        self._sent: set[bytes] = set()  # keyed digests of all scalars that ever went out

    def __repr__(self) -> str:
        mark = ", insecure_test_rng" if self.insecure_test_rng else ""
        return f"Client({self.device!r}{mark})"

    def __reduce__(self) -> str:
        raise TypeError("a client holds a secret key and is never pickled or copied")

    @property
    def insecure_test_rng(self) -> bool:
        return self._source.insecure_test_rng or self.agreed.insecure_test_rng

    # --- keys ----------------------------------------------------------------------------------------------------

    @property
    def key_commitment(self) -> bytes:
        """To be published before any key is."""
        return messages.key_commitment(self._public)

    @property
    def public(self) -> PublicKey:
        """The public key, with the nonce that opens its commitment."""
        if self._key_promises is None:
            raise InputError(
                f"{self.device!r} reveals its key only after all have committed to theirs; call accept_key_commitments"
            )
        return self._public

    def accept_key_commitments(self, promised: dict[str, bytes]) -> None:
        """Take every member's commitment to its public key, once; this fixes who the members are."""
        promised = messages.promises("key commitments", promised)
        if self._key_promises is not None:
            raise InputError("commitments to the keys were accepted before: they cannot change")
        if promised.get(self.device) != self.key_commitment:
            raise InputError(f"the commitments do not hold that of {self.device!r} as it was published")
        self._key_promises = promised

    def accept_board(self, board: Sequence[PublicKey]) -> np.ndarray:
        """Open everyone's commitment and add the keys up: the only sum this client knows of."""
        if self._key_promises is None:
            raise InputError(f"{self.device!r} has no commitments to the keys; call accept_key_commitments first")
        board = messages.one_each("the keys on the board", PublicKey, board, self._key_promises)
        ring = self.agreed.parameters.ring
        board = [key._replace(b=xmkckks.reduced(ring, f"the key of {key.device!r}", key.b)) for key in board]
        for key in board:
            if not messages.same_bytes(key.setup, self.agreed.digest):
                raise InputError(f"device {key.device!r} agreed on another a, q, n, f or scale than {self.device!r}")
            if type(key.nonce) is not bytes or messages.key_commitment(key) != self._key_promises[key.device]:
                raise InputError(f"the key of {key.device!r} is not the one it committed to")
        if len(board) < 2:
            warnings.warn("a single device: the decrypted sum is its own scalar", stacklevel=2)
        self._board = xmkckks.fixed(np.array(xmkckks.add_up(ring, np.stack([key.b for key in board]))))
        return self._board.copy()

    def use(self, mode: str) -> None:
        """Say how this job's links run, before the first encryption; left unsaid they are digital, fully checked.

        The air hides the parts of a sum: `hybrid` gives up checking C1, the modes with keys over the air both sums.
        """
        checked = CHECKED.get(modes.named(mode, modes.MODES), frozenset())
        if self._checked not in (None, checked):
            raise InputError(f"{self.device!r} has begun with other links than {mode!r}: what it checks cannot change")
        self._checked = checked

    def check_key(self, broadcast: np.ndarray) -> None:
        """Refuse an aggregated key that is not the sum of the board."""
        if self._board is None:
            raise InputError(f"{self.device!r} has seen no board of public keys; call accept_board first")
        found = xmkckks.reduced(self.agreed.parameters.ring, "the broadcast key", broadcast)
        if not np.array_equal(found, self._board):
            raise InputError("the broadcast key is not the sum of the published keys: refusing to encrypt under it")

    # --- rounds --------------------------------------------------------------------------------------------------

    def encrypt(self, values: np.ndarray, bits: int, round: int, attempt: int, key: np.ndarray) -> Ciphertext:
        """One device alone; `values` (P,), scaled by 2^bits, under the aggregated `key` (L, n)."""
        row = messages.real("values", values, (self.agreed.parameters.P,))
        return encrypt_together([self], row[None], bits, round, attempt, key)[0]

    def share(self, round: int, attempt: int, c1: np.ndarray, parts: Sequence[Ciphertext] | None = None) -> Share:
        """The partial decryption of C1, after every check this client can make."""
        return share_together([self], round, attempt, c1, parts)[0]

    def accept_commitments(self, promised: dict[str, bytes]) -> None:
        """Take every member's commitment to its c1, once per attempt; the parts are checked against them."""
        promised = messages.promises("commitments", promised)
        if self._attempt is None:
            raise InputError(f"{self.device!r} has encrypted nothing yet: there is nothing to commit to")
        if self._promised is not None:
            raise InputError("commitments for this attempt were accepted before: they cannot change")
        if sorted(promised) != sorted(self._key_promises or ()):
            raise InputError("the commitments do not come from the agreed devices, one each")
        if promised[self.device] != self._own_promise:
            raise InputError(f"the commitment of {self.device!r} was changed")
        self._promised = promised

    def _begin(self, values: np.ndarray, round: int, attempt: int, key: np.ndarray) -> None:
        """Open an attempt; abandons the one before. Scalars (P,) that went out never go out again."""
        with self._turn:
            self._begin_once(values, round, attempt, key)

    def _begin_once(self, values: np.ndarray, round: int, attempt: int, key: np.ndarray) -> None:
        checked = CHECKED["digital"] if self._checked is None else self._checked
        if "key" in checked:
            self.check_key(key)
        if self._attempt is not None and (round, attempt) <= self._attempt:
            raise InputError(
                f"round={round}, attempt={attempt} does not follow {self._attempt}: nothing is encrypted twice"
            )
        mark = self._key.mark(values + 0.0)[:MARK_BYTES]  # one spelling of zero
        if mark in self._sent:
            raise InputError(
                f"the scalars of round {round} were sent before: draw a fresh direction and minibatch, or fresh noise"
            )
        if np.any(values):  # zeros say nothing, however often
            self._sent.add(mark)
        self._checked = checked
        self._attempt, self._open, self._promised = (round, attempt), True, None

    def _sealed(self, part: Ciphertext) -> Ciphertext:
        self._own_promise = commitment(part)
        return part

    def _allow_share(self, round: int, attempt: int, c1: np.ndarray, parts: Any) -> None:
        """Refuse a share for another attempt, a second c1 in one attempt, one answered before, or one not checked."""
        with self._turn:
            self._answer_once(round, attempt, c1, parts)

    def _answer_once(self, round: int, attempt: int, c1: np.ndarray, parts: Any) -> None:
        if (round, attempt) != self._attempt:
            raise InputError(
                f"share asked for round={round}, attempt={attempt}, but {self.device!r} is at {self._attempt}"
            )
        name = digest(c1)
        if name in self._answered:
            raise InputError("this c1 was answered before: replay refused")
        if not self._open:
            raise InputError(f"a second c1 for round={round}, attempt={attempt} is refused")
        if parts is not None or "c1" in (self._checked or ()):
            self._check_parts(c1, parts)
        self._open = False
        self._answered.add(name)

    def _check_parts(self, c1: np.ndarray, parts: Any) -> None:
        """C1 must be the sum of one published c1 from every member, as committed to."""
        if self._promised is None:
            raise InputError(f"{self.device!r} has no commitments to the c1 parts; call accept_commitments first")
        parts = messages.one_each("the published c1 parts", Ciphertext, parts, self._promised)
        ring = self.agreed.parameters.ring
        parts = [part._replace(c1=xmkckks.reduced(ring, f"the c1 part of {part.device!r}", part.c1)) for part in parts]
        for part in parts:
            at = messages.whole("round", part.round), messages.whole("attempt", part.attempt)
            if at != self._attempt:
                raise InputError(f"the c1 part of {part.device!r} belongs to another round or attempt")
            if commitment(part) != self._promised[part.device]:
                raise InputError(f"the c1 part of {part.device!r} is not the one it committed to")
        if not np.array_equal(c1, xmkckks.add_up(ring, np.stack([part.c1 for part in parts]))):
            raise InputError("C1 is not the sum of the published parts: refusing to decrypt")


def same_job(clients: Any) -> Setup:
    """The agreement of devices that act together; refuses strangers and twins."""
    if not isinstance(clients, list | tuple) or not clients or not all(isinstance(one, Client) for one in clients):
        raise InputError("clients must be a list of at least one Client")
    if len({client.agreed.digest for client in clients}) > 1:
        raise InputError("the devices of a round must agree on a, q, n, f and scale")
    if len({client.device for client in clients}) != len(clients):
        raise InputError("duplicate device id in the round")
    return clients[0].agreed


def encrypt_together(
    clients: Sequence[Client], values: np.ndarray, bits: int, round: int, attempt: int, key: np.ndarray
) -> list[Ciphertext]:
    """Every client encrypts its row of `values` (N, P); one compiled call, each with its own randomness."""
    agreed = same_job(clients)
    p = agreed.parameters
    round, attempt = messages.whole("round", round), messages.whole("attempt", attempt)
    values = messages.real("values", values, (len(clients), p.P))
    key = xmkckks.reduced(p.ring, "the aggregated key", key)  # before anything counts as sent
    encoded = scaling.encode(p, values, messages.whole("bits", bits, p.ring.bits))
    for client, row in zip(clients, values):
        client._begin(row, round, attempt, key)
    draws = [xmkckks.ephemeral(p, client._source, 1) for client in clients]
    draw = Ephemeral(*(np.concatenate(part) for part in zip(*draws)))
    c0, c1 = xmkckks.encrypt_batch(agreed, key, draw, encoded)
    return [
        client._sealed(Ciphertext(client.device, round, attempt, c0[i], c1[i], client.insecure_test_rng))
        for i, client in enumerate(clients)
    ]


def share_together(
    clients: Sequence[Client], round: int, attempt: int, c1: np.ndarray, parts: Sequence[Ciphertext] | None = None
) -> list[Share]:
    """Shares of all clients; none is computed unless every one of them agrees."""
    agreed = same_job(clients)
    round, attempt = messages.whole("round", round), messages.whole("attempt", attempt)
    c1 = xmkckks.reduced(agreed.parameters.ring, "c1", c1)
    for client in clients:
        client._allow_share(round, attempt, c1, parts)
    keys: list[SecretKey] = [client._key for client in clients]
    opened = xmkckks.share_batch(agreed, keys, c1)
    name = digest(c1)
    return [
        Share(client.device, round, attempt, name, opened[i], client.insecure_test_rng)
        for i, client in enumerate(clients)
    ]


def collect(shares: Sequence[Share], members: Sequence[str], round: int, attempt: int, c1: np.ndarray) -> np.ndarray:
    """The server's side of digital shares: one from every member, all for this c1; stacked (N, L, n)."""
    if not isinstance(shares, list | tuple) or not all(isinstance(share, Share) for share in shares):
        raise InputError("shares must be a list of Share")
    if not isinstance(c1, np.ndarray):
        raise InputError("c1 must be residues (L, n)")
    if not isinstance(members, list | tuple) or not members:
        raise InputError("members must be a list of device ids")
    members = [messages.name_of(member) for member in members]
    round, attempt = messages.whole("round", round), messages.whole("attempt", attempt)
    names = [messages.name_of(share.device) for share in shares]
    missing = sorted(set(members) - set(names))
    if missing:
        raise InputError(f"missing share of {missing[0]!r}: all {len(members)} are needed; redo the round from phase 1")
    if sorted(names) != sorted(members):
        raise InputError("a share came twice or from a device outside the round")
    for share in shares:
        at = messages.whole("round", share.round), messages.whole("attempt", share.attempt)
        if at != (round, attempt) or not messages.same_bytes(share.c1, digest(c1)):
            raise InputError(f"the share of {share.device!r} is for another round, attempt or c1")
        if not isinstance(share.d, np.ndarray) or (share.d.shape, share.d.dtype) != (c1.shape, c1.dtype):
            raise InputError(f"the share of {share.device!r} must be residues of shape {c1.shape}")
    return np.stack([share.d for share in shares])
