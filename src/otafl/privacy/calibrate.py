"""The least noise that a privacy target allows over a horizon, by the budget's own accountant. Host, float64."""

from collections.abc import Sequence

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events, Message
from otafl.privacy.accountants import account
from otafl.privacy.budget import Budget
from otafl.privacy.ledger import Ledger
from otafl.privacy.pld import loss_interval
from otafl.privacy.rdp import rdp_budget
from otafl.privacy.spend import Release

BRACKET = 1.5  # eps falls in the noise: factors until the target lies between two multipliers
SLACK = {"rdp": 1e-9, "pld": 1e-4}  # relative accuracy of the multiplier, and the step of the last corrections


def calibrate(
    budget: Budget, rounds: int, message: Message, weights: Array, each_round: Sequence[Release] = ()
) -> float:
    """Least multiplier z for which `rounds` rounds of sum_k weights_k x_k + noise cost every client at most the budget.

    The noise that goes with it has std z max_k(weights_k sensitivity_k) per real dimension: client k is hidden by its
    own multiplier, larger where weights_k sensitivity_k is smaller, and sampled at its own rate. Rates, adjacency and
    accountant are those in force; silence is worth nothing. 0.999 eps < spent <= eps, or what lies below a jump of the
    accountant: `pld` under replacement and sampling has one above 20, its second step having no digits of delta left.

    >>> message = Message(1, 1.0, np.ones(1), np.ones(1), np.ones(1), "client", "zero-out")
    >>> round(calibrate(Budget(2.0, 1e-5, "gaussian", adjacency="zero-out"), 200, message, np.ones(1)), 4)
    28.1968
    """
    validate.whole("rounds", rounds)
    if not np.isfinite(budget.eps):
        raise InputError("eps=inf must be finite: without a target there is nothing to calibrate to")
    if budget.accountant == "rdp" and np.all(rdp_budget(budget.eps, budget.delta, budget.orders) <= 0):
        raise InputError(
            f"accountant 'rdp' cannot certify eps={budget.eps:g} at delta={budget.delta:g} with any noise: its largest "
            f"order is {budget.orders[-1]:g}; use 'pld', or 'gaussian' without sampling"
        )
    run = _Run(budget, rounds, message, np.asarray(weights, np.float64), each_round)
    if budget.counted.additive and not each_round:
        return float(np.sqrt(rounds / (2 * budget.zcdp))) * (1 + 1e-12)  # keeps rounded costs within the strict cap
    from scipy.optimize import brentq  # slow to import, and few ask

    slack = SLACK.get(budget.accountant, 1e-12)
    low, high = run.bracket()
    run.fix_interval(np.sqrt(low * high))
    z = float(np.exp(brentq(lambda x: run.excess(np.exp(x)), np.log(low), np.log(high), xtol=slack)))
    while not run.fits(z):
        z *= 1 + slack
    return z * (1 + 1e-10)  # the ledger may add the same costs in another order


class _Run:
    """`rounds` equal rounds with multiplier z, as a ledger would be asked for them."""

    def __init__(self, budget: Budget, rounds: int, message: Message, weights: Array, each_round: Sequence[Release]):
        self.budget, self.rounds, self.each_round = budget, rounds, each_round
        moved = weights * message.sensitivity
        if not np.max(moved) > 0:
            raise InputError("weights times sensitivity must be > 0 for a client: nothing is sent, nothing to hide")
        self.amp = moved / np.max(moved)
        self.rate = np.broadcast_to(np.asarray(message.rate, np.float64), moved.shape)
        self.releases = [release._replace(times=release.times * rounds) for release in each_round]
        self.interval: float | None = None

    def events(self, z: float) -> Events:
        one = np.ones((self.rounds, self.amp.size))
        live = np.ones(self.rounds, bool)
        return Events(self.amp * one, 0 * one, one > 0, one, np.full(self.rounds, z**2), live, self.rate, one[0])

    def excess(self, z: float) -> float:
        """The worst client's eps above the target."""
        options = {"rdp": {"orders": self.budget.orders}, "pld": {"interval": self.interval}}
        spend = account(
            self.budget.accountant, self.events(z), self.budget.delta, adjacency=self.budget.adjacency,
            releases=self.releases, **options.get(self.budget.accountant, {}),
        )  # fmt: skip
        return float(np.max(spend.worst)) - self.budget.eps

    def fix_interval(self, z: float) -> None:
        """One grid of losses for all that follows: where it moves with z, eps jumps."""
        sampled = (self.rate > 0) & (self.rate < 1) & (self.amp > 0)
        if np.any(sampled):
            rates, each = self.rate[sampled], z / self.amp[sampled]
            self.interval = min(loss_interval(np.full(self.rounds, own), q) for q, own in zip(rates, each))

    def bracket(self) -> tuple[float, float]:
        """Multipliers with eps above the target and at most it."""
        z = float(np.sqrt(self.rounds) / self.budget.eps)
        if self.excess(z) > 0:
            while self.excess(z * BRACKET) > 0:
                z *= BRACKET
                if z > 1e12:
                    raise InputError(
                        f"no noise keeps {self.rounds} rounds within eps={self.budget.eps:g}: the releases beside the "
                        "air alone cost more"
                    )
            return z, z * BRACKET
        while self.excess(z / BRACKET) <= 0:
            z /= BRACKET
        return z / BRACKET, z

    def fits(self, z: float) -> bool:
        live = Ledger(self.budget, self.amp.size).affordable(self.events(z), self.each_round)
        return bool(np.all(live))
