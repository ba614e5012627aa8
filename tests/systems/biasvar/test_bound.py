"""The bias-variance design: roots, bound, global optimum, yardsticks, and the numbers of the test deployment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from otafl.core.errors import InputError
from otafl.systems.biasvar.design import (
    BoundParams,
    Radio,
    bound_parts,
    evaluate,
    normal_form,
    params_from_rho,
    small_root,
    solve_exact,
)
from otafl.systems.biasvar.exact import PEAK, levels, normal, objective, optimum
from otafl.systems.biasvar.yardsticks import design_common_gamma, design_lcpc, design_min_noise, design_zero_bias

DISTANCES = np.array([1252, 1706, 664, 1704, 977, 1139, 1592, 1119, 1297, 291.0])
LOSS_DB = 50 + 22 * np.log10(DISTANCES)
SITE = Radio(10 ** (-LOSS_DB / 10), 1e-9, 10**-20.3, 814_090)


def random_scale(rng, n, spread_db=40.0, middle_db=0.0):
    return np.sqrt(10 ** ((middle_db + rng.uniform(-spread_db / 2, spread_db / 2, n)) / 10) / 2)


def random_site(seed, n=8):
    rng = np.random.default_rng(seed)
    radio = Radio(10 ** rng.uniform(-12, -9, n), 10 ** rng.uniform(-10, -8.5), 5e-21, 10_000)
    par = BoundParams(rng.uniform(1, 20), 0.1, rng.uniform(0.5, 9), rng.uniform(0, 8), rng.uniform(0, 5, n))
    return radio, par


def direct_minimum(problem, starts, rng):
    """Best of a multi-start L-BFGS over log u in [-12, 0]: knows nothing of the optimality conditions."""
    n, best, pace = problem.scale.size, np.inf, 1e-7

    def cost(x):
        moves = x + pace * np.concatenate([np.zeros((1, n)), np.eye(n), -np.eye(n)])
        value = np.log(objective(problem, np.exp(moves)))
        return value[0], (value[1 : n + 1] - value[n + 1 :]) / (2 * pace)

    for _ in range(starts):
        found = minimize(
            cost,
            rng.uniform(-4, 0, n),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-12, 0)] * n,
            options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-10},
        )
        best = min(best, np.exp(found.fun))
    return best


# --- roots and the bound -------------------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_small_root_solves_its_equation_on_the_smaller_branch(fraction):
    a = fraction * PEAK
    u = float(small_root(a))
    assert 0 <= u <= 1
    assert u * np.exp(-u * u / 2) == pytest.approx(a, rel=1e-14, abs=1e-300)


def test_small_root_at_and_around_the_branch_point():
    for gap in (0.0, 1e-16, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6):
        u = float(small_root(PEAK * (1 - gap)))
        assert 1 - u == pytest.approx(np.sqrt(gap), rel=0.01, abs=2e-8)  # a = PEAK (1 - (1-u)^2 + ...)
    assert float(small_root(PEAK * (1 + 5e-10))) == 1.0
    with pytest.raises(InputError, match=r"a="):
        small_root(PEAK * (1 + 1e-8))


@pytest.mark.parametrize("seed", range(5))
def test_design_identities(seed):
    radio, par = random_site(seed)
    u = np.random.default_rng(seed).uniform(0.05, 1, radio.gains.size)
    design = evaluate(radio, par, u, "given")
    energy = radio.d * radio.gains * radio.E_s
    np.testing.assert_allclose(design.gamma, u * np.sqrt(energy / 2) / par.G, rtol=1e-12)
    np.testing.assert_allclose(design.tx_prob, np.exp(-(design.gamma**2) * par.G**2 / energy), rtol=1e-12)
    np.testing.assert_allclose(design.alpha, np.sum(design.gamma * design.tx_prob), rtol=1e-12)
    p, n = design.p, design.p.size
    zeta = par.G**2 * np.sum(p * design.gamma / design.alpha - p**2) + np.sum(p**2 * par.sigma2)
    zeta += par.noise_factor * radio.d * radio.N0 / design.alpha**2
    printed = 2 * par.eta * par.L * zeta + 2 * n * par.kappa**2 * np.sum((p - 1 / n) ** 2)  # (9)-(10) as printed
    assert design.objective == pytest.approx(printed, rel=1e-12)
    terms = bound_parts(design, radio, par, T=50, gap0=2.0)
    assert terms.optimisation == pytest.approx(4 * 2.0 / (par.eta * 50))
    assert sum(terms[1:]) == pytest.approx(design.objective, rel=1e-12)
    assert np.isnan(bound_parts(design, radio, par).optimisation)


# --- the optimum ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("rho", [0.0, 0.1, 1.0, 100.0])
def test_optimum_equals_multi_start_direct_minimisation(n, rho):
    rng = np.random.default_rng(n)
    problem = normal(random_scale(rng, n, 20), rho, rng.dirichlet(np.full(n, 9.0)), rng.uniform(0, 0.2, n))
    best, direct = float(optimum(problem).objective), direct_minimum(problem, 4, rng)
    assert best <= direct * (1 + 1e-9)
    assert best >= direct * (1 - 1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000])
@pytest.mark.parametrize("spread_db", [0.0, 20.0, 80.0])
@pytest.mark.parametrize("middle_db", [-30.0, 0.0, 40.0])
def test_kkt_residual_certifies_every_problem(n, spread_db, middle_db):
    scale = random_scale(np.random.default_rng(n), n, spread_db, middle_db)
    rhos = np.array([0.0, 1e-3, 0.1, 1.0, 100.0, 1e8, np.inf])
    best = optimum(normal(scale, rhos))
    assert np.all(best.kkt_residual[:5] <= 1e-8)
    rounding = 8 * np.finfo(float).eps * 2 * 1e8 / (n * best.objective[5])  # of p dJ/dp, where rho is 1e8 and p 1/n
    assert best.kkt_residual[5] <= max(1e-8, rounding)
    assert best.kkt_residual[6] <= 1e-8
    assert best.iterations <= 40
    assert np.all((best.u > 0) & (best.u < 1))


def test_kkt_residual_is_the_gradient_of_the_objective():
    """Independent of the solver's algebra: central differences of J_n along tangents of the simplex and along t."""
    rng = np.random.default_rng(5)
    problem = normal(random_scale(rng, 6), 0.4, rng.dirichlet(np.full(6, 5.0)), rng.uniform(0, 0.3, 6))
    best = optimum(problem)
    p, t = levels(problem.scale, best.u)

    def cost(p, t):
        return float(objective(problem, small_root(p / (problem.scale * t))))

    for _ in range(20):
        dp = rng.normal(size=6)
        dp = (dp - dp.mean()) * 3e-8 * p.min()
        dt = rng.normal() * 3e-8 * float(t[0])
        slope = (cost(p + dp, t + dt) - cost(p - dp, t - dt)) / (2 * 3e-8)
        assert abs(slope) <= 1e-6 * float(best.objective)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_random_feasible_perturbations_never_improve(n):
    rng = np.random.default_rng(n)
    problem = normal(random_scale(rng, n), 0.5)
    best = optimum(problem)
    for size in (1e-6, 1e-3, 0.1):
        u = np.clip(best.u * np.exp(size * rng.normal(size=(300, n))), 1e-9, 1)
        assert np.all(objective(problem, u) >= best.objective * (1 - 1e-14))


def test_objective_is_convex_in_levels_and_inverse_alpha():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 8))
        problem = normal(random_scale(rng, n), 10 ** rng.uniform(-2, 2), minibatch=rng.uniform(0, 0.5, n))
        ends = [levels(problem.scale, rng.uniform(0.01, 1, n)) for _ in range(2)]
        p, t = (np.mean([end[i] for end in ends], axis=0) for i in range(2))
        values = [float(objective(problem, small_root(q / (problem.scale * s)))) for q, s in ends]
        assert float(objective(problem, small_root(p / (problem.scale * t)))) <= np.mean(values) * (1 + 1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.3, 50.0, 1e8, np.inf])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_equal_devices_get_equal_levels(n, rho):
    best = optimum(normal(np.full(n, 0.7), rho, minibatch=0.1))
    np.testing.assert_allclose(best.p, 1 / n, atol=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.3, 50.0, np.inf])
def test_one_device_60_db_worse(rho):
    scale = np.array([1.0, 1.0, 1.0, 1e-3])
    best = optimum(normal(scale, rho))
    assert np.all(best.p > 0)
    assert float(best.kkt_residual) <= 1e-8
    if rho == np.inf:
        np.testing.assert_allclose(best.p, 0.25, rtol=1e-12)
    else:
        assert best.p[3] < 0.25 - 1e-4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_objective_grows_and_is_concave_in_rho_and_bias_falls(seed, first, second):
    scale = random_scale(np.random.default_rng(seed), 7)
    low, high = sorted((first, second))
    rhos = np.array([low, (low + high) / 2, high])
    best = optimum(normal(scale, rhos))
    value = best.objective
    bias = ((best.p - 1 / 7) ** 2).sum(-1)
    assert value[0] <= value[2] * (1 + 1e-12)
    assert value[1] >= (value[0] + value[2]) / 2 * (1 - 1e-12)
    assert bias[2] <= bias[0] * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("seed", range(4))
def test_invariances(seed):
    radio, par = random_site(seed)
    base = solve_exact(radio, par)
    same = [
        solve_exact(radio._replace(d=radio.d * 7), par),
        solve_exact(radio._replace(E_s=radio.E_s * 1e3, N0=radio.N0 * 1e3), par),
        solve_exact(radio, par._replace(G=3 * par.G, kappa=3 * par.kappa, sigma2=9 * np.asarray(par.sigma2))),
    ]
    for other in same:
        np.testing.assert_allclose(other.p, base.p, rtol=1e-11)
        np.testing.assert_allclose(other.u, base.u, rtol=1e-11)
        assert other.normal_objective == pytest.approx(base.normal_objective, rel=1e-11)


def test_float32_input_is_solved_in_float64():
    low = solve_exact(SITE._replace(gains=SITE.gains.astype(np.float32)), params_from_rho(0.2, 10.0))
    assert low.gamma.dtype == np.float64
    assert low.kkt_residual < 1e-12


# --- yardsticks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_no_other_statistical_design_beats_the_optimum(seed):
    radio, par = random_site(seed)
    best = solve_exact(radio, par).objective
    lcpc = design_lcpc(radio, par)
    peak = np.sqrt(radio.d * radio.gains * radio.E_s / 2) / par.G
    others = [design_min_noise(radio, par), design_zero_bias(radio, par), design_common_gamma(radio, par)]
    others.append(evaluate(radio, par, lcpc.gamma / peak, "lcpc level"))
    assert all(other.objective >= best * (1 - 1e-12) for other in others)


def test_zero_bias_is_the_best_of_its_kind():
    radio, par = random_site(3)
    design = design_zero_bias(radio, par)
    n = radio.gains.size
    np.testing.assert_allclose(design.p, 1 / n, rtol=1e-12)
    problem = normal_form(radio, par)
    largest = np.max(1 / (n * problem.scale * PEAK))  # least t
    for t in largest * np.concatenate([1 + np.geomspace(1e-6, 10, 400)]):
        assert float(objective(problem, small_root(1 / (n * problem.scale * t)))) >= design.normal_objective * (
            1 - 1e-12
        )


def test_min_noise_has_the_largest_alpha():
    radio, par = random_site(1)
    most = design_min_noise(radio, par).alpha
    u = np.random.default_rng(0).uniform(0, 2, (200, radio.gains.size))
    assert all(evaluate(radio, par, row, "any").alpha <= most for row in u)


def test_common_gamma_finds_the_best_level():
    radio, par = random_site(2)
    design = design_common_gamma(radio, par)
    assert np.ptp(design.gamma) <= 1e-12 * design.gamma[0]
    factors = np.geomspace(0.01, 10, 3001)
    values = objective(normal_form(radio, par), factors[:, None] * design.u)
    assert values.min() >= design.normal_objective * (1 - 1e-12)


def test_lcpc_error_is_that_of_the_scheme():
    """Monte Carlo of the truncated scheme with orthogonal messages of norm G, within 5 standard errors."""
    radio, par = random_site(4)
    design, n, rounds = design_lcpc(radio, par), radio.gains.size, 40_000
    rng = np.random.default_rng(1)
    power = radio.gains * rng.exponential(size=(rounds, n))
    sends = power * radio.d * radio.E_s >= (design.gamma * par.G) ** 2
    error = ((sends * design.gamma * design.xi - 1 / n) ** 2).sum(1)
    noise = par.noise_factor * radio.d * radio.N0 * design.xi**2 / par.G**2
    assert abs(error.mean() + noise - design.mse) <= 5 * error.std() / np.sqrt(rounds)
    np.testing.assert_allclose(design.mean_weight, design.gamma * design.xi * design.tx_prob, rtol=1e-12)


# --- numbers of the test deployment (n_f = 1) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "best", "common"), [(0.05, 0.161, 0.215), (0.2, 0.198, 0.225), (1, 0.252, 0.259), (4, 0.307, 0.326)]
)
def test_table_of_common_gamma(rho, best, common):
    par = params_from_rho(rho, 10.0, noise_factor=1.0)
    assert solve_exact(SITE, par).normal_objective == pytest.approx(best, abs=6e-4)
    assert design_common_gamma(SITE, par).normal_objective == pytest.approx(common, abs=6e-4)


@pytest.mark.parametrize(
    ("rho", "spread", "low", "high"),
    [(0, 0.504, 0.053, 0.300), (0.2, 0.156, 0.062, 0.191), (1, 0.036, 0.072, 0.125), (100, 0.0, 0.099, 0.100)],
)
def test_levels_of_the_test_deployment(rho, spread, low, high):
    p = solve_exact(SITE, params_from_rho(rho, 10.0, noise_factor=1.0)).p
    assert 10 * np.sum((p - 0.1) ** 2) == pytest.approx(spread, abs=2.5e-3)
    assert p.min() == pytest.approx(low, abs=6e-4)
    assert p.max() == pytest.approx(high, abs=6e-4)


def test_real_part_halves_the_noise_and_moves_the_optimum():
    assert solve_exact(SITE, params_from_rho(0.2, 10.0)).normal_objective == pytest.approx(0.125, abs=6e-4)
    lcpc = design_lcpc(SITE, params_from_rho(0.2, 10.0))
    assert lcpc.mse == pytest.approx(0.05648, abs=2e-5)
    assert lcpc.mean_weight.sum() == pytest.approx(0.44, abs=6e-3)


# --- refusals ------------------------------------------------------------------------------------------------------

GOOD = BoundParams(10.0, 0.1, 2.0, 3.0)


@pytest.mark.parametrize(
    ("radio", "par", "name"),
    [
        (SITE._replace(gains=np.array([])), GOOD, "gains"),
        (SITE._replace(gains=np.array([1.0, -1.0])), GOOD, "gains"),
        (SITE._replace(gains=np.array([1.0, np.nan])), GOOD, "gains"),
        (SITE._replace(E_s=0.0), GOOD, "E_s"),
        (SITE._replace(E_s=np.ones(3)), GOOD, "E_s"),
        (SITE._replace(N0=-1.0), GOOD, "N0"),
        (SITE._replace(d=0), GOOD, "d="),
        (SITE, GOOD._replace(G=0.0), "G"),
        (SITE, GOOD._replace(eta=np.inf), "eta"),
        (SITE, GOOD._replace(L=-1.0), "L"),
        (SITE, GOOD._replace(kappa=-1.0), "kappa"),
        (SITE, GOOD._replace(kappa=np.nan), "kappa"),
        (SITE, GOOD._replace(sigma2=-1.0), "sigma2"),
        (SITE, GOOD._replace(sigma2=np.ones(3)), "sigma2"),
        (SITE, GOOD._replace(weights=np.full(10, 0.2)), "weights"),
        (SITE, GOOD._replace(noise_factor=0.0), "noise_factor"),
    ],
)
def test_bad_inputs_are_named(radio, par, name):
    with pytest.raises(InputError, match=name):
        solve_exact(radio, par)


def test_a_step_beyond_the_theorem_warns_or_is_refused():
    beyond = GOOD._replace(eta=1.0)
    with pytest.warns(UserWarning, match=r"eta\*L"):
        solve_exact(SITE, beyond)
    with pytest.raises(InputError, match=r"eta\*L"):
        solve_exact(SITE, beyond, strict=True)
    with pytest.raises(InputError, match="rho"):
        params_from_rho(-0.1, 10.0)


def test_every_public_function_is_found_in_one_module():
    from otafl.systems.biasvar import design as biasvar
    from otafl.systems.biasvar.sca import solve_sca

    assert biasvar.solve_sca is solve_sca
    for name in ("frontier", "young_split", "design_lcpc", "design_zero_bias", "design_min_noise", "probe_kappa_L"):
        assert callable(getattr(biasvar, name))
    with pytest.raises(AttributeError, match="solve_exactly"):
        biasvar.solve_exactly  # noqa: B018
