"""The bounds of an audit: their coverage, their power, and scores against naive ones."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from otafl.core.errors import InputError
from otafl.privacy import audit, gaussian, pld_eps, scores
from otafl.privacy.by_pld import Row
from otafl.privacy.one_run import one_run

DELTA, BETA = 1e-5, 1e-3


def normal_scores(mu: float, runs: int, repeats: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(-mu / 2, 1, (repeats, runs)), rng.normal(mu / 2, 1, (repeats, runs))


def charge(mu: float) -> audit.Charge:
    return audit.gaussian_charge(mu, float(gaussian.eps(mu, DELTA)), DELTA)


@pytest.mark.parametrize("repeats", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_the_shift_of_a_tight_mechanism_passes_its_charge_exactly_as_often_as_it_may(repeats: int) -> None:
    beta = 0.05
    passed = sum(audit.shift(a, p, beta).low > 1.0 for a, p in zip(*normal_scores(1.0, 40, repeats)))
    assert stats.binomtest(passed, repeats, beta).pvalue > 1e-6


def test_counts_of_a_tight_mechanism_rarely_pass_their_charge() -> None:
    repeats, beta, mine = 400, 0.05, charge(1.0)
    found = [audit.examine(a, p, mine, beta, False) for a, p in zip(*normal_scores(1.0, 200, repeats))]
    refuted = sum(one.curve.refutes for one in found)
    assert stats.binomtest(refuted, repeats, beta, alternative="greater").pvalue > 1e-6


@pytest.mark.parametrize(("ratio", "runs"), [(32.0, 3), (2.0, 53), (1.5, 188), (1.195, 1168), (1.1, 4370)])
def test_a_charge_that_is_short_is_found_with_power_nine_tenths(ratio: float, runs: int) -> None:
    repeats = 300
    found = sum(audit.shift(a, p, BETA).low > 1.0 for a, p in zip(*normal_scores(ratio, runs, repeats)))
    assert stats.binomtest(found, repeats, 0.9, alternative="less").pvalue > 1e-4


def test_limits_far_away_stay_below_the_exact_ones_and_near_them() -> None:
    for statistic, freedom in ((29.0, 40), (29.9, 4000)):
        exact = audit.noncentrality(statistic, freedom, BETA)
        far, audit.FAR = audit.FAR, 1.0
        try:
            union = audit.noncentrality(statistic, freedom, BETA)
        finally:
            audit.FAR = far
        assert 0.75 * exact < union <= exact


def test_upper_limits_solve_their_equation() -> None:
    for hits, of in ((0, 10), (3, 50), (49, 50)):
        assert stats.binom.cdf(hits, of, audit.upper_limit(hits, of, BETA)) == pytest.approx(BETA, rel=1e-6)
    assert audit.upper_limit(10, 10, BETA) == 1.0


def test_counts_are_of_the_scores_that_chose_no_threshold_each_limit_at_half_the_error() -> None:
    absent, present = (one[0] for one in normal_scores(2.0, 300, 1, seed=5))
    for found in audit.examine(absent, present, charge(2.0), BETA, False)[1:3]:
        false, missed = np.sum(absent[150:] > found.threshold), np.sum(present[150:] <= found.threshold)
        for hits, limit in ((false, found.fpr), (missed, found.fnr)):
            assert stats.binom.cdf(hits, 150, limit) == pytest.approx(BETA / 2, rel=1e-6)


@pytest.mark.parametrize("mirrored", [False, True])
def test_delta_is_taken_off_whichever_world_shows_more(mirrored: bool) -> None:
    absent, present = np.r_[np.zeros(400), np.ones(2)], np.r_[np.zeros(200), np.ones(202)]
    worlds = (-present, -absent) if mirrored else (absent, present)
    found = audit.counts(*worlds, np.array(-0.5 if mirrored else 0.5), charge(1.0)._replace(delta=0.3), BETA)
    rare = audit.upper_limit(2, 402, BETA / 2)
    assert found.eps == pytest.approx(np.log((1 - audit.upper_limit(200, 402, BETA / 2) - 0.3) / rare))


@pytest.mark.parametrize("normal", [False, True])
def test_the_error_is_shared_by_as_many_tests_as_may_refute(normal: bool) -> None:
    absent, present = (one[0] for one in normal_scores(1.0, 50, 1))
    found = audit.examine(absent, present, charge(1.0), BETA, normal)
    assert audit.statistics(normal) == sum(one is not None for one in (found.shift, found.curve, found.point))


def test_a_mechanism_without_noise_is_as_far_apart_as_float32_can_tell() -> None:
    found = audit.examine(np.full(6, -1.0), np.full(6, 1.0), charge(50.0), BETA, True)
    assert found.refuted and found.shift is not None and 1e5 < found.shift.low < 2e6


def test_noise_below_the_rounding_of_float32_refutes_no_charge_that_allows_it() -> None:
    absent, present = (one[0] for one in normal_scores(1e8, 200, 1))
    assert not audit.examine(absent, present, charge(1e8), BETA, True).refuted
    assert not audit.examine(np.zeros(6), np.zeros(6), charge(1.0), BETA, True).refuted


def test_scores_of_unequal_variance_are_left_to_the_counts() -> None:
    rng = np.random.default_rng(0)
    found = audit.examine(rng.normal(-0.5, 1, 2000), rng.normal(0.5, 3, 2000), charge(5.0), BETA, True)
    assert found.shift is not None and found.sound_shift is None and not found.refuted


def test_whether_the_variances_are_equal_does_not_depend_on_which_world_is_which() -> None:
    rng = np.random.default_rng(8)
    few, many = rng.normal(0, 1.1, 12), rng.normal(0, 1, 60)
    there, back = audit.shift(few, many, BETA).equal, audit.shift(many, few, BETA).equal
    assert there == pytest.approx(back, rel=1e-9) and 0 < there < 1


def test_weak_is_said_where_the_charge_was_not_tried() -> None:
    absent, present = (one[0] for one in normal_scores(0.5, 2000, 1))
    assert audit.examine(absent, present, charge(1.0), BETA, True).weak
    assert not audit.examine(absent, present, charge(0.5), BETA, True).weak


def test_scores_must_be_numbers_and_several() -> None:
    for bad in (np.array([1.0, np.nan]), np.array([1.0])):
        with pytest.raises(ValueError, match="scores absent"):
            audit.examine(bad, np.zeros(3), charge(1.0), BETA, True)


def test_charged_power_of_sampled_rounds_is_that_of_the_privacy_loss_distribution() -> None:
    row = Row(0.5, np.full(20, 1 / 16), 0.0)  # q = 0.5, z = 4, T = 20
    eps = pld_eps(np.full(20, 4.0), 0.5, DELTA)
    found = audit.row_charge(row, "zero-out", eps, DELTA)
    assert eps == pytest.approx(2.4006, abs=2e-3) and float(found.power(0.01)) == pytest.approx(0.03991, abs=2e-4)
    assert found.mu is None
    replaced = audit.row_charge(row, "replace", eps, DELTA)
    assert np.all(replaced.power(np.array([0.01, 0.3])) <= ndtr(stats.norm.ppf([0.01, 0.3]) + row.mu) + 1e-12)


# --- scores ------------------------------------------------------------------------------------------------------


def test_the_gaussian_score_is_the_likelihood_ratio_and_standard() -> None:
    rng = np.random.default_rng(1)
    gain, root = rng.normal(size=(4, 2, 1)), rng.normal(size=(4, 2, 2))
    noise = root @ np.swapaxes(root, 1, 2) + 0.1 * np.eye(2)
    present, absent = rng.normal(size=(4, 1)), rng.normal(size=(4, 1))
    drawn = np.einsum("trs,nts->ntr", np.linalg.cholesky(noise), rng.normal(size=(20000, 4, 2)))
    seen = drawn[..., None] + gain * present[:, None]
    score = scores.gaussian_score(seen, gain, noise, present, absent)[:, 0]
    means = [gain[:, :, 0] * size for size in (present, absent)]
    density = [
        sum(stats.multivariate_normal(mean[t], noise[t]).logpdf(seen[:5, t, :, 0]) for t in range(4)) for mean in means
    ]
    change = gain[:, :, 0] * (present - absent)
    mu = np.sqrt(sum(change[t] @ np.linalg.solve(noise[t], change[t]) for t in range(4)))
    np.testing.assert_allclose(density[0] - density[1], mu * score[:5], rtol=1e-9)
    assert np.mean(score) == pytest.approx(mu / 2, abs=4 / np.sqrt(20000)) and np.std(score) == pytest.approx(1, 0.03)
    faint = scores.gaussian_score(seen, gain, noise, 1e-3 * present, 1e-3 * absent)
    assert np.std(faint) == pytest.approx(1, 0.03)  # however little one message is


def test_sampled_scores_are_likelihood_ratios() -> None:
    rng = np.random.default_rng(2)
    seen, size, variance, rate = rng.normal(size=(6, 3, 1)), np.array([[0.5], [0.0], [2.0]]), np.full(3, 0.7), 0.3
    seen[0] = 40.0  # far out: no overflow
    spread = np.sqrt(0.7)
    naive = np.sum(
        np.log((1 - rate) * stats.norm.pdf(seen, 0, spread) + rate * stats.norm.pdf(seen, size, spread) + 1e-320)
        - stats.norm.logpdf(seen, 0, spread),
        axis=(1, 2),
    )
    found = scores.sampled_score(seen, size, variance, np.array([rate]))[:, 0]
    np.testing.assert_allclose(found[1:], naive[1:], rtol=1e-9)
    ahead = (40.0 * size[:, 0] - size[:, 0] ** 2 / 2) / 0.7
    assert found[0] == pytest.approx(np.sum(np.logaddexp(np.log(1 - rate), np.log(rate) + ahead)), rel=1e-12)
    opposed = scores.replaced_score(seen, size, variance, np.array([rate]))[:, 0]
    np.testing.assert_allclose(opposed, -scores.replaced_score(-seen, size, variance, np.array([rate]))[:, 0])


def test_a_record_that_is_always_drawn_and_far_from_what_was_seen_has_a_finite_score() -> None:
    one = np.ones((1, 1))
    assert scores.sampled_score(-50.0 * one[None], one, one[0], one[0]) == [[-50.5]]


def test_the_crowds_score_is_a_ratio_of_two_mixtures() -> None:
    rng = np.random.default_rng(3)
    seen, others, rates = rng.normal(-1, 1, (4, 2)), 4, (0.5, 0.4)
    sizes = np.full(2, 0.6), np.full(2, 0.5)

    def density(y: np.ndarray, size: float, rate: float, with_it: bool) -> np.ndarray:
        total = np.zeros_like(y)
        for j in range(others + 1):
            chance = stats.binom.pmf(j, others, rate)
            total += chance * (1 - rate if with_it else 1) * stats.norm.pdf(y, -size * j, 1)
            total += chance * rate * stats.norm.pdf(y, size * (1 - j), 1) if with_it else 0
        return total

    naive = np.log(density(seen, 0.5, 0.4, True) / density(seen, 0.6, 0.5, False)).sum(1)
    found = scores.crowd_score(seen, sizes, np.ones(2), rates, others)
    np.testing.assert_allclose(found, naive, rtol=1e-9)


def test_one_run_passes_its_charge_exactly_as_often_as_it_may_and_finds_noise_that_is_short() -> None:
    """Noncentral t: 300 tight runs at error 0.05; a true ratio of 2 with the power that the law gives."""
    rng, beta, count, rest, repeats = np.random.default_rng(5), 0.05, 12, 30, 300
    passed = {1.0: 0, 2.0: 0}
    for ratio in passed:
        for _ in range(repeats):
            signs = rng.choice([-1.0, 1.0], count)
            noise = rng.normal(size=count + rest) / ratio  # the charge says that its std is 1
            found = one_run(signs * 0.5 + noise[:count], signs, noise[count:], beta)
            passed[ratio] += found.low > 1.0
    assert stats.binomtest(passed[1.0], repeats, beta).pvalue > 1e-6
    limit = stats.nct.ppf(1 - beta, rest, np.sqrt(count) / 2)
    power = stats.nct.sf(limit, rest, np.sqrt(count))
    assert stats.binomtest(passed[2.0], repeats, float(power)).pvalue > 1e-6


def test_one_run_without_noise_is_infinitely_far_apart_and_bad_input_is_refused() -> None:
    assert one_run(np.array([1.0, -1.0]), np.array([1.0, -1.0]), np.zeros(5), 0.01).low == np.inf
    assert one_run(np.array([1.0, 1.0]), np.array([1.0, -1.0]), np.zeros(5), 0.01).low == 0  # nothing tells them apart
    for wrong in ((np.ones(3), np.ones(2), np.ones(5)), (np.ones(2), np.zeros(2), np.ones(5)),
                  (np.ones(2), np.ones(2), np.ones(1)), (np.array([np.nan, 1]), np.ones(2), np.ones(5))):  # fmt: skip
        with pytest.raises(InputError):
            one_run(*wrong, 0.01)
