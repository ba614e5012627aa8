"""The offline optimum: water-filling against dual bisection, generic solvers and its defining properties."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from otafl.core.errors import InputError
from otafl.systems.adascale.design import Leakage, best_excess_offline, dual_excess, optimal_excess, water_level
from otafl.systems.adascale.offline import fill

MNIST = Leakage(np.full(10, 0.1445), np.full(10, 0.01))


def traces(seed: int, rounds: int) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(-3, 1.2, rounds))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 80), st.floats(0, 3), st.integers(0, 10**6))
def test_level_spends_the_cap_exactly(rounds, nu, seed):
    floors = traces(seed, rounds)
    excess = optimal_excess(floors, nu)
    assert excess.mean() == pytest.approx(nu, rel=1e-12, abs=1e-15)
    assert np.all(excess >= 0)


def test_level_is_vectorised_and_fast():
    floors = np.stack([traces(s, 500) for s in range(6)]).reshape(2, 3, 500)
    nu = np.array([0.01, 0.1])[:, None]
    level = water_level(floors, nu)
    for i in range(2):
        for j in range(3):
            assert level[i, j] == water_level(floors[i, j], nu[i, 0])
    one, best = floors[0, 0], np.inf
    for _ in range(20):
        start = time.perf_counter()
        optimal_excess(one, 0.04)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-2  # 0.1 ms when idle; a hundredfold slip would be a changed algorithm


@pytest.mark.parametrize("nu", [1e-3, 0.04, 0.5])
@pytest.mark.parametrize("alpha", [2, 3, 7])
def test_dual_form_agrees_with_water_filling(nu, alpha):
    leakage = Leakage(np.array([0.1445, 0.5]), np.array([0.01, 0.2]), alpha)
    floors = traces(5, 60)
    np.testing.assert_allclose(dual_excess(floors, nu, leakage), optimal_excess(floors, nu), atol=1e-9 * nu)


def test_dual_form_for_leakage_that_changes_over_time():
    """KKT: one price for every round with an excess, a lower marginal gain where there is none."""
    rng = np.random.default_rng(2)
    floors = traces(2, 30)
    leakage = Leakage(rng.uniform(0.05, 0.4, (30, 4)), rng.uniform(0.005, 0.1, (30, 4)), 3)
    excess = dual_excess(floors, 0.05, leakage)
    assert excess.mean() == pytest.approx(0.05, rel=1e-9)
    gain = -leakage.slopes(floors + excess)[0]
    price = gain[excess > 0]
    assert np.ptp(price) < 1e-6 * price.mean()
    assert np.all(gain[excess == 0] <= price.mean() * (1 + 1e-9))
    common = optimal_excess(floors, 0.05)
    assert leakage.total(floors + excess).sum() < leakage.total(floors + common).sum()


def test_dual_form_against_a_generic_solver():
    rng = np.random.default_rng(4)
    floors = rng.uniform(0.05, 0.4, 6)
    leakage = Leakage(rng.uniform(0.1, 0.3, (6, 3)), rng.uniform(0.01, 0.1, (6, 3)), 4)
    nu = 0.1
    found = minimize(
        lambda y: 1e3 * leakage.total(floors + y).sum(),
        np.full(6, nu),
        jac=lambda y: 1e3 * leakage.slopes(floors + y)[0],
        bounds=[(0, None)] * 6,
        constraints={"type": "ineq", "fun": lambda y: 6 * nu - y.sum(), "jac": lambda y: -np.ones(6)},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 500},
    )
    np.testing.assert_allclose(dual_excess(floors, nu, leakage), found.x, atol=2e-6)


@pytest.mark.slow
def test_water_filling_against_a_cone_solver():
    cp = pytest.importorskip("cvxpy")
    floors, nu, alpha, q, c = traces(9, 8), 0.05, 3, 0.01, 0.1445
    k = np.arange(alpha + 1)
    log_weight = np.log([(1 - q) ** 3, 3 * q * (1 - q) ** 2, 3 * q**2 * (1 - q), q**3])
    z = cp.Variable(8)
    loss = sum(cp.log_sum_exp(log_weight + k * (k - 1) / 2 * (c / f) * z[t]) for t, f in enumerate(floors))
    spend = sum(f * (cp.inv_pos(z[t]) - 1) for t, f in enumerate(floors))
    cp.Problem(cp.Minimize(loss), [spend <= 8 * nu, z <= 1]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(floors / z.value - floors, optimal_excess(floors, nu), atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.floats(1e-3, 1), st.integers(0, 10**6), st.integers(2, 6))
def test_the_schedule_is_optimal_for_every_order_and_device(rounds, nu, seed, alpha):
    """Random feasible moves from the optimum never gain, whatever the order or the device."""
    rng = np.random.default_rng(seed)
    floors = traces(seed, rounds)
    best = optimal_excess(floors, nu)
    other = rng.dirichlet(np.ones(rounds)) * rounds * nu
    leakage = Leakage(rng.uniform(0.02, 1, 3), rng.uniform(0.001, 1, 3), alpha)
    at_best = leakage.per_device(floors + best).sum(0)
    for share in (1e-3, 0.1, 1.0):
        moved = leakage.per_device(floors + (1 - share) * best + share * other).sum(0)
        assert np.all(at_best <= moved * (1 + 1e-9))


def test_any_constant_level_is_optimal_for_what_it_spends():
    floors = traces(7, 100)
    spent = fill(floors, 0.2)
    np.testing.assert_allclose(optimal_excess(floors, spent.mean()), spent, atol=1e-14)


def test_cap_zero_is_full_power():
    floors = traces(1, 20)
    assert not optimal_excess(floors, 0.0).any() and not dual_excess(floors, 0.0, MNIST).any()


def test_bad_inputs_are_refused():
    with pytest.raises(InputError, match="nu"):
        water_level(np.ones(3), -1.0)
    with pytest.raises(InputError, match="floor"):
        water_level(np.array([1.0, np.inf]), 0.1)
    with pytest.raises(InputError, match="shape"):
        dual_excess(np.ones((2, 3)), 0.1, MNIST)


def test_the_optimum_switches_to_the_dual_form_where_the_devices_change():
    floors = np.exp(np.random.default_rng(0).normal(-3, 1, 12))
    c = np.full((12, 2), 0.1)
    same, changed = Leakage(c, np.full((12, 2), 0.01)), Leakage(np.where(np.arange(12)[:, None] < 6, c, 3 * c), 0.01)
    assert not same.changes and changed.changes and not MNIST.changes
    np.testing.assert_array_equal(best_excess_offline(floors, 0.05, same), optimal_excess(floors, 0.05))
    best = best_excess_offline(floors, 0.05, changed)
    assert best.mean() == pytest.approx(0.05, rel=1e-9)
    assert changed.total(floors + best).sum() < changed.total(floors + optimal_excess(floors, 0.05)).sum() * (1 - 1e-3)
