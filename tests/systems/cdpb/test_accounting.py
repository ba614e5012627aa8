"""What a round of CDPB costs: against dp_accounting, quadrature, Monte Carlo, and every erratum that moves a number."""

import warnings
from math import comb

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from otafl.core.errors import InputError
from otafl.privacy.pld import pld_eps
from otafl.systems.cdpb import design as cdpb
from otafl.systems.cdpb.accounting import hidden_rdp
from otafl.systems.cdpb.certificate import feasibility_law
from otafl.systems.cdpb.design import IDLE, NOISE_FREE, NOISY, Charge, Params, Scheme, eps, stats, theorem1
from otafl.systems.cdpb.detection import energy_advantage, energy_auc, renyi_with_energy

HIDDEN = {"accounting": "hidden", "assume_hidden": True}


def test_check_values():
    """Section numbers for given (alpha, p, z), through the formulas of one round."""
    at = stats(Params(K=1), np.log(2.0))
    assert at.p == pytest.approx(0.5)
    with_z2 = lambda z2: at._replace(s2=z2 * at.rho)  # noqa: E731
    assert cdpb.eps_round(Params(K=1), with_z2(16), Charge("hidden"), 8) == pytest.approx(0.0706589, abs=5e-8)
    assert cdpb.eps_round(Params(K=1), with_z2(9), Charge("visible"), 3) == pytest.approx(0.0902459, abs=5e-8)
    assert cdpb.eps_round(Params(K=1), with_z2(9), Charge("hidden", "replace"), 3) == pytest.approx(0.162203, abs=5e-7)
    assert theorem1(8, 0.5, 0.02) == pytest.approx(0.618269, abs=5e-7)


def test_the_printed_loss_is_theorem1_at_the_total_noise():
    """W^2 over artificial and receiver noise, (13)."""
    params = Params(K=20, d=30, alpha=5, W=3.0, sz2=0.7)
    at = stats(params, 0.4)
    assert eps(params, 0.4, accounting="paper") == pytest.approx(theorem1(5, at.p_top, 9 / (at.v + 0.7)), rel=1e-12)


def test_a_replacement_is_four_times_as_dear_and_counted_as_one():
    params, charge = Params(K=20, d=30), Charge("hidden", "replace", assume_hidden=True)
    assert feasibility_law(params, charge) == pytest.approx(4 * feasibility_law(params))
    at = stats(params, 0.4)
    z = float(cdpb.inv_z2(params, at, charge)) ** -0.5
    tight = cdpb.eps_delta(params, 0.4, 5, 1e-5, charge=charge, orders=(2.0,)).eps_tight
    assert tight == pytest.approx(pld_eps(np.full(5, z), float(at.p_top), 1e-5, "replace"), rel=1e-12)


def test_who_never_takes_part_pays_nothing_whatever_the_noise():
    assert hidden_rdp(4, [0.0, 0.3], np.inf).tolist() == [0.0, np.inf]
    assert theorem1(8, 0.0, np.inf) == pytest.approx(np.log(2) / 7)  # but what Theorem 1 asks of everybody


@pytest.mark.parametrize("alpha", [2, 5, 17])
@pytest.mark.parametrize("u", [0.05, 0.4, 1.5])
def test_hidden_equals_dp_accounting(u, alpha):
    params = Params(K=20, d=30, alpha=alpha, sz2=0.1)
    at = stats(params, u, Scheme(0.4))
    z = 1 / np.sqrt(float(cdpb.inv_z2(params, at, cdpb.VISIBLE)))
    theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(float(at.p), z, np.array([alpha]))[0]
    assert eps(params, u, scheme=Scheme(0.4), **HIDDEN) == pytest.approx(theirs, rel=1e-9)


def test_hidden_at_a_fractional_order_equals_quadrature():
    params = Params(K=20, d=30, alpha=2.5, sz2=0.1)
    at = stats(params, 0.4)
    x, p = float(cdpb.inv_z2(params, at, cdpb.VISIBLE)), float(at.p)
    moment = lambda y: (1 - p + p * np.exp(y * np.sqrt(x) - x / 2)) ** 2.5 * np.exp(-y * y / 2)  # noqa: E731
    value = integrate.quad(moment, -15, 15, epsabs=0, epsrel=1e-12)[0] / np.sqrt(2 * np.pi)
    assert eps(params, 0.4, **HIDDEN) == pytest.approx(np.log(value) / 1.5, rel=1e-9)


def test_visible_equals_its_definition():
    """E over participation of the Gaussian likelihood-ratio moment, by quadrature."""
    params = Params(K=5, d=4, alpha=3.3)
    at = stats(params, 0.7)
    shift, p = np.sqrt(float(cdpb.inv_z2(params, at, cdpb.VISIBLE))), float(at.p)
    exponent = lambda y: -3.3 * (y - shift) ** 2 / 2 + 2.3 * y**2 / 2  # noqa: E731
    moment = integrate.quad(lambda y: np.exp(exponent(y)), -15, 25, epsabs=0, epsrel=1e-12)[0] / np.sqrt(2 * np.pi)
    assert eps(params, 0.7) == pytest.approx(np.log(1 - p + p * moment) / 2.3, rel=1e-7)


@settings(max_examples=80, deadline=None)
@given(
    u=st.floats(1e-3, 5),
    K=st.integers(1, 200),
    d=st.integers(1, 1000),
    alpha=st.integers(2, 30),
    portion=st.floats(0, 1),
    sz2=st.floats(0, 2),
)
def test_accountants_are_ordered(u, K, d, alpha, portion, sz2):
    """hidden <= visible <= none, and zero-out <= replace."""
    params, way = Params(K=K, d=d, alpha=alpha, sz2=sz2), Scheme(portion)
    hidden, visible, none = (
        float(eps(params, u, scheme=way, accounting=a, assume_hidden=True)) for a in ("hidden", "visible", "none")
    )
    assert 0 < hidden <= visible * (1 + 1e-9)
    assert visible <= none * (1 + 1e-9)
    assert visible <= eps(params, u, scheme=way, adjacency="replace")
    assert eps(params, u, scheme=way, trust_receiver_noise=False) >= visible


def test_total_power_is_not_variance_per_coordinate():
    """E1: the same design at d = 1, 10^4, 10^6; the printed value does not change."""
    values = [float(eps(Params(d=d), 0.4)) for d in (1, 10**4, 10**6)]
    assert values == pytest.approx([0.0040, 59.3, 5967], rel=2e-3)
    printed = [float(eps(Params(d=d), 0.4, accounting="paper")) for d in (1, 10**6)]
    assert printed == pytest.approx([1.73, 1.73], abs=5e-3)


def test_printed_loss_falls_with_rho_and_the_true_one_rises():
    """E2."""
    u = np.array([1e-9, 0.25, 0.5, 0.75, 1.0])
    printed, true = eps(Params(), u, accounting="paper"), eps(Params(), u)
    assert np.all(np.diff(printed) < 0)
    assert np.all(np.diff(true) > 0)
    assert printed[[0, -1]] == pytest.approx([2.09, 1.33], abs=6e-3)
    assert eps(Params(), np.array([1e-4, 0.4, 1.0])) == pytest.approx([1e-6, 0.0040, 0.0101], rel=0.01)


@pytest.mark.parametrize(
    ("alpha", "printed", "plain"),
    [(2, 1.739, 0.030), (5, 0.850, 0.074), (10, 0.714, 0.148), (20, 0.710, 0.295), (50, 0.906, 0.739)],
)
def test_theorem1_loses_to_the_plain_gaussian(alpha, printed, plain):
    """E4: K = 100, u = 0.39, the same exponent s = W^2 / sigma_q^2 on both sides."""
    s = 1 / float(stats(Params(), 0.39).v)
    assert theorem1(alpha, np.exp(-0.39), s) == pytest.approx(printed, abs=6e-4)
    assert alpha * s == pytest.approx(plain, abs=6e-4)
    assert theorem1(alpha, np.exp(-0.39), s) > alpha * s


def test_theorem1_never_drops_below_a_constant():
    """E4: infinite noise still costs log 2 / (alpha-1) + alpha / (alpha-1) log(1 + p)."""
    assert theorem1(10, 0.37, 0.0) == pytest.approx(np.log(2) / 9 + 10 / 9 * np.log(1.37))
    assert theorem1(10, 0.37, 0.03) == pytest.approx(0.516, abs=5e-4)


def _log_lemma3(alpha: int, p: float, s: float) -> float:
    """(34): log of the moment for sampling without replacement, E_a = e^(a s)."""
    E = lambda a: np.exp(a * s)  # noqa: E731
    total = 1 + p**2 * comb(alpha, 2) * min(4 * (E(2) - 1), 2 * E(2))
    return float(np.log(total + sum(2 * p**j * comb(alpha, j) * E((j - 1) * j) for j in range(3, alpha + 1))))


def test_proof_of_theorem1():
    """E4b: (36), said to equal (34), can be negative; (37) still lies above (34) on a grid, far above the truth."""
    assert np.log(2 * (0.01 * np.exp(0.001) + 1) ** 2 + 2 * np.exp(0.002) - 4) == pytest.approx(-3.1, abs=0.05)
    assert _log_lemma3(2, 0.01, 0.001) > 0
    for alpha in (2, 3, 5, 10, 20):
        for p in (0.01, 0.1, 0.5, 1.0):
            for s in (1e-3, 0.03, 0.3):
                assert theorem1(alpha, p, s) >= _log_lemma3(alpha, p, s) / (alpha - 1)
    assert _log_lemma3(10, 0.37, 0.03) / 9 == pytest.approx(0.405, abs=5e-4)
    assert hidden_rdp(10, 0.37, 2 * 0.03) == pytest.approx(0.0477, abs=5e-5)


def test_theorem1_starts_to_win_for_few_clients():
    """E4: K = 10 between alpha = 10 and 20."""
    s, p = 1 / float(stats(Params(K=10), 0.39).v), np.exp(-0.39)
    assert [float(theorem1(10, p, s)), 10 * s] == pytest.approx([1.487, 1.477], abs=6e-4)
    assert [float(theorem1(20, p, s)), 20 * s] == pytest.approx([2.67, 2.95], abs=6e-3)


def test_replacement_costs_four_times_the_exponent():
    """E4c: antipodal vectors are 2 W apart, so 1 / z^2 is 4 and not 2 times that of zero-out."""
    ratio = eps(Params(), 0.4, accounting="none", adjacency="replace") / eps(Params(), 0.4, accounting="none")
    assert ratio == pytest.approx(4)


def test_ebar_of_the_paper_is_no_protection():
    """E23: RDP 100 at alpha = 2 is (110.1, 1e-5)-DP with the tighter conversion."""
    from otafl.privacy.rdp import rdp_to_eps

    assert float(rdp_to_eps(np.array([100.0]), 1e-5, [2.0]).eps) == pytest.approx(110.1, abs=0.05)


def test_eps_delta():
    """Best order over a grid: never above any single order; every mechanism has a tight curve below, Theorem 1 none."""
    found = cdpb.eps_delta(Params(d=10), 0.4, 50, 1e-5, charge=Charge("none"))
    single = 50 * eps(Params(d=10), 0.4, accounting="none", alpha=2.0) + np.log(0.5) - (np.log(1e-5) + np.log(2))
    assert found.eps_tight < found.eps < single
    hidden = cdpb.eps_delta(Params(d=10), 0.4, 50, 1e-5, charge=Charge("hidden", assume_hidden=True))
    visible = cdpb.eps_delta(Params(d=10), 0.4, 50, 1e-5)
    assert hidden.eps < visible.eps < found.eps
    assert hidden.eps_tight < hidden.eps
    assert hidden.eps_tight < visible.eps_tight < min(visible.eps, found.eps_tight)
    assert np.isnan(cdpb.eps_delta(Params(d=10), 0.4, 50, 1e-5, charge=Charge("paper")).eps_tight)
    silent = cdpb.eps_delta(Params(d=10), 0.4, 50, 1e-5, scheme=cdpb.NOISE_FREE)
    assert silent.eps == silent.eps_tight == np.inf


def test_realised_charges_the_rounds_a_client_took_part_in():
    params = Params(K=6, d=3, sz2=0.1, alpha=4)
    drawn = cdpb.draw_rounds(params, 0.8, NOISY, 30, np.random.default_rng(1))
    rho = float(params.rho(0.8))
    found = cdpb.realised(params, rho, drawn)
    naive = [sum(4 * rho / (2 * drawn.s2[t]) for t in range(30) if drawn.good[t, k]) for k in range(6)]
    assert found.per_client == pytest.approx(naive)
    assert found.largest == pytest.approx(max(naive))
    replaced = cdpb.realised(params, rho, drawn, Charge(adjacency="replace"))
    assert replaced.mean == pytest.approx(4 * np.mean(naive))
    assert cdpb.realised(params, rho, drawn, Charge(trust_receiver_noise=False)).mean > found.mean


def test_plug_in_is_optimistic_for_few_clients():
    """E13b: K = 10, alpha = 10, sz2 = 0.01: averaging over channels gives far more than plugging in the mean noise."""
    rng = np.random.default_rng(0)
    ratios = {}
    for K in (10, 100):
        params = Params(K=K, alpha=10, sz2=0.01)
        h = cdpb.ExpGain(0.5).draw(rng, (100_000, K))
        rho = float(params.rho(0.39))
        s2 = np.where(h >= rho, h - rho, 0).sum(-1) + 0.01
        inside = np.exp(9 * 10 * rho / (2 * s2[h[:, 0] >= rho]))
        averaged = np.log1p(np.exp(-0.39) * (inside.mean() - 1)) / 9
        ratios[K] = averaged / float(eps(params, 0.39))
    assert ratios[10] > 5
    assert 1.0 < ratios[100] < 1.1


def test_no_noise_costs_infinity():
    assert eps(Params(), 0.5, scheme=NOISE_FREE) == np.inf
    assert eps(Params(), 0.5, scheme=NOISE_FREE, **HIDDEN) == np.inf
    assert np.isfinite(eps(Params(sz2=0.1), 0.5, scheme=NOISE_FREE))
    assert eps(Params(sz2=0.1), 0.5, scheme=NOISE_FREE, trust_receiver_noise=False) == np.inf


def test_huge_exponents_do_not_overflow():
    values = eps(Params(d=10**9, alpha=64), np.array([0.1, 1.0]), **HIDDEN)
    assert np.all(np.isfinite(values))
    assert np.isfinite(eps(Params(d=10**9, alpha=64), 0.5))


def test_unlike_clients_pay_for_the_one_that_is_always_there():
    params = Params(K=3, sigma2=(0.1, 0.5, 2.0), d=5)
    at = stats(params, 0.5)
    strongest = np.exp(-float(at.rho) / 4.0)
    assert at.p_top == pytest.approx(strongest)
    x = float(cdpb.inv_z2(params, at, cdpb.VISIBLE))
    assert eps(params, 0.5) == pytest.approx(np.log1p(strongest * np.expm1(x)))


def test_hidden_warns_unless_assumed():
    with pytest.warns(UserWarning, match="E3"):
        eps(Params(), 0.4, accounting="hidden")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eps(Params(), 0.4, **HIDDEN)


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [
        ({"accounting": "exact"}, "accounting"),
        ({"adjacency": "add-remove"}, "adjacency"),
        ({"tau": 0}, "tau"),
        ({"accounting": "paper", "alpha": 2.5}, "alpha"),
    ],
)
def test_bad_calls_are_named(kwargs, name):
    with pytest.raises(InputError, match=name):
        eps(Params(), 0.4, **kwargs)


# --- energy detection -------------------------------------------------------------------------------------------


def test_energy_turns_hidden_into_visible():
    """E3: p = .368, shift .5, variance ratio 1 + 1/37."""
    found = cdpb.energy_detection(0.368, 0.5, 1 + 1 / 37, [1000, 10_000, 100_000])
    assert [x.eps for x in found] == pytest.approx([0.042, 0.068, 0.0963], abs=5e-4)
    assert found[0].hidden == pytest.approx(0.0377, abs=5e-5)
    assert found[0].visible == pytest.approx(0.0966, abs=5e-5)
    assert [x.auc for x in found] == sorted(x.auc for x in found)


def test_equal_variance_is_hidden_whatever_d():
    """Without a difference in energy the two-dimensional integral is the sampled Gaussian mechanism."""
    found = cdpb.energy_detection(0.3, 0.8, 1.0, [1, 50, 5000], alpha=3)
    assert [x.eps for x in found] == pytest.approx([found[0].hidden] * 3, rel=1e-6)


def test_energy_divergence_matches_sampling():
    """Importance-free Monte Carlo of E_Q (P/Q)^2 in d = 40 dimensions; 5 standard errors of 400,000 draws."""
    p, shift, ratio, d = 0.4, 0.7, 1.5, 40
    rng = np.random.default_rng(5)
    n = 400_000
    present = rng.random(n) < p
    scale = np.where(present, np.sqrt(ratio), 1.0)
    y = scale * rng.standard_normal(n)
    rest = scale**2 * rng.chisquare(d - 1, n)
    log_ratio = -(d / 2) * np.log(ratio)  # densities relative to that of absence
    with_0 = 1 - p + p * np.exp(log_ratio + (y**2 + rest) / 2 * (1 - 1 / ratio))
    with_x = 1 - p + p * np.exp(log_ratio + (y**2 + rest) / 2 - ((y - shift) ** 2 + rest) / (2 * ratio))
    sample = (with_x / with_0) ** 2
    low, high = (np.log(sample.mean() + k * sample.std() / np.sqrt(n)) for k in (-5, 5))
    assert low < renyi_with_energy(p, shift, ratio, d, 2.0) < high


def test_auc_matches_sampling():
    """4 standard errors of 100,000 pairs."""
    rng = np.random.default_rng(2)
    wins = 1.2 * rng.chisquare(60, 100_000) > rng.chisquare(60, 100_000)
    assert abs(wins.mean() - energy_auc(60, 1.2)) < 4 * wins.std() / np.sqrt(wins.size)


def test_advantage_is_that_of_the_best_threshold():
    """Against a search over thresholds on drawn energies, and at 5 % more variance by its closed form."""
    rng = np.random.default_rng(0)
    absent, present = rng.chisquare(60, 400_000), 1.2 * rng.chisquare(60, 400_000)
    levels = np.linspace(30, 120, 500)
    above = [1 - np.searchsorted(np.sort(drawn), levels) / drawn.size for drawn in (present, absent)]
    assert energy_advantage(60, 1.2) == pytest.approx((above[0] - above[1]).max(), abs=5e-3)
    assert [energy_advantage(d, 1.05) for d in (1000, 10_000)] == pytest.approx([0.41, 0.915], abs=5e-3)
    assert 1 - energy_advantage(100_000, 1.05) == pytest.approx(5e-8, rel=0.05)
    assert energy_advantage(60, 1.0) == 0
    assert cdpb.energy_detection(0.3, 0.8, 1.2, [60])[0].advantage == energy_advantage(60, 1.2)


def test_detection_of_a_design():
    """Idle shows its presence more than noisy, whose unreliable clients radiate too."""
    idle, noisy = (cdpb.detection_of_design(Params(d=1000), 0.4, [1000], way)[0] for way in (IDLE, NOISY))
    assert idle.auc > noisy.auc > 0.5
    assert idle.eps <= idle.visible


def test_bad_detection_inputs():
    for args, name in (
        ((1.0, 0.5, 1.1, 5, 2), "p"),
        ((0.5, 0.5, 0.9, 5, 2), "variance_ratio"),
        ((0.5, 0.5, 1.1, 0, 2), "d"),
    ):
        with pytest.raises(InputError, match=name):
            renyi_with_energy(*args)
