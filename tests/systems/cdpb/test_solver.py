"""The joint solver, the feasibility law, the paper's own route and the best portion."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from otafl.core.errors import Infeasible, InputError
from otafl.systems.cdpb import certificate
from otafl.systems.cdpb import design as cdpb
from otafl.systems.cdpb.design import IDLE, NOISY, PAPER, VISIBLE, Charge, Params, Scheme, error_energy, solve, stats
from otafl.systems.cdpb.solver import FREE_LOAD, make_problem, optimum

FREE = Params(gbar=None, ebar=None)


def _grid_best(params: Params, scheme: Scheme, charge: Charge, tau_cap: int, bound: str, points: int = 800) -> float:
    """Brute force: every whole tau up to the cap times a fine grid of loads."""
    u = np.geomspace(1e-6, min(params.u_max, FREE_LOAD), points)
    at = stats(params, u, scheme)
    error, eps1 = error_energy(params, at), cdpb.eps_round(params, at, charge)
    best = np.inf
    for tau in range(1, tau_cap + 1):
        gamma, eps = cdpb.gamma_of(params, error, tau, bound), tau * eps1
        ok = (gamma <= (params.gbar or np.inf)) & (eps <= (params.ebar or np.inf))
        if ok.any():
            best = min(best, float(np.min((params.lam1 * gamma + params.lam2 * eps)[ok])))
    return best


INSTANCES = st.fixed_dictionaries(
    {
        "K": st.integers(2, 200),
        "d": st.integers(1, 300),
        "W": st.floats(0.3, 3),
        "sigma2": st.floats(0.1, 2),
        "sz2": st.floats(0, 0.5),
        "A": st.floats(0.5, 30),
        "mu": st.floats(0.3, 3),
        "alpha": st.integers(2, 12),
        "lam2": st.floats(1e-7, 1e-2),
        "gbar": st.floats(1e-2, 3),
        "ebar": st.floats(0.5, 300),
        "capped": st.booleans(),
    }
)


@settings(max_examples=25, deadline=None)
@given(
    fields=INSTANCES,
    accounting=st.sampled_from(["visible", "hidden", "none", "paper"]),
    portion=st.floats(0, 1),
    bound=st.sampled_from(["simple", "full"]),
)
def test_never_worse_than_a_grid_and_never_beyond_a_limit(fields, accounting, portion, bound):
    params, charge, way, cap = Params(a=8.0, **fields), Charge(accounting, assume_hidden=True), Scheme(portion), 150
    brute = _grid_best(params, way, charge, cap, bound)
    found = optimum(make_problem(params, way, charge, cap, bound))
    if found is None:
        assert brute == np.inf
        return
    assert brute * (1 + 1e-9) >= found.G
    assert found.gamma <= params.gbar * (1 + 1e-9)
    assert found.eps <= params.ebar * (1 + 1e-9)
    assert 1 <= found.tau <= cap
    assert found.u <= params.u_max * (1 + 1e-12)


@pytest.mark.parametrize("accounting", ["paper", "visible"])
def test_free_optimum_has_its_closed_form(accounting):
    """G* = 2 sqrt(6 lam1 lam2 B eps1 / mu) up to whole tau, at the load that minimises B eps1."""
    params = FREE.but(lam2=1e-3, mu=0.7, capped=False)
    cap = None if accounting == "paper" else 10**6
    found = solve(params, "idle", accounting=accounting, tau_cap=cap).design
    value = 2 * np.sqrt(6 * params.lam1 * params.lam2 * found.B * found.eps1 / params.mu)
    assert pytest.approx(value, rel=2e-3) == found.G
    assert value * (1 - 1e-12) <= found.G


def test_noisy_has_no_feasible_pair_and_idle_has_one():
    """E8: K = 100, alpha = 2, the paper's limits and accounting."""
    found = solve(Params(), "idle", accounting="paper")
    assert found.design.tau == 62
    assert found.design.u == pytest.approx(0.5555, abs=5e-5)
    assert pytest.approx(0.010783, abs=1e-6) == found.design.G
    assert found.design.eps == pytest.approx(100, rel=1e-6)
    assert found.binding == ("eps",)
    assert not found.certified
    with pytest.raises(Infeasible, match=r"1\.029") as refusal:
        solve(Params(), "noisy", accounting="paper")
    assert refusal.value.report.least_product == pytest.approx(1.029, abs=5e-4)
    assert refusal.value.report.target_product == 1.0


def test_two_stages_violate_the_limit_they_were_meant_for():
    """E8: T_i = {59..74}, T_n = {61..75}; with the true minimiser every member of T breaks eps <= 100."""
    idle, noisy = cdpb.solve_paper(Params(), "idle", numeric=True), cdpb.solve_paper(Params(), "noisy")
    assert (idle.tau_gmin, idle.tau_emax, noisy.tau_gmin, noisy.tau_emax) == (59, 74, 61, 75)
    assert len(idle.violates_eps) == 16
    assert len(noisy.violates_eps) == 15
    assert idle.best.eps == pytest.approx(127.5, abs=0.05)
    assert noisy.best.eps == pytest.approx(131.1, abs=0.05)
    printed = cdpb.solve_paper(Params(), "idle")
    assert printed.best.eps > 100
    assert not printed.certified


@settings(max_examples=150, deadline=None)
@given(
    fields=INSTANCES,
    u=st.floats(1e-5, 4),
    portion=st.floats(0, 1),
    accounting=st.sampled_from(["visible", "hidden", "none"]),
    trusted=st.booleans(),
)
def test_feasibility_law_is_a_lower_limit(fields, u, portion, accounting, trusted):
    """E10: 6 B eps1 / mu > 3 alpha d W^2 / (mu K^2) for every rho, portion, receiver noise and accountant."""
    params, charge = Params(**fields), Charge(accounting, trust_receiver_noise=trusted, assume_hidden=True)
    at = stats(params, u, Scheme(portion))
    product = 6 * error_energy(params, at) * cdpb.eps_round(params, at, charge) / params.mu
    assert product > cdpb.feasibility_law(params, charge)


@pytest.mark.parametrize("accounting", ["visible", "hidden", "none"])
@pytest.mark.parametrize("trusted", [True, False])
def test_feasibility_law_is_reached_as_rho_vanishes(accounting, trusted):
    params = Params(K=30, d=40, sz2=0.3, alpha=5)
    charge = Charge(accounting, trust_receiver_noise=trusted, assume_hidden=True)
    at = stats(params, 1e-9)
    product = 6 * error_energy(params, at) * cdpb.eps_round(params, at, charge)
    assert product / cdpb.feasibility_law(params, charge) == pytest.approx(1, abs=1e-5)


def test_dimension_decides_feasibility():
    """E10 with the paper's limits: d <= 1666 is reachable, 1667 is not, whatever the rounds."""
    assert solve(Params(d=1660), tau_cap=10**9).design.eps <= 100
    with pytest.raises(Infeasible, match="E10") as refusal:
        solve(Params(d=1667), tau_cap=10**9)
    report = refusal.value.report
    assert report.law_forbids
    for name, value in report.law_relax.items():
        change = {name: int(value) if name in "dK" else value}
        slack = 1e-9 if name in ("gbar", "ebar") else -1e-9 if name == "W" else 0
        eased = Params(d=1667).but(**{k: v * (1 + slack) if slack else v for k, v in change.items()})
        assert cdpb.feasibility_law(eased) < eased.gbar * eased.ebar


@pytest.mark.parametrize(
    ("base", "options"),
    [
        ({"d": 2000}, {"tau_cap": 500}),  # the law forbids
        ({"d": 1600}, {"tau_cap": 500}),  # only the cap on rounds does
        ({"d": 300, "K": 60, "sz2": 0.1, "gbar": 5e-3}, {"tau_cap": 200, "accounting": "none"}),
        ({}, {"strategy": "noisy", "accounting": "paper"}),  # E8
    ],
)
def test_every_relaxation_is_a_design(base, options):
    with pytest.raises(Infeasible) as refusal:
        solve(Params(**base), **options)
    assert {"gbar", "W"} <= set(refusal.value.report.relax)
    for name, value in refusal.value.report.relax.items():
        assert f"{name}={value:.6g}" in str(refusal.value)
        value = int(value) if name in ("d", "K", "tau_cap") else value
        more, less = base | {name: value}, base | {name: value * (1.02 if name in "dW" else 0.98)}
        if name in ("d", "K", "tau_cap"):
            less[name] = int(np.ceil(less[name]) if name == "d" else np.floor(less[name]))

        def attempt(tried, name=name):
            cap = {"tau_cap": tried.pop("tau_cap")} if name == "tau_cap" else {}
            return solve(Params(**tried), **(options | cap))

        assert attempt(more).design.G > 0
        with pytest.raises(Infeasible):
            attempt(less)


def test_given_rho_or_tau_or_both():
    params, free = Params(d=50), solve(Params(d=50), tau_cap=500)
    at_rho = solve(params, rho=free.design.rho, tau_cap=500)
    at_tau = solve(params, tau=free.design.tau)
    assert at_rho.design == pytest.approx(free.design, rel=1e-9)
    assert at_tau.design == pytest.approx(free.design, rel=1e-6)
    pair = solve(params, rho=0.2, tau=100)
    u = 0.2  # 2 P sigma2 = W = 1
    B = 4 * np.exp(u) / 100 + np.exp(u) / (100 * u)
    eps1 = np.log1p(np.exp(-u) * np.expm1(50 * u * np.exp(u) / 100))
    assert pair.design.gamma == pytest.approx(6 * B / 100, rel=1e-12)
    assert pair.design.eps == pytest.approx(100 * eps1, rel=1e-12)
    assert pytest.approx(6 * B / 100 + 1e-5 * 100 * eps1, rel=1e-12) == pair.design.G
    assert solve(params, rho=0.2, tau=10).violated == ("gamma",)
    assert solve(params, rho=0.2, tau=10**5).violated == ("eps",)


def test_given_values_without_a_partner_are_refused_with_the_numbers():
    with pytest.raises(Infeasible, match=r"needs 76 rounds, eps <= 100\.0 and tau_cap allow 4"):
        solve(Params(d=1000), rho=0.9, tau_cap=500)
    with pytest.raises(Infeasible, match="in tau=3 rounds"):
        solve(Params(d=50), tau=3)
    with pytest.raises(InputError, match=r"rho=2\.0 must be <="):
        solve(Params(), rho=2.0, tau=5)
    with pytest.raises(InputError, match="tau=9 must be <= tau_cap=5"):
        solve(Params(), tau=9, tau_cap=5)
    with pytest.raises(InputError, match="tau=0"):
        solve(Params(), rho=0.1, tau=0)


def test_second_names_of_accountants_and_adjacencies():
    same = [solve(Params(), accounting=name, adjacency="zero-out").design for name in ("paper", "printed")]
    assert same[0] == same[1]
    assert cdpb.eps(Params(), 0.4, adjacency="replacement") == cdpb.eps(Params(), 0.4, adjacency="replace")
    with pytest.raises(InputError, match="realised"):
        cdpb.eps(Params(), 0.4, accounting="realised")


def test_full_bound_may_reach_what_the_law_forbids():
    """Theorem 2 in full with a >> tau: d = 3000 is feasible."""
    with pytest.raises(Infeasible):
        solve(Params(d=3000, D0=1e-3, a=80), tau_cap=1000)
    found = solve(Params(d=3000, D0=1e-3, a=80), tau_cap=1000, bound="full")
    assert found.design.gamma <= 1e-2
    assert found.gamma_full == pytest.approx(found.design.gamma)


def test_cap_binds_under_sound_accounting():
    """Without an end of tau G improves for ever, so the cap must be stated, and it binds."""
    with pytest.raises(InputError, match="tau_cap"):
        solve(Params())
    values = [solve(Params(), tau_cap=cap) for cap in (100, 1000, 10_000)]
    assert all("tau_cap" in found.binding for found in values)
    assert values[0].design.G > values[1].design.G > values[2].design.G


def test_too_few_rounds_are_refused_with_the_gap():
    with pytest.raises(Infeasible, match="rounds short") as refusal:
        solve(Params(), tau_cap=40)
    assert refusal.value.report.least_gap == 59 - 40


def test_unlike_clients_are_solved():
    """The strongest client's loss is what is limited."""
    params = Params(K=30, sigma2=tuple(np.geomspace(0.1, 2, 30)), gbar=0.1, ebar=2.0, d=5, capped=False)
    found = solve(params, tau_cap=400).design
    assert found.eps <= 2.0
    assert _grid_best(params, IDLE, VISIBLE, 400, "simple", 600) * (1 + 1e-9) >= found.G


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [
        ({"tau_cap": 0}, "tau_cap"),
        ({"tau_cap": 10, "bound": "loose"}, "bound"),
        ({"tau_cap": 10, "accounting": "rdp"}, "accounting"),
        ({"tau_cap": 10, "strategy": "busy"}, "strategy"),
    ],
)
def test_bad_calls_are_named(kwargs, name):
    with pytest.raises(InputError, match=name):
        solve(Params(), **kwargs)


# --- the paper's lemmas -----------------------------------------------------------------------------------------


def test_check_values():
    assert cdpb.lemma1(Params(A=10, W=1.5), IDLE) == pytest.approx(0.375, abs=1e-12)
    assert cdpb.lemma1(Params(A=10, W=1.5), NOISY) == pytest.approx(0.350782, abs=5e-7)
    assert cdpb.algorithm2(Params(alpha=5), 150) == pytest.approx(0.404649, abs=5e-7)


@settings(max_examples=30, deadline=None)
@given(A=st.floats(0.2, 200), W=st.floats(0.3, 5), noisy=st.booleans(), sz2=st.sampled_from([0.0, 0.2]))
def test_lemma1_minimises_the_error(A, W, noisy, sz2):
    """(29) is exact, the root for noisy too; against a fine grid."""
    params, way = Params(A=A, W=W, sz2=sz2, d=3, capped=False), NOISY if noisy else IDLE
    u = np.linspace(0.002, 6, 6000)
    grid = error_energy(params, stats(params, u, way)).min()
    assert error_energy(params, stats(params, cdpb.lemma1(params, way), way)) <= grid * (1 + 1e-12)


def test_lemma1_does_not_cancel():
    """(sqrt(4r + 1) - 1) / 2r is 0 in floating point where r is tiny, and (28) is 0/0 at A = W^2 - 2."""
    assert cdpb.lemma1(Params(A=1e-17)) == pytest.approx(1.0, abs=1e-12)
    assert cdpb.lemma1(Params(A=1e-13)) == pytest.approx(1 - 1e-13, abs=1e-14)
    assert cdpb.lemma1_typeset(Params(A=2, W=2), NOISY) == 1.0


@pytest.mark.parametrize(("W", "loss"), [(5, 0.485), (2, 0.064)])
def test_typeset_lemma1_loses(W, loss):
    """E5: (28) with A - W^2 instead of A / W^2 - 1; right only for W = 1."""
    params = Params(A=100, W=W, capped=False)
    B = lambda u: float(error_energy(params, stats(params, u, NOISY)))  # noqa: E731
    assert B(cdpb.lemma1_typeset(params, NOISY)) / B(cdpb.lemma1(params, NOISY)) - 1 == pytest.approx(loss, abs=1e-3)
    assert np.isnan(cdpb.lemma1_typeset(Params(A=4, W=3), NOISY))
    near = Params(A=4)
    loss_at_one = B_of(near, cdpb.lemma1_typeset(near, NOISY)) / B_of(near, cdpb.lemma1(near, NOISY)) - 1
    assert 0 < loss_at_one < 7e-4


def B_of(params, u):
    return float(error_energy(params, stats(params, u, NOISY)))


@pytest.mark.parametrize(
    ("alpha", "W", "tau", "low", "high"),
    [
        (2, 1, 10, 0.01, 0.021),
        (2, 1, 60, 0.01, 0.02),
        (2, 1, 1000, 0.20, 0.22),
        (10, 1, 200, 0.98, 1.0),
        (2, 2, 60, 0.92, 0.94),
        (10, 2, 200, 11.3, 11.5),
    ],
)
def test_theorem3_is_no_stationary_point(alpha, W, tau, low, high):
    """E6: excess of the printed utility over its numeric minimum."""
    params = Params(alpha=alpha, W=W)

    def utility(u):
        at = stats(params, u)
        return 6 * error_energy(params, at) / tau + 1e-5 * tau * cdpb.eps_round(params, at, PAPER)

    excess = utility(cdpb.theorem3(params, tau)) / utility(cdpb.best_load(params, tau)) - 1
    assert low < excess < high


def test_theorem3_is_not_always_real():
    """E6: W = 0.5, alpha = 2, tau >= 200."""
    assert np.isnan(cdpb.theorem3(Params(W=0.5), 200))
    assert np.isfinite(cdpb.theorem3(Params(W=0.5), 20))


def test_algorithm2_finds_the_minimum():
    params = Params(alpha=5)
    assert cdpb.algorithm2(params, 150) == pytest.approx(cdpb.best_load(params, 150, NOISY), abs=1e-6)
    assert cdpb.algorithm2(params.but(lam2=1.0), 10**5) == params.u_max


@pytest.mark.parametrize(
    ("K", "sigma2", "alpha", "share"), [(10, 0.5, 5, 0.92), (10, 0.5, 10, 0.11), (100, 0.1, 2, 0.60)]
)
def test_lemma2_is_not_the_cap(K, sigma2, alpha, share):
    """E7: for idle the printed eps is least inside; against a grid."""
    params = Params(K=K, sigma2=sigma2, alpha=alpha)
    u = np.linspace(1e-6, params.u_max, 20_000)
    grid = u[np.argmin(cdpb.eps_round(params, stats(params, u), PAPER))]
    assert cdpb.lemma2(params) == pytest.approx(grid, abs=2e-4 * params.u_max)
    assert cdpb.lemma2(params) / params.u_max == pytest.approx(share, abs=5e-3)


def test_lemma2_differs_between_strategies():
    """E7: alpha = 10: tau_emax is 212 for noisy and 198 for idle; for K = 10, alpha = 32 noisy is best at rho -> 0."""
    assert [cdpb.stage1(Params(alpha=10), way, repaired=True)[1] for way in (NOISY, IDLE)] == [212, 198]
    assert cdpb.lemma2(Params(K=10, alpha=32), NOISY) < 1e-3


def test_solve_paper_refuses_what_the_paper_does_not_cover():
    unlike = Params(K=2, sigma2=(0.5, 1.0))
    for params, name in ((Params(sz2=0.1), "sz2"), (Params(gbar=None), "gbar"), (unlike, "equal clients")):
        with pytest.raises(InputError, match=name):
            cdpb.solve_paper(params)
    with pytest.raises(InputError, match="E5"):
        cdpb.solve_paper(Params(W=3), "noisy")


# --- the coin-flip portion --------------------------------------------------------------------------------------


@settings(max_examples=120, deadline=None)
@given(
    fields=INSTANCES,
    u=st.floats(0.01, 5),
    portion=st.floats(0.01, 1),
    accounting=st.sampled_from(["visible", "hidden", "none"]),
    alpha=st.integers(2, 29),
)
def test_idle_dominates_every_portion(fields, u, portion, accounting, alpha):
    """Section 4: idle at a smaller rho has less error and no more privacy loss, at the same tau."""
    params, charge = Params(**fields).but(alpha=alpha), Charge(accounting, assume_hidden=True)
    w = cdpb.idle_twin(params, u, portion, charge)
    mixed, idle = stats(params, u, Scheme(portion)), stats(params, w, IDLE)
    loss = [float(cdpb.eps_round(params, at, charge)) for at in (idle, mixed)]
    assume(np.isfinite(loss).all())
    assert w <= u
    assert loss[0] <= loss[1] * (1 + 1e-8)
    assert error_energy(params, idle) < error_energy(params, mixed) * (1 + 1e-12)


@pytest.mark.parametrize("accounting", ["visible", "hidden", "none"])
def test_best_portion_is_idle_under_sound_accounting(accounting):
    params = Params(K=40, d=60, gbar=0.1, ebar=50.0, sz2=0.05)
    found = cdpb.best_portion(params, accounting=accounting, assume_hidden=True, tau_cap=300)
    assert found.portion == 0.0


@pytest.mark.parametrize(
    ("alpha", "K", "portion"),
    [(2, 100, 0), (10, 100, 0), (10, 30, 0), (10, 25, 0.66), (5, 10, 0.4), (10, 20, 1), (10, 10, 1)],
)
def test_best_portion_under_printed_accounting(alpha, K, portion):
    found = cdpb.best_portion(FREE.but(alpha=alpha, K=K), accounting="paper")
    assert found.portion == pytest.approx(portion, abs=0.01)
    assert 0 <= found.gain <= 2.2e-4


@pytest.mark.parametrize(
    ("K", "u", "portion", "gain"), [(10, 0.37, 0.56, 3e-4), (10, 0.39, 0.78, 1e-4), (100, 1.0, 0.20, 1.7e-3)]
)
def test_best_portion_at_fixed_load_and_rounds(K, u, portion, gain):
    params = FREE.but(alpha=10, K=K)
    found = cdpb.best_portion(params, u=u, tau=500, accounting="paper")
    assert found.portion == pytest.approx(portion, abs=5e-3)
    assert found.gain == pytest.approx(gain, rel=0.05)
    # first-order condition in the noise v
    at = stats(params, u, Scheme(found.portion))
    logit = np.log(at.p) + 9 / at.v
    left = 1e-5 * 500 * 10 / at.v**2 / (1 + np.exp(-logit))
    assert left == pytest.approx(float(6 / (500 * at.K_t**2 * at.rho)), rel=1e-4)


def test_untrusted_receiver_noise_can_favour_noise():
    """K = d = 100, alpha = 2, d sz2 = c: noisy wins for lam2 tau^2 >= 4, idle for 0.1."""
    portions = []
    for weight in (0.1, 4.0):
        params = FREE.but(d=100, sz2=1.0, lam2=weight / 100**2)
        portions.append(cdpb.best_portion(params, trust_receiver_noise=False, tau_cap=100).portion)
    assert portions == [0.0, 1.0]


def test_portion_closed_form_at_a_pinned_rho():
    """Visible, small eps, sz2 = 0: v* = tau rho W K_t sqrt(lam2 mu p alpha d / (12 lam1))."""
    params, u, tau = FREE.but(K=100, mu=0.8), 1.0, 1900
    at = stats(params, u)
    v = tau * at.rho * at.K_t * np.sqrt(params.lam2 * params.mu * at.p * params.alpha * params.d / 12)
    low, high = (float(stats(params, u, way).v) for way in (IDLE, NOISY))
    wanted = float(np.clip((v - low) / (high - low), 0, 1))
    assert 0 < wanted < 1
    assert cdpb.best_portion(params, u=u, tau=tau).portion == pytest.approx(wanted, abs=0.03)


def test_scaling_spreads_less_than_coins():
    """K = 10, u = 1, portion 0.3: the 0.1 % quantile of v / E[v] is 0.17 (scale) against 0.025 (coin)."""
    params, way, rng = Params(K=10, capped=False), Scheme(0.3), np.random.default_rng(11)
    quantile = {}
    for mode in ("scale", "coin"):
        v = cdpb.draw_rounds(params, 1.0, way, 200_000, rng, mode).noise.sum(-1)
        quantile[mode] = np.quantile(v, 1e-3) / float(stats(params, 1.0, way).v)
    assert quantile["scale"] == pytest.approx(0.17, abs=0.01)
    assert quantile["coin"] == pytest.approx(0.025, abs=0.006)


# --- a law that changes -----------------------------------------------------------------------------------------


def test_rho_follows_the_law():
    """A change seen at round 4 is in force at once, or after the delay; looked for every period."""
    sigma2 = np.array([0.5] * 4 + [1.0] * 8)
    now, late = (cdpb.resolve_on_change(Params(), sigma2, tau=50, delay=k) for k in (0, 3))
    old, new = now[0], now[4]
    assert old != new
    assert now.tolist() == [old] * 4 + [new] * 8
    assert late.tolist() == [old] * 7 + [new] * 5
    seldom = cdpb.resolve_on_change(Params(), sigma2, tau=50, period=5)
    assert seldom.tolist() == [old] * 5 + [new] * 7


def test_rho_follows_a_law_that_changes_again_before_the_solver_is_done():
    sigma2 = np.array([0.5, 1.0, 2.0, 2.0, 2.0])
    found = cdpb.resolve_on_change(Params(), sigma2, tau=50, delay=2)
    assert len(set(found.tolist())) == 2
    assert found[4] == cdpb.resolve_on_change(Params(), [2.0], tau=50)[0]


def test_relaxations_of_a_vast_problem_are_found_in_few_steps(monkeypatch):
    solved = []
    monkeypatch.setattr(certificate, "optimum", lambda problem: solved.append(problem) or optimum(problem))
    with pytest.raises(Infeasible) as refusal:
        solve(Params(d=10**18), tau_cap=2000)
    assert {"d", "K"} <= set(refusal.value.report.relax)
    assert len(solved) < 100
