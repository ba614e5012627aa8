"""(F1) against a bisection on the price, perturbations and its own budget; the policy against both."""

import math

import numpy as np
import pytest

import small
from otafl import systems
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.plan import Message, Plan
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import uplink_of
from otafl.privacy import Budget, Ledger, classic_budget
from otafl.privacy.events import events, inverse_square
from otafl.privacy.retire import retired
from otafl.privacy.uplink_checks import check_links
from otafl.systems.rivals import slots
from otafl.systems.rivals.allocation import allocate, caps, paper_budget, price_of, worths
from otafl.systems.rivals.liu_simeone import Config, problem_of, solve
from otafl.systems.rivals.liu_simeone_planner import online

ROUNDS = 40
MESSAGE = Message(53, 1.0, np.ones(4), np.full(4, 2.0), np.ones(4), "client", "replace")
SITE = small.deployment(noise_std=0.3, energy=4.0)
TRACE = small.trace(ROUNDS, seed=3)
CONTEXT = small.CONTEXT._replace(rounds=ROUNDS, eps=60.0, delta=1e-5, accountant="zcdp", trace=TRACE)


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 3, 30), rng.uniform(0.5, 2, 30), rng.exponential(1.0, 30)


def by_bisection(worth: np.ndarray, cost: np.ndarray, cap: np.ndarray, budget: float) -> np.ndarray:
    low, high = -60.0, 60.0  # log of the price
    for _ in range(200):
        middle = (low + high) / 2
        square = np.minimum(cap, np.sqrt(worth / (np.exp(middle) * cost)))
        low, high = (middle, high) if np.sum(cost * square) > budget else (low, middle)
    return square


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [1e-3, 0.2, 0.7, 0.999])
def test_one_pass_is_the_bisection_on_the_price(seed: int, share: float) -> None:
    worth, cost, cap = problem(seed)
    budget = share * float(np.sum(cost * cap))
    found = allocate(worth, cost, cap, budget)
    np.testing.assert_allclose(found.square, by_bisection(worth, cost, cap, budget), rtol=1e-9)
    assert np.sum(cost * found.square) == pytest.approx(budget, rel=1e-12)  # met with equality
    assert np.all(found.square <= cap) and not found.free


def test_no_feasible_perturbation_is_better() -> None:
    worth, cost, cap = problem(0)
    budget = 0.4 * float(np.sum(cost * cap))
    best = allocate(worth, cost, cap, budget).square
    rng = np.random.default_rng(1)
    for size in (1e-3, 0.05, 0.5):
        for _ in range(300):
            other = np.minimum(cap, best * np.exp(size * rng.standard_normal(30)))
            other *= min(1.0, budget / np.sum(cost * other))
            assert np.sum(worth / other) >= np.sum(worth / best) * (1 - 1e-12)


def test_the_price_is_what_a_little_more_budget_would_save() -> None:
    """Central difference of the least sum of w_t / u_t in the budget."""
    worth, cost, cap = problem(3)
    budget = 0.4 * float(np.sum(cost * cap))
    more, less = (np.sum(worth / allocate(worth, cost, cap, budget * (1 + h)).square) for h in (1e-5, -1e-5))
    assert allocate(worth, cost, cap, budget).price == pytest.approx((less - more) / (2e-5 * budget), rel=1e-4)


def test_privacy_is_free_where_full_power_fits() -> None:
    worth, cost, cap = problem(2)
    found = allocate(worth, cost, cap, float(np.sum(cost * cap)) * (1 + 1e-9))
    assert found.free and found.price == 0
    np.testing.assert_array_equal(found.square, cap)


def test_rounds_that_weigh_nothing_are_refused_by_what_was_given() -> None:
    with pytest.raises(InputError, match=r"conditioning=0.5 leaves the first of rounds=2000 no weight"):
        worths(2000, 0.5)


def test_the_papers_budget_solves_its_equation() -> None:
    found = paper_budget(8.0, 1e-5)
    assert found == pytest.approx(1.18491, abs=5e-6)
    assert classic_budget(8.0, 1e-5) == pytest.approx(1.04914, abs=5e-6)
    y = (8.0 - found) / (2 * math.sqrt(found))  # (sqrt(R) + y)^2 = eps + y^2
    assert math.sqrt(math.pi) * y * math.exp(y * y) == pytest.approx(1e5, rel=1e-9)


def planned(**options: str | float) -> tuple[Plan, object, float]:
    policy = systems.make("liu-simeone", Config(**options), SITE, MESSAGE, CONTEXT)  # type: ignore[arg-type]
    _, plan, _ = plan_ahead(policy, policy.init(0), TRACE)
    budget = Budget(60.0, 1e-5, "zcdp", adjacency="replace")
    assert np.all(Ledger(budget, 4).affordable(events(plan, TRACE, SITE, MESSAGE)))
    return plan, uplink_of(policy), budget.zcdp


def objective(plan: Plan, conditioning: float) -> float:
    return float(np.sum(worths(ROUNDS, conditioning) / plan.rx_scale**2))


def test_hindsight_spends_the_budget_and_online_is_no_better() -> None:
    ahead, _, rho = planned(conditioning=0.1)
    spent = inverse_square(events(ahead, TRACE, SITE, MESSAGE)).sum(0).max() / 2
    assert spent == pytest.approx(rho, rel=1e-9)
    online, _, _ = planned(conditioning=0.1, tuning="online")
    assert objective(ahead, 0.1) < objective(online, 0.1)
    # What the policy plans is (F1) of this site.
    cap = caps(TRACE.estimate, SITE.energy, SITE.weights, 1.0)
    price = price_of(SITE.weights, MESSAGE.sensitivity, SITE.noise_var)
    wanted = by_bisection(worths(ROUNDS, 0.1), np.full(ROUNDS, price), cap, rho)
    np.testing.assert_allclose(ahead.rx_scale**2, wanted, rtol=1e-8)


def test_the_orthogonal_twin_pays_every_receiver_noise_and_hides_alone() -> None:
    plan, uplink, rho = planned(access="orthogonal")
    spent = inverse_square(events(plan, TRACE, SITE, MESSAGE)).sum(0) / 2
    np.testing.assert_allclose(spent, rho, rtol=1e-9)  # every client spends its own budget, whatever its weight
    link = uplink.lower(plan, TRACE.gain, SITE)  # type: ignore[attr-defined]
    square = np.abs(TRACE.gain * plan.tx) ** 2
    np.testing.assert_allclose(link.noise_std**2, np.sum(SITE.weights**2 * SITE.noise_var / square, -1))
    np.testing.assert_allclose(link.weight, np.broadcast_to(SITE.weights, link.weight.shape))
    assert uplink.uses(plan, TRACE, SITE).tolist() == [4 * 53] * ROUNDS  # type: ignore[attr-defined]


def test_a_round_without_a_channel_and_a_spent_budget_send_nothing() -> None:
    one = problem_of(Config(conditioning=0.1), SITE, MESSAGE, CONTEXT)
    cap = one.caps(TRACE.estimate) * (np.arange(ROUNDS) % 4 > 0)[:, None]
    found = solve(one, 0, cap, np.full(1, one.budget))
    wanted = by_bisection(one.worth[cap[:, 0] > 0], one.price[0], cap[cap > 0], one.budget)
    np.testing.assert_allclose(found[cap > 0], wanted, rtol=1e-8)
    assert not found[cap == 0].any() and not solve(one, 0, cap, np.zeros(1)).any()


def test_a_slot_in_which_nothing_is_heard_leaves_its_weight_out() -> None:
    """Of four clients one is silent and one has no channel: the update is that of the others under their noise."""
    one = np.ones(4)
    gain, norms = np.array([1.0, 2.0, 0.0, 0.5j]), np.array([0.5, -1.0, np.inf, np.inf])
    link = slots.lower(Plan(2 * one, 0 * one, norms, np.ones(()), one, np.bool_(True)), gain, SITE)
    assert link.weight.tolist() == [0.1, 0.0, 0.0, 0.35]
    assert link.noise_std == pytest.approx(0.3 * math.hypot(0.1 / 2, 0.35 / 1), rel=1e-12)
    stopped = Plan(2 * one, 0 * one, np.inf * one, np.array(np.inf), one, np.bool_(True))
    assert not slots.lower(stopped, gain, SITE).weight.any()


def test_slots_are_refused_where_a_device_does_not_know_its_amplitude() -> None:
    with pytest.raises(InputError, match=r"gain_error=0\.1 must be 0 with access='orthogonal'"):
        systems.make("liu-simeone", Config(access="orthogonal"), SITE._replace(gain_error=0.1), MESSAGE, CONTEXT)


@pytest.mark.parametrize("client", range(4))
def test_whoever_falls_silent_takes_its_slot_along_and_no_more(client: int) -> None:
    """A run ended as a broken promise (exit 5) where it was the client that sets the scale of the update."""
    site = SITE._replace(weights=np.array([0.7, 0.15, 0.1, 0.05]))
    policy = systems.make("liu-simeone", Config(access="orthogonal"), site, MESSAGE, CONTEXT)
    rest = retired(plan_ahead(policy, policy.init(0), TRACE)[1], np.arange(4) != client)
    uplink, released = uplink_of(policy), events(rest, TRACE, site, MESSAGE)
    link = uplink.lower(rest, TRACE.gain, site)
    check_links(uplink, link, rest, released)
    with pytest.raises(PrivacyViolation, match="noise variance"):
        check_links(uplink, link._replace(noise_std=link.noise_std * 0.5), rest, released)


def test_hindsight_is_refused_where_nobody_tells_the_future() -> None:
    with pytest.raises(InputError, match="needs the whole channel in advance"):
        systems.make("liu-simeone", Config(), SITE, MESSAGE, CONTEXT._replace(trace=None))
    assert systems.in_hindsight("liu-simeone", Config())
    assert not systems.in_hindsight("liu-simeone", Config(tuning="online"))


@pytest.mark.parametrize("conditioning", [-0.1, 1.0, float("nan")])
def test_a_conditioning_outside_its_range_is_told_the_range(conditioning: float) -> None:
    assert np.all(worths(3, 0.0) == 1)
    with pytest.raises(InputError, match=r"must lie in \[0, 1\)"):
        worths(3, conditioning)


@pytest.mark.parametrize("conditioning", [0.0, 1e-6, 0.01, 0.3])
@pytest.mark.parametrize("budget", [1e-4, 0.3, 3.0, 30.0, 1e4])
def test_the_planners_online_rounds_are_those_of_the_allocation_solved_anew(conditioning: float, budget: float) -> None:
    cap = np.random.default_rng(4).exponential(1.0, 50)
    worth, price, left = worths(50, conditioning), 0.7, budget
    expected = np.zeros(50)
    for t in range(50):
        rest = 50 - t
        if left > 0:
            expected[t] = allocate(worth[t:], np.full(rest, price), np.full(rest, cap[t]), left).square[0]
            left -= price * expected[t]
    np.testing.assert_allclose(online(worth, price, cap, budget), expected, rtol=1e-9, atol=1e-12)
