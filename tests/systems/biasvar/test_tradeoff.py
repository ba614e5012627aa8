"""The frontier, the sensitivity table, the Young split and the probe."""

import jax.numpy as jnp
import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.systems.biasvar.design import BoundParams, Radio, bound_parts, params_from_rho, solve_exact
from otafl.systems.biasvar.probe import minibatch_variance, probe_kappa_L
from otafl.systems.biasvar.tradeoff import frontier, sensitivity, young_split
from otafl.systems.biasvar.yardsticks import design_zero_bias

DISTANCES = np.array([1252, 1706, 664, 1704, 977, 1139, 1592, 1119, 1297, 291.0])
SITE = Radio(10 ** (-(50 + 22 * np.log10(DISTANCES)) / 10), 1e-9, 10**-20.3, 814_090)
PRINTED = params_from_rho(1.0, 10.0, noise_factor=1.0)


def test_frontier_is_the_single_designs_side_by_side():
    rhos = np.array([0.0, 0.05, 1.0, 30.0, np.inf])
    line = frontier(SITE, PRINTED, rhos)
    for i, rho in enumerate(rhos[:-1]):
        one = solve_exact(SITE, params_from_rho(rho, 10.0, noise_factor=1.0))
        np.testing.assert_allclose(line.p[i], one.p, rtol=1e-10)
        assert line.normal_objective[i] == pytest.approx(one.normal_objective, rel=1e-12)
    np.testing.assert_allclose(line.p[-1], design_zero_bias(SITE, PRINTED).p, rtol=1e-12)
    assert line.bias[-1] < 1e-24


def test_along_the_frontier_bias_falls_and_variance_grows():
    line = frontier(SITE, PRINTED, np.geomspace(1e-3, 1e3, 50))
    assert np.all(np.diff(line.bias) < 0)
    assert np.all(np.diff(line.variance) > 0)
    np.testing.assert_allclose(line.variance + line.rho * line.bias, line.normal_objective, rtol=1e-12)


def test_no_design_lies_below_the_frontier():
    """The frontier is convex, so each of its points supports it: variance + rho bias is least there."""
    line = frontier(SITE, PRINTED, np.geomspace(1e-2, 1e2, 30))
    cost = line.variance[None, :] + line.rho[:, None] * line.bias[None, :]
    assert np.all(cost >= np.diag(cost)[:, None] * (1 - 1e-12))


def test_sensitivity_table_of_the_test_deployment():
    table = sensitivity(SITE, PRINTED, [0, 0.05, 0.2, 1, 4, 100], [0.05, 0.2, 1, 4, np.inf])
    expected = [
        [1.02, 1.20, 1.55, 1.93, 2.68],
        [1.00, 1.09, 1.35, 1.66, 2.31],
        [1.11, 1.00, 1.12, 1.36, 1.88],
        [2.10, 1.28, 1.00, 1.10, 1.48],
        [5.49, 2.57, 1.18, 1.00, 1.21],
        [105, 42.9, 10.5, 3.4, 1.01],
    ]
    np.testing.assert_allclose(table, expected, rtol=0.006)  # distances are rounded to metres
    assert np.all(table >= 1 - 1e-12)


def test_young_split_tightens_the_bound_and_its_constant_is_optimal():
    par = BoundParams(10.0, 0.1, 5.0, 3.0)
    split = young_split(SITE, par, T=200, gap0=2.3)
    printed = sum(bound_parts(solve_exact(SITE, par), SITE, par, 200, 2.3))
    assert split.printed == pytest.approx(printed, rel=1e-12)
    assert split.bound < printed
    p, terms = split.design.p, split.design.parts
    x = 2 * 2.3 / (par.eta * 200) + (terms.transmission + terms.minibatch + terms.noise) / 2
    y = 10 * par.kappa**2 * np.sum((p - 0.1) ** 2)
    assert split.bound == pytest.approx((np.sqrt(x) + np.sqrt(y)) ** 2, rel=1e-6)
    assert split.c == pytest.approx(np.sqrt(y / x), rel=1e-3)


@pytest.mark.parametrize(("radio", "kappa"), [(Radio(np.array([1e-12]), 1e-9, 5e-21, 1000), 3.0), (SITE, 0.0)])
def test_a_bound_without_bias_is_not_split(radio, kappa):
    split = young_split(radio, BoundParams(10.0, 0.1, 5.0, kappa), T=200, gap0=2.3)
    assert split.c == 0.0
    assert split.bound == pytest.approx(split.printed / 2, rel=1e-12)


def test_bad_rhos_are_refused():
    with pytest.raises(InputError, match="rhos"):
        frontier(SITE, PRINTED, [1.0, -1.0])
    with pytest.raises(InputError, match="true_rho"):
        sensitivity(SITE, PRINTED, [np.inf], [1.0])


def quadratic(n=4, dim=6, seed=0):
    rng = np.random.default_rng(seed)
    curvature, centre = np.array([9.0, 3.0, 2.0, 1.0, 0.5, 0.1]), rng.normal(size=(n, dim))
    data = {"centre": jnp.asarray(centre, jnp.float32)}

    def loss(params, one):
        return 0.5 * jnp.sum(jnp.asarray(curvature, jnp.float32) * (params["w"] - one["centre"]) ** 2)

    return loss, {"w": jnp.ones(dim)}, data, curvature, centre


def test_probe_of_a_quadratic_is_exact():
    loss, params, data, curvature, centre = quadratic()
    seen = probe_kappa_L(loss, params, data, power_iterations=30)
    grads = curvature * (1 - centre)
    curvature_seen = seen.L
    assert curvature_seen == pytest.approx(9.0, rel=1e-4)
    assert seen.kappa**2 == pytest.approx(np.mean(np.sum((grads - grads.mean(0)) ** 2, 1)), rel=1e-4)
    assert seen.kappa_upper**2 == pytest.approx(np.mean(np.sum(grads**2, 1)), rel=1e-4)
    assert seen.kappa_upper**2 == pytest.approx(seen.kappa**2 + seen.mean_grad_norm**2, rel=1e-4)


def test_minibatch_variance_matches_drawn_batches():
    rng = np.random.default_rng(1)
    samples = jnp.asarray(rng.normal(size=(40, 3)), jnp.float32)

    def loss(params, batch):
        return 0.5 * jnp.mean(jnp.sum((params - batch) ** 2, -1))

    predicted = minibatch_variance(loss, jnp.zeros(3), samples, 8)
    drawn = np.array([np.asarray(samples)[rng.choice(40, 8, replace=False)].mean(0) for _ in range(20_000)])
    error = ((drawn - np.asarray(samples).mean(0)) ** 2).sum(1)
    assert abs(error.mean() - predicted) <= 5 * error.std() / np.sqrt(len(error))
    assert minibatch_variance(loss, jnp.zeros(3), samples, 40) == 0.0
