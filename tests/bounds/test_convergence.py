"""The three constant sets: their published values, their order, and that the bound holds on a simulated system."""

import math
from dataclasses import replace

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.systems.cares.certifier import Problem, bound_constants


def test_published_constants():
    assert bound_constants("main", 0.1, 0.5) == (4, 6, 6, 2.6)
    assert bound_constants("proof", 0.1, 0.5) == (4, 3, 3, 2.3)


def test_tight_noise_constant_is_ten_times_below_main_at_the_largest_step():
    smoothness = 1 / 1.2
    tight, main = (bound_constants(name, 0.1, smoothness) for name in ("tight", "main"))
    assert tight.noise == pytest.approx(1.2 * smoothness)
    assert main.noise == pytest.approx(10 * tight.noise)


def test_tight_constants_are_those_of_one_step_of_descent():
    """F falls by step (|g|^2 - b^2)/2 and rises by L step^2/2 (2 |g|^2 + 2 var + 2 b^2 + noise): solved for |g|^2."""
    step, smoothness = 0.1, 1.5
    left = step / 2 - smoothness * step**2
    found = bound_constants("tight", step, smoothness)
    assert found.gap / step == pytest.approx(1 / left)
    assert found.variance * step == pytest.approx(smoothness * step**2 / left)
    assert found.noise * step == pytest.approx(smoothness * step**2 / 2 / left)
    assert found.truncation == pytest.approx((step / 2 + smoothness * step**2) / left)


@pytest.mark.parametrize(("name", "product"), [("main", 1 / 12), ("proof", 1 / 6), ("tight", 0.5)])
def test_step_size_rule(name, product):
    bound_constants(name, 0.1, product / 0.1 * (1 - 1e-9))
    with pytest.raises(InputError, match="step_size"):
        bound_constants(name, 0.1, product / 0.1 * (1 + 1e-9))


def test_default_smoothness_never_breaks_its_own_rule():
    for step_size in np.random.default_rng(0).uniform(1e-4, 10, 500):
        bound_constants("main", step_size, 1 / (12 * step_size))


def test_terms_of_the_paper_regime(paper):
    """CARES E4: at L = 0.833 and eta = 0.40 the noise term is 150 and the bound says nothing."""
    problem = paper()
    bound = problem.conv_bound(0.40, 356)
    assert bound.channel_noise == pytest.approx(12 / 1.2 * 0.1 * 0.05**2 * 9610 / 0.16)
    assert bound.channel_noise == pytest.approx(150, abs=0.5)
    assert bound.grad_variance == pytest.approx(1.0)
    assert bound.initial_gap == pytest.approx(4 * math.log(10) / (0.1 * 356))
    assert not problem.informative(bound.total)
    assert replace(problem, constants="tight").conv_bound(0.40, 356).total == pytest.approx(15, abs=1.5)


def test_less_than_one_round_proves_nothing(paper):
    assert paper(loss_gap=0.0).conv_bound(0.3, 0).total == np.inf


def test_independent_batches_scale_the_variance(paper):
    problem = paper(independent_batches=True)
    assert problem.effective_grad_var == pytest.approx(np.sum(problem.weights**2))


def test_bounds_hold_on_a_noisy_truncated_quadratic():
    """F(w) = L/2 |w|^2 per client plus bounded gradient noise: actual <= tight <= proof <= main, mean of 400 runs."""
    rng = np.random.default_rng(5)
    runs, rounds, dim, step, smooth, eta, noise = 400, 120, 6, 0.1, 0.8, 1.0, 0.3
    weights, scale = np.array([0.5, 0.3, 0.2]), np.array([0.5, 0.6, 0.7])
    start = np.full(dim, 0.7 / np.sqrt(dim))
    spread = 0.5
    params = np.tile(start, (runs, 1))
    squares, longest = np.zeros((rounds, runs)), 0.0
    for t in range(rounds):
        squares[t] = np.sum((smooth * params) ** 2, -1)
        random = rng.normal(size=(runs, 3, dim))
        random *= spread / np.linalg.norm(random, axis=-1, keepdims=True)
        grads = smooth * params[:, None, :] + random
        norms = np.linalg.norm(grads, axis=-1)
        longest = max(longest, norms.max())
        active = rng.rayleigh(scale, (runs, 3)) >= eta * weights * norms
        received = np.einsum("rk,rkd->rd", weights * active, grads) + rng.normal(size=(runs, dim)) * noise / eta
        params -= step * received
    problem = Problem(
        weights,
        scale,
        noise,
        dim,
        loss_gap=smooth / 2 * 0.49,
        eps_target=1.0,
        delta=0.1,
        clip_norm=longest,
        step_size=step,
        smoothness=smooth,
        grad_var=spread**2,
    )
    bounds = [float(replace(problem, constants=c).conv_bound(eta, rounds).total) for c in ("tight", "proof", "main")]
    assert squares.mean() + 5 * squares.mean(0).std() / np.sqrt(runs) < bounds[0] < bounds[1] < bounds[2]
