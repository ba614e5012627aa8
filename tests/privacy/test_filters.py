"""Clients of a closed loop retire at their own cap: a filter each, against naive ones in plain Python."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import small
from otafl.core.errors import BudgetExceeded, InputError
from otafl.core.plan import Deployment, Message, Obs, Plan, Policy, Trace, cut, namespace
from otafl.core.rounds import ask, observe, stack
from otafl.privacy import Budget, Ledger, Release, events
from otafl.privacy.filters import filter_of, filtered

ROUNDS, CLIENTS, DELTA = 40, 4, 1e-5
SITE = Deployment(np.ones(CLIENTS), 0.04, 0.03, np.array([0.4, 0.3, 0.2, 0.1]), 7, gain_error=0.1, phase_error=0.0)
TRACE = small.trace(ROUNDS, 3)


class Info(NamedTuple):
    certified: Any


def message(rate: float = 1.0, adjacency: Any = "replace") -> Message:
    one = np.ones(CLIENTS)
    return Message(7, 1.0, one, 2 * one, rate * one, "client", adjacency)


def loop(noise_std: float = 0.0, scale: float = 0.12) -> Policy:
    """Looks at the accuracy: the better the model, the louder the round. Gains are inverted, noise stays in phase."""

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Info]:
        xp = namespace(obs.rms)
        phase = xp.exp(-1j * xp.angle(obs.estimate))
        tx = scale * (1 + obs.metric) * SITE.weights * phase / xp.abs(obs.estimate)
        noise = noise_std * phase * (1 + 0.5 * xp.arange(CLIENTS))
        one = xp.ones(CLIENTS)
        return state + 1, Plan(tx, noise, np.inf * one, xp.ones(()), one, xp.ones((), bool)), Info(xp.ones((), bool))

    return Policy("louder", lambda key: np.zeros(()), step, loop="round", csi="own", gate="open")


def play(policy: Policy, metrics: np.ndarray, xp: Any = np) -> tuple[Plan, list[Any]]:
    """Round by round, as the engine does; stopped rounds are not live."""
    state, plans, infos = policy.init(None), [], []

    def step(state: Any, row: Trace, t: Any, metric: Any) -> Any:
        return ask(policy, state, observe(policy, row, t, metric), (CLIENTS,))

    once = step if xp is np else jax.jit(step)
    for t, metric in enumerate(metrics):
        state, plan, info = once(state, cut(TRACE, t), t, metric)
        plans.append(plan)
        infos.append(info)
    return Plan(*(np.asarray(leaf) for leaf in stack(plans))), infos


def squares(plan: Plan, t: int, active: np.ndarray, keep_noise: bool) -> np.ndarray:
    """1/z^2 of one round by hand, everybody as if it sent: amplitude up, artificial noise down by the gain error."""
    variance = SITE.trusted_noise_var
    for j in range(CLIENTS):
        if keep_noise or active[j]:
            variance += (abs(TRACE.estimate[t, j] * plan.noise[t, j]) * 0.9) ** 2
    amplitude = [abs(TRACE.estimate[t, k] * plan.tx[t, k]) * 1.1 * 2 for k in range(CLIENTS)]
    return np.array([a**2 / variance for a in amplitude])


def renyi(order: int, rate: float, square: float) -> float:
    terms = (math.comb(order, k) * rate**k * (1 - rate) ** (order - k) * math.exp(k * (k - 1) / 2 * square)
             for k in range(order + 1))  # fmt: skip
    return math.log(math.fsum(terms)) / (order - 1)


def gaussian_cap(eps: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(200):
        mu = (low + high) / 2
        delta = norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        low, high = (mu, high) if delta <= DELTA else (low, mu)
    return low**2 / 2


# accountant, order, rate, eps, cost of a round from 1/z^2, cap of the sum
LOG = math.log(1 / DELTA)
FILTERS = [
    ("zcdp", None, 1.0, 8.0, lambda s: s / 2, (math.sqrt(LOG + 8) - math.sqrt(LOG)) ** 2),
    ("gaussian", None, 1.0, 8.0, lambda s: s / 2, gaussian_cap(8.0)),
    ("rdp", 3.5, 1.0, 8.0, lambda s: 3.5 * s / 2, 8 - math.log(1 - 1 / 3.5) + math.log(DELTA * 3.5) / 2.5),
    ("rdp", 4.0, 1.0, 8.0, lambda s: 4 * s / 2, 8 - math.log(1 - 1 / 4) + math.log(DELTA * 4) / 3),
    ("rdp", 6.0, 0.3, 4.0, lambda s: renyi(6, 0.3, s), 4 - math.log(1 - 1 / 6) + math.log(DELTA * 6) / 5),
]


def budget_of(accountant: str, order: float | None, eps: float, rate: float = 1.0) -> Budget:
    return Budget(eps, DELTA, accountant, adjacency="replace" if rate == 1 else "zero-out", adaptive=True, order=order)


def naive(plan: Plan, eps_cap: float, cost: Any, keep_noise: bool) -> np.ndarray:
    """Who is in which round, (T, K): one list of costs per client, nobody comes back."""
    active, paid = np.ones(CLIENTS, bool), [[] for _ in range(CLIENTS)]  # type: ignore[var-annotated]
    inside = np.zeros((ROUNDS, CLIENTS), bool)
    for t in range(ROUNDS):
        while True:
            costs = [cost(s) for s in squares(plan, t, active, keep_noise)]
            over = [k for k in range(CLIENTS) if active[k] and math.fsum([*paid[k], costs[k]]) > eps_cap]
            if not over:
                break
            active[over] = False
        for k in np.flatnonzero(active):
            paid[k].append(costs[k])
        inside[t] = active
    return inside


@pytest.mark.parametrize(("accountant", "order", "rate", "eps", "cost", "cap", "keep_noise", "louder"), [
    *((*one, True, 1.0) for one in FILTERS), (*FILTERS[0], False, 1.0), (*FILTERS[-1], False, 1.0),
    (*FILTERS[0], False, 3.0),  # who leaves takes so much noise along that others have to leave in the same round
])  # fmt: skip
def test_who_is_silent_when_is_what_a_naive_filter_says(accountant, order, rate, eps, cost, cap, keep_noise, louder):
    told, given = message(rate, "replace" if rate == 1 else "zero-out"), (0.05 * louder, 0.12 * louder)
    ledger = Ledger(budget_of(accountant, order, eps, rate), CLIENTS)
    metrics = np.random.default_rng(1).random(ROUNDS)
    wanted, _ = play(loop(*given), metrics)
    own = filtered(loop(*given), filter_of(ledger, told, ROUNDS), SITE, told, "none", keep_noise)
    with jax.enable_x64(True):
        found, infos = play(own, metrics, np if keep_noise else jnp)
    inside = naive(wanted, cap, cost, keep_noise)
    assert len(set(inside.sum(0))) > 1 and 0 < inside.sum(0).min() < ROUNDS  # it has bitten
    np.testing.assert_array_equal(found.max_norm >= 0, inside)
    np.testing.assert_array_equal(found.live, inside.any(1))
    np.testing.assert_array_equal([bool(info.certified) for info in infos], inside.all(1))
    assert np.all(found.tx[~inside] == 0) and np.all((found.noise[~inside] == 0) == (not keep_noise))
    ledger.spend(events(found, TRACE, SITE, told))  # raises where anybody's cap is passed
    assert np.all(ledger.spent().eps <= eps)
    with pytest.raises(BudgetExceeded):  # the control: the same loop without its filter
        Ledger(ledger.budget, CLIENTS).spend(events(wanted, TRACE, SITE, told))


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_replacement_under_sampling_is_filtered_by_the_two_steps_it_is_charged_by(rate):
    """Nobody passes the cap, and one round more would take whoever left above it."""
    told, metrics = message(rate), np.linspace(0, 1, ROUNDS)
    ledger = Ledger(Budget(6.0, DELTA, "rdp", adjacency="replace", adaptive=True, order=5.0), CLIENTS)
    own = filtered(loop(scale=0.25), filter_of(ledger, told, ROUNDS), SITE, told, "none")
    found, _ = play(own, metrics)
    wanted, _ = play(loop(scale=0.25), metrics)
    inside = found.max_norm >= 0
    ledger.spend(events(found, TRACE, SITE, told))
    assert np.all(ledger.spent().eps <= 6.0) and np.any(inside.sum(0) < ROUNDS)
    for k in np.flatnonzero(inside.sum(0) < ROUNDS):
        last = int(inside[:, k].sum())
        tx = found.tx.copy()
        tx[last, k] = wanted.tx[last, k]
        longer = found._replace(tx=tx, live=np.ones(ROUNDS, bool))
        free = Ledger(Budget(np.inf, DELTA, "rdp", adjacency="replace", adaptive=True, order=5.0), CLIENTS)
        free.spend(events(longer, TRACE, SITE, told))
        assert free.spent().eps[k] > 6.0 * (1 - 1e-9)


@pytest.mark.parametrize(("accountant", "order"), [("zcdp", None), ("rdp", 4.0)])
def test_what_accompanies_every_round_is_set_aside_for_the_whole_horizon(accountant, order):
    """Rewards read the data of clients that have retired: with all of them charged nobody passes its cap."""
    reward = Release("reward", SITE.weights, 2.0)
    ledger, told = Ledger(budget_of(accountant, order, 8.0), CLIENTS), message()
    ledger.release(Release("earlier", 0.1 * np.ones(CLIENTS), 1.0))
    own = filtered(loop(scale=0.1), filter_of(ledger, told, ROUNDS, [reward]), SITE, told, "none")
    found, _ = play(own, np.full(ROUNDS, 0.5))
    assert np.any(found.max_norm < 0) and np.all(found.live)
    ledger.spend(events(found, TRACE, SITE, told), each_round=[reward])
    forgetful = filtered(loop(scale=0.1), filter_of(ledger_of(ledger), told, ROUNDS), SITE, told, "none")
    with pytest.raises(BudgetExceeded):
        ledger_of(ledger).spend(events(play(forgetful, np.full(ROUNDS, 0.5))[0], TRACE, SITE, told), [reward])


def ledger_of(ledger: Ledger) -> Ledger:
    """The same budget with nothing but its earlier release."""
    return Ledger(ledger.budget, CLIENTS, [], ledger.releases[:1])


@pytest.mark.parametrize(("accountant", "order", "rate"), [("zcdp", None, 1.0), ("rdp", 4.0, 1.0), ("rdp", 5.0, 0.3)])
def test_rounds_and_releases_of_an_earlier_run_count(accountant, order, rate):
    told, metrics, scale = message(rate), np.full(ROUNDS, 0.5), 0.07 if rate == 1 else 0.12
    ledger = Ledger(Budget(8.0, DELTA, accountant, adjacency="replace", adaptive=True, order=order), CLIENTS)
    first = filtered(loop(scale=scale), filter_of(ledger, told, ROUNDS), SITE, told, "none")
    part = events(play(first, metrics)[0], TRACE, SITE, told)
    ledger.spend(part._replace(live=np.arange(ROUNDS) < 5))
    ledger.release(Release("earlier", 0.4, 1.0))
    again = filtered(loop(scale=scale), filter_of(ledger, told, ROUNDS), SITE, told, "none")
    ledger.spend(events(play(again, metrics)[0], TRACE, SITE, told))
    assert np.all(ledger.spent().eps <= 8.0) and ledger.spent().worst > 7.0


@pytest.mark.parametrize(("budget", "told", "said"), [
    (lambda: Budget(8.0, DELTA, "pld", adaptive=True), message(), "'pld' has no filter .* use 'zcdp'"),
    (lambda: Budget(8.0, DELTA, "rdp", adaptive=True), message(), "one order fixed in advance"),
    (lambda: Budget(8.0, DELTA, "zcdp", order=4.0), message(), "belongs to accountant='rdp'"),
    (lambda: Budget(0.5, DELTA, "rdp", adaptive=True, order=2.0), message(), r"order=2 cannot.*use order=\d"),
    (lambda: Budget(8.0, DELTA, "rdp", adaptive=True, order=3.5), message(0.5), "must be a whole number"),
    (lambda: Budget(8.0, DELTA, "rdp", adaptive=True, order=257.0), message(0.5), "whole number from 2 to 256"),
    (lambda: Budget(8.0, DELTA, "rdp", "visible", adaptive=True, order=3.0), message(), "'none' or 'realised'"),
    (lambda: Budget(8.0, DELTA, adaptive=True, colluders=(2,)), message(), "counts the noise of all clients"),
])  # fmt: skip
def test_what_has_no_filter_is_refused_with_what_to_do(budget, told, said):
    with pytest.raises(InputError, match=said):
        filter_of(Ledger(budget(), CLIENTS), told, ROUNDS)


def test_a_filter_sees_the_gains_and_the_policy_what_it_may():
    """Without CSI everyone sends alike; who is dear follows from gains that the policy is not shown."""

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Info]:
        assert np.all(np.isnan(obs.estimate)) and np.all(np.isnan(obs.rms_low))
        one = np.ones(CLIENTS)
        return state, Plan(0.1 * one + 0j, 0j * one, np.inf * one, np.ones(()), one, np.ones((), bool)), Info(np.True_)

    blind = Policy("blind", lambda key: np.zeros(()), step, loop="round", csi="none", gate="open")
    ledger, told = Ledger(budget_of("zcdp", None, 8.0), CLIENTS), message()
    own = filtered(blind, filter_of(ledger, told, ROUNDS), SITE, told, "none")
    found, _ = play(own, np.zeros(ROUNDS))
    assert own.csi == "own" and len(set((found.max_norm >= 0).sum(0))) > 1
    ledger.spend(events(found, TRACE, SITE, told))


def test_all_stop_together_at_the_first_cap():
    told, metrics = message(), np.full(ROUNDS, 0.5)
    ledger = Ledger(budget_of("zcdp", None, 8.0), CLIENTS)
    own = filtered(loop(), filter_of(ledger, told, ROUNDS), SITE, told, "none", together=True)
    found, _ = play(own, metrics)
    whole = events(play(loop(), metrics)[0], TRACE, SITE, told)
    np.testing.assert_array_equal(found.live, ledger.affordable(whole))
    assert 0 < found.live.sum() < ROUNDS and np.all(found.max_norm[found.live] >= 0)


# --- the theorem -----------------------------------------------------------------------------------------------------


def profile(eps: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """delta of one Gaussian at any real eps."""
    return norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu)


def two_rounds(eps: float, first: float, second: Any) -> float:
    """Exact delta(eps) of two rounds: mu `first`, then mu = second(loss of the first), by quadrature over it."""
    loss = first**2 / 2 + first * np.linspace(-12, 12, 40001)  # of the first round under P
    mu = second(loss)
    inner = np.where(mu > 0, profile(eps - loss, np.maximum(mu, 1e-12)), np.maximum(0.0, -np.expm1(eps - loss)))
    return float(np.trapezoid(norm.pdf((loss - first**2 / 2) / first) / first * inner, loss))


def test_a_filter_holds_whatever_the_second_round_looks_at():
    """mu^2 within 1 on every path is one Gaussian of mu 1. The control: a loop that passes 1 on some paths alone."""
    first, rest, cap = 0.8, 0.6, np.array(1.0)
    choices = [(c, sign) for c in (-1.0, 0.0, 0.5, 1.5) for sign in (1, -1)]
    for eps in (0.5, 1.0, 2.0, 3.0):
        found = [two_rounds(eps, first, lambda loss, c=c, s=s: rest * (s * loss > c)) for c, s in choices]
        assert max(found) <= profile(np.array(eps), cap) + 1e-12
    assert two_rounds(2.0, first, lambda loss: rest + 0 * loss) == pytest.approx(float(profile(np.array(2.0), cap)))
    assert two_rounds(2.0, first, lambda loss: 1.5 * rest * (loss > 0.0)) > float(profile(np.array(2.0), cap))
