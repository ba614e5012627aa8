"""Feasible sets against brute force on fine grids, their monotonicity, and Corollary 2.3."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.systems.cares.certifier import (
    eta_budget,
    eta_LT,
    eta_P,
    eta_Q,
    eta_U,
    feasible_sets,
    grid_sets,
    is_upper_interval,
)
from otafl.systems.cares.intervals import below, first_true, intersect, last_true


def inside(union, points):
    return np.any([(points >= low) & (points <= high) for low, high in union] or [np.zeros(points.shape, bool)], axis=0)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("target", [20.0, 60.0, 300.0, 1e-3])
def test_intervals_agree_with_brute_force(paper, target, independent):
    problem = paper(max_power=0.02, independent_channels=independent)
    sets = feasible_sets(problem, 300, target, 0.05, 30.0)
    points = np.geomspace(0.05, 30.0, 5003)
    grid = grid_sets(problem, points, 300, target)
    for name in "CPQUF":
        assert np.array_equal(inside(getattr(sets, name), points), getattr(grid, name)), name


def test_asymmetry_has_a_second_piece_that_dropped_weight_removes(paper):
    sets = feasible_sets(paper(max_power=0.01), 10, 1e9, 0.01, 100.0)
    assert len(sets.Q) == 2
    assert sets.Q[1][1] == 100.0
    assert len(intersect(sets.Q, sets.U)) == 1


def test_privacy_end_at_600_rounds(paper):
    """CARES E17: at a fixed horizon of 600 rounds the set ends at 0.308 and excludes 0.40."""
    assert eta_P(paper(), 600) == pytest.approx(0.308, abs=5e-4)
    assert eta_P(paper(), 600) == pytest.approx(0.05 * math.sqrt(paper().zcdp_budget / 1200) / 0.09)


def test_ends_lie_on_their_constraints(paper):
    problem = paper(max_power=0.05)
    assert problem.dropped_weight(eta_U(problem)) == pytest.approx(0.1, rel=1e-12)
    assert problem.asymmetry(eta_Q(problem)) == pytest.approx(0.1, rel=1e-12)
    assert 600 * problem.zcdp_cost(eta_P(problem, 600)) == pytest.approx(problem.zcdp_budget, rel=1e-12)


def test_constraints_that_never_bind(paper):
    assert eta_U(paper(max_dropped=1.0)) == math.inf
    assert eta_Q(paper(max_asymmetry=1.0)) == math.inf
    assert eta_Q(paper(weights=np.full(20, 0.05), channel_scale=np.ones(20), max_asymmetry=0.0)) == math.inf
    assert eta_U(paper(max_dropped=0.0)) == eta_Q(paper(max_asymmetry=0.0)) == 0


def test_best_point_is_the_minimiser(paper):
    problem = paper(max_power=0.2, max_dropped=1.0, max_asymmetry=1.0, noise_std=0.01, eps_target=5e3)
    sets = feasible_sets(problem, 1, 1e4, 0.05, 4.0)
    assert sets.F[0][0] < sets.eta_best < sets.F[-1][1]
    points = np.concatenate([np.linspace(*piece, 20001) for piece in sets.F])
    assert problem.round_cost(sets.eta_best) <= problem.round_cost(points).min() * (1 + 1e-12)


def test_low_truncation_design_is_a_projection(paper):
    problem = paper()
    sets = feasible_sets(problem, 600, 302.0, 0.25, 0.4)
    assert eta_LT(problem) > sets.F[-1][1] == sets.eta_LT_feasible


FIXED = {"rounds": 200, "conv_target": 300.0, "eta_min": 0.02, "eta_max": 20.0}


def width(union):
    return sum(math.log(high / low) for low, high in union)


@given(st.floats(0.01, 0.2), st.floats(1.0, 3.0))
@settings(max_examples=25, deadline=None)
def test_more_noise_never_enlarges_C(paper, noise, factor):
    quiet, loud = (feasible_sets(paper(noise_std=s), **FIXED).C for s in (noise, noise * factor))
    assert all(any(a <= low and high <= b for a, b in quiet) for low, high in loud)


@given(st.floats(1.0, 600.0), st.floats(1.0, 3.0))
@settings(max_examples=25, deadline=None)
def test_more_eps_never_shrinks_P(paper, eps, factor):
    assert eta_P(paper(eps_target=eps * factor), 200) >= eta_P(paper(eps_target=eps), 200)


@pytest.mark.parametrize(("name", "key"), [("max_dropped", "U"), ("max_asymmetry", "Q")])
@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_looser_participation_never_shrinks_its_set(paper, name, key, one, two):
    tight, loose = (
        getattr(feasible_sets(paper(max_power=0.01, **{name: x}), **FIXED), key) for x in sorted((one, two))
    )
    assert width(tight) <= width(loose) + 1e-9


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("eta_max", [0.4, 2.0, 4.0, 10.0, 30.0])
def test_corollary_2_3_against_differences(paper, eta_max, independent):
    problem = paper(max_power=0.3, independent_channels=independent)
    points = np.geomspace(0.1, eta_max, 4001)
    falls = bool(np.all(np.diff(problem.round_cost(points)) <= 0))
    assert is_upper_interval(problem, 0.1, eta_max) is falls


def test_corollary_2_3_gives_an_upper_interval(paper):
    sets = feasible_sets(paper(), 600, 250.0, 0.1, 1.0)
    assert sets.C_is_upper
    assert len(sets.C) == 1
    assert sets.C[0][1] == 1.0
    assert paper().conv_bound(sets.C[0][0], 600).total == pytest.approx(250.0)


def test_closed_forms_of_the_paper_setting(paper):
    """CARES 3.6: eta_budget for three smoothness values, main and tight."""
    for smoothness, main, tight in ((1 / 1.2, 1.96, 1.25), (0.1, 1.16, 0.74), (0.01, 0.65, 0.42)):
        problem = paper(smoothness=smoothness)
        assert eta_budget(problem) == pytest.approx(main, rel=0.02)
        assert eta_budget(replace(problem, constants="tight")) == pytest.approx(tight, rel=0.02)
    assert eta_LT(paper()) == pytest.approx(4.9, rel=0.1)


def test_closed_form_minimises_the_exact_cost_when_few_are_dropped(paper):
    problem = paper(max_power=1e4, noise_std=0.001)
    eta = np.geomspace(0.1, 10, 4001) * eta_LT(problem)
    assert eta[np.argmin(problem.round_cost(eta))] == pytest.approx(eta_LT(problem), rel=0.01)


def test_budget_form_minimises_the_bound_at_its_own_horizon(paper):
    problem = paper(loss_gap=3.0, smoothness=0.01, grad_var=0.0)
    eta = np.geomspace(0.2, 2.0, 2001)
    bound = problem.conv_bound(eta, np.floor(problem.zcdp_budget / problem.zcdp_cost(eta))).total
    assert eta[np.argmin(bound)] == pytest.approx(eta_budget(problem), rel=0.05)


def test_refused(paper):
    with pytest.raises(InputError, match="eta_min"):
        feasible_sets(paper(), 10, 1.0, 0.5, 0.4)
    with pytest.raises(InputError, match="rounds"):
        feasible_sets(paper(), 0, 1.0, 0.3, 0.4)


def test_below_finds_a_dip_between_points():
    union = below(lambda x: (x - 0.55) ** 2, 1e-4, np.linspace(0, 1, 6))
    assert np.array(union) == pytest.approx(np.array([[0.54, 0.56]]))


def test_switch_points_are_exact_to_the_last_bit():
    assert last_true(lambda x: x <= 0.3, 0.0, 1.0) == 0.3
    assert first_true(lambda x: x >= 0.3, 0.0, 1.0) == 0.3
