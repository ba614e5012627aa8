"""Moments of every law against closed forms, at 5 standard errors; structure of the draws exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from otafl.channels import Fading, constant, rayleigh, real_gaussian, rician
from otafl.channels.fading import gains, pilot_law
from otafl.core.errors import InputError

ROUNDS = 40_000
RMS = np.broadcast_to([0.3, 2.0], (ROUNDS, 2))

LAWS = [
    Fading("rayleigh"),
    Fading("rician", k_factor_db=6.0),
    Fading("rician", k_factor_db=-3.0, phase_rad=0.7),
    Fading("real_gaussian", mean=1.0, std=2.0),
    Fading("real_gaussian", mean=(1.0, -1.0), std=(10.0, 0.0)),
    Fading("constant"),
]


@pytest.mark.parametrize("law", LAWS)
def test_mean_square_is_the_given_one(law, assert_mean):
    gain = gains(law, np.random.default_rng(1), RMS)
    assert gain.dtype == np.complex128
    for k in range(2):
        assert_mean(np.abs(gain[:, k]) ** 2, RMS[0, k] ** 2)


def test_rayleigh_power_is_exponential_and_phase_uniform():
    gain = rayleigh(np.random.default_rng(2), RMS)[:, 1]
    assert stats.kstest(np.abs(gain) ** 2 / 4.0, "expon").pvalue > 1e-6
    assert stats.kstest(np.angle(gain) / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-6


def test_rayleigh_magnitude_mean_in_terms_of_its_scale(assert_mean):
    scale = 0.7  # CARES writes mu for this; rms = sqrt(2) mu
    gain = rayleigh(np.random.default_rng(3), np.full((ROUNDS, 1), np.sqrt(2) * scale))
    assert_mean(np.abs(gain), scale * np.sqrt(np.pi / 2))


@pytest.mark.parametrize("k_factor", [0.25, 4.0])
def test_rician_magnitude_follows_the_rice_law(k_factor):
    gain = rician(np.random.default_rng(4), np.ones((ROUNDS, 1)), k_factor).ravel()
    spread = np.sqrt(1 / (2 * (1 + k_factor)))
    rice = stats.rice(np.sqrt(2 * k_factor), scale=spread)
    assert stats.kstest(np.abs(gain), rice.cdf).pvalue > 1e-6


def test_rician_line_of_sight_phase(assert_mean):
    fixed = rician(np.random.default_rng(5), np.ones((ROUNDS, 1)), 3.0, phase_rad=0.5)
    turned = fixed * np.exp(-0.5j)
    assert_mean(turned.real, np.sqrt(3 / 4))
    assert_mean(turned.imag, 0.0)
    uniform = rician(np.random.default_rng(5), np.ones((ROUNDS, 1)), 3.0)
    assert_mean(uniform.real, 0.0)


def test_rician_without_line_of_sight_is_rayleigh_draw_for_draw():
    rms = np.ones((50, 3))
    np.testing.assert_array_equal(
        rician(np.random.default_rng([1, 2]), rms, 0.0), rayleigh(np.random.default_rng([1, 2]), rms)
    )


def test_real_gaussian_is_real_with_the_given_mean_and_std(assert_mean):
    mean, std = np.array([1.0, -2.0]), np.array([10.0, 0.5])
    gain = real_gaussian(np.random.default_rng(6), np.broadcast_to(np.hypot(mean, std), (ROUNDS, 2)), mean, std)
    assert np.all(gain.imag == 0)
    for k in range(2):
        assert_mean(gain[:, k].real, mean[k])
        assert_mean((gain[:, k].real - mean[k]) ** 2, std[k] ** 2)


def test_constant_is_the_rms():
    np.testing.assert_array_equal(constant(np.random.default_rng(0), RMS), RMS + 0j)


@pytest.mark.parametrize("law", LAWS[:-1])
@given(rounds=st.integers(1, 40), more=st.integers(0, 40), held=st.integers(1, 7), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_blocks_hold_and_more_rounds_extend_fewer(law, rounds, more, held, seed):
    law = Fading(**{**vars(law), "coherence_rounds": held})
    short = gains(law, np.random.default_rng(seed), np.ones((rounds, 2)))
    long = gains(law, np.random.default_rng(seed), np.ones((rounds + more, 2)))
    np.testing.assert_array_equal(long[:rounds], short)
    for t in range(rounds):
        np.testing.assert_array_equal(short[t], short[t - t % held])
    if rounds > held and law.kind == "rayleigh":
        assert not np.any(short[0] == short[held])


@pytest.mark.parametrize("law", LAWS[:4])
def test_pilot_law_matches_the_fading_it_describes(law):
    count = 5
    gain = gains(law, np.random.default_rng(7), np.full((4000 * count, 1), 1.7))
    energy = (np.abs(gain) ** 2).reshape(4000, count).sum(1) / 1.7**2
    degrees, noncentrality, scale = pilot_law(law, count)
    assert stats.kstest(energy / scale, stats.ncx2(degrees, max(noncentrality, 1e-12)).cdf).pvalue > 1e-6


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kind": "rice"}, "kind"),
        ({"coherence_rounds": 0}, "coherence_rounds"),
        ({"kind": "rician"}, "k_factor_db"),
        ({"k_factor_db": 3.0}, "k_factor_db"),
        ({"kind": "real_gaussian", "mean": 1.0}, "std"),
        ({"kind": "real_gaussian", "mean": 0.0, "std": 0.0}, "mean"),
        ({"kind": "real_gaussian", "mean": 1.0, "std": -1.0}, "std"),
        ({"kind": "rician", "k_factor_db": float("nan")}, "k_factor_db"),
    ],
)
def test_refusals_name_the_field(fields, name):
    with pytest.raises(InputError, match=name):
        Fading(**fields)
