"""CARES' bound for local steps and antennas: limits, simulations, and a problem where everything is known."""

import numpy as np
import pytest

from otafl.bounds.antennas import any_silent
from otafl.bounds.envelopes import drop_rate
from otafl.bounds.local_steps import local_drift, local_record_sensitivity
from otafl.channels.antennas import iterated
from otafl.core.errors import InputError
from otafl.systems.cares.certifier import Problem, certify

SITE = {"loss_gap": 2.0, "step_size": 0.1, "smoothness": 0.8, "grad_var": 0.5, "num_params": 7, "clip_norm": 1.5}


def problem(**changes) -> Problem:
    given = {"weights": [0.5, 0.3, 0.2], "channel_scale": [1.0, 0.8, 0.5], "noise_std": 0.2, "eps_target": 50,
             "delta": 1e-5, "constants": "tight", **SITE}  # fmt: skip
    return Problem(**{**given, **changes})


@pytest.mark.parametrize(("steps", "size"), [(1, 0.0), (4, 0.02)])
def test_the_certifier_uses_the_bound_of_local_steps(steps: int, size: float) -> None:
    """(H2), term by term."""
    eta, rounds = np.array([0.05, 0.1, 0.4]), 30
    many = problem(local_steps=steps, local_step_size=size)
    a, S, G = SITE["step_size"], SITE["smoothness"], SITE["clip_norm"]
    k, drift = 0.5 - a * S, S * size * G * (steps - 1) / 2
    noise = S * a / (2 * k) * 0.2**2 * SITE["num_params"] / eta**2
    dropped = (0.5 + a * S) / k * (G * np.sqrt(many.dropped_mass(eta)) + drift) ** 2
    wanted = SITE["loss_gap"] / (k * a * rounds) + S * a / k * SITE["grad_var"] / steps + noise + dropped
    assert many.conv_bound(eta, rounds).total == pytest.approx(wanted, rel=1e-14)


def test_local_steps_change_the_drift_and_not_the_horizon() -> None:
    many = problem(local_steps=4, local_step_size=0.02)
    assert many.drift == pytest.approx(0.8 * 0.02 * 1.5 * 3 / 2)
    answer = certify(many, [0.05, 0.1, 0.2])
    assert np.array_equal(answer.arms.horizon, certify(problem(), [0.05, 0.1, 0.2]).arms.horizon)  # sensitivity is 2 G


def test_gradients_along_local_steps_stay_within_the_drift() -> None:
    """Quadratic losses of curvature at most S, clipped gradients: the largest deviation of any walk is below (H1)."""
    rng, bound, step, smoothness, steps = np.random.default_rng(0), 1.5, 0.1, 0.8, 6
    curvature = rng.uniform(-smoothness, smoothness, (500, 4))
    start = rng.normal(size=(500, 4))
    w, total = start.copy(), 0.0
    for _ in range(steps):
        total = total + curvature * w
        noisy = curvature * w + rng.normal(size=w.shape)
        w = w - step * noisy * np.minimum(1, bound / np.linalg.norm(noisy, axis=1, keepdims=True))
    apart = np.linalg.norm(total / steps - curvature * start, axis=1)
    assert apart.max() <= local_drift(smoothness, step, bound, steps)
    straight = smoothness * step * bound * np.arange(steps).mean()  # all steps the same way, curvature S: attained
    assert straight == pytest.approx(local_drift(smoothness, step, bound, steps))


def test_a_replaced_record_moves_the_message_by_no_more_than_its_sensitivity() -> None:
    """Linear-quadratic examples of smoothness S, per-example clipping, L full-batch steps, one record replaced."""
    rng, bound, step, smoothness, steps, batch = np.random.default_rng(1), 1.0, 0.2, 0.9, 5, 4
    limit = local_record_sensitivity(bound, batch, steps, step, smoothness)
    assert limit < 2 * bound
    largest = 0.0
    for _ in range(300):
        curve, centre = rng.uniform(0, smoothness, batch), rng.normal(size=(batch, 2))
        sent = []
        for changed in (False, True):
            mine = centre.copy()
            if changed:
                mine[0] = -3 * mine[0]
            w, total = np.zeros(2), np.zeros(2)
            for _ in range(steps):
                g = curve[:, None] * (w - mine)
                g *= np.minimum(1, bound / np.linalg.norm(g, axis=1, keepdims=True))
                total += g.mean(0)
                w = w - step * g.mean(0)
            sent.append(total / steps)
        largest = max(largest, float(np.linalg.norm(sent[0] - sent[1])))
    assert largest <= limit
    assert local_record_sensitivity(bound, batch, steps, step) == 2 * bound
    assert local_record_sensitivity(bound, batch, 1, step) == 2 * bound / batch


def test_anyone_is_silent_no_more_often_than_the_bound_says() -> None:
    """Monte Carlo, 5 standard errors: best antenna attains (H3), the iterated beam stays below it."""
    rng, eta, antennas = np.random.default_rng(2), 0.9, 3
    weights, scale = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.8, 0.5])
    rates = drop_rate(weights, scale, 1.0, 1.0)
    bound = any_silent(eta, rates, antennas)
    need = weights  # of clip norm 1 and energy 1: silent iff |f^H h| < eta p
    draws = 20_000
    h = scale[:, None] * (rng.normal(size=(draws, 3, antennas)) + 1j * rng.normal(size=(draws, 3, antennas)))
    best = (np.abs(h) / need[:, None]).min(1).max(1)
    alone = float(np.mean(best < eta))
    assert alone == pytest.approx(bound, abs=5 * np.sqrt(bound / draws))
    beamed = np.mean([np.min(np.abs(one @ iterated(one, need).conj()) / need) < eta for one in h[:400]])
    assert beamed <= bound


def test_antennas_bound_every_participation_target_and_one_is_the_old_certificate() -> None:
    eta = np.geomspace(0.01, 3, 40)
    many, one = problem(antennas=4), problem()
    silent = many.any_silent(eta)
    for value in (many.dropped_weight(eta), many.asymmetry(eta), many.dropped_mass(eta), many.drop_prob(eta)[:, 0]):
        assert np.array_equal(value, silent)
    assert np.all(np.diff(silent) > 0) and many.any_silent(many.eta_peak) == 1.0
    assert np.array_equal(problem(antennas=1).conv_bound(eta, 9).total, one.conv_bound(eta, 9).total)
    assert many.zcdp_cost(0.2) == one.zcdp_cost(0.2)
    assert problem(antennas=4, exposure=3.0).zcdp_cost(0.2) == pytest.approx(3 * one.zcdp_cost(0.2))


@pytest.mark.parametrize(("wrong", "said"), [
    ({"local_steps": 2, "local_step_size": 0.1, "constants": "main"}, "constants='tight'"),
    ({"local_steps": 2}, "local_step_size > 0"),
    ({"local_step_size": 0.1}, "no meaning"),
    ({"antennas": 0}, "antennas"),
    ({"exposure": 0.5}, "exposure"),
])  # fmt: skip
def test_what_is_not_proved_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        problem(**wrong)
