"""What a setting would do on channels that are simulated for it: plans and charges, no data. Host, float64.

A system's `settings.py` offers

    settings(deployment, message, budget, rounds, channel, seed) -> options of its scheme, or a Refusal

by rules that look at the site and the privacy target alone, so they cost no privacy. Where a rule needs channels, they
are drawn here under another seed than any run's.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import numpy as np

from otafl import systems
from otafl.bounds import merit
from otafl.channels import Channel, draw, receive
from otafl.core.arrays import Array
from otafl.core.errors import OtaflError
from otafl.core.plan import Context, Deployment, Message, Plan, Policy, Trace, frozen
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import uplink_of
from otafl.privacy import Budget, Ledger, calibrate
from otafl.privacy.accountants import round_costs
from otafl.privacy.events import release
from otafl.privacy.uplink_checks import meet

OTHER_SEED = 2**31  # seeds of experiments count from 0
TIE = 0.999
SAFE = 0.97  # of a share that was found on other channels than the run's
Options = dict[str, Any]


class Refusal(NamedTuple):
    """Why a system has no setting for this site and target."""

    why: str


# (deployment, message, budget, rounds, channel, seed) -> options of the scheme, from plans alone
Rule = Callable[[Deployment, Message, Budget, int, Channel, int], Options | Refusal]


class Bench(NamedTuple):
    """A site, a target, and channels to try settings on."""

    deployment: Deployment
    message: Message
    budget: Budget
    rounds: int
    trace: Trace  # (T, K)
    seed: int
    multiplier: float  # z: least noise multiplier of a round at which all rounds fit the budget

    @property
    def devices(self) -> int:
        return len(self.deployment.weights)

    @property
    def rho(self) -> float:
        """B: total zCDP cost of the rounds at that multiplier; the budget's cap where costs add."""
        return self.rounds / (2 * self.multiplier**2)

    @property
    def rms(self) -> np.ndarray:
        """(K,) statistical CSI before the first round."""
        return np.asarray(self.trace.rms_estimate[0], float)

    @property
    def received(self) -> Array:
        """(K,) mean received energy of a round at full power, m_k."""
        return np.asarray(self.deployment.energy, float) * self.rms**2


class Trial(NamedTuple):
    """What a setting came to."""

    snr: float  # S over the rounds that the budget covers
    rounds: int
    heard: float  # mean share of the wanted weight that arrives
    shares: np.ndarray  # (K,) of what arrives


def bench(deployment: Deployment, message: Message, budget: Budget, rounds: int, channel: Channel, seed: int) -> Bench:
    """The site with channels of another seed than any run's."""
    trace, deployment = receive(_drawn(channel, len(deployment.weights), rounds, seed), deployment)
    multiplier = calibrate(budget, rounds, message, np.asarray(deployment.weights, float))
    return Bench(deployment, message, budget, rounds, trace, seed, multiplier)


def without_trusted_noise(deployment: Deployment) -> Refusal | None:
    if deployment.trusted_noise_var > 0:
        return None
    return Refusal("its only noise is the receiver's, of which nothing is trusted (trusted_noise_var=0)")


def on_bench(choose: Callable[[Bench], Options | Refusal]) -> Rule:
    """The rule of a scheme that only the receiver's noise protects, refused where nothing of that is trusted."""

    @wraps(choose)
    def rule(deployment: Deployment, *rest: Any) -> Options | Refusal:
        return without_trusted_noise(deployment) or choose(bench(deployment, *rest))

    return rule


@lru_cache(maxsize=2)
def _drawn(channel: Channel, clients: int, rounds: int, seed: int) -> Trace:
    """Schemes and targets are tried on the same channels; two horizons are kept. Nobody may write into them."""
    return frozen(draw(channel, clients, rounds, OTHER_SEED + seed % OTHER_SEED))


def context_of(at: Bench) -> Context:
    """What a policy is told in a trial; nothing here comes from data."""
    target = at.budget
    sizes = None if at.message.adjacency == "add-remove" else np.ones(at.devices)
    return Context(at.rounds, target.eps, target.delta, target.accountant, seed=at.seed, sizes=sizes, trace=at.trace)


def planned(name: str, options: Options, at: Bench) -> tuple[Policy, Plan, Trace, Deployment]:
    """A scheme's plan on the bench's channels, as the ledger and the air would meet it."""
    config = systems.scheme(name).config(**options)
    policy = systems.make(name, config, at.deployment, at.message, context_of(at))
    trace, deployment = meet(uplink_of(policy), at.trace, at.deployment)
    with np.errstate(all="ignore"):
        _, plan, _ = plan_ahead(policy, policy.init(at.seed), trace)
    return policy, plan, trace, deployment


def cost(name: str, options: Options, at: Bench) -> float:
    """zCDP cost of the worst client over all planned rounds, within the budget or not."""
    policy, plan, trace, deployment = planned(name, options, at)
    released = release(uplink_of(policy), plan, trace, deployment, at.message)
    return float(np.max(round_costs(released, "none").sum(-2)))


def affordable_share(name: str, option: str, at: Bench) -> float:
    """The share of energy at which the worst client's cost meets the budget, for costs in proportion to energy."""
    return float(np.minimum(1.0, SAFE * at.rho / cost(name, {option: 1.0}, at)))


def trial(name: str, options: Options, at: Bench, change: Callable[[Plan], Plan] | None = None) -> Trial:
    """Plan, change where asked to, charge, cut and weigh one setting."""
    policy, plan, trace, deployment = planned(name, options, at)
    plan = plan if change is None else change(plan)
    released = release(uplink_of(policy), plan, trace, deployment, at.message)
    live = Ledger(at.budget, at.devices).affordable(released)
    link = uplink_of(policy).lower(plan._replace(live=live), trace.gain, deployment)
    weight = np.where(np.asarray(link.max_norm) >= 0, link.weight, 0.0)[live]
    heard = weight.sum(-1)
    bound = float(np.sqrt(np.max(at.message.mean_square)))
    snr = merit.learning_snr(bound, heard, np.asarray(link.noise_std)[live]) if np.any(live) else 0.0
    total = weight.sum(0)
    shares = total / total.sum() if total.sum() > 0 else total
    return Trial(snr, int(live.sum()), float(heard.mean()) if len(heard) else 0.0, shares)


def best(name: str, choices: list[Options], at: Bench) -> Options | Refusal:
    """The setting with the largest S, the first of those within a thousandth of it; or why there is none."""
    found: list[tuple[float, Options]] = []
    why = "not one round is affordable with any of its settings"
    for options in choices:
        try:
            got = trial(name, options, at)
        except OtaflError as refusal:
            why = str(refusal)
            continue
        if got.snr > 0:
            found.append((got.snr, options))
    top = max((snr for snr, _ in found), default=0.0)
    return next((options for snr, options in found if snr >= TIE * top), Refusal(why))
