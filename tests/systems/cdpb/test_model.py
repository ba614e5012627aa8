"""CDPB's mean field, exact moments and convergence bound against sampling, closed forms and quadrature."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as laws
from scipy.optimize import linprog

from otafl.core.errors import InputError
from otafl.systems.cdpb import design as cdpb
from otafl.systems.cdpb.design import IDLE, NOISE_FREE, NOISY, ExpGain, Params, Scheme, error_energy, stats

UNLIKE = Params(K=12, sigma2=tuple(np.geomspace(0.1, 2, 12)), P=tuple(np.linspace(0.5, 2, 12)), d=7, sz2=0.3)


@pytest.mark.parametrize("threshold", [1e-4, 0.3, 2.0, 20.0])
def test_gain_moments_equal_quadrature(threshold):
    gain = ExpGain(0.7)
    density = laws.expon(scale=1.4).pdf
    tail, excess = (integrate.quad(f, threshold, 60)[0] for f in (density, lambda h: (h - threshold) * density(h)))
    below = integrate.quad(lambda h: h * density(h), 0, threshold)[0]
    assert np.allclose(
        [gain.tail(threshold), gain.excess(threshold), gain.below(threshold)], [tail, excess, below], rtol=1e-7
    )


def test_typeset_density_is_no_law():
    """E17: (52) from x to infinity is 2 (2 sigma^2 + x) e^(-x / 2 sigma^2), at x = 0 4 sigma^2 instead of 1."""
    sigma2 = 0.7
    total = integrate.quad(lambda h: h / sigma2 * np.exp(-h / (2 * sigma2)), 0, np.inf)[0]
    assert total == pytest.approx(4 * sigma2)
    assert total != pytest.approx(1, rel=0.5)


def test_check_values():
    assert stats(Params(), 0.6, IDLE).v == pytest.approx(54.8812, abs=5e-5)
    assert stats(Params(), 0.6, NOISY).v == pytest.approx(67.0713, abs=5e-5)
    assert cdpb.inverse_moments(Params(K=12), 0.7).inv_K == pytest.approx(0.187615, abs=1e-6)


def test_noise_formulas():
    """(56), (60) and the mixed strategy in terms of u."""
    u, c = np.linspace(0.01, 5, 50), Params().c
    assert np.allclose(stats(Params(), u, IDLE).v, c * np.exp(-u))
    assert np.allclose(stats(Params(), u, NOISY).v, c * (1 - u * np.exp(-u)))
    mixed = c * (np.exp(-u) + 0.3 * (1 - (1 + u) * np.exp(-u)))
    assert np.allclose(stats(Params(), u, Scheme(0.3)).v, mixed)


@pytest.mark.parametrize("mode", ["scale", "coin"])
@pytest.mark.parametrize("scheme", [IDLE, NOISY, Scheme(0.3), Scheme(keep=0.4), NOISE_FREE])
@pytest.mark.parametrize("params", [Params(K=20, d=3, sz2=0.2), UNLIKE])
def test_participation_and_noise_match_draws(params, scheme, mode):
    """Means of K_t and of the noise within 4.5 standard errors of 20,000 rounds (60 comparisons: 4e-4 by chance)."""
    drawn = cdpb.draw_rounds(params, 0.6, scheme, 20_000, np.random.default_rng(7), mode)
    at = stats(params, 0.6, scheme)
    for sample, mean in ((drawn.K_t, at.K_t), (drawn.noise.sum(-1), at.v), (drawn.s2, at.s2)):
        error = 4.5 * np.std(sample) / np.sqrt(len(sample))
        assert abs(np.mean(sample) - mean) <= error + 1e-12


@pytest.mark.parametrize("scheme", [IDLE, NOISY, Scheme(0.5)])
@pytest.mark.parametrize("params", [Params(K=10), UNLIKE.but(K=12)])
def test_inverse_moments_match_draws(params, scheme):
    """1/K_t, 1/K_t^2 and v/K_t^2, given K_t > 0, within 4.5 standard errors of 100,000 rounds (18 comparisons)."""
    drawn = cdpb.draw_rounds(params, 1.0, scheme, 100_000, np.random.default_rng(3))
    some = drawn.K_t > 0
    K_t, v = drawn.K_t[some], drawn.noise.sum(-1)[some]
    exact = cdpb.inverse_moments(params, 1.0, scheme)
    for sample, mean in ((1 / K_t, exact.inv_K), (1 / K_t**2, exact.inv_K2), (v / K_t**2, exact.noise)):
        assert abs(sample.mean() - mean) <= 4.5 * sample.std() / np.sqrt(some.sum())


def test_inverse_moments_equal_binomial_sum():
    m = np.arange(1, 13)
    weight = laws.binom.pmf(m, 12, np.exp(-0.7))
    assert cdpb.inverse_moments(Params(K=12), 0.7).inv_K == pytest.approx((weight / m).sum() / weight.sum(), rel=1e-12)


def test_mean_field_is_off_for_few_clients():
    """E13: K = 10, u = 1."""
    params, at = Params(K=10), stats(Params(K=10), 1.0, NOISY)
    exact = cdpb.inverse_moments(params, 1.0, NOISY)
    assert exact.inv_K == pytest.approx(0.335, abs=5e-4)
    assert 1 / at.K_t == pytest.approx(0.272, abs=5e-4)
    assert exact.noise == pytest.approx(0.829, abs=1e-3)
    assert at.v / at.K_t**2 == pytest.approx(0.467, abs=5e-4)
    assert exact.empty == pytest.approx(0.0102, abs=1e-4)
    many = Params(K=100)
    assert cdpb.B_exact(many, 0.39) / float(error_energy(many, stats(many, 0.39))) == pytest.approx(1, abs=0.01)


def test_noise_limit_of_the_paper_never_binds():
    """E19: v <= 2 K P sigma^2 at every load, so (25d) says nothing for sigma^2 <= 1."""
    u = np.geomspace(1e-6, 50, 500)
    assert np.all(stats(Params(), u, NOISY).v <= Params().c)


def test_sampling_error_of_the_two_normalisers():
    """E21: MSE (1-p)/(pK) mean norm^2 (expected) against (E[1/K_t] - 1/K) variance K/(K-1) (genie); 4.5 s.e."""
    K, p = 10, np.exp(-0.7)
    x = np.linspace(0.5, 1.5, K)
    good = np.random.default_rng(4).random((400_000, K)) < p
    some = good[good.any(-1)]  # the genie skips empty rounds
    expected, genie = (good @ x / (K * p) - x.mean()) ** 2, (some @ x / some.sum(-1) - x.mean()) ** 2
    inv_K = cdpb.inverse_moments(Params(K=K), 0.7).inv_K
    wanted = (1 - p) / (p * K) * np.mean(x**2), (inv_K - 1 / K) * x.var() * K / (K - 1)
    for sample, value in zip((expected, genie), wanted):
        assert (
            abs(sample.mean() - value) < 4.5 * sample.std() / np.sqrt(len(sample)) + 2e-5
        )  # empty rounds: 1e-3 of all
    assert wanted[1] < wanted[0]


def test_exact_error_tends_to_the_mean_field():
    """B_exact / B -> 1 as K grows, for a fixed load, receiver noise included."""
    ratios = []
    for K in (10, 100, 1000):
        params = Params(K=K, sz2=0.1, d=4)
        ratios.append(cdpb.B_exact(params, 0.5, NOISY) / float(error_energy(params, stats(params, 0.5, NOISY))))
    assert ratios[0] > ratios[1] > ratios[2] > 1
    assert ratios[2] < 1.003


@settings(max_examples=60, deadline=None)
@given(u=st.floats(1e-4, 5), portion=st.floats(0, 1))
def test_like_clients_as_groups(u, portion):
    """Equal entries in a tuple give what the number gives."""
    one, listed = Params(K=5), Params(K=5, sigma2=(0.5,) * 5, P=(1.0,) * 5)
    for a, b in zip(stats(one, u, Scheme(portion)), stats(listed, u, Scheme(portion))):
        assert a == pytest.approx(b, rel=1e-12)


def test_energy_spent():
    """Idle P e^-u, noisy P, mixed between; noise-free against 200,000 draws (4.5 s.e.)."""
    at = [float(stats(Params(), 0.5, s).energy) for s in (IDLE, NOISY, Scheme(0.25), Scheme(keep=0.5), NOISE_FREE)]
    p = np.exp(-0.5)
    assert at[:4] == pytest.approx([p, 1, p + 0.25 * (1 - p), 0.5 * p])
    h = ExpGain(0.5).draw(np.random.default_rng(0), (200_000,))
    spent = np.where(h >= 0.5, 0.5 / h, 0)
    assert abs(spent.mean() - at[4]) < 4.5 * spent.std() / np.sqrt(h.size)


def test_nobody_takes_part_at_a_huge_load():
    at = stats(Params(capped=False), 800.0)
    assert at.K_t == 0
    assert error_energy(Params(), at) == np.inf
    assert cdpb.eps(Params(), 800.0) == 0


@given(a=st.floats(1, 100), tau=st.integers(1, 300))
def test_weight_sum(a, tau):
    assert cdpb.weight_sum(a, tau) == pytest.approx(sum((a + t) ** 2 for t in range(tau)), rel=1e-9)


def test_gamma_falls_with_tau_and_tends_to_its_simple_form():
    tau = np.arange(1, 2000)
    full = cdpb.gamma(Params(D0=1.0), 0.4, tau, bound="full")
    assert np.all(np.diff(full) < 0)
    assert full[-1] / cdpb.gamma(Params(), 0.4, 1999) == pytest.approx(1, abs=0.01)


def _worst_recursion(a: float, tau: int) -> float:
    """max (1/S) sum beta_t e_t over a_{t+1} <= (1 - mu eta_t) a_t - eta_t e_t + eta_t^2 B, a_0 = 0, B = mu = 1."""
    t = np.arange(tau)
    eta, beta = 4 / (a + t), (a + t) ** 2
    rows, limits = np.zeros((tau, 2 * tau + 1)), eta**2
    for k in range(tau):  # unknowns: a_0 .. a_tau, e_0 .. e_(tau-1)
        rows[k, k + 1], rows[k, k], rows[k, tau + 1 + k] = 1, -(1 - eta[k]), eta[k]
    weights = np.concatenate([np.zeros(tau + 1), -beta / cdpb.weight_sum(a, tau)])
    bounds = [(0, 0)] + [(0, None)] * (2 * tau)
    return -linprog(weights, rows, limits, bounds=bounds).fun


def test_typeset_convergence_constant_is_no_bound():
    """E11: the worst case of the recursion (a linear programme) lies above tau + a and below tau + 2a."""
    params = Params(a=8.0, D0=0.0)
    worst = _worst_recursion(8.0, 10)
    assert worst == pytest.approx(0.304, abs=1e-3)
    assert cdpb.gamma_of(params, 1.0, 10, "printed") == pytest.approx(0.219, abs=1e-3)
    assert cdpb.gamma_of(params, 1.0, 10, "full") == pytest.approx(0.316, abs=1e-3)


@settings(max_examples=15, deadline=None)
@given(a=st.floats(4, 60), tau=st.integers(1, 25))
def test_full_bound_covers_the_recursion(a, tau):
    assert _worst_recursion(a, tau) <= cdpb.gamma_of(Params(a=a, D0=0.0), 1.0, tau, "full") * (1 + 1e-7)


@pytest.mark.parametrize(("a", "rounds"), [(80, 279), (800, 2608)])
def test_starting_error_must_not_be_dropped(a, rounds):
    """E16: with D0 = 1 the rounds that gbar needs grow from 59 to 279 and 2608."""
    params = Params(a=a, D0=1.0, ebar=None)
    u = cdpb.lemma1(params)
    tau = np.arange(1, 4000)
    assert tau[np.argmax(cdpb.gamma(params, u, tau, bound="full") <= params.gbar)] == rounds
    assert tau[np.argmax(cdpb.gamma(params, u, tau) <= params.gbar)] == 59


def test_remarks_and_warnings():
    assert cdpb.remarks(Params()) == []
    assert "E16" in cdpb.remarks(Params(a=7.9))[0]
    assert "heuristic" in cdpb.remarks(Params(L=2, a=16))[0]
    with pytest.warns(UserWarning, match="E16"):
        cdpb.gamma(Params(a=2), 0.4, 10, bound="full")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cdpb.gamma(Params(a=2), 0.4, 10)


@pytest.mark.parametrize(
    "bad",
    [
        {"K": 0}, {"K": 2.5}, {"P": 0}, {"W": -1}, {"sigma2": 0}, {"mu": 0}, {"a": -8}, {"sz2": -0.1}, {"d": 0},
        {"alpha": 1},
        {"alpha": float("nan")}, {"lam1": -1}, {"lam1": 0, "lam2": 0}, {"gbar": 0}, {"ebar": -1}, {"P": float("inf")},
        {"W": float("nan")}, {"sigma2": (0.5, 0.5)}, {"L": 0}, {"A": 0}, {"D0": -1},
    ],
)  # fmt: skip
def test_bad_parameters_are_named(bad):
    with pytest.raises(InputError, match="|".join(bad)):
        Params(**bad)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: stats(Params(), 0.5, Scheme(1.2)), "portion"),
        (lambda: stats(Params(), 0.5, Scheme(keep=-0.1)), "keep"),
        (lambda: cdpb.scheme("mixed"), "portion"),
        (lambda: cdpb.scheme("idle", 0.5), "portion"),
        (lambda: cdpb.scheme("lazy"), "strategy"),
        (lambda: Params().load(0.0), "rho"),
        (lambda: Params().load(1.1), "rho"),
        (lambda: cdpb.gamma(Params(), 0.5, 0), "tau"),
        (lambda: cdpb.gamma(Params(), 0.5, 3, bound="tight"), "bound"),
    ],
)
def test_bad_calls_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()


def test_cap_is_optional():
    assert Params(capped=False).load(1.1) == pytest.approx(1.1)
    assert Params(sigma2=0.25).u_max == pytest.approx(2)
