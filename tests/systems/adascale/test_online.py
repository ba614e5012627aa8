"""AdaScale's per-round problem and Algorithm 1 against 40-digit arithmetic, closed forms and its own properties."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.privacy.moments import sampled_gaussian_log_moment
from otafl.systems.adascale import sweeps, variables
from otafl.systems.adascale.design import (
    Leakage,
    Run,
    Setting,
    adascale_rule,
    algorithm1,
    best_excess,
    certify,
    draw,
    next_queue,
    optimal_excess,
    play,
)
from otafl.systems.adascale.methods import run_epsilon
from otafl.systems.adascale.sweeps import whole_trace

MNIST = Leakage(np.full(10, 0.1445), np.full(10, 0.01))
MIXED = Leakage(np.array([0.1445, 0.02, 3.0]), np.array([0.01, 1e-5, 1.0]), alpha=4)  # very unequal devices
ONE = Leakage(np.array([0.3]), np.array([0.08]))
EQUAL_RATES = Leakage(np.array([0.1, 0.2, 0.4]), np.full(3, 0.05), alpha=2)


def exact_slope(leakage: Leakage, floor: float, queue: float, V: float, y: mp.mpf) -> mp.mpf:
    """Slope of (30) in 40 digits, formula (9) written out naively."""
    alpha, noise, total = leakage.alpha, mp.mpf(floor) + y, mp.mpf(0)
    devices = zip(leakage.unit_noise.tolist(), leakage.rate.tolist())
    for c, q in ((mp.mpf(c), mp.mpf(q)) for c, q in devices):
        weight = [mp.binomial(alpha, k) * (1 - q) ** (alpha - k) * q**k for k in range(alpha + 1)]
        term = [w * mp.e ** (k * (k - 1) / 2 * c / noise) for k, w in enumerate(weight)]
        rise = sum(t * k * (k - 1) / 2 for k, t in enumerate(term)) / sum(term)
        total -= c / noise**2 * rise / (alpha - 1)
    return V * total + queue + y


@pytest.mark.parametrize("leakage", [MNIST, MIXED, ONE, EQUAL_RATES], ids=["mnist", "mixed", "one", "equal"])
def test_excess_is_within_2e_12_of_the_exact_root(leakage):
    """The exact slope changes sign within a relative distance of 2e-12 of the answer, or is not negative at 0."""
    with mp.workdps(40):
        for floor, queue, V in itertools.product((0.003, 0.05, 2.0), (0.0, 0.3), (1e-4, 1.0, 1e3)):
            got = mp.mpf(float(best_excess(leakage, floor, queue, V)))
            if got == 0:
                assert exact_slope(leakage, floor, queue, V, mp.mpf(0)) >= 0
            else:
                assert exact_slope(leakage, floor, queue, V, got * (1 - mp.mpf(2e-12))) < 0
                assert exact_slope(leakage, floor, queue, V, got * (1 + mp.mpf(2e-12))) > 0


def test_excess_agrees_with_the_papers_variable():
    """The root of d(30a)/dx in x = eta / h_min^2, term by term as the paper writes it."""
    from scipy.optimize import brentq

    x_max, noise_over_h2, queue, V, M = 5.19e5, 2e4, 0.02, 1.7, 10
    kappa = 0.1445 / noise_over_h2  # u = kappa x = c / N, N = D / x

    def derivative(x: float) -> float:
        rise = sampled_gaussian_log_moment(0.01, kappa * x, 3).slope
        return V / 2 * M * kappa * rise - noise_over_h2 / x**2 * (queue + noise_over_h2 * (1 / x - 1 / x_max))

    x = brentq(derivative, 1e3, x_max, xtol=1e-9, rtol=1e-14)
    floor = noise_over_h2 / x_max
    assert x_max * floor / (floor + best_excess(MNIST, floor, queue, V)) == pytest.approx(x, rel=1e-11)


def test_newton_does_not_cycle_on_the_s_shaped_slope():
    """This point once sent a bracketed Newton iteration without bisection into a cycle."""
    starts = (None, 0.0639, 0.1, 0.8, 0.9)
    answers = [float(best_excess(MNIST, 0.0098885601, 0.05358888, 0.0198785483, start)) for start in starts]
    assert np.ptp(answers) < 1e-12 and answers[0] == pytest.approx(0.0418384, abs=1e-5)


@pytest.mark.parametrize("alpha", [2, 3, 8, 64])
@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.3, 1.0])
def test_slopes_agree_with_the_accountants_moment(alpha, rate):
    leakage = Leakage(np.full(3, 0.2), np.full(3, rate), alpha)
    noise = np.geomspace(1e-3, 1e2, 25)
    u = 0.2 / noise
    moment = sampled_gaussian_log_moment(rate, u, alpha)
    slope, curvature = leakage.slopes(noise)
    np.testing.assert_allclose(slope, -3 * u / noise * moment.slope / (alpha - 1), rtol=1e-11)
    second = 3 * (u**2 * moment.curvature + 2 * u * moment.slope) / noise**2 / (alpha - 1)
    np.testing.assert_allclose(curvature, second, rtol=1e-7)  # only steers Newton
    np.testing.assert_allclose(leakage.total(noise), 3 * moment.value / (alpha - 1), rtol=1e-13)


def test_full_rate_is_the_plain_gaussian():
    leakage = Leakage(np.full(2, 0.5), np.ones(2), 5)
    assert leakage.total(0.25) == pytest.approx(2 * 5 * (0.5 / 0.25) / 2, rel=1e-14)


positive = st.floats(1e-3, 1e1)
queues = st.one_of(st.just(0.0), st.floats(1e-4, 10.0))
weights = st.floats(1e-6, 1e4)


@settings(max_examples=120, deadline=None)
@given(positive, queues, weights, st.floats(1.0, 3.0))
def test_excess_is_monotone_and_solves_its_equation(floor, queue, V, more):
    y = float(best_excess(MNIST, floor, queue, V))
    slack = 1e-12 * (floor + y)
    assert best_excess(MNIST, floor, queue * more + 0.0, V) <= y + slack
    assert best_excess(MNIST, floor * more, queue, V) <= y + slack
    assert floor * more + best_excess(MNIST, floor * more, queue, V) >= floor + y - slack
    assert best_excess(MNIST, floor, queue, V * more) >= y - slack
    pull = -V * float(MNIST.slopes(floor + y)[0])
    if y > 0:
        assert abs(pull - queue - y) <= 1e-11 * (pull + queue + y)
    else:
        assert pull <= queue


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(1e-4, 1.0), st.floats(1e-5, 1e4), st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_certificates_hold_on_random_traces(rounds, nu, V, seed, warm):
    floors = np.exp(np.random.default_rng(seed).uniform(-6, 2, rounds))
    run = algorithm1(floors, V, nu, MNIST, first_queue=warm)
    proof = certify(run, V, nu, MNIST)
    slack = 1e-9 * (1 + proof.leakage)
    assert np.all(run.excess >= 0)
    np.testing.assert_array_equal(run.queue[1:], next_queue(run.queue[:-1], run.excess, nu))
    assert proof.violation <= proof.violation_bound + 1e-12
    assert proof.final_queue <= proof.queue_bound * (1 + 1e-6) + 1e-6 * (1 + nu)
    assert proof.final_queue <= proof.queue_bound_paper * (1 + 1e-9)
    assert proof.regret <= proof.regret_bound + slack
    assert proof.regret_at_spend >= -slack
    assert proof.leakage <= proof.equal_alloc_bound + slack
    if warm == 0:
        assert proof.regret <= proof.regret_bound_paper + slack


def test_water_filling_has_no_regret_and_noise_spent_evenly_has_some():
    floors = np.exp(np.random.default_rng(1).uniform(-6, 0, 30))
    for excess, best in ((optimal_excess(floors, 0.04), True), (np.full(30, 0.04), False)):
        queue = list(itertools.accumulate(excess, lambda q, y: next_queue(q, y, 0.04), initial=0.0))
        proof = certify(Run(floors, excess, np.array(queue)), 1.0, 0.04, MNIST)
        least = MNIST.total(floors + optimal_excess(floors, 0.04)).mean()
        assert [proof.optimum, proof.optimum_at_spend] == pytest.approx([least] * 2)
        for regret in (proof.regret, proof.regret_at_spend):
            assert regret == pytest.approx(0, abs=1e-12 * proof.leakage) if best else regret > 0.01 * proof.leakage


def test_leading_axes_are_independent_runs():
    floors = np.exp(np.random.default_rng(0).normal(-3, 1, (3, 1, 40)))
    V, nu = np.array([0.1, 10.0]), np.array([0.02, 0.1])
    together = algorithm1(floors, V, nu, MNIST)
    assert together.excess.shape == (3, 2, 40) and together.queue.shape == (3, 2, 41)
    for s in range(3):
        for v in range(2):
            alone = algorithm1(floors[s, 0], V[v], nu[v], MNIST)
            np.testing.assert_allclose(together.excess[s, v], alone.excess, rtol=1e-10, atol=1e-14)


def test_the_present_does_not_depend_on_the_future():
    floors = np.exp(np.random.default_rng(1).normal(-3, 1, 60))
    changed = floors.copy()
    changed[30:] *= 5
    first, second = (play(adascale_rule(MNIST, 1.0, 0.04), f)[0] for f in (floors, changed))
    np.testing.assert_array_equal(first[:30], second[:30])
    assert not np.allclose(first[30:], second[30:])
    both = [algorithm1(f, 1.0, 0.04, MNIST).excess[:30] for f in (floors, changed)]  # all rounds are solved together
    np.testing.assert_allclose(*both, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("case", range(40))
def test_all_rounds_at_once_are_the_rounds_one_after_the_other(case):
    """Newton's method on the whole trajectory against the safeguarded root of every round."""
    rng = np.random.default_rng(case)
    floors, devices = np.exp(rng.normal(-3, 2, int(rng.integers(1, 60)))), int(rng.integers(1, 5))
    alpha = int(rng.choice([2, 3, 4, 8, 32]))
    leakage = Leakage(np.exp(rng.normal(-2, 1.5, devices)), rng.uniform(1e-3, 1, devices), alpha)
    V, nu, first = np.exp(rng.normal(0, 3)), np.exp(rng.normal(-3, 2)), rng.choice([0.0, 1.0])
    limit = np.inf if case % 4 else float(np.median(floors))
    excess, states = play(adascale_rule(leakage, V, nu, first, max_floor=limit), floors)
    run = algorithm1(floors, V, nu, leakage, first, limit)
    np.testing.assert_allclose(run.excess, excess, rtol=1e-9, atol=1e-11 * floors.max())
    np.testing.assert_allclose(run.queue, [state.queue for state in states], rtol=1e-9, atol=1e-11)


def test_the_fast_path_is_taken_and_an_unsettled_one_is_not(monkeypatch):
    floors = np.exp(np.random.default_rng(1).normal(-3, 1, 60))
    lane = [np.array([x]) for x in (1.0, 0.04, 0.0)]
    slow = play(adascale_rule(MNIST, 1.0, 0.04), floors)[0]
    found = whole_trace(floors[:, None], lane[0], lane[1], MNIST, lane[2])
    assert found is not None
    np.testing.assert_allclose(found.excess[:, 0], slow, rtol=1e-11)
    monkeypatch.setattr(sweeps, "ITERATIONS", 1)
    assert whole_trace(floors[:, None], lane[0], lane[1], MNIST, lane[2]) is None
    np.testing.assert_array_equal(algorithm1(floors, 1.0, 0.04, MNIST).excess, slow)


def test_few_lanes_and_many_lanes_have_the_same_bits(monkeypatch):
    rng = np.random.default_rng(4)
    floors = np.exp(rng.normal(-3, 1, (60, 3)))
    lanes = [np.array(x) for x in ([0.3, 1.0, 40.0], [0.04] * 3, [0.0, 0.5, 0.0])]
    few = whole_trace(floors, lanes[0], lanes[1], MNIST, lanes[2], max_floor=0.2)
    monkeypatch.setattr(sweeps, "FEW", 0)
    many = whole_trace(floors, lanes[0], lanes[1], MNIST, lanes[2], max_floor=0.2)
    assert few is not None and many is not None
    np.testing.assert_array_equal(few.excess, many.excess)
    np.testing.assert_array_equal(few.queue, many.queue)


def test_algorithm_one_refuses_a_leakage_that_changes():
    with pytest.raises(InputError, match="one leakage for all rounds"):
        algorithm1(np.ones(3), 1.0, 0.1, Leakage(np.array([[0.1], [0.1], [0.2]]), np.full((3, 1), 0.01)))


def test_cap_zero_is_full_power():
    assert not algorithm1(np.array([0.01, 0.1, 3.0]), 5.0, 0.0, MNIST).excess.any()


def test_vanishing_weight_is_full_power():
    floors = np.geomspace(0.003, 10, 30)
    for V in (1e-6, 1e-12, 1e-100):
        limit = V * -MNIST.slopes(floors)[0]
        assert np.all(algorithm1(floors, V, 0.04, MNIST).excess <= limit * (1 + 1e-12))


def test_a_dominating_floor_leaves_nothing_to_add():
    assert best_excess(MNIST, 1e4, 0.1, 1.0) == 0


def test_equal_devices_count_alike_however_they_are_listed():
    shuffled = Leakage(np.array([0.1, 0.3, 0.1]), np.array([0.01, 0.2, 0.01]))
    parts = [Leakage(np.array([c]), np.array([q])) for c, q in ((0.1, 0.01), (0.3, 0.2))]
    noise = np.geomspace(0.01, 1, 7)
    np.testing.assert_allclose(shuffled.slopes(noise)[0], 2 * parts[0].slopes(noise)[0] + parts[1].slopes(noise)[0])
    np.testing.assert_allclose(shuffled.per_device(noise)[:, 0], shuffled.per_device(noise)[:, 2])
    assert shuffled.per_device(noise).shape == (7, 3)


@pytest.mark.parametrize("alpha", [1, 2.5, 0, True, math.nan, math.inf])
def test_non_integer_orders_are_refused(alpha):
    with pytest.raises(InputError, match="alpha"):
        Leakage(np.ones(2), np.full(2, 0.1), alpha)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_rates_outside_the_unit_interval_are_refused(rate):
    with pytest.raises(InputError, match="q"):
        Leakage(np.ones(2), np.full(2, rate))


def test_single_precision_is_refused():
    setting = Setting(M=2, T=3, d=10, n=50, B=5, G=1.0)
    deployment, message = setting.deployment(), setting.message()
    gain = draw(setting, 0).gain
    for wrong, word in (
        (lambda: Leakage(np.full(2, 0.1, np.float32), np.full(2, 0.01)), "unit_noise"),
        (lambda: Leakage(np.full(2, 0.1), np.full(2, 0.01, np.float32)), "q"),
        (lambda: variables.noise_floor(gain.astype(np.complex64), deployment, message), "gain"),
        (lambda: run_epsilon(np.ones(3, np.float32), deployment, message, 1e-5), "noise"),
    ):
        with pytest.raises(InputError, match=f"{word} has dtype"):
            wrong()


def test_gains_of_other_devices_are_refused():
    setting = Setting(M=2, T=3, d=10, n=50, B=5, G=1.0)
    for shape in ((3, 4), (3, 1), ()):
        with pytest.raises(InputError, match="last axis must be the 2 devices"):
            variables.noise_floor(np.ones(shape), setting.deployment(), setting.message())


BAD_RUNS = [([0.1, 0], 1, 0.1), ([0.1, math.inf], 1, 0.1), ([0.1], 0, 0.1), ([0.1], 1, -0.1), ([0.1], math.nan, 0.1)]


@pytest.mark.parametrize(("floors", "V", "nu"), BAD_RUNS)
def test_bad_runs_are_refused(floors, V, nu):
    with pytest.raises(InputError):
        algorithm1(np.array(floors), V, nu, MNIST)


def test_optimum_is_never_beaten():
    floors = np.exp(np.random.default_rng(3).normal(-3, 1, 80))
    run = algorithm1(floors, 0.7, 0.04, MNIST)
    best = optimal_excess(floors, run.excess.mean())
    assert MNIST.total(floors + best).sum() <= MNIST.total(run.noise).sum()
