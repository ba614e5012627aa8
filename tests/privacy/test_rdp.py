import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as reference
from flint import acb, arb, ctx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.privacy import moment_bounds as chords
from otafl.privacy import rdp
from otafl.privacy.moments import sampled_gaussian_log_moment


@pytest.mark.parametrize("rate", [0.01, 0.08, 1.0])
@pytest.mark.parametrize("sigma", [0.2, 0.7, 1.3, 8.0, 50.0])
def test_integer_orders_equal_dp_accounting(rate, sigma):
    """AdaScale section 9, at 1e-9."""
    orders = [2, 3, 16, 64]
    expected = reference._compute_rdp_poisson_subsampled_gaussian(rate, sigma, orders)
    assert rdp.sampled_gaussian_rdp(rate, sigma, orders) == pytest.approx(expected, rel=1e-9)


def exact_rdp(rate: float, sigma: float, order: float) -> float:
    """Rigorous complex integration at 200 bits."""
    ctx.prec = 200
    q, s, a = arb(rate), arb(sigma), arb(order)
    density = lambda x, _: (-(x * x) / 2).exp() * (1 - q + q * (x / s - 1 / (2 * s * s)).exp()).pow(acb(a))  # noqa: E731
    ends = np.unique(np.concatenate([[-30.0], np.arange(-9.0, order / sigma + 25, 3.0)]))
    total = sum((acb.integral(density, float(l), float(r), rel_tol=2**-90) for l, r in pairwise(ends)), acb(0))
    return float(((total / (2 * acb.pi()).sqrt()).log() / (a - 1)).real)


@pytest.mark.parametrize(
    ("rate", "sigma"), [(1e-6, 0.5), (1e-4, 5.0), (0.01, 0.1), (0.01, 1.3), (0.37, 50.0), (0.5, 0.8), (0.9, 3.0)]
)
@pytest.mark.parametrize("order", [1.1, 1.5, 2.7, 10.9])
def test_fractional_orders_equal_rigorous_integration(rate, sigma, order):
    assert rdp.sampled_gaussian_rdp(rate, sigma, [order])[0] == pytest.approx(exact_rdp(rate, sigma, order), rel=1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_fractional_orders_are_never_above_dp_accounting(rate, sigma):
    """dp_accounting adds the absolute values of an alternating series, so it lies above; by little at 10.9."""
    fractional = [order for order in rdp.ORDERS if order != round(order)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        above = reference._compute_rdp_poisson_subsampled_gaussian(rate, sigma, fractional)
    found = rdp.sampled_gaussian_rdp(rate, sigma, fractional)
    assert np.all(found <= above * (1 + 1e-9))
    assert found[-1] == pytest.approx(above[-1], rel=1e-6)


def test_integer_formula_meets_the_integral():
    """The sum at order n is the limit of the integral at n +- 1e-7."""
    near = rdp.sampled_gaussian_rdp(0.05, [[0.4], [1.0], [6.0]], [2 - 1e-7, 2, 2 + 1e-7, 9 - 1e-7, 9, 9 + 1e-7])
    assert near[..., 1] == pytest.approx((near[..., 0] + near[..., 2]) / 2, rel=1e-10)
    assert near[..., 4] == pytest.approx((near[..., 3] + near[..., 5]) / 2, rel=1e-10)


def test_check_value():
    """CDPB: SGM(alpha=8, p=.5, z=4)."""
    assert rdp.sampled_gaussian_rdp(0.5, 4.0, [8])[0] == pytest.approx(0.0706589, abs=5e-8)


def test_limits_of_rate_and_noise():
    found = rdp.sampled_gaussian_rdp([1.0, 0.0, 0.5, 0.5], [2.0, 2.0, np.inf, 0.0], [1.5, 4.0])
    assert found.tolist() == [[1.5 / 8, 4 / 8], [0, 0], [0, 0], [np.inf, np.inf]]


@settings(max_examples=40, deadline=None)
@given(rate=st.floats(1e-4, 0.99), sigma=st.floats(0.15, 30), order=st.integers(2, 40))
@example(rate=1e-4, sigma=1.0625, order=20)
@example(rate=0.75, sigma=1.25, order=38)  # a curvature of 1e-6 beside a slope of 700
def test_derivatives_match_differences(rate, sigma, order):
    u = 1 / sigma**2
    step = 1e-4 * u
    least, low, mid, high, most = (sampled_gaussian_log_moment(rate, u + n * step, order) for n in range(-2, 3))
    slope = (8 * (high.value - low.value) - (most.value - least.value)) / (12 * step)  # five points: errors of h^4
    curvature = (8 * (high.slope - low.slope) - (most.slope - least.slope)) / (12 * step)
    assert mid.slope == pytest.approx(slope, rel=1e-5)
    rounding = 4 * np.finfo(float).eps * mid.slope / step
    assert mid.curvature == pytest.approx(curvature, rel=1e-4, abs=1e-9 + rounding)
    assert mid.value / (order - 1) == pytest.approx(rdp.sampled_gaussian_rdp(rate, sigma, [order])[0], rel=1e-11)


def test_small_moments_keep_their_digits():
    """q = 1e-4, sigma = 5, alpha = 3, where a plain log-sum-exp in float64 is off by 9e-8; reference at 200 bits."""
    ctx.prec = 200
    q, u = arb(1e-4), 1 / arb(25)
    exact = ((1 - q) ** 3 + 3 * q * (1 - q) ** 2 + 3 * q**2 * (1 - q) * u.exp() + q**3 * (3 * u).exp()).log()
    assert sampled_gaussian_log_moment(1e-4, 0.04, 3).value == pytest.approx(float(exact), rel=1e-14)
    assert rdp.sampled_gaussian_rdp(1e-4, 5.0, [3])[0] == pytest.approx(float(exact) / 2, rel=1e-14)


def _log_moment_at_200_digits(rate: float, sigma: float, order: int) -> float:
    ctx.prec = 700
    q, u = arb(rate), 1 / arb(sigma) ** 2
    terms = (
        math.comb(order, k) * (1 - q) ** (order - k) * q**k * (k * (k - 1) / 2 * u).exp() for k in range(order + 1)
    )
    return float(sum(terms, arb(0)).log())


@pytest.mark.parametrize("order", [64, 127, 128, 137, 256, 512, 1000])
@pytest.mark.parametrize(("rate", "sigma"), [(0.0148, 1.78), (0.4, 0.12), (2e-7, 25.5), (0.9999, 0.4), (5e-5, 5.1)])
def test_large_orders(order, rate, sigma):
    """Beyond order 127 the exponentials of a block of noise levels used to overflow: moments came out negative."""
    exact = _log_moment_at_200_digits(rate, sigma, order)
    others = [2.0, 3.5]  # computed together with a large order
    assert rdp.sampled_gaussian_rdp(rate, sigma, [*others, order])[-1] == pytest.approx(exact / (order - 1), rel=1e-9)
    assert sampled_gaussian_log_moment(rate, 1 / sigma**2, order).value == pytest.approx(exact, rel=1e-9)


def test_log_moment_keeps_its_digits_where_one_exponent_is_huge_and_its_weight_tiny():
    exact = _log_moment_at_200_digits(8.9e-8, 2.4, 128)  # 1.2e-11, with e^(j u) = e^1411
    assert sampled_gaussian_log_moment(8.9e-8, 1 / 2.4**2, 128).value == pytest.approx(exact, rel=1e-11)


def test_large_fractional_orders():
    """Neighbouring integers bracket a fractional order; beyond 1000 it is refused."""
    low, middle, high = rdp.sampled_gaussian_rdp(0.01, 0.1, [900, 900.5, 901])
    assert low < middle < high
    with pytest.raises(ValueError, match=r"orders=1000.5 must be a whole number above 1000"):
        rdp.sampled_gaussian_rdp(0.01, 1.0, [2.0, 1000.5])


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(1e-3, 0.9), sigma=st.floats(0.3, 20))
def test_monotone_in_order_noise_and_rate(rate, sigma):
    orders = rdp.ORDERS[::7]
    here = rdp.sampled_gaussian_rdp(rate, sigma, orders)
    assert np.all(np.diff(here) >= -1e-14)
    assert np.all(rdp.sampled_gaussian_rdp(rate, sigma * 1.1, orders) <= here)
    assert np.all(rdp.sampled_gaussian_rdp(min(rate * 1.1, 1.0), sigma, orders) >= here)


@pytest.mark.parametrize("rates", [[0.01] * 4, np.linspace(0.005, 0.05, 30)])
@pytest.mark.parametrize("spread", [(0.2, 3.0), (0.8, 20.0)])
def test_chords_lie_above_the_exact_totals_and_close(rates, spread):
    rates = np.asarray(rates)
    rng = np.random.default_rng(1)
    z = np.exp(rng.uniform(*np.log(spread), (40, rates.size)))
    exact = rdp.total_rdp(rates, z, exact=True)
    upper = rdp.total_rdp(rates, z, exact=False)
    assert np.all(upper >= exact * (1 - 1e-12))
    eps = [rdp.rdp_to_eps(total, 1e-5, warn=False).eps for total in (exact, upper)]
    assert np.all(eps[1] <= eps[0] * 1.02)


def test_moment_is_convex_in_noise_level_and_rate():
    """What the chords rest on, by second differences at fractional orders."""
    level = np.linspace(0.01, 6, 80)
    orders = [1.05, 1.3, 1.9, 2.5, 4.5]
    for rate in (0.01, 0.2, 0.8):
        moment = np.exp(rdp.sampled_gaussian_rdp(rate, level**-0.5, orders) * (np.array(orders) - 1))
        assert np.all(np.diff(moment, 2, axis=0) > 0)
    by_rate = np.exp(rdp.sampled_gaussian_rdp(np.linspace(0.01, 0.99, 50), 1.0, orders) * (np.array(orders) - 1))
    assert np.all(np.diff(by_rate, 2, axis=0) > 0)


def test_totals_are_sums_over_rounds_and_do_not_mix_clients():
    rng = np.random.default_rng(0)
    z, rate = rng.uniform(0.5, 5, (2, 7, 3)), np.array([0.1, 1.0, 0.3])
    expected = rdp.sampled_gaussian_rdp(rate, z).sum(1)
    assert rdp.total_rdp(rate, z) == pytest.approx(expected, rel=1e-12)
    order = [2, 0, 1]
    assert rdp.total_rdp(rate[order], z[..., order]) == pytest.approx(expected[:, order], rel=1e-12)


def test_long_runs_switch_to_chords_and_say_so(monkeypatch):
    monkeypatch.setattr(rdp, "EXACT_LIMIT", 10)
    called = []
    monkeypatch.setattr(chords, "sum_upper", lambda *a: called.append(1) or np.zeros((1, len(rdp.ORDERS))))
    z = np.linspace(1, 2, 11)[:, None]
    assert not rdp.is_exact(0.1, z)
    rdp.total_rdp(0.1, z)
    assert called
    assert rdp.is_exact(0.1, np.ones((50, 1)))
    with np.errstate(all="raise"):
        assert rdp.is_exact(0.1, np.zeros((50, 1)))  # no noise: one level, and no word about it


@pytest.mark.parametrize("scale", [1e-4, 0.01, 0.3, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2])
def test_conversion_equals_dp_accounting(scale, delta):
    curve = rdp.sampled_gaussian_rdp(0.05, 1.0) * scale * 100
    expected, order = reference.compute_epsilon(rdp.ORDERS, curve, delta)
    found = rdp.rdp_to_eps(curve, delta, warn=False)
    assert found.eps == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert found.eps == 0 or found.order == order


def test_edge_of_the_order_list_warns():
    with pytest.warns(UserWarning, match="edge of the list"):
        rdp.rdp_to_eps(np.asarray(rdp.ORDERS) * 1e-6, 1e-2 / 1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rdp.rdp_to_eps(np.asarray(rdp.ORDERS) * 0.1, 1e-5)


def test_rdp_budget_is_where_the_conversion_reaches_eps():
    cap = rdp.rdp_budget(30.0, 1e-5)
    for n in (20, 60, 120):
        assert rdp.rdp_to_eps(cap[n : n + 1], 1e-5, rdp.ORDERS[n : n + 1]).eps == pytest.approx(30.0)


@pytest.mark.parametrize("orders", [[1.0, 2.0], [3.0, 2.0], [np.inf]])
def test_bad_orders_are_refused(orders):
    with pytest.raises(InputError, match="orders"):
        rdp.sampled_gaussian_rdp(0.1, 1.0, orders)


def test_bad_rate_and_noise_are_refused():
    with pytest.raises(InputError, match="rate"):
        rdp.sampled_gaussian_rdp(1.1, 1.0)
    with pytest.raises(InputError, match="noise_multiplier"):
        rdp.sampled_gaussian_rdp(0.1, np.nan)


@pytest.mark.parametrize(("excess", "eps"), [(0.01, 18.3), (0.04, 5.26), (0.16, 1.18)])
def test_published_eps_of_equal_allocation(excess, eps):
    """AdaScale section 8, EqualAlloc: three drawn channels, 500 rounds with a different noise each, mean eps."""
    devices, rounds, dim, batch, rate = 10, 500, 26010, 60, 0.01
    per_seed = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        path_loss = 10 ** ((33.44 + 35.22 * np.log10(rng.uniform(10, 200, devices))) / 10)
        draw = rng.standard_normal((rounds, devices)) + 1j * rng.standard_normal((rounds, devices))
        energy = 1 + (1 - rate) / batch
        weakest = np.min(np.abs(draw * np.sqrt(1 / (2 * path_loss))) ** 2 / energy, axis=1)
        floor = 1e-12 / (10 ** (23 / 10) * 1e-3 * devices**2 * weakest)
        multiplier = np.sqrt((floor + excess) / (2 * dim / (devices * batch) ** 2))
        per_seed.append(rdp.rdp_to_eps(rdp.total_rdp(rate, multiplier[:, None]), 1e-5, warn=False).eps[0])
    assert np.mean(per_seed) == pytest.approx(eps, rel=0.005)
