"""A private reward in the certificate: costs, horizons, ends and refusals (CARES E9)."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.systems.cares.certifier import Problem, auto_grid, certify
from otafl.systems.cares.closed_form import eta_budget
from otafl.systems.cares.constraint_ends import eta_P
from otafl.systems.cares.relax import reward_alone
from otafl.systems.cares.sets import feasible_sets

Paper = Callable[..., Problem]
RECORD = {"granularity": "record", "silence": "bound", "batch_sizes": np.full(20, 64), "eps_target": 8.0}


def sizes_of(problem: Problem) -> np.ndarray:
    return np.round(problem.weights * 60_000)


def test_client_level_cost_is_the_hand_formula(paper: Paper, arms: np.ndarray) -> None:
    """2 eta^2 p^2 G^2 / sigma^2 + p^2 / (2 s^2) at the largest weight."""
    problem = paper(reward_data="private_noisy", reward_noise=0.3)
    expected = 2 * arms**2 * 0.09**2 / 0.05**2 + 0.09**2 / (2 * 0.3**2)
    np.testing.assert_allclose(problem.zcdp_cost(arms), expected, rtol=1e-12)


def test_record_level_cost_is_the_largest_sum_not_the_sum_of_the_largest(paper: Paper) -> None:
    """Air and reward may be dearest for different clients; a record lives at one of them."""
    weights, sizes, batch = np.array([0.5, 0.5]), np.array([1000.0, 10.0]), np.array([2.0, 10.0])
    problem = Problem(weights, np.ones(2), 0.05, 10, 1.0, 8.0, 1e-5, granularity="record", silence="bound",
                      batch_sizes=batch, reward_data="private_noisy", reward_noise=0.1, sizes=sizes)  # fmt: skip
    air = (2 * 0.3 * weights / batch) ** 2 / (2 * 0.05**2)
    reward = (weights / sizes) ** 2 / (2 * 0.1**2)
    assert np.argmax(air) != np.argmax(reward)
    assert float(problem.zcdp_cost(0.3)) == pytest.approx(float(np.max(air + reward)), rel=1e-12)


def test_published_record_level_example_is_cheap(paper: Paper, arms: np.ndarray) -> None:
    """n = 60000, s = 0.001: 1.4e-4 per round. Cheap in eps, yet as dear as a round of batches of 64 over the air."""
    public = paper(**RECORD)
    private = paper(**RECORD, reward_data="private_noisy", reward_noise=0.001, sizes=sizes_of(public))
    extra = private.zcdp_cost(arms) - public.zcdp_cost(arms)
    np.testing.assert_allclose(extra, 1 / (2 * 60_000**2 * 0.001**2), rtol=1e-3)  # rounded sizes
    assert float(private.eps_of(1000 * extra[0])) < 3
    ratio = certify(private, arms).arms.horizon / certify(public, arms).arms.horizon
    np.testing.assert_allclose(ratio, public.zcdp_cost(arms) / private.zcdp_cost(arms), rtol=1e-3)
    assert np.all((ratio > 0.4) & (ratio < 0.7))


def test_horizons_count_the_reward(paper: Paper, arms: np.ndarray) -> None:
    problem = paper(reward_data="private_noisy", reward_noise=0.1)
    found = certify(problem, arms)
    cost = [Fraction(float(c)) for c in problem.zcdp_cost(arms)]
    assert found.arms.horizon.tolist() == [math.floor(Fraction(problem.zcdp_budget) / c) for c in cost]
    assert np.all(found.arms.horizon < certify(paper(), arms).arms.horizon)
    assert np.all(found.arms.eps_at_horizon <= 500)


def test_published_client_level_example_leaves_few_rounds_or_none(paper: Paper, arms: np.ndarray) -> None:
    """s = 0.02 costs 10.1 per round: 36 rounds of nothing else at eps = 500, and not one at eps = 8."""
    few = paper(reward_data="private_noisy", reward_noise=0.02)
    assert reward_alone(few) is None and 0 < certify(few, arms).arms.horizon.max() <= 36
    none = paper(reward_data="private_noisy", reward_noise=0.02, eps_target=8.0)
    assert set(certify(none, arms).arms.horizon) == {0}
    assert certify(none, arms).init is None
    said = reward_alone(none)
    assert said is not None and "costs zCDP 10.1" in said and "raise reward_noise" in said


def test_privacy_ends_where_the_rewards_leave_off(paper: Paper) -> None:
    """Closed form at client level: eta = sigma/(p G) sqrt((budget/T - p^2/(2 s^2)) / 2)."""
    problem = paper(reward_data="private_noisy", reward_noise=0.1)
    room = problem.zcdp_budget / 300 - 0.09**2 / (2 * 0.1**2)
    assert eta_P(problem, 300) == pytest.approx(0.05 / 0.09 * math.sqrt(room / 2), rel=1e-12)
    assert 300 * problem.zcdp_cost(eta_P(problem, 300)) <= problem.zcdp_budget
    assert eta_P(problem, 10**4) == 0.0
    assert feasible_sets(problem, 10**4, 1e9, 0.1, 0.4).P == []


def test_an_unaffordable_reward_still_gets_a_grid_to_say_so(paper: Paper) -> None:
    problem = paper(reward_data="private_noisy", reward_noise=0.02, eps_target=8.0)
    assert set(certify(problem, auto_grid(problem)).arms.horizon) == {0}


def test_budget_optimum_minimises_the_bound_whatever_the_reward_costs(paper: Paper) -> None:
    """The reward's cost adds a constant to the initial-gap term, so the closed form does not move."""
    free, dear = paper(), paper(reward_data="private_noisy", reward_noise=0.1)
    assert eta_budget(dear) == eta_budget(free)
    eta = np.geomspace(0.5, 5, 4001)
    best = eta[np.argmin(dear.conv_bound(eta, dear.zcdp_budget / dear.zcdp_cost(eta)).total)]
    assert best == pytest.approx(eta_budget(dear), rel=0.02)  # the closed form is for few drops


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reward_data": "secret"}, "reward_data='secret' must be one of"),
        ({"reward_data": "private_noisy"}, "needs reward_noise"),
        ({"reward_data": "private_noisy", "reward_noise": 0.0}, "reward_noise=0.0 must be finite and > 0"),
        ({"reward_data": "private_noisy", "reward_noise": -0.1}, "reward_noise=-0.1"),
        ({"reward_data": "private_noisy", "reward_noise": math.inf}, "reward_noise=inf"),
        ({"reward_noise": 0.1}, "reward_noise=0.1 is for reward_data='private_noisy'"),
        ({**RECORD, "reward_data": "private_noisy", "reward_noise": 0.1}, "needs sizes"),
    ],
)
def test_refused_in_one_line(changes: dict[str, object], said: str, paper: Paper) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        paper(**changes)
    assert "\n" not in str(refusal.value)
