"""What an earlier run on the same clients has spent counts in this one: `privacy.already_spent`. Host, float64.

An earlier closed loop is charged its cap: what it happened to spend is a number that the data chose (CARES E20). Only
a closed loop under the same cap may go on from what was spent: both are then one run under a cap that was fixed, as the
earlier ledger shows, before the first of them began.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from otafl.core.errors import BudgetExceeded, InputError
from otafl.core.plan import Message
from otafl.privacy import ACCOUNTANTS, Budget, Ledger, Release
from otafl.privacy.events import join, no_events
from otafl.runs.schema import Privacy


def read_ledger(path: Path, clients: int) -> Ledger:
    """The ledger of an earlier run, if it is whole and about as many clients."""
    name = f"privacy.already_spent={str(path)!r}"
    try:
        ledger = Ledger.load(path)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if ledger.clients != clients:
        raise InputError(f"{name}: has {ledger.clients} clients but task.clients={clients}")
    return ledger


def open_ledger(budget: Budget, clients: int, message: Message, earlier: Path | None) -> Ledger:
    """A ledger for one seed: empty, or with everything that the earlier run released charged first."""
    ledger = Ledger(budget, clients)
    if earlier is None:
        return ledger
    before = read_ledger(earlier, clients)
    _refuse_other_neighbours(before, budget, earlier)
    _refuse_more_colluders(before, budget, earlier)
    if before.budget.adaptive and not _goes_on(before.budget, budget):
        before = at_its_cap(before, earlier)
    try:
        if before.sums is not None:
            ledger.charge(before.sums)
        for part in before.parts:
            ledger.spend(part)
        for release in before.releases:
            ledger.release(release)
    except BudgetExceeded as refusal:
        raise BudgetExceeded(f"privacy.already_spent={str(earlier)!r}: {refusal}") from None
    if ledger.parts:
        join([ledger.parts[-1], no_events(message.rate, message.sensitivity)])  # refuses now, not after the last round
    return ledger


def said_of_earlier(earlier: Path | str | None) -> list[str]:
    """For the privacy card: a ledger holds what was released, not what the numbers in it rest on."""
    if earlier is None:
        return []
    return [
        "an earlier run on the same clients (already_spent) is in every eps here: what its own card assumes, and its "
        "alarms, hold for this one too"
    ]


def eps_left(privacy: Privacy, clients: int) -> float | None:
    """The target that policies plan with: all of it, or what the earlier run left where costs add."""
    convert = ACCOUNTANTS[privacy.accountant].convert
    if privacy.eps is None or privacy.already_spent is None or convert is None:
        return privacy.eps
    before = read_ledger(privacy.already_spent, clients)
    budget = Budget(privacy.eps, privacy.delta, privacy.accountant, privacy.accounting)
    if before.budget.adaptive and not _goes_on(before.budget, replace(budget, adaptive=True)):
        before = at_its_cap(before, privacy.already_spent)
    left = float(np.min(Ledger(budget, clients, before.parts, before.releases, sums=before.sums).zcdp_left()))
    eps = float(convert(left, privacy.delta)) if left > 0 else 0.0
    if eps <= 0:  # of a small rest delta alone covers everything: no eps is left that a policy could plan with
        raise BudgetExceeded(f"privacy.already_spent={str(privacy.already_spent)!r}: nothing is left of {budget}")
    return eps


def _goes_on(before: Budget, now: Budget) -> bool:
    """Whether two closed loops are one run under one cap. A larger one may be chosen for what the first has found."""
    adds = before.counted.additive and now.counted.additive
    return now.adaptive and adds and before.accounting == now.accounting and before.zcdp == now.zcdp


def at_its_cap(before: Ledger, earlier: Path) -> Ledger:
    """The ledger of a closed loop with one release in the place of its rounds: a Gaussian that costs all of the cap."""
    name, budget = f"privacy.already_spent={str(earlier)!r}", before.budget
    if math.isinf(budget.eps):
        raise InputError(f"{name}: is of a closed loop without a cap, which guarantees nothing that could be added to")
    if not budget.counted.additive:
        raise InputError(
            f"{name}: is of a closed loop counted by {budget.accountant!r}, whose cap is one eps and no sum that a "
            "later run adds to; count it by 'zcdp' or 'gaussian'"
        )
    cap = Release("the cap of an earlier closed loop", math.sqrt(2 * budget.zcdp), 1.0)
    return replace(before, parts=[], releases=[cap], sums=None)


def _refuse_other_neighbours(before: Ledger, budget: Budget, earlier: Path) -> None:
    """Sensitivities are those of the neighbours that they were counted for: the same numbers say less of others."""
    told: tuple[str, ...] = ("adjacency",) if before.budget.unit is None else ("adjacency", "unit")
    for name in (*told, "accounting") if before.sums is not None else told:  # sums cannot be counted anew
        was, now = getattr(before.budget, name), getattr(budget, name)
        if was != now:
            raise InputError(
                f"privacy.already_spent={str(earlier)!r}: was counted for {name}={was!r}, this run for {now!r}; one "
                "eps cannot cover both"
            )


def _refuse_more_colluders(before: Ledger, budget: Budget, earlier: Path) -> None:
    """Sums, and charges of uplinks that count their noise themselves, hold noise that nobody can take out again."""
    more = sorted(set(budget.colluders) - set(before.budget.colluders))
    counted = [part for part in before.parts if not np.any(part.artificial_var) and np.all(part.receiver_var == 1)]
    if more and (before.sums is not None or counted or before.budget.adaptive):
        raise InputError(
            f"privacy.already_spent={str(earlier)!r}: may count the noise of client {more[0]}, who colludes in this "
            "run; charge the earlier run with the same privacy.colluders"
        )
