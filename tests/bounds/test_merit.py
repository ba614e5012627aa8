"""The figure of merit: its limit, its published points, and what it says about changes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.bounds import merit
from otafl.privacy import gaussian


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 2**31))
def test_no_power_control_passes_the_limit(devices, rounds, seed):
    """Any received amplitudes: S is at most K mu C / sensitivity, mu being that of the worst client."""
    rng = np.random.default_rng(seed)
    amplitude, noise, bound = rng.exponential(size=(rounds, devices)), rng.uniform(0.1, 2), 1.3
    sensitivity = 2 * bound
    mu = np.sqrt(np.max(np.sum((amplitude * sensitivity / noise) ** 2, axis=0)))
    snr = merit.learning_snr(bound, amplitude.sum(1), np.full(rounds, noise))
    assert snr <= merit.learning_snr_max(devices, float(mu), bound, sensitivity) * (1 + 1e-12)


def test_equal_amplitudes_reach_the_limit():
    amplitude, noise = np.full((5, 4), 0.3), 0.7
    mu = np.sqrt(5) * 0.3 * 2 / noise
    snr = merit.learning_snr(1.0, amplitude.sum(1), np.full(5, noise))
    assert snr == pytest.approx(merit.learning_snr_max(4, mu, 1.0, 2.0))


def test_points_of_the_calibration():
    """1,437 devices with one digit each, zCDP: eps 0.5 gave Q 8.78 and accuracy 0.52 of 0.96 from 0.10."""
    q = merit.quality(74.071, 0.1186, 650)
    assert q == pytest.approx(8.782, abs=5e-3)
    assert 0.1 + merit.lift(q, 200) * (0.9618 - 0.1) == pytest.approx(0.5185, abs=0.03)


def test_the_limit_at_eps_8_is_the_measured_one():
    """1,437 equal devices, zCDP at eps 8, replace adjacency: FedAvg + DP reached S = 1040.78."""
    from otafl.privacy import classic_budget

    mu = np.sqrt(2 * classic_budget(8.0, 1e-5))
    assert merit.learning_snr_max(1437, mu, 1.0, 2.0) == pytest.approx(1040.78, rel=1e-3)


@pytest.mark.parametrize(("eps", "devices"), [(0.5, 379), (1, 201), (2, 108), (4, 59), (8, 33), (16, 19)])
def test_least_number_of_devices(eps, devices):
    """Hundreds of mixed samples each (agreement 0.93), 650 parameters, accountant gaussian."""
    mu = np.sqrt(2 * gaussian.budget_rho(eps, 1e-5))
    q = merit.quality(merit.learning_snr_max(devices, mu, 1.0, 2.0), 0.93, 650)
    assert merit.devices_for(q, devices) == pytest.approx(devices, abs=1)


def test_lift_rises_with_quality_and_rounds():
    q = np.geomspace(0.1, 1000, 50)
    assert np.all(np.diff([merit.lift(one, 100) for one in q]) > 0)
    assert merit.lift(25, 400) > merit.lift(25, 30)


def test_size_is_the_lever_only_inside_the_calibration():
    assert merit.params_for(18.8, 9610) == pytest.approx(1270, rel=0.02)
    assert merit.params_for(5.2, 9610) is None


def test_a_question_outside_the_calibration_is_named():
    assert merit.in_domain(650, 100, 200) == []
    assert merit.in_domain(10**6, 100, 200) == ["num_params=1000000 (calibrated on 170 to 20000)"]


def test_the_least_mu_is_that_at_which_the_quality_is_reached():
    assert merit.mu_for(12.5, 0.4) == pytest.approx(0.8)  # S, hence Q, is proportional to mu
    assert merit.mu_for(0.0, 0.4) == math.inf


@pytest.mark.parametrize(
    ("noise", "linear", "step"), [(0.05, True, 1.75), (0.05, False, 0.75), (0.0, True, 4.0), (1e-3, False, 4.0)]
)
def test_the_step_is_what_the_noise_of_all_rounds_allows_and_at_most_8_over_the_bound(noise, linear, step):
    assert merit.step_size(np.full(16, noise), 2.0, linear) == pytest.approx(step)


def test_the_band_is_that_of_the_bins_about_it_and_never_below_nothing():
    assert merit.band(0.0) == merit.band(1.2) == (0.0, 0.07)
    assert merit.band(math.sqrt(20.0 * 31.6)) == pytest.approx((0.785, 0.895))  # half way between two bins
    assert merit.band(160.0) == merit.band(math.inf) == (0.94, 1.0)


def test_what_is_expected_lies_within_its_own_band():
    """71 % stood beside "57 to 66 % in like runs" at the upper edge of a bin."""
    for q in np.geomspace(1.3, 300, 400):
        low, high = merit.band(float(q))
        assert low <= merit.lift(float(q), 100) <= high, q


def test_the_band_never_falls_as_quality_rises():
    ends = np.array([merit.band(float(q)) for q in np.geomspace(0.1, 1000, 400)])
    assert np.all(np.diff(ends, axis=0) >= 0) and np.all(ends[:, 0] < ends[:, 1])
