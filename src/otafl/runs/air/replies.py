"""What came back in a round: sorted by client, checked, and every fault named. Nothing is made up for what is missing.

A fault never changes the charge and never the weights of the others: the client's part of the sum is zero, or the
message is scaled down to the declared bound.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.messages import NORM_TOLERANCE
from otafl.runs.air.trees import Flat, Form, flatten, square_norm

OF_CONTENT = ("not finite", "clipped")  # these tell something of the numbers in a message


class UnusableWarning(UserWarning):
    """Replies came and none is of use: the answer is noise alone."""


class Reply(NamedTuple):
    """One client's reply, where a list of replies may hold several of one client, or some of an earlier round.

    Parameters
    ----------
    client : int
        the device, from 0
    update : pytree
        its message
    round : int, optional
        the round it answers; None: the present one

    Examples
    --------
    >>> import otafl
    >>> otafl.Reply(3, [0.5], round=7).client
    3
    """

    client: int
    update: Any
    round: int | None = None


class Fault(NamedTuple):
    """What was wrong with one reply."""

    client: Any
    kind: str  # missing, late, duplicate, unknown, not asked, malformed, not finite, clipped
    detail: str = ""

    def __str__(self) -> str:
        return f"client {validate.shown(self.client)}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


class Sorted(NamedTuple):
    """Usable replies by client, what the answer looks like, and the faults."""

    messages: dict[int, Flat]
    norms: dict[int, float]  # before clipping
    form: Form | None  # None: nobody sent anything usable, now or before
    like: list[Any]  # leaves of a usable reply of the usual kind
    faults: list[Fault]


def as_replies(updates: Any, asked: np.ndarray) -> Iterable[Reply]:
    """Replies out of what a loop hands over: {client: update}, a list in the order of `asked`, or a list of Reply."""
    if isinstance(updates, Mapping):
        return [Reply(client, update) for client, update in updates.items()]
    if not isinstance(updates, list | tuple):
        raise InputError(f"updates are a {type(updates).__name__}; give a dict client: update, or a list")
    if updates and all(isinstance(one, Reply) for one in updates):
        return updates
    if len(updates) != len(asked):
        raise InputError(f"updates has {len(updates)} entries but {len(asked)} clients were asked; give a dict")
    return [Reply(int(client), update) for client, update in zip(asked, updates)]


def sort(
    updates: Any, asked: np.ndarray, number: int, num_clients: int, num_params: int, form: Form | None, bound: float
) -> Sorted:
    """Replies to this round by client. `form` is that of earlier rounds; None: what most replies agree on."""
    faults: list[Fault] = []
    first: dict[int, tuple[Form, Flat, list[Any]]] = {}
    seen: set[int] = set()
    expected = {int(client) for client in asked}
    for reply in as_replies(updates, asked):
        kind, client = _place(reply, expected, seen, number, num_clients)
        if kind:
            whose = reply.client if kind == "unknown" else client
            late = f"of round {validate.shown(validate.plain_whole(reply.round))}" if kind == "late" else ""
            faults.append(Fault(whose, kind, f"clients are 0 to {num_clients - 1}" if kind == "unknown" else late))
            continue
        if reply.update is None:
            continue
        seen.add(client)
        try:
            found = flatten(reply.update)
        except InputError as problem:
            faults.append(Fault(client, "malformed", str(problem)))
            continue
        if found[0].size != num_params:
            faults.append(Fault(client, "malformed", f"{found[0].size} numbers, expected num_params={num_params}"))
            continue
        first[client] = found
    faults += [Fault(client, "missing") for client in sorted(expected - seen)]
    return _measured(first, form, bound, faults)


def _place(reply: Reply, expected: set[int], seen: set[int], number: int, count: int) -> tuple[str, int]:
    """What is wrong with the envelope of a reply, if anything, and whose it is."""
    client, answers = validate.plain_whole(reply.client), validate.plain_whole(reply.round)
    if client is None or not 0 <= client < count:
        return "unknown", -1
    if reply.round is not None and answers != number:
        return "late", client
    if client not in expected:
        return "not asked", client
    return ("duplicate" if client in seen else ""), client


def _measured(
    first: dict[int, tuple[Form, Flat, list[Any]]], form: Form | None, bound: float, faults: list[Fault]
) -> Sorted:
    """Messages of one form with their norms; what has another form or no finite norm is left out."""
    if form is None and first:
        form = Counter(found[0] for found in first.values()).most_common(1)[0][0]
    messages: dict[int, Flat] = {}
    norms: dict[int, float] = {}
    fitting: list[list[Any]] = []
    for client in sorted(first):
        own, flat, leaves = first[client]
        if own != form:
            faults.append(Fault(client, "malformed", "another structure than like or the other messages"))
            continue
        fitting.append(leaves)
        norm = float(np.sqrt(square_norm(flat)))
        if not np.isfinite(norm):
            faults.append(Fault(client, "not finite", "counts as zero"))
            continue
        if norm > bound * (1 + NORM_TOLERANCE):
            faults.append(Fault(client, "clipped", f"norm {norm:.6g} above {bound:g}"))
        messages[client], norms[client] = flat, norm
    return Sorted(messages, norms, form, _usual(fitting), faults)


def _usual(found: list[list[Any]]) -> list[Any]:
    """Leaves of the kinds that most replies have: one client alone does not decide how exact everybody's answer is."""
    kinds = [tuple((type(leaf), str(getattr(leaf, "dtype", ""))) for leaf in leaves) for leaves in found]
    return found[kinds.index(Counter(kinds).most_common(1)[0][0])] if found else []
