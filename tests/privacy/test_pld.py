import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.privacy import gaussian, pld_eps, rdp_to_eps, total_rdp
from otafl.privacy.pld import bin_down, loss_interval


@given(st.lists(st.floats(0.05, 200), min_size=1, max_size=80), st.integers(2, 12))
def test_bins_never_add_noise_and_lose_no_round(values, bins):
    value, count = bin_down(values, bins)
    rounded = np.repeat(value, count)
    assert rounded.size == len(values)
    assert value.size <= bins
    assert np.all(np.sort(rounded) <= np.sort(values))


@pytest.mark.parametrize(("adjacency", "expected"), [("add-remove", 2.01), ("replace", 2.63)])
def test_published_values(adjacency, expected):
    """AdaScale erratum 8: 500 rounds, q = .01, sigma = .85 per contribution norm; replacement moves twice as far."""
    z = 0.85 / (2 if adjacency == "replace" else 1)
    assert pld_eps(np.full(500, z), 0.01, 1e-5, adjacency) == pytest.approx(expected, abs=0.01)


def test_rounds_without_sampling_are_exact():
    z = np.array([1.0, 2.0, 4.0, np.inf])
    expected = gaussian.eps(np.sqrt(1 + 1 / 4 + 1 / 16), 1e-5)
    for adjacency in ("add-remove", "replace", "zero-out"):
        assert pld_eps(z, 1.0, 1e-5, adjacency) == pytest.approx(float(expected), rel=1e-12)


def test_sampling_rate_near_one_meets_the_exact_gaussian_for_replacement():
    """Ties our factor 2 to dp_accounting's convention."""
    z = np.full(3, 2.0)
    assert pld_eps(z, 0.999999, 1e-5, "replace") == pytest.approx(float(gaussian.eps(np.sqrt(3) / 2, 1e-5)), rel=2e-3)


@pytest.mark.parametrize(("z", "rounds"), [(100.0, 10_000), (10.0, 300)])
@pytest.mark.parametrize("delta", [1e-12, 1e-13, 1e-14])
def test_no_rounding_takes_a_small_delta_below_the_truth(z, rounds, delta):
    """At a rate of almost one every batch holds the unit but for a chance that is known: a Gaussian in all of them."""
    rate = 1 - 2.0**-23
    least = gaussian.eps(np.sqrt(rounds) / z, delta / rate**rounds)
    assert pld_eps(np.full(rounds, z), rate, delta) >= least


def test_below_rdp_and_falling_with_finer_bins():
    z = np.exp(np.random.default_rng(0).uniform(np.log(0.7), np.log(3), 60))
    coarse, fine = (pld_eps(z, 0.02, 1e-5, bins=bins) for bins in (3, 12))
    assert fine < coarse
    assert fine < rdp_to_eps(total_rdp(0.02, z[:, None]), 1e-5).eps[0]


def test_mixed_rounds_cost_more_than_either_part():
    z, rate = np.array([1.0] * 20 + [4.0] * 4), np.array([0.05] * 20 + [1.0] * 4)
    both = pld_eps(z, rate, 1e-5)
    assert both > max(pld_eps(z[:20], 0.05, 1e-5), pld_eps(z[20:], 1.0, 1e-5))


def test_ends():
    assert pld_eps([np.inf, 1.0], [0.5, 0.0], 1e-5) == 0
    assert pld_eps([0.0], 0.5, 1e-5) == np.inf
    with pytest.raises(InputError, match="adjacency"):
        pld_eps([1.0], 0.5, 1e-5, "swap")


def test_rare_samples_under_little_noise_are_counted_from_above():
    """A grid as fine as the usual loss of such a round would have 1e10 points up to its largest one."""
    eps = pld_eps(np.full(3, 0.1), 1e-9, 1e-10)
    one_round = np.log1p(1e-9 * np.expm1(gaussian.eps(10.0, 0.1)))  # delta(eps) = q delta_0(log(1 + (e^eps - 1)/q))
    assert one_round < eps <= gaussian.eps(np.sqrt(3) * 10, 1e-10)


def test_what_dp_accounting_cannot_count_is_one_line(monkeypatch):
    from dp_accounting.pld import privacy_loss_distribution

    def fails(*args, **kwargs):
        raise IndexError("index 0 is out of bounds")

    monkeypatch.setattr(privacy_loss_distribution, "from_gaussian_mechanism", fails)
    with pytest.raises(InputError, match=r"cannot count these rounds \(dp-accounting: IndexError\); use 'rdp'"):
        pld_eps(np.ones(3), 0.1, 1e-5)


def test_rounds_of_little_noise_are_counted_on_a_grid_of_few_points() -> None:
    """dp_accounting looks at every point by itself: a plan of nine such rounds took minutes."""
    z, rate = np.full(3, 0.03), np.full(3, 0.1)
    for least in (0.03, 1e-3, 1e-6):
        loss = (1 + 30 * least) / (2 * least**2)
        assert loss / loss_interval(np.array([least]), rate[:1]) <= 1.01e5
    assert pld_eps(z, rate, 1e-5) == pytest.approx(pld_eps(z, rate, 1e-5, interval=5e-3), rel=1e-5)


@pytest.mark.parametrize(("z", "rate"), [(0.7, 1e-5), (0.5, 1e-5)])
def test_few_points_do_not_blur_many_rarely_sampled_rounds(z: float, rate: float) -> None:
    """A hundred thousand points up to the largest loss charged a hundred thousand such rounds half as much again."""
    deviation = rate * np.sqrt(np.expm1(1 / z**2))
    assert loss_interval(np.full(3, z), np.full(3, rate)) <= 0.45 * deviation
