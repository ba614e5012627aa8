"""A scheme whose first round costs more than the budget: what that round would cost, and how it is said."""

from typing import Any

import numpy as np

from otafl.core.plan import Events
from otafl.privacy import Budget, Ledger
from otafl.privacy.card import round_up
from otafl.privacy.events import pick


def least_eps(ledger: Ledger, planned: Events) -> float:
    """The smallest cap under which the first live round of this plan is run, by the ledger's own accountant.

    What the ledger holds already counts. NaN where the plan has no live round at all. (T, K) events.
    """
    if not np.any(planned.live):
        return float("nan")
    rounds = int(np.argmax(planned.live)) + 1
    return ledger.besides(pick(planned, slice(rounds))).worst()


def least(eps: float | None) -> str:
    """Empty where it is not known.

    >>> least(12.3456), least(np.inf), least(None)
    ('; least ε: 12.35', '; least ε: ∞, no noise that counts hides its messages', '')
    """
    if eps is None or np.isnan(eps):
        return ""
    return "; least ε: " + round_up(eps, "∞, no noise that counts hides its messages")


def unaffordable(label: str, budget: Budget, eps: float | None) -> str:
    """Why not one round is run; `eps` is the cap that the first one needs."""
    return (
        f"{label}: not one round is affordable within {budget}{least(eps)}; raise eps or the noise, or lower the "
        "receive scaling"
    )


def without_rounds(entry: dict[str, Any]) -> str:
    """What a summary of a scheme that ran no round at all says instead of its figures; empty for all others."""
    if any(float(rounds or 0) for rounds in entry["rounds"]) or not entry["private"]:
        return ""
    eps = entry.get("least_eps")
    return f"0 rounds affordable{least(None if eps is None else float(eps))}"
