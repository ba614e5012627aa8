import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.privacy import zcdp


def test_published_budget():
    """CARES check 1: the value that a damaged formula misses."""
    assert zcdp.classic_budget(500.0, 1e-5) == pytest.approx(369.54607786, abs=5e-9)


@given(eps=st.floats(1e-6, 1e4), delta=st.floats(1e-12, 0.5))
def test_classic_round_trip(eps, delta):
    assert zcdp.classic_eps(zcdp.classic_budget(eps, delta), delta) == pytest.approx(eps, rel=1e-12)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 1.0, 30.0, 369.546])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_optimal_conversion_is_the_best_over_a_dense_list_of_orders(rho, delta):
    orders = 1 + np.logspace(-3, 5, 20000)
    best, _ = reference.compute_epsilon(orders, rho * orders, delta)
    found = zcdp.optimal_eps(rho, delta)
    assert found <= best + 1e-12 or best == 0
    assert found == pytest.approx(best, rel=1e-6, abs=1e-9) or best == 0


def test_optimal_published_values():
    """CARES E12."""
    assert zcdp.optimal_eps([369.54607786, 1.0], 1e-5) == pytest.approx([497.18, 7.08], abs=5e-3)


@settings(deadline=None)
@given(eps=st.floats(1e-3, 1e3), delta=st.floats(1e-10, 0.1))
def test_optimal_budget_is_safe_and_tight(eps, delta):
    rho = zcdp.optimal_budget(eps, delta)
    assert zcdp.optimal_eps(rho, delta) <= eps
    assert zcdp.optimal_eps(rho * (1 + 1e-9), delta) > eps * (1 - 1e-6)
    assert rho >= zcdp.classic_budget(eps, delta)


@pytest.mark.parametrize(("rx_scale", "rounds"), [(0.25, 912), (0.293, 664), (0.40, 356)])
def test_published_horizons(rx_scale, rounds):
    """CARES E2 at p_max = 0.09, noise std 0.05, G = 1."""
    cost = 2 * rx_scale**2 * 0.09**2 / 0.05**2
    assert zcdp.horizon(float(zcdp.classic_budget(500.0, 1e-5)), cost) == rounds


@given(budget=st.floats(1e-6, 1e6), cost=st.floats(1e-3, 1e6))
def test_horizon_is_the_largest_strict_sum(budget, cost):
    rounds = zcdp.horizon(budget, min(cost, budget * 10))
    cost = min(cost, budget * 10)
    if rounds < 20000:
        assert math.fsum([cost] * rounds) <= budget < math.fsum([cost] * (rounds + 1))


def test_bad_inputs():
    with pytest.raises(InputError, match="eps=0"):
        zcdp.classic_budget(0.0, 1e-5)
    with pytest.raises(InputError, match="rho"):
        zcdp.classic_eps(-1.0, 1e-5)
    assert zcdp.classic_eps(np.inf, 1e-5) == zcdp.optimal_eps(np.inf, 1e-5) == np.inf


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40), st.integers(-3, 3))
def test_columns_are_held_to_the_cap_by_their_strict_sums(costs, steps):
    """At the cap itself and a few doubles around it, where a float64 sum alone would decide wrongly."""
    column = np.array(costs)
    table = np.stack([column, column / 3, column[::-1]], axis=1)
    cap = math.fsum(costs)
    for _ in range(abs(steps)):
        cap = float(np.nextafter(cap, np.inf if steps > 0 else -np.inf))
    assert zcdp.within(table, cap) == all(math.fsum(c) <= cap for c in table.T)


WIDE = st.lists(st.builds(math.ldexp, st.integers(0, 2**53), st.integers(-1074, 900)), max_size=60)
HALVES = st.lists(st.sampled_from([1.0, 2.0**-53, 2.0**-54, 3 * 2.0**-53, 2.0**-106, 0.1, 5e-324]), max_size=60)


@settings(deadline=None, max_examples=500)
@given(st.one_of(WIDE, HALVES, st.lists(st.floats(0, 1e3), max_size=60)))
def test_strict_sums_are_correctly_rounded(costs):
    """Also half-way between two doubles, and where small costs are lost in large ones."""
    column = np.array(costs, float)
    table = np.stack([column, column[::-1], np.sort(column), np.full(len(column), 0.1)], axis=1)
    assert zcdp.strict_sums(table).tolist() == [math.fsum(c) for c in table.T]


def test_a_cost_without_end_is_the_sum():
    costs = np.array([[1.0, np.inf, 1e308], [2.0, 1.0, 1e308]])
    assert zcdp.strict_sums(costs).tolist() == [3.0, np.inf, np.inf]
