"""Coverage of the limits, bias of the estimate, sharing of the failure probability."""

import numpy as np
import pytest
from scipy import stats

from otafl.channels import Fading, Pilots, limits
from otafl.channels.fading import gains, pilot_law
from otafl.channels.pilots import Estimates, estimate, shares
from otafl.core.errors import InputError

LAWS = [
    Fading("rayleigh"),
    Fading("rician", k_factor_db=5.0),
    Fading("real_gaussian", mean=1.0, std=2.0),
]


def misses(covered: np.ndarray, expected: float) -> None:
    """Number of misses against its binomial law, two-sided at 1e-6."""
    assert stats.binomtest(int((~covered).sum()), covered.size, expected).pvalue > 1e-6


@pytest.mark.parametrize("law", LAWS)
def test_limits_of_real_pilots_miss_as_often_as_stated(law):
    count, trials, failure = 8, 4000, 0.1
    gain = gains(law, np.random.default_rng(0), np.full((trials * count, 1), 0.3))
    energy = (np.abs(gain) ** 2).reshape(trials, count).sum(1)
    low, high = limits(energy, pilot_law(law, count), failure)
    misses(low <= 0.3, failure / 2)
    misses(high >= 0.3, failure / 2)


@pytest.mark.parametrize("law", LAWS)
def test_simulated_batches_miss_as_often_as_stated(law):
    known = estimate(
        Pilots(count=8, every=1, failure_prob=0.2, estimations=4000),
        law,
        np.full((4000, 1), 2.0),
        np.random.default_rng(1),
    )
    share = 0.2 / 4000
    low, high = limits(known.estimate**2 * 8, pilot_law(law, 8), 0.2)
    misses((low <= 2.0) & (high >= 2.0), 0.2)
    assert np.all(known.low < low) and np.all(known.high > high)  # the shared ones are wider
    expected = limits(known.estimate**2 * 8, pilot_law(law, 8), share)
    np.testing.assert_allclose((known.low, known.high), expected)


def test_all_limits_of_a_run_hold_together():
    pilots, failure, runs = Pilots(count=16, every=5, failure_prob=0.2), 0.2, 600
    rms = np.full((20, 10), 0.5)
    held = [
        bool(np.all((known.low <= rms) & (rms <= known.high)))
        for known in (estimate(pilots, LAWS[0], rms, np.random.default_rng(run)) for run in range(runs))
    ]
    assert stats.binomtest(runs - sum(held), runs, failure, alternative="greater").pvalue > 1e-6


def test_squared_estimate_is_unbiased_and_has_the_rayleigh_variance(assert_mean):
    known = estimate(Pilots(count=64), LAWS[0], np.full((1, 20_000), 0.5), np.random.default_rng(2))
    square = known.estimate[0] ** 2
    assert_mean(square, 0.25)
    assert_mean((square - 0.25) ** 2, 0.25**2 / 64)


def test_running_mean_by_hand():
    rms, every = np.full((7, 2), 1.0), 3
    plain = estimate(Pilots(every=every), LAWS[0], rms, np.random.default_rng(3))
    smooth = estimate(Pilots(every=every, ema=0.2), LAWS[0], rms, np.random.default_rng(3))
    square = plain.estimate[::every] ** 2
    expected = [square[0], 0.8 * square[0] + 0.2 * square[1]]
    expected.append(0.8 * expected[1] + 0.2 * square[2])
    np.testing.assert_allclose(smooth.estimate**2, np.repeat(expected, every, axis=0)[:7])
    np.testing.assert_array_equal(smooth.low, plain.low)  # limits belong to one batch


RISING = 10.0 ** np.arange(8)[:, None] * np.array([1.0, 3.0])


def test_a_batch_measures_the_round_it_is_sent_in():
    found = estimate(Pilots(count=4000, every=3), LAWS[0], RISING, np.random.default_rng(5)).estimate
    np.testing.assert_allclose(found, np.repeat(RISING[::3], 3, axis=0)[:8], rtol=0.1)


@pytest.mark.parametrize("pieces", [[1] * 8, [2, 3, 3], [4, 4]])
def test_how_many_rounds_are_asked_for_at_a_time_changes_no_number(pieces):
    pilots = Pilots(every=3, ema=0.5)
    estimates = Estimates(pilots, LAWS[0], 8, np.random.default_rng(5))
    parts = [estimates.take(piece) for piece in np.split(RISING, np.cumsum(pieces)[:-1])]
    whole = estimate(pilots, LAWS[0], RISING, np.random.default_rng(5))
    np.testing.assert_array_equal([np.concatenate(leaf) for leaf in zip(*parts)], whole)


def test_shares_never_exceed_the_total():
    assert 0.01 * (1 - 1e-6) <= shares(Pilots(every=1, failure_prob=0.01), 10**6).sum() <= 0.01  # and leave none over
    declared = Pilots(every=1, failure_prob=0.01, estimations=7)
    assert shares(declared, 7).sum() == pytest.approx(0.01)
    np.testing.assert_array_equal(shares(declared, 3), shares(declared, 7)[:3])
    with pytest.raises(InputError, match="estimations=7"):
        shares(Pilots(every=1, estimations=7), 8)


def test_cares_quantiles():
    # CARES E16 in its own words: mu_low^2 = sum h^2 / chi2_{2N}(1 - beta / 2K), rms = sqrt(2) mu
    energy, count, clients, beta = 50.0, 64, 20, 0.01
    low, high = limits(energy, pilot_law(Fading(), count), beta / clients)
    assert low**2 / 2 == pytest.approx(energy / stats.chi2(2 * count).ppf(1 - beta / (2 * clients)))
    assert high**2 / 2 == pytest.approx(energy / stats.chi2(2 * count).ppf(beta / (2 * clients)))


def test_devices_of_different_shape_have_their_own_limits():
    law = Fading("real_gaussian", mean=(0.0, 3.0), std=(1.0, 0.5))
    known = estimate(Pilots(count=16), law, np.ones((1, 2)), np.random.default_rng(4))
    for k in range(2):
        alone = pilot_law(Fading("real_gaussian", mean=law.mean[k], std=law.std[k]), 16)
        expected = limits(16 * known.estimate[0, k] ** 2, alone, 0.01 / 2)
        np.testing.assert_allclose((known.low[0, k], known.high[0, k]), expected)


def test_without_fading_pilots_are_exact():
    rms = np.array([[0.5, 2.0]])
    for leaf in estimate(Pilots(), Fading("constant"), rms, np.random.default_rng(0)):
        np.testing.assert_array_equal(leaf, rms)
    with pytest.raises(InputError, match="the estimate is exact"):
        limits(1.0, pilot_law(Fading("constant"), 64), 0.01)


@pytest.mark.parametrize("fields", [
    {"count": 0}, {"every": 0}, {"ema": 0.0}, {"ema": 1.1}, {"failure_prob": 1.0}, {"estimations": 0}, {"count": 2.5},
])  # fmt: skip
def test_refusals(fields):
    with pytest.raises(InputError):
        Pilots(**fields)
