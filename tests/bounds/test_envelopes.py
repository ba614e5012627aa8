"""Envelopes against Monte Carlo of the round's own rule, finite differences and limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from otafl.bounds import envelopes

WEIGHTS = np.array([0.4, 0.3, 0.2, 0.1])
SCALES = np.array([0.3, 0.9, 0.5, 0.7])
RATES = envelopes.drop_rate(WEIGHTS, SCALES, clip_norm=1.5, max_power=0.4)
DRAWS = 200_000
SIGMAS = 4.5  # two-sided error probability 7e-6 per comparison


def silent(rng: np.random.Generator, eta: float, norms: np.ndarray) -> np.ndarray:
    """Who is silent by CARES (2)-(3), written with gains and thresholds, (DRAWS, K)."""
    gains = rng.rayleigh(SCALES, (DRAWS, SCALES.size))
    return gains < eta * WEIGHTS * norms / np.sqrt(0.4)


@pytest.mark.parametrize("eta", [0.1, 0.5, 1.5])
def test_full_norm_drops_as_often_as_the_envelope(eta):
    frequency = silent(np.random.default_rng(1), eta, np.full(4, 1.5)).mean(0)
    expected = envelopes.drop_prob(eta, RATES)
    assert np.all(np.abs(frequency - expected) <= SIGMAS * np.sqrt(expected * (1 - expected) / DRAWS))


def test_smaller_norms_drop_less():
    frequency = silent(np.random.default_rng(2), 0.8, np.array([1.2, 0.5, 0.9, 0.0])).mean(0)
    assert np.all(frequency < envelopes.drop_prob(0.8, RATES))
    assert frequency[3] == 0  # a zero gradient is active


@pytest.mark.parametrize("eta", [0.2, 0.7, 2.0])
def test_dropped_mass_moments(eta):
    mass = silent(np.random.default_rng(3), eta, np.full(4, 1.5)) @ WEIGHTS
    for sample, exact in (
        (mass, envelopes.dropped_weight(eta, WEIGHTS, RATES)),
        (mass**2, envelopes.dropped_square(eta, WEIGHTS, RATES)),
    ):
        assert abs(sample.mean() - exact) <= SIGMAS * sample.std() / np.sqrt(DRAWS)


def test_dropped_mass_moments_bound_smaller_norms():
    mass = silent(np.random.default_rng(4), 0.9, np.array([1.0, 1.4, 0.7, 1.5])) @ WEIGHTS
    assert mass.mean() < envelopes.dropped_weight(0.9, WEIGHTS, RATES)
    assert (mass**2).mean() < envelopes.dropped_square(0.9, WEIGHTS, RATES)


@given(st.floats(1e-3, 10))
def test_square_is_below_weight(eta):
    square, weight = (f(eta, WEIGHTS, RATES) for f in (envelopes.dropped_square, envelopes.dropped_weight))
    assert 0 < square <= weight * (1 + 1e-12)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(0, 3), st.floats(0, 1))
def test_square_rises_with_every_drop_probability(prob, client, share):
    """Through rates, eta = 1: raising one q never lowers the bound."""
    low = np.minimum(np.array(prob), 1 - 1e-9)
    high = low.copy()
    high[client] += share * (1 - 1e-9 - high[client])
    before, after = (envelopes.dropped_square(1.0, WEIGHTS, -np.log1p(-q)) for q in (low, high))
    assert after >= before - 1e-12


@pytest.mark.parametrize("eta", [0.05, 0.6, 3.0])
def test_slope_is_the_derivative(eta):
    step = 1e-6 * eta
    difference = np.diff(envelopes.dropped_weight([eta - step, eta + step], WEIGHTS, RATES))[0] / (2 * step)
    assert envelopes.dropped_weight_slope(eta, WEIGHTS, RATES) == pytest.approx(difference, rel=1e-7)


@pytest.mark.parametrize("ratio", [1.01, 2.0, 50.0])
def test_peak_maximises_asymmetry(ratio):
    peak = envelopes.eta_peak(0.3, 0.3 * ratio)
    found = minimize_scalar(
        lambda eta: -envelopes.asymmetry(eta, 0.3, 0.3 * ratio), bounds=(0, 10), options={"xatol": 1e-10}
    )
    assert peak == pytest.approx(found.x, rel=1e-5)


def test_peak_of_nearly_equal_clients_tends_to_its_limit():
    assert envelopes.eta_peak(4.0, 4.0 + 1e-13) == pytest.approx(0.5, rel=1e-12)


def test_equal_clients_have_no_asymmetry_and_no_peak():
    assert envelopes.eta_peak(2.0, 2.0) is None
    assert np.all(envelopes.asymmetry(np.geomspace(1e-3, 1e3, 50), 2.0, 2.0) == 0)


def test_asymmetry_vanishes_when_everybody_is_dropped():
    assert envelopes.asymmetry(1e3, RATES.min(), RATES.max()) == 0
    assert envelopes.dropped_weight(1e3, WEIGHTS, RATES) == pytest.approx(1)


def test_asymmetry_is_the_spread_of_participation():
    eta = np.geomspace(0.01, 5, 40)
    sending = 1 - envelopes.drop_prob(eta, RATES)
    spread = sending.max(-1) - sending.min(-1)
    assert envelopes.asymmetry(eta, RATES.min(), RATES.max()) == pytest.approx(spread, abs=1e-14)


@given(st.floats(0.01, 0.29), st.floats(1e-3, 20))
def test_worsening_the_hardest_client_never_lowers_asymmetry(worse, eta):
    """The first client is the hardest and stays so."""
    scales = SCALES.copy()
    scales[0] = worse
    rates = envelopes.drop_rate(WEIGHTS, scales, 1.5, 0.4)
    assert np.argmax(RATES) == np.argmax(rates) == 0
    before = envelopes.asymmetry(eta, RATES.min(), RATES.max())
    assert envelopes.asymmetry(eta, rates.min(), rates.max()) >= before - 1e-15
