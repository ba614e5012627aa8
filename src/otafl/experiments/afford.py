"""A scheme whose first round costs more than the budget: what that round would cost, and how it is said."""

from typing import Any

import numpy as np

from otafl.plan import Events
from otafl.privacy import Ledger
from otafl.privacy.card import round_up


def least_eps(ledger: Ledger, planned: Events) -> float:
    """The smallest cap under which the first live round of this plan is run, by the ledger's own accountant.

    What the ledger holds already counts. NaN where the plan has no live round at all. (T, K) events.
    """
    if not np.any(planned.live):
        return float("nan")
    rounds = int(np.argmax(planned.live)) + 1
    inner = {n: getattr(planned, n)[:rounds] for n in Events._fields if n not in ("rate", "sensitivity")}
    first = planned._replace(**inner)
    return float(Ledger(ledger.budget, ledger.clients, [*ledger.parts, first], ledger.releases).spent().worst)


def in_words(eps: float | None) -> str:
    """For a row of a table.

    >>> in_words(12.3456), in_words(None)
    ('0 rounds affordable; least ε: 12.35', '0 rounds affordable')
    """
    known = eps is not None and np.isfinite(eps)
    return "0 rounds affordable" + (f"; least ε: {round_up(eps)}" if known else "")


def without_rounds(entry: dict[str, Any]) -> str:
    """What a summary of a scheme that ran no round at all says instead of its figures; empty for all others."""
    if any(float(rounds or 0) for rounds in entry["rounds"]) or not entry["private"]:
        return ""
    least = entry.get("least_eps")
    return in_words(None if least is None else float(least))
