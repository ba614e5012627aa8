"""What an eps means: how well the best attacker can tell two neighbouring worlds apart. Host, float64.

The attacker knows everything but the one unit, sees all that the observer sees, and decides whether it was there.
Rounds without sampling are one Gaussian of mu^2 = sum 1/z^2, and for any test

    tpr(fpr)  = Phi(Phi^-1(fpr) + mu)
    advantage = max(tpr - fpr) = delta(0) = erf(mu / sqrt(8))
    bayes(pi) = (1 - pi) + pi delta(log((1-pi)/pi))        share of right guesses, prior pi of "present"

With Poisson sampling the least mu is that without sampling, however rare the batches, so no mu is printed: the numbers
come from the privacy loss distribution, whose every point (eps, delta) gives tpr <= e^eps fpr + delta.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy import gaussian, participation, pld
from otafl.privacy.budget import Budget
from otafl.privacy.by_pld import Row, distinct_rows
from otafl.privacy.card_text import round_up
from otafl.privacy.ledger import Ledger
from otafl.privacy.spend import release_square

FPR = 0.01
GRID = np.linspace(-8.0, 8.0, 8001)
ALWAYS = "worst-case attacker who knows all other data; a bound, not a forecast"
WORDS = (  # of true positives at 1 % false positives, below
    (0.02, "close to guessing"),
    (0.10, "up to ten times better than guessing at 1 % false alarms"),
    (0.50, "a strong attacker often succeeds"),
    (np.inf, "a worst-case attacker wins"),
)


class Attack(NamedTuple):
    """Bounds on the best attacker against the worst client."""

    mu: float | None  # None where rounds are sampled, or a channel may pass its declaration: none says anything there
    mu_equivalent: float | None  # in its place: the Gaussian with the same eps at this delta, nothing more
    tpr_at_1pct: float
    advantage: float
    basis: str  # what the numbers come from

    @property
    def words(self) -> str:
        return next(text for limit, text in WORDS if self.tpr_at_1pct < limit)


def tpr(mu: Array, fpr: Array) -> Array:
    """True positives at so many false positives against a mu-GDP mechanism.

    >>> [round(100 * float(tpr(mu, 0.01)), 1) for mu in (0.25, 1.0, 4.0)]
    [1.9, 9.2, 95.3]
    """
    validate.in_closed("fpr", fpr, 0, 1)
    return scipy.special.ndtr(scipy.special.ndtri(np.asarray(fpr, np.float64)) + mu)


def advantage(mu: Array) -> Array:
    """Largest difference of true and false positives, the total variation."""
    return scipy.special.erf(np.asarray(mu, np.float64) / np.sqrt(8))


def bayes(mu: float, prior: float = 0.5) -> float:
    """Share of right guesses whether the unit was there, which it is with probability `prior`.

    >>> round(bayes(1.0), 4), round(bayes(0.0, 0.3), 4)
    (0.6915, 0.7)
    """
    validate.in_open("prior", prior, 0, 1)
    at = float(np.log((1 - prior) / prior))
    above = float(gaussian.delta(abs(at), mu))
    return 1 - prior + prior * (above if at >= 0 else 1 - np.exp(at) + np.exp(at) * above)


def equivalent_mu(eps: float, delta: float) -> float:
    """The Gaussian whose curve passes through (eps, delta)."""
    if eps == 0 or not np.isfinite(eps):
        return float(2 * scipy.special.ndtri((1 + delta) / 2)) if eps == 0 else np.inf
    return float(np.sqrt(2 * gaussian.budget_rho(eps, delta)))


def finds(share: float) -> str:
    """True positives at one false alarm in a hundred, in words."""
    return f"at 1 % false alarms an attacker finds at most {round_up(100 * share)} % of the true cases"


def worth(mu: float) -> str:
    """What one Gaussian tells at most, in words.

    >>> worth(1.0)
    'μ = 1: at 1 % false alarms an attacker finds at most 9.237 % of the true cases'
    """
    return f"μ = {round_up(mu, '∞')}: {finds(float(tpr(mu, FPR)))}"


def attack_success(ledger: Ledger) -> Attack:
    """The best attacker against the worst client of everything recorded, by the same guarantee as the ledger's.

    A policy that looks at the training is charged its cap. Participation that only averages is charged in full. Where a
    channel may pass its declaration, which no data decide, the attacker may win in every such run: no mu holds then.
    """
    found, missed = _while_declared(ledger), ledger.budget.missed
    if missed == 0:
        return found
    return found._replace(
        mu=None,
        mu_equivalent=_at(found.mu_equivalent if found.mu is None else found.mu, ledger.budget),
        tpr_at_1pct=min(1.0, found.tpr_at_1pct + missed),
        advantage=min(1.0, found.advantage + missed),
        basis=f"{found.basis}, but for a chance of {missed:.3g} that a channel passes its declaration",
    )


def _at(mu: float | None, budget: Budget) -> float | None:
    """The Gaussian with the same eps at the whole delta, that chance included."""
    return None if mu is None else equivalent_mu(float(gaussian.eps(mu, budget.delta)), budget.holds_at)


def _while_declared(ledger: Ledger) -> Attack:
    """The same while channels do as declared."""
    budget, sampled = ledger.budget, ledger.sampled
    if budget.adaptive:
        if budget.accounting not in participation.CERTIFIED:
            return from_eps(np.inf, budget.delta, "a cap on averages, which single runs may pass")
        if not budget.counted.additive or np.isinf(budget.eps):
            return from_eps(budget.eps, budget.delta, "the cap alone")
        mu = float(np.sqrt(2 * budget.zcdp))
        return _gaussian(mu, "the cap, charged without sampling" if sampled else "the cap, exact Gaussian", not sampled)
    if not ledger.parts or ledger.sums is not None:
        basis = "charged without sampling" if sampled else "exact Gaussian"
        return _gaussian(float(np.sqrt(2 * np.max(ledger.zcdp()))), basis, not sampled)
    accounting = participation.certified(budget.accounting)
    charged = "" if accounting == budget.accounting else ", every round charged in full"
    if not sampled:  # one Gaussian for every client
        released = ledger.events
        square = participation.charged(released, accounting, ledger.colluders) * (released.rate > 0)
        total = square.sum(-2) + release_square(ledger.releases, ledger.clients)
        return _gaussian(float(np.sqrt(np.max(total))), f"exact Gaussian{charged}", True)
    rows, _, _ = distinct_rows(ledger.events, accounting, ledger.colluders, ledger.releases)
    if all(row.gaussian for row in rows):
        return _gaussian(max(row.mu for row in rows), f"exact Gaussian{charged}", not sampled)
    try:
        each = [_of_row(row, budget.adjacency == "replace") for row in rows]
    except InputError:  # without dp-accounting
        eps = np.inf if charged else float(ledger.spent().worst)
        return from_eps(eps, budget.delta, budget.accountant)
    eps = max(row.eps(budget.delta, budget.adjacency == "replace", pld.BINS) for row in rows)
    best = np.max(each, axis=0)
    return Attack(None, equivalent_mu(eps, budget.delta), float(best[0]), float(best[1]), f"PLD{charged}")


def from_eps(eps: float, delta: float, basis: str) -> Attack:
    """What a single (eps, delta) says, whatever the mechanism."""
    with np.errstate(over="ignore"):
        most = float(np.minimum(1.0, np.exp(eps) * FPR + delta))
    share = np.tanh(eps / 2)  # (e^eps - 1)/(e^eps + 1)
    return Attack(None, equivalent_mu(eps, delta), most, float(min(1.0, share + delta * (1 - share))), basis)


def _gaussian(mu: float, basis: str, exact: bool) -> Attack:
    return Attack(mu if exact else None, None, float(tpr(mu, FPR)), float(advantage(mu)), basis)


def _of_row(row: Row, replace: bool) -> tuple[float, float]:
    """(tpr at 1 %, advantage) of one client's rounds."""
    at_once = float(advantage(row.mu))
    if row.gaussian:
        return float(tpr(row.mu, FPR)), at_once
    steps = _steps(row, replace)
    return float(_power_of(row, steps)(FPR)), min(at_once, 1.0, sum(float(step(0.0)) for step in steps))


def power_of(row: Row, replace: bool) -> Callable[[Array], Array]:
    """Upper bound on true positives at any rate of false positives, against one client's rounds."""
    return _power_of(row, [] if row.gaussian else _steps(row, replace))


def _steps(row: Row, replace: bool) -> list[Callable[[Array], Array]]:
    """Profiles delta(eps) of the steps from one world to the other, the last step first.

    One, or for a replacement two, through the run without the record: powers of the two follow each other, total
    variations add.
    """
    if not replace:
        return [row.loss().get_delta_for_epsilon]
    removed, _ = pld.directions(row.loss(halved=True))
    _, added = pld.directions(row.loss(halved=True, beside=False))
    return [added.get_delta_for_epsilon, removed.get_delta_for_epsilon]


def _power_of(row: Row, steps: list[Callable[[Array], Array]]) -> Callable[[Array], Array]:
    """The best of the Gaussian curve without sampling and of the least upper bounds from the points of profiles."""
    return partial(_power, row.mu, [np.asarray(step(GRID)) for step in steps])


def _power(mu: float, profiles: list[Array], fpr: Array) -> Array:
    plain, reached = tpr(mu, fpr), np.asarray(fpr, np.float64)
    if not profiles:
        return plain
    for profile in profiles:
        reached = np.minimum(1.0, np.min(np.exp(GRID) * reached[..., None] + profile, axis=-1))
    return np.minimum(plain, reached)
