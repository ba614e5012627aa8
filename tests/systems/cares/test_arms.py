"""Certified initialisation: published horizons and arm counts, edges, ties, infeasible reports, relaxations."""

import math
from dataclasses import replace

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.systems.cares.certifier import (
    NO_CERTIFICATE,
    auto_grid,
    certify,
    conv_budget,
    evaluate_arms,
    nearest_arm,
    relaxations,
)
from otafl.systems.cares.summary import summarise


def test_budget_of_the_paper(paper):
    assert paper().zcdp_budget == pytest.approx(369.54607786, abs=5e-9)
    assert paper().eps_of(paper().zcdp_budget) == pytest.approx(500, rel=1e-12)
    exact = paper(accounting="gaussian")
    assert exact.zcdp_budget == pytest.approx(382.9061, abs=5e-5)
    assert exact.eps_of(paper().zcdp_budget) == pytest.approx(484.5639, abs=5e-5)


def test_horizons_of_the_paper(paper):
    """CARES E2, and E12 with exact accounting."""
    assert evaluate_arms(paper(), [0.25, 0.293, 0.40]).horizon.tolist() == [912, 664, 356]
    assert evaluate_arms(paper(accounting="gaussian"), [0.293, 0.40]).horizon.tolist() == [688, 369]
    femnist = paper(p_max=0.022, num_clients=100, noise_std=0.03)
    assert evaluate_arms(femnist, [0.293, 0.40]).horizon.tolist() == [4002, 2147]


def test_exactly_the_horizon_fits_a_strict_ledger(paper, arms):
    problem = paper()
    table = evaluate_arms(problem, arms)
    for cost, rounds in zip(table.zcdp_cost.tolist(), table.horizon.tolist(), strict=True):
        assert math.fsum([cost] * rounds) <= problem.zcdp_budget < math.fsum([cost] * (rounds + 1))


@pytest.mark.parametrize(
    ("grad_var", "noises", "counts"), [(1.0, (0.05, 0.06, 0.08), (8, 4, 0)), (600.0, (0.05, 0.11, 0.15), (10, 3, 0))]
)
def test_noise_sweep_with_a_frozen_target(paper, arms, grad_var, noises, counts):
    """CARES E7: wide, narrow, empty."""
    target = certify(paper(grad_var=grad_var), arms).conv_target
    found = [certify(paper(grad_var=grad_var, noise_std=s), arms, target).verdict.feasible.sum() for s in noises]
    assert tuple(found) == counts


def test_paper_choice_sits_on_the_grid_edge(paper, arms):
    """CARES E5."""
    answer = certify(paper(), arms)
    assert answer.eta_init == arms[-1]
    assert any("grid edge" in line and "upper" in line for line in answer.warnings)
    assert any("not informative" in line for line in answer.warnings)


@pytest.mark.parametrize(("loss_gap", "expected"), [(math.log(10), 0.367), (3.0, 0.333)])
def test_choice_moves_inside_for_small_smoothness(paper, arms, loss_gap, expected):
    """CARES E5 at L = 0.001."""
    answer = certify(paper(smoothness=0.001, loss_gap=loss_gap), arms)
    assert answer.eta_init == pytest.approx(expected, abs=5e-4)
    assert not any("grid edge" in line for line in answer.warnings)


def test_default_target_is_twice_the_best_bound(paper, arms):
    answer = certify(paper(), arms)
    assert answer.conv_target == 2 * answer.arms.conv_bound.total.min()
    assert not answer.conv_target_given


def test_permuted_clients_give_the_same_answer(paper, arms):
    problem = paper(certify_with="limits", mu_low=np.full(20, 0.19), mu_high=np.linspace(1.0, 1.2, 20))
    order = np.random.default_rng(0).permutation(20)
    changes = {name: getattr(problem, name)[order] for name in ("weights", "channel_scale", "mu_low", "mu_high")}
    one, two = certify(problem, arms), certify(replace(problem, **changes), arms)
    assert one.arms.conv_bound.total == pytest.approx(two.arms.conv_bound.total, rel=1e-13)
    assert np.array_equal(one.arms.horizon, two.arms.horizon)
    assert np.array_equal(one.verdict.passes, two.verdict.passes)
    assert one.eta_init == two.eta_init


def test_ties_go_to_the_smaller_arm(paper):
    """With everybody dropped and all other terms lost in rounding, the bounds are the same number."""
    problem = paper(smoothness=1e-30, loss_gap=0.0, max_dropped=1.0, max_asymmetry=1.0, eps_target=1e12)
    answer = certify(problem, [1e3, 2e3, 3e3])
    assert np.ptp(answer.arms.conv_bound.total) == 0
    assert answer.init == 0


def test_margins_and_binding_constraint(paper, arms):
    problem = paper(max_power=0.1)
    answer = certify(problem, arms, conv_target=200.0)
    values = [answer.arms.conv_bound.total, answer.arms.zcdp_cost, answer.arms.asymmetry, answer.arms.dropped_weight]
    targets = [200.0, problem.zcdp_budget, 0.1, 0.1]
    for i, (value, target) in enumerate(zip(values, targets, strict=True)):
        assert answer.verdict.margin[:, i] == pytest.approx(target - value)
        assert np.array_equal(answer.verdict.passes[:, i], value <= target)
    names = np.array(["conv_target", "eps_target", "max_asymmetry", "max_dropped"])
    worst = np.argmax(np.stack(values, -1) / targets, -1)
    assert answer.verdict.binding == names[worst].tolist()


def test_infeasible_is_a_report(paper, arms):
    answer = certify(paper(max_power=0.001), arms)
    assert (answer.label, answer.init, answer.feasible) == (NO_CERTIFICATE, None, False)


def test_diagnostic_goes_on_from_the_median_arm_and_says_so(paper, arms):
    answer = certify(paper(max_power=0.001), arms, diagnostic=True)
    assert answer.eta_init == arms[5]
    assert summarise(paper(max_power=0.001), answer)["label"] == NO_CERTIFICATE


def test_budget_below_one_round_is_infeasible_not_an_error(paper, arms):
    problem = paper(eps_target=1e-3)
    answer = certify(problem, arms)
    assert np.all(answer.arms.horizon == 0)
    assert np.all(np.isinf(answer.arms.conv_bound.total))
    assert not answer.feasible
    needed = {r.target: r.value for r in relaxations(problem, answer)}
    assert certify(replace(problem, eps_target=needed["eps_target"]), arms).feasible
    assert nearest_arm(problem, answer).needs["eps_target"] > problem.eps_target


@pytest.mark.parametrize(
    ("changes", "conv_target", "name"),
    [
        ({}, 100.0, "conv_target"),
        ({"eps_target": 3.0}, 160.0, "eps_target"),
        ({"eps_target": 20.0}, 160.0, "conv_target"),
        ({"max_asymmetry": 1e-3}, 500.0, "max_asymmetry"),
        ({"max_dropped": 1e-4}, 500.0, "max_dropped"),
    ],
)
def test_a_relaxation_is_enough_and_nothing_less_is(paper, arms, changes, conv_target, name):
    problem = paper(**changes)
    answer = certify(problem, arms, conv_target)
    assert not answer.feasible
    relaxed = {r.target: r for r in relaxations(problem, answer)}[name]

    def feasible(value):
        if name == "conv_target":
            return certify(problem, arms, value).feasible
        return certify(replace(problem, **{name: value}), arms, conv_target).feasible

    assert feasible(relaxed.value)
    assert not feasible(relaxed.value * (1 - 1e-6))
    assert str(relaxed).startswith(f"feasible if {name} >= ")


def test_the_needs_of_the_nearest_arm_are_enough(paper):
    """To the last bit: sums over columns of arms and over one arm alone may round differently."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        grid = np.sort(10 ** rng.uniform(-1, 1.5, 5))
        problem = paper(max_power=10 ** rng.uniform(-4, -2), max_asymmetry=0.01, max_dropped=0.01)
        answer = certify(problem, grid, conv_target=1.0)
        if answer.feasible:
            continue
        needs = dict(nearest_arm(problem, answer).needs)
        conv_target = needs.pop("conv_target", 1.0)
        assert certify(replace(problem, **needs), grid, conv_target).feasible


def test_no_single_relaxation(paper, arms):
    problem = paper(max_power=0.001)
    answer = certify(problem, arms, conv_target=1.0)
    assert all(r.value is None for r in relaxations(problem, answer))
    needs = nearest_arm(problem, answer).needs
    assert set(needs) == {"conv_target", "max_asymmetry", "max_dropped"}
    assert certify(
        replace(problem, max_asymmetry=needs["max_asymmetry"], max_dropped=needs["max_dropped"]),
        arms,
        needs["conv_target"],
    ).feasible


def test_auto_grid_reaches_every_end_and_contains_the_optimum(paper):
    problem = paper(smoothness=0.01)
    grid = auto_grid(problem, 40)
    answer = certify(problem, grid)
    assert len(grid) == 40
    assert np.all(answer.verdict.passes[:, 1:])
    assert 0 < answer.init < 39
    assert answer.eta_init == pytest.approx(0.65, rel=0.1)  # where CARES 3.6 puts the budget-aware optimum
    above = certify(problem, [grid[-1] * 1.001])
    assert not above.verdict.passes[0, 1:].all()


PRIVATE_REWARD = {"reward_data": "private_noisy", "reward_noise": 0.3, "sizes": np.full(10, 600)}


@pytest.mark.parametrize("reward", [{}, PRIVATE_REWARD])
@pytest.mark.parametrize("rounds", [60, 200])
def test_auto_grid_starts_where_the_rounds_spend_the_budget(paper, reward, rounds):
    """Against the accountant: so many rounds of the first arm fit, one more does not."""
    problem = paper(smoothness=0.01, num_clients=10, **reward)
    free, bounded = auto_grid(problem, 10), auto_grid(problem, 10, rounds=rounds)
    assert free[0] < bounded[0] < bounded[-1] == free[-1]
    assert evaluate_arms(problem, bounded).horizon[0] == rounds


def test_auto_grid_starts_near_its_end_where_no_arm_spends_the_budget(paper):
    grid = auto_grid(paper(smoothness=0.01), 10, rounds=2)
    assert grid[0] == pytest.approx(0.9 * grid[-1])


def test_auto_grid_refuses_an_empty_range(paper):
    with pytest.raises(InputError, match="eta_min"):
        auto_grid(paper(), 10, eta_min=100.0)


def test_edge_warning_names_the_constraint_that_stops_the_grid(paper):
    problem = paper()
    answer = certify(problem, auto_grid(problem))
    assert any("beyond it max_asymmetry ends" in line for line in answer.warnings)


class TestConvBudget:
    """App. E.4 before training."""

    def test_start_of_the_filter(self, paper, arms):
        found = conv_budget(paper(), arms, 300, 302.0)
        assert found.conv_left_0 == pytest.approx(300 * (302.0 - 4 * math.log(10) / 30 - 1.0))

    def test_one_arm_that_affords_everything_is_sufficient(self, paper, arms):
        problem = paper()
        found = conv_budget(problem, arms, 300, 302.0)
        assert found.held == "sufficient"
        for eta in arms[found.sufficient]:
            assert problem.conv_bound(eta, 300).total <= 302.0
            assert 300 * problem.zcdp_cost(eta) <= problem.zcdp_budget

    def test_necessary_is_not_sufficient(self, paper, arms):
        """At 600 rounds only arms up to 0.308 are private, only arms from 0.36 on converge: both need a mixture."""
        found = conv_budget(paper(), arms, 600, 190.0)
        assert (found.held, found.necessary, found.sufficient.any()) == ("necessary", True, False)

    @pytest.mark.parametrize(
        ("rounds", "target", "reason"),
        [(10, 1.0, "conv_left_0"), (2000, 400.0, "zcdp_cost"), (300, 100.0, "round_cost")],
    )
    def test_infeasible_says_why(self, paper, arms, rounds, target, reason):
        found = conv_budget(paper(), arms, rounds, target)
        assert found.held == "infeasible"
        assert any(reason in line for line in found.reasons)

    def test_no_safe_arm(self, paper, arms):
        assert conv_budget(paper(max_power=0.001), arms, 10, 1e9).held == "infeasible"
