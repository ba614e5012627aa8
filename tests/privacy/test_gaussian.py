import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.privacy import gaussian


def reference_log_delta(eps: float, mu: float) -> float:
    """The curve in 400-bit interval arithmetic."""
    ctx.prec = 4000 if eps > 100 else 600
    eps, mu = arb(eps), arb(mu)
    tail = lambda x: (x / arb(2).sqrt()).erfc() / 2  # noqa: E731
    value = tail(eps / mu - mu / 2) - eps.exp() * tail(eps / mu + mu / 2)
    return float(value.log())


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.7, 3.0, 12.0, 27.2, 40.0])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0, 3.0])
def test_curve_against_interval_arithmetic(mu, share):
    eps = share * (mu**2 / 2 + 4 * mu)
    reference = reference_log_delta(eps, mu)
    assert gaussian.log_delta(eps, mu) == pytest.approx(reference, rel=1e-10, abs=1e-10)


def test_published_values():
    """CARES E12 and check 1."""
    assert gaussian.eps_from_rho(369.54607786, 1e-5) == pytest.approx(484.5639, abs=1e-4)
    assert gaussian.budget_rho(500.0, 1e-5) == pytest.approx(382.9061, abs=1e-4)
    assert gaussian.eps_from_rho(1.0, 1e-5) == pytest.approx(6.57, abs=5e-3)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 10.0, 40.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1])
def test_eps_equals_dp_accounting(mu, delta):
    assert gaussian.eps(mu, delta) == pytest.approx(
        gaussian_mechanism.get_epsilon_gaussian(1 / mu, delta), rel=1e-7, abs=1e-9
    )


@settings(max_examples=50, deadline=None)
@given(eps=st.floats(1e-4, 2000), delta=st.floats(1e-12, 0.3))
def test_budget_and_eps_are_inverse_and_the_budget_is_safe(eps, delta):
    rho = gaussian.budget_rho(eps, delta)
    assert gaussian.log_delta(eps, np.sqrt(2 * rho)) <= np.log(delta) + 1e-9
    assert gaussian.eps_from_rho(rho, delta) == pytest.approx(eps, rel=1e-7)


def test_eps_rises_with_mu_and_falls_with_delta():
    grid = gaussian.eps(np.linspace(0.1, 30, 60)[:, None], np.logspace(-12, -1, 12))
    assert np.all(np.diff(grid, axis=0) > 0)
    assert np.all(np.diff(grid, axis=1) < 0)


def test_limits():
    assert gaussian.eps(0.0, 1e-5) == 0
    assert gaussian.eps(1e-9, 1e-5) == 0
    assert gaussian.eps(np.inf, 1e-5) == np.inf
    with pytest.raises(InputError, match=r"delta=1\.5"):
        gaussian.eps(1.0, 1.5)


@pytest.mark.parametrize("mu", [1e-15, 1e-12, 1e-9, 1e-7, 0.99e-6, 1.01e-6, 1e-4])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-30, 1e-20, 1e-14, 1e-13, 1e-10, 1e-7])
def test_eps_of_a_tiny_mu_is_never_too_small(mu, delta):
    """Mills' ratios of two points a tiny mu apart cancel: their difference was rounding, and eps below the true one."""
    eps = float(gaussian.eps(mu, delta))
    if eps > 0:
        assert reference_log_delta(eps, mu) <= np.log(delta) + 1e-7
        assert reference_log_delta(eps * (1 - 1e-3), mu) > np.log(delta)
    else:
        assert reference_log_delta(0.0, mu) <= np.log(delta)


@pytest.mark.parametrize("eps", [1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-16, 1e-12])
def test_a_budget_for_a_tiny_eps_keeps_it(eps, delta):
    mu = float(np.sqrt(2 * gaussian.budget_rho(eps, delta)))
    assert reference_log_delta(eps, mu) <= np.log(delta) + 1e-7


@pytest.mark.parametrize("function", [gaussian.eps_from_rho, gaussian.budget_rho])
def test_the_same_two_numbers_cost_one_bisection(function, monkeypatch):
    """To the bits that an array of them gives; in front of an array nothing is remembered."""
    bisect, counted = gaussian._bisect, []
    monkeypatch.setattr(gaussian, "_bisect", lambda *args: counted.append(1) or bisect(*args))
    one, delta = 0.7321, 1e-5
    asked = [function(one, delta), function(np.float64(one), np.float64(delta))]
    assert len(counted) == 1
    assert {*asked, *function(np.array([one, one]), delta)} == {asked[0]}
    assert len(counted) == 2
