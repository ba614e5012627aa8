"""Fading that remembers: its law against closed forms, its draws against a plain Cholesky factor."""

import math

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import j0

from otafl.channels import PUBLISHED, Channel, Fading, Stale, ar1, doppler_hz, draw, jakes, jakes_correlation
from otafl.channels.channel import Rows
from otafl.channels.memory import jakes_factor, turns_of
from otafl.core.errors import InputError

RUNS = 40_000
OLD = Channel(fading=Fading("jakes", rho=0.9995), stale=Stale(age_rounds=3, least_gain=2.0, miss_prob=0.01))


def correlation(gain: np.ndarray, lag: int) -> complex:
    return complex(np.mean(gain[lag] * gain[0].conj()))


@pytest.mark.parametrize("rho", [0.9, -0.5])
def test_ar1_forgets_geometrically(rho):
    """5 standard errors of a mean of products of unit normals, real and imaginary part (chance 1e-6 each)."""
    gain = ar1(np.random.default_rng(0), np.ones((6, RUNS)), rho)
    for lag in range(6):
        assert abs(correlation(gain, lag) - rho**lag) <= 5 * math.sqrt(2 / RUNS)
    np.testing.assert_allclose((np.abs(gain) ** 2).mean(1), 1.0, atol=5 / math.sqrt(RUNS))


@pytest.mark.parametrize("law", [ar1, jakes])
def test_what_is_remembered_has_no_unit(law):
    rms = np.linspace(0.1, 3, 100)[:, None]
    unit = law(np.random.default_rng(0), np.ones((100, 1)), 0.2)
    np.testing.assert_allclose(law(np.random.default_rng(0), rms, 0.2), rms * unit, rtol=1e-12)


@pytest.mark.parametrize("turns", [0.01, 0.1, 0.4])
def test_jakes_has_bessel_correlation(turns):
    gain = jakes(np.random.default_rng(1), np.ones((6, RUNS)), turns)
    for lag in range(6):
        assert abs(correlation(gain, lag) - j0(2 * np.pi * turns * lag)) <= 5 * math.sqrt(2 / RUNS)


def test_the_two_differ_after_one_round():
    """The worked value: f_D T = 0.1, lag 5 is 0.603 instead of -0.304."""
    rho = float(jakes_correlation(0.1))
    assert round(rho**5, 3) == 0.603 and round(float(jakes_correlation(0.1, 5)), 3) == -0.304


@pytest.mark.parametrize("turns", [0.001, 0.05, 0.3])
def test_jakes_is_the_cholesky_factor_times_the_fresh_normals(turns):
    rounds = 150
    matrix = toeplitz(j0(2 * np.pi * turns * np.arange(rounds))) + 1e-9 * np.eye(rounds)
    factor = jakes_factor(turns, -(-rounds // 64))[:rounds, :rounds]
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-13)
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-7)
    fresh = np.random.default_rng(5).standard_normal((rounds, 3, 2))
    drawn = jakes(np.random.default_rng(5), np.full((rounds, 3), 2.0), turns)
    np.testing.assert_allclose(drawn, 2 * factor @ (fresh[..., 0] + 1j * fresh[..., 1]) / np.sqrt(2), atol=1e-12)


@pytest.mark.parametrize("kind", ["ar1", "jakes"])
def test_a_longer_run_extends_a_shorter_one_bit_for_bit(kind):
    channel = PUBLISHED[kind]
    long = draw(channel, 3, 300, 4).gain
    for rounds in (1, 63, 64, 65, 200):
        np.testing.assert_array_equal(draw(channel, 3, rounds, 4).gain, long[:rounds])


@pytest.mark.parametrize("channel", [PUBLISHED["ar1"], PUBLISHED["jakes"], OLD])
def test_how_many_rounds_are_taken_at_a_time_changes_no_number(channel):
    whole, rows = draw(channel, 3, 200, 4), Rows(channel, 3, 200, 4)
    pieces = [rows.take(count) for count in (1, 62, 2, 65, 70)]
    for name in ("gain", "estimate", "coin"):
        np.testing.assert_array_equal(np.concatenate([getattr(one, name) for one in pieces]), getattr(whole, name))


@pytest.mark.parametrize("law", [ar1, jakes])
def test_every_axis_after_time_is_independent(law):
    """Room for blocks: gains (T, K, B)."""
    gain = law(np.random.default_rng(2), np.ones((3, 200, 100)), 0.2)
    flat = gain[0].reshape(-1)
    assert gain.shape == (3, 200, 100)
    assert abs(np.mean(flat[1:] * flat[:-1].conj())) <= 5 * math.sqrt(2 / flat.size)


def test_rho_follows_from_speed():
    moving = {"speed_m_s": 1.5, "carrier_ghz": 3.5, "round_s": 0.005}
    doppler = 1.5 * 3.5e9 / 299_792_458
    assert abs(doppler_hz(1.5, 3.5) - doppler) < 1e-9
    rho = j0(2 * np.pi * doppler * 0.005)
    assert abs(Fading("ar1", **moving).correlation(1) - rho) < 1e-12
    assert abs(Fading("ar1", **moving).correlation(3) - rho**3) < 1e-12
    assert abs(Fading("jakes", **moving).correlation(3) - j0(6 * np.pi * doppler * 0.005)) < 1e-12


def test_turns_invert_the_first_branch():
    assert round(turns_of(0.5), 4) == 0.2421  # R = 1/2 at 0.2421 / f_D
    for rho in (0.999, 0.3, 0.0, -0.4):
        assert abs(j0(2 * np.pi * turns_of(rho)) - rho) < 1e-12


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"kind": "ar1"}, "needs rho, or speed_m_s, carrier_ghz, round_s together; given: nothing"),
        ({"kind": "ar1", "rho": 1.0}, r"rho=1.0 must lie in \(-1, 1\)"),
        ({"kind": "ar1", "rho": -1.0}, r"rho=-1.0 must lie in \(-1, 1\)"),
        ({"kind": "jakes", "rho": -0.5}, "no speed has another correlation"),
        ({"kind": "jakes", "rho": 0.9, "round_s": 1.0}, "given: rho, round_s"),
        ({"kind": "jakes", "speed_m_s": 1.0}, "given: speed_m_s"),
        ({"kind": "ar1", "rho": 0.9, "coherence_rounds": 3}, "remembers by itself"),
        ({"kind": "rayleigh", "rho": 0.9}, "rho has no meaning for fading kind='rayleigh'"),
    ],
)
def test_refusals(said, why):
    with pytest.raises(InputError, match=why):
        Fading(**said)


def test_too_many_rounds_are_refused_before_memory_is():
    with pytest.raises(InputError, match="rounds = 5001 is more than 5000"):
        draw(Channel(fading=Fading("jakes", rho=0.9)), 1, 5001, 0)
