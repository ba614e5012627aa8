"""The declared bound holds for every draw; inside it the laws are the stated ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from otafl.channels import CsiError, Fading
from otafl.channels.csi import estimates
from otafl.channels.fading import gains
from otafl.core.errors import InputError

GAIN = gains(Fading(), np.random.default_rng(0), np.full((200, 5), 1e-6))
STD = st.none() | st.floats(1e-9, 1e3)


@given(
    gain_error=st.floats(1e-12, 0.999),
    share=st.floats(0, 1),
    gain_std=STD,
    phase_std=STD,
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=300, deadline=None)
def test_never_worse_than_declared(gain_error, share, gain_std, phase_std, seed):
    phase_error = min(share * np.arccos(1 - gain_error) * (1 - 1e-9), 1.57)
    error = CsiError(gain_error, phase_error, gain_std, phase_std)
    ratio = GAIN / estimates(error, GAIN, np.random.default_rng(seed))
    assert np.all(np.abs(ratio) - 1 <= gain_error)
    assert np.all(ratio.real >= 1 - gain_error - 1e-15)
    assert np.all(np.abs(np.angle(ratio)) <= phase_error + 1e-15)


def test_uniform_and_truncated_normal_laws():
    gain = np.ones((20_000, 1), complex)
    ratio = (gain / estimates(CsiError(0.2, 0.5), gain, np.random.default_rng(1))).ravel()
    weakest = 0.8 / np.cos(0.5)
    assert stats.kstest(np.abs(ratio), stats.uniform(weakest, 1.2 - weakest).cdf).pvalue > 1e-6
    assert stats.kstest(np.angle(ratio), stats.uniform(-0.5, 1.0).cdf).pvalue > 1e-6
    ratio = (gain / estimates(CsiError(0.2, 0.5, 0.1, 0.25), gain, np.random.default_rng(2))).ravel()
    assert stats.kstest(np.abs(ratio), stats.truncnorm((weakest - 1) / 0.1, 2, 1, 0.1).cdf).pvalue > 1e-6
    assert stats.kstest(np.angle(ratio), stats.truncnorm(-2, 2, 0, 0.25).cdf).pvalue > 1e-6


def test_longer_runs_extend():
    error = CsiError(0.3, 0.2)
    short = estimates(error, GAIN[:50], np.random.default_rng(3))
    np.testing.assert_array_equal(estimates(error, GAIN, np.random.default_rng(3))[:50], short)


@pytest.mark.parametrize(
    "fields",
    [
        {"gain_error": 0.0},
        {"gain_error": 1.0},
        {"gain_error": 0.01, "phase_error": 0.2},  # 1 - cos 0.2 = 0.0199
        {"gain_error": 0.5, "phase_error": -0.1},
        {"gain_error": 0.5, "gain_std": 0.0},
        {"gain_error": float("nan")},
    ],
)
def test_refusals(fields):
    with pytest.raises(InputError):
        CsiError(**fields)
