"""Clients that retire at their own cap, `privacy.stop = "each"`: where it is offered, and what is said about it.

In a plan made in advance they fall silent by `privacy.retire`, in a closed loop by a filter each (`privacy.filters`).
"""

from collections.abc import Sequence

import numpy as np

from otafl.core import uplink
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message, Policy
from otafl.privacy import Ledger, Release, uplink_checks
from otafl.privacy.filters import filter_of, filtered
from otafl.privacy.participation import CERTIFIED

FILTERED = "each by a privacy filter of its own (what a round costs is known from plan and channel before it is sent)"


def refuse_retirement(label: str, own: uplink.Uplink) -> None:
    """On our uplinks a silent client adds nothing (encrypted: a zero, so that the sum still opens); where an uplink has
    a charge of its own, or is somebody else's, that is not shown."""
    known = uplink_checks.is_own(own) and (own.release is None or own.name in ("analog", "perfect"))
    if not known:
        raise InputError(f"{label}: privacy.stop='each' is not offered on the uplink {own.name!r}; use stop='worst'")


def held(
    policy: Policy, foreign: bool, retires: bool, ledger: Ledger, deployment: Deployment, message: Message, rounds: int,
    releases: Sequence[Release], keep_noise: bool,
) -> Policy:  # fmt: skip
    """A closed loop of so many rounds whose clients retire, each at its own cap; somebody else's all at the first.

    Our closed loops count by themselves; whether a foreign one does, nobody knows. Other policies stay as they are.
    """
    if policy.loop == "open" or not (retires or (foreign and _has_filter(policy, ledger))):
        return policy
    own = filter_of(ledger, message, rounds, releases)
    kept = keep_noise or not retires
    return filtered(policy, own, deployment, message, ledger.budget.accounting, kept, not retires)


def _has_filter(policy: Policy, ledger: Ledger) -> bool:
    """Whether the rounds of a closed loop can be counted inside it. All others the ledger refuses after the run."""
    counted = ledger.budget.accounting in CERTIFIED and np.isfinite(ledger.budget.eps)
    return counted and uplink.uplink_of(policy).release is None


def in_words(loop: str, retired: int, clients: int, keep_noise: bool) -> str:
    """For the privacy card."""
    how = "by a public plan" if loop == "open" else FILTERED
    noise = "keep sending artificial noise" if keep_noise else "send nothing"
    return f"clients retire at their own cap, {how}: {retired} of {clients} had retired at the end; they {noise}"
