"""Few seeds: against SciPy's own tests, and Holm against its definition."""

import numpy as np
import pytest
from scipy import stats

from otafl.runs.comparing.statistics import Gap, half_width, holm, mean_sd, paired, seeds_needed

RNG = np.random.default_rng(5)


def test_the_paired_interval_is_the_t_test_turned_round():
    a, b = RNG.normal(0.7, 0.02, 9), RNG.normal(0.68, 0.03, 9)
    gap = paired(dict(enumerate(a)), {**dict(enumerate(b)), 99: 0.1})
    theirs = stats.ttest_rel(a, b)
    low, high = theirs.confidence_interval(0.95)
    assert gap.pairs == 9 and gap.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (gap.mean - gap.half_width, gap.mean + gap.half_width) == pytest.approx((low, high), rel=1e-9)
    assert gap.apart == (theirs.pvalue < 0.05)


def test_without_two_pairs_nothing_is_known():
    assert paired({0: 1.0}, {0: 0.5})[:3] == (0.5, np.inf, 1) and not paired({0: 1.0}, {0: 0.5}).apart
    assert np.isnan(paired({0: 1.0}, {1: 0.5}).mean)
    assert paired({0: np.nan, 1: 1.0, 2: 1.0}, {0: 1.0, 1: 0.5, 2: 0.5}) == Gap(0.5, 0.0, 2, 0.0)
    assert paired({0: 0.5, 1: 0.7}, {0: 0.5, 1: 0.7}) == Gap(0.0, 0.0, 2, 1.0)  # the same is no difference


def test_holm_rejects_step_by_step():
    p = np.array([0.001, 0.012, 0.02, 0.04, 0.6])
    adjusted = np.array(holm(list(p)))
    order, rejected = np.argsort(p), []
    for n, k in enumerate(order):  # the definition: stop at the first that is not below alpha / (m - n)
        if p[k] > 0.05 / (len(p) - n):
            break
        rejected.append(k)
    assert set(np.flatnonzero(adjusted <= 0.05)) == set(rejected)
    assert holm([float("nan"), 0.01]) == [1.0, 0.02]
    assert holm([0.8, 0.9]) == [1.0, 1.0]  # a probability still


@pytest.mark.parametrize("values", [np.tile([0.03, -0.02, 0.02, -0.01], 3), [0.03, 0.01], [0.05, 0.02, 0.01]])
def test_so_many_seeds_would_separate_and_one_fewer_would_not(values):
    gap = paired(dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0))
    needed = seeds_needed(gap)
    sd = np.std(values, ddof=1)
    wide = lambda n: stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n)  # noqa: E731
    assert needed is not None and wide(needed) < abs(gap.mean) <= wide(needed - 1)
    assert half_width(values) == pytest.approx(gap.half_width) and mean_sd([0.5, 0.5]) == "0.500 ± 0.000"
