import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from otafl.core.errors import InputError
from otafl.privacy import (
    gaussian,
    hidden_replace_rdp,
    moments,
    pld_eps,
    rdp_to_eps,
    run_rdp,
    sampled_gaussian_rdp,
    visible_eps,
    visible_rdp,
)
from otafl.privacy.participation import charged

ORDERS = [1.5, 2.0, 3.0, 8.0, 20.0]


def test_check_values():
    """CDPB section 10."""
    assert visible_rdp(0.5, sampled_gaussian_rdp(1.0, 3.0, [3]), [3])[0] == pytest.approx(0.0902459, abs=5e-8)
    assert hidden_replace_rdp(0.5, 1.5, [3])[0] == pytest.approx(0.162203, abs=5e-7)


@settings(max_examples=30, deadline=None)
@given(prob=st.floats(0.01, 0.99), z=st.floats(0.3, 20))
def test_seeing_more_never_costs_less(prob, z):
    """hidden <= visible <= none (CDPB acceptance)."""
    plain = sampled_gaussian_rdp(1.0, z, ORDERS)
    visible = visible_rdp(prob, plain, ORDERS)
    hidden = sampled_gaussian_rdp(prob, z, ORDERS)
    assert np.all(hidden <= visible * (1 + 1e-12))
    assert np.all(visible <= plain * (1 + 1e-12))


@pytest.mark.parametrize(("prob", "z", "order"), [(0.5, 1.5, 3.0), (0.1, 0.4, 2.5), (0.9, 4.0, 1.3)])
def test_antipodal_pair_against_quadrature(prob, z, order):
    shift = 0.5 / z
    normal = lambda x, m: np.exp(-((x - m) ** 2) / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    plus = lambda x: (1 - prob) * normal(x, 0) + prob * normal(x, shift)  # noqa: E731
    minus = lambda x: (1 - prob) * normal(x, 0) + prob * normal(x, -shift)  # noqa: E731
    value, _ = quad(lambda x: plus(x) ** order * minus(x) ** (1 - order), -15, 20, epsabs=0, epsrel=1e-12, limit=500)
    assert hidden_replace_rdp(prob, z, [order])[0] == pytest.approx(np.log(value) / (order - 1), rel=1e-8)


@pytest.mark.parametrize("prob", [0.01, 0.3, 0.999])
def test_the_antipodal_pair_under_little_noise_is_the_integral_from_above(prob, monkeypatch):
    orders = np.array([1.1, 2.5, 8.0, 63.0])
    above = moments.antipodal(prob, 9.0, orders)
    monkeypatch.setattr(moments, "SERIES_FROM", np.inf)
    exact = moments.antipodal(prob, 9.0, orders)
    assert np.all(above >= exact * (1 - 1e-12)) and above == pytest.approx(exact, rel=3e-6)


def test_the_antipodal_pair_without_any_noise_to_speak_of_takes_no_memory():
    """It used to ask for nodes in proportion to 1/z^2: gigabytes at z = 0.001."""
    tracemalloc.start()
    found = hidden_replace_rdp(0.5, 1e-6, ORDERS)
    assert (
        tracemalloc.get_traced_memory()[1] < 2**24 and np.all(found <= np.array(ORDERS) / 2e-12) and np.all(found > 1e9)
    )
    tracemalloc.stop()


def test_visible_does_not_overflow_and_respects_the_ends():
    huge = np.full(len(ORDERS), 1e4)
    assert visible_rdp(0.5, huge, ORDERS) == pytest.approx(1e4 + np.log(0.5) / (np.array(ORDERS) - 1))
    assert np.all(visible_rdp(0.0, huge, ORDERS) == 0)
    assert visible_rdp(1.0, huge, ORDERS) == pytest.approx(huge)


def test_realised_charges_only_possible_rounds(make_events):
    z = np.full((6, 2), 2.0)
    possible = np.arange(12).reshape(6, 2) % 3 > 0
    run = make_events(z, possible=possible)
    assert np.array_equal(charged(run, "realised"), np.where(possible, 0.25, 0.0))
    expected = possible.sum(0)[:, None] * np.asarray(ORDERS) / 8
    assert run_rdp(run, "realised", ORDERS) == pytest.approx(expected)


def test_visible_and_hidden_add_over_rounds(make_events):
    rng = np.random.default_rng(0)
    z, prob = rng.uniform(1, 3, (5, 2)), rng.random((5, 2))
    run = make_events(z, send_prob=prob)
    plain = sampled_gaussian_rdp(1.0, z, ORDERS)
    assert run_rdp(run, "visible", ORDERS) == pytest.approx(visible_rdp(prob, plain, ORDERS).sum(0))
    assert run_rdp(run, "hidden", ORDERS) == pytest.approx(sampled_gaussian_rdp(prob, z, ORDERS).sum(0))
    swapped = hidden_replace_rdp(prob, z, ORDERS).sum(0)
    assert run_rdp(run, "hidden", ORDERS, adjacency="replace") == pytest.approx(swapped)
    both = make_events(np.stack([z, 2 * z, z]), send_prob=np.stack([prob, prob, 1 - prob]))  # three seeds, two clients
    alone = [visible_rdp(p, sampled_gaussian_rdp(1.0, n, ORDERS), ORDERS).sum(0)
             for p, n in ((prob, z), (prob, 2 * z), (1 - prob, z))]  # fmt: skip
    assert run_rdp(both, "visible", ORDERS) == pytest.approx(np.stack(alone))


def test_rdp_100_at_order_2_is_no_protection():
    """CDPB E23: (110.1, 1e-5)."""
    assert rdp_to_eps([100.0], 1e-5, [2.0]).eps == pytest.approx(110.1, abs=0.05)


def test_hidden_with_record_sampling_is_refused(make_events):
    with pytest.raises(InputError, match="hidden"):
        run_rdp(make_events([[2.0]], rate=0.1), "hidden")
    with pytest.raises(InputError, match="accounting='printed'"):
        run_rdp(make_events([[2.0]]), "printed")


def test_visible_eps_is_the_average_over_who_sent():
    """Two rounds by hand, and many rounds against a Monte-Carlo estimate of the hockey-stick divergence."""
    p, z, delta = 0.4, 1.3, 1e-3
    eps = visible_eps(p, z, 2, delta)
    by_hand = 2 * p * (1 - p) * gaussian.delta(eps, 1 / z) + p**2 * gaussian.delta(eps, np.sqrt(2) / z)
    assert by_hand == pytest.approx(delta, rel=1e-9)

    rng, rounds, delta, n = np.random.default_rng(5), 30, 0.01, 400_000
    eps = visible_eps(p, z, rounds, delta)
    mu = np.sqrt(rng.binomial(rounds, p, n)) / z
    lost = mu**2 / 2 + mu * rng.standard_normal(n)
    sample = np.maximum(0, -np.expm1(eps - lost))
    assert abs(sample.mean() - delta) < 4 * sample.std() / np.sqrt(n)


def test_visible_eps_lies_between_hidden_and_none_and_below_its_rdp():
    p, z, rounds, delta = 0.3, 4.0, 200, 1e-5
    tight = visible_eps(p, z, rounds, delta)
    assert pld_eps(np.full(rounds, z), p, delta) < tight < float(gaussian.eps(np.sqrt(rounds) / z, delta))
    rdp = rounds * visible_rdp(p, np.array(ORDERS) / (2 * z**2), ORDERS)
    assert tight < rdp_to_eps(rdp, delta, ORDERS).eps
    assert visible_eps(0.0, z, rounds, delta) == visible_eps(p, np.inf, rounds, delta) == 0
    assert visible_eps(p, 0.0, rounds, delta) == np.inf
    assert visible_eps(1e-9, 0.0, 3, delta) == 0  # nobody sends, but with probability 3e-9


def test_a_hidden_round_under_replacement_at_its_ends() -> None:
    """Who surely sends hides nothing: the Gaussian mechanism, alpha / (2 z^2); who surely does not tells nothing."""
    orders = np.array([1.5, 3.0, 32.0])
    surely, never, noiseless, drowned = hidden_replace_rdp([1.0, 0.0, 0.5, 0.5], [1.5, 1.5, 0.0, np.inf], orders)
    np.testing.assert_allclose(surely, orders / 4.5, rtol=1e-12)
    np.testing.assert_array_equal([never, drowned], np.zeros((2, 3)))
    np.testing.assert_array_equal(noiseless, np.inf)
    np.testing.assert_allclose(hidden_replace_rdp(1 - 1e-9, 1.5, orders), surely, rtol=1e-6)


@pytest.mark.parametrize(("rounds", "delta"), [(0, 1e-5), (2.5, 1e-5), (4, 0.0), (4, 1.0), (4, float("nan"))])
def test_no_eps_of_visible_rounds_without_a_number_of_rounds_and_a_delta(rounds: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"rounds=|delta="):
        visible_eps(0.5, 2.0, rounds, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("z", [0.05, 0.5, 1.0, 3.0, 30.0])
def test_visible_rounds_that_surely_happen_are_gaussian_at_any_noise(z: float) -> None:
    assert visible_eps(1.0, z, 3, 1e-5) == pytest.approx(float(gaussian.eps(np.sqrt(3) / z, 1e-5)), rel=1e-9)
    assert visible_eps(1.0, 0.0, 3, 1e-5) == np.inf
