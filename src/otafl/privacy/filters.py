"""A privacy filter for each client of a policy that looks at the training: `privacy.stop = "each"` in a closed loop.

What the next round would cost client k follows from its plan, the channel and published numbers. A plan is a function
of what was released before, so the cost c_t is known before the round is sent and is the same in two worlds that differ
at k. Client k is silent for good from the first round on that would take c_1 + ... + c_t above a B fixed in advance.
Then sum c_t <= B on every path, and with L_t the privacy loss of what was released so far

    Renyi, one order a:  exp(a L_t - (a - 1) (c_1 + ... + c_t)) is a supermartingale under Q, so the run is (a, B)-RDP
    zCDP:                the same at every order: the run is B-zCDP
    Gaussian, rate 1:    B - sum c_t filled up by one more Gaussian, the run is one Gaussian of mu^2 = 2 B

(Feldman and Zrnic 2021; Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2022). A minimum over orders afterwards,
or a loss distribution chosen along the way, is not covered: `pld` has no filter. Who else is silent is a function of
what was released, so it tells nothing new. What accompanies every round (a noisy reward) goes on reading the data of
clients that have retired: all of it, over the whole horizon, is set aside before the first round.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Events, Message, Obs, Plan, Policy, around, namespace
from otafl.core.rounds import ask, shown
from otafl.privacy import rdp
from otafl.privacy.by_rdp import RdpTotal
from otafl.privacy.events import heard
from otafl.privacy.ledger import PLANNING_MARGIN, Ledger
from otafl.privacy.moments import log_weights, weighted_moment
from otafl.privacy.participation import CERTIFIED, charged
from otafl.privacy.retire import certified_where, retired
from otafl.privacy.spend import Release

HALVINGS = 60  # of the interval of a budget
LARGEST_ORDER = 256  # that is summed term by term inside the loop


class Filter(NamedTuple):
    """What each client may still spend on rounds, and what a round costs it. Leaves differ between seeds."""

    left: Array  # (K,) zCDP, or Renyi divergence at the budget's order
    factor: Array  # (K,) cost of a round over 1/z^2; where there are weights, what 1/z^2 is taken times
    weights: Array  # (K, order + 1) log of the Binomial weights of a whole Renyi order; else (K, 0)

    def cost(self, square: Array) -> Array:
        """Of a round with these 1/z^2, (K,); inf or NaN, which no budget covers, where nothing hides a message."""
        if self.weights.shape[-1] == 0:
            return namespace(square).where(square > 0, self.factor * square, 0.0)
        order = self.weights.shape[-1] - 1
        return weighted_moment(self.weights, self.factor * square) / (order - 1)


class State(NamedTuple):
    policy: Any
    active: Array  # (K,) bool: not retired
    filter: Filter
    sensitivity: Array  # (K,)


def filter_of(ledger: Ledger, message: Message, rounds: int, each_round: Sequence[Release] = ()) -> Filter:
    """The filter under a ledger's budget, from what it has spent, with the releases of so many rounds set aside."""
    budget = ledger.budget
    if budget.accounting not in CERTIFIED:
        raise InputError(
            f"privacy.stop='each' in a closed loop needs privacy.accounting 'none' or 'realised', not "
            f"{budget.accounting!r}: a filter counts what every round costs for certain"
        )
    if budget.colluders:
        raise InputError(f"colluders={budget.colluders} in a closed loop: a filter counts the noise of all clients")
    aside = [release._replace(times=release.times * rounds) for release in each_round]
    rate = np.broadcast_to(np.asarray(message.rate, np.float64), (ledger.clients,))
    margin = 1 - PLANNING_MARGIN - rounds * np.finfo(np.float64).eps  # sums inside the loop are rounded every round
    if budget.counted.additive:
        beside = sum((r.times * r.square(ledger.clients) / 2 for r in aside), np.zeros(ledger.clients))
        none = np.zeros((ledger.clients, 0))
        return Filter(ledger.zcdp_left() - beside - (1 - margin) * budget.zcdp, np.where(rate > 0, 0.5, 0.0), none)
    return _renyi(ledger, rate, aside, margin)


def _renyi(ledger: Ledger, rate: Array, aside: Sequence[Release], margin: float) -> Filter:
    """At the one order of the budget. Replacement under sampling takes two steps of half the change each, and what one
    step may cost is searched by the conversion that the ledger will use (`replacement`)."""
    budget = ledger.budget
    order = float(budget.orders[0])
    most = float(rdp.rdp_budget(budget.eps, budget.delta, budget.orders)[0])
    if most <= 0:
        what = f"eps={budget.eps:g} at delta={budget.delta:g}"
        raise InputError(f"privacy.order={order:g} cannot certify {what}: {_better(ledger)}")
    before = ledger._rdp_total(None, [*ledger.releases, *aside])
    opening = np.broadcast_to(before.rounds, (ledger.clients, 1))[:, 0]
    sampled = bool(np.any((rate > 0) & (rate < 1)))
    counted = order == round(order) and 2 <= order <= LARGEST_ORDER  # one shape of state, whichever seed samples
    if sampled and not counted:
        rule = f"must be a whole number from 2 to {LARGEST_ORDER} under sampling"
        raise InputError(f"privacy.order={order:g} {rule}, in a closed loop")
    weights = log_weights(rate, int(order)) if counted else np.zeros((ledger.clients, 0))
    if not (sampled and budget.adjacency == "replace"):
        factor = np.ones(ledger.clients) if counted else np.where(rate > 0, order / 2, 0.0)
        return Filter(most * margin - before.releases[:, 0] - opening, factor, weights)
    low, high = np.zeros(ledger.clients), np.full(ledger.clients, most)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        total = RdpTotal(middle[:, None], before.releases, np.full((ledger.clients, 1), np.inf))
        fits = total.eps(budget.delta, budget.orders)[0] <= budget.eps
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return Filter(low * margin - opening, np.full(ledger.clients, 0.25), weights)


def _better(ledger: Ledger) -> str:
    """The order that leaves most rounds without sampling."""
    orders = np.arange(2.0, 257.0)
    allowed = rdp.rdp_budget(ledger.budget.eps, ledger.budget.delta, orders) / orders
    best = int(np.argmax(allowed))
    return f"use order={orders[best]:g}" if allowed[best] > 0 else "raise eps or delta"


def filtered(
    policy: Policy, filter_: Filter, deployment: Deployment, message: Message, accounting: str,
    keep_noise: bool = True, together: bool = False,
) -> Policy:  # fmt: skip
    """The same closed loop, whose clients fall silent at their own cap; it ends where nobody is left.

    `together`: all of them at the first cap. The filter sees every gain, the policy what its CSI level shows. One
    policy serves all seeds inside the compiled loop: what differs between them is in the state. Host or JAX.
    """

    def init(key: Any) -> State:
        clients = len(filter_.left)
        sensitivity = np.broadcast_to(np.asarray(message.sensitivity, np.float64), (clients,)).copy()
        return State(policy.init(key), np.ones(clients, bool), filter_, sensitivity)

    def cost(plan: Plan, obs: Obs, state: State) -> Array:
        xp = namespace(obs.rms)
        amp, noise, angle = heard(obs.estimate * plan.tx, obs.estimate * plan.noise, deployment)
        one, trusted = xp.ones(amp.shape), xp.full(amp.shape[:-1], float(deployment.trusted_noise_var))
        live = xp.ones(amp.shape[:-1], bool)
        row = Events(amp, noise, plan.max_norm >= 0, one, trusted, live, one, state.sensitivity, angle)
        return state.filter.cost(charged(row, accounting))

    def step(state: State, obs: Obs) -> tuple[State, Plan, Any]:
        inner, plan, info = ask(policy, state.policy, shown(policy, obs), obs.coin.shape)
        xp = namespace(obs.rms)

        def fitting(active: Array) -> tuple[Array, Array]:
            """Who of these can pay for the round as they would send it, and what it costs."""
            sent = plan if keep_noise else plan._replace(noise=xp.where(active, plan.noise, 0))
            each = cost(sent, obs, state)
            return active & (each <= state.filter.left), each

        active, each = fitting(state.active)
        if not keep_noise:
            active, each = _settled(fitting, active, each)
        if together:
            active = active & xp.all(active, axis=-1, keepdims=True)
        left = xp.where(active, state.filter.left - each, state.filter.left)
        new = State(inner, active, state.filter._replace(left=left), state.sensitivity)
        played = retired(plan, active, keep_noise)
        return new, played, certified_where(info, plan, played)

    return around(policy, step, init=init, csi=policy.csi if policy.csi == "global" else "own")


def _settled(fitting: Any, active: Array, cost: Array) -> tuple[Array, Array]:
    """Who leaves takes noise along, so that the next may have to leave too: until nobody does. It only shrinks."""
    import jax

    def more(now: tuple[Array, Array, Array]) -> Array:
        return now[2]

    def again(now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        fewer, each = fitting(now[0])
        return fewer, each, (fewer != now[0]).any()

    # The first pass counted the noise of those who leave in it.
    active, cost, _ = jax.lax.while_loop(more, again, (active, cost, jax.numpy.asarray(True)))
    return active, cost
