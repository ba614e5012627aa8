"""The rules AdaScale is compared with: naive versions, conservation of the budget, statistics by Monte Carlo."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.systems.adascale import rivals as rules
from otafl.systems.adascale.design import Leakage, algorithm1, draw, optimal_excess, play, tune_V
from otafl.systems.adascale.setting import CIFAR10, MNIST, Setting, path_loss_db
from otafl.systems.adascale.stationary import expected_fill, stationary_level
from otafl.systems.adascale.tuning import tune_budget, tune_lyapunov
from otafl.systems.adascale.variables import (
    leakage_of,
    noise_floor,
    noise_multiplier,
    optimistic_floor,
    receive_scaling,
    typical_floor,
    unit_noise,
)

LEAKAGE = Leakage(np.full(10, 0.1445), np.full(10, 0.01))


def floors_of(seed: int, rounds: int, typical: float = 0.06) -> np.ndarray:
    return typical / np.random.default_rng(seed).exponential(size=rounds)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.floats(1e-3, 1), st.integers(0, 10**6), st.floats(0.01, 1))
def test_estim_future_plays_the_first_step_of_its_own_water_filling(rounds, nu, seed, guess):
    floors = floors_of(seed, rounds)
    excess, _ = play(rules.estim_future_rule(nu, rounds), floors, typical=guess)
    budget = rounds * nu
    for t in range(rounds):
        imagined = np.concatenate([[floors[t]], np.full(rounds - 1 - t, guess)])
        naive = optimal_excess(imagined, budget / len(imagined))[0] if budget > 1e-14 else 0.0
        assert excess[t] == pytest.approx(naive, rel=1e-9, abs=1e-9)
        budget -= naive
    assert excess.mean() == pytest.approx(nu, rel=1e-9)


def test_estim_future_reads_the_estimate_it_is_told_to():
    floors = floors_of(0, 20)
    one, _ = play(rules.estim_future_rule(0.04, 20, "mean_of_min"), floors, typical=0.06, optimistic=np.nan)
    two, _ = play(rules.estim_future_rule(0.04, 20, "min_of_means"), floors, typical=np.nan, optimistic=0.06)
    np.testing.assert_array_equal(one, two)


def naive_discounted(floor, left, budget, later, decay):
    """N_t by bisection on L, sum written out."""
    exponents = np.arange(left)

    def cost(level):
        return 1 / max(floor, level * decay ** (-left / 2)) + np.sum(
            1 / np.maximum(later, level * decay ** (-exponents / 2))
        )

    if cost(0.0) <= budget:
        return floor
    low, high = 0.0, 1e9
    for _ in range(300):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) > budget else (low, middle)
    return max(floor, high * decay ** (-left / 2))


@settings(max_examples=150, deadline=None)
@given(
    st.floats(1e-3, 1), st.integers(0, 40), st.floats(1e-2, 1e4), st.floats(1e-3, 1), st.sampled_from([1.0, 0.99, 0.9])
)
@example(0.5, 0, 1.0, 0.1, 0.99)
@example(0.5, 0, 1.0, 0.1, 1.0)
@example(1.0, 1, 1.5, 0.001, 0.9)
def test_discounted_level_against_bisection(floor, left, budget, later, decay):
    expected = naive_discounted(floor, left, budget, later, decay)
    assert rules.discounted_level(floor, left, budget, later, decay) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("decay", [1.0, 0.98])
def test_liu_simeone_reconstruction_keeps_its_budget(decay):
    floors = floors_of(3, 200)
    excess, _ = play(rules.liu_simeone_rule(500.0, 200, decay), floors, typical=0.06)
    assert np.sum(1 / (floors + excess)) <= 500 * (1 + 1e-12)


def test_lyapunov_reconstruction_follows_its_recursion():
    floors, queue = floors_of(1, 50), 0.0
    excess, _ = play(rules.lyapunov_rule(300.0, 1e3, 50), floors)
    for t in range(50):
        noise = max(floors[t], np.sqrt(queue / 1e3))
        assert excess[t] == pytest.approx(noise - floors[t], abs=1e-15)
        queue = max(queue + 1 / noise - 6.0, 0.0)


@pytest.mark.parametrize("typical", [0.01, 0.06, 2.0])
@pytest.mark.parametrize("nu", [1e-3, 0.04, 1.0])
def test_stationary_level_by_monte_carlo(nu, typical):
    """Mean of 400,000 draws within 5 standard errors."""
    level = stationary_level(nu, typical)
    fill = np.maximum(level - floors_of(8, 400_000, typical), 0)
    assert abs(fill.mean() - nu) < 5 * fill.std() / np.sqrt(fill.size)
    assert expected_fill(level, typical) == pytest.approx(nu, rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(1e-3, 1), st.integers(0, 10**6))
def test_stat_water_spends_exactly(rounds, nu, seed):
    excess, _ = play(rules.stat_water_rule(nu, rounds), floors_of(seed, rounds), typical=0.06)
    assert np.all(excess >= 0) and excess.mean() == pytest.approx(nu, rel=1e-9)


def test_every_rule_runs_at_full_power_when_the_cap_is_zero():
    floors, zero = floors_of(0, 15), 0.0
    for rule in (
        rules.equal_rule(zero),
        rules.estim_future_rule(zero, 15),
        rules.stat_level_rule(zero),
        rules.stat_water_rule(zero, 15),
    ):
        assert not play(rule, floors, typical=0.06)[0].any(), rule.name


def test_tuned_adascale_spends_the_cap_and_never_leaks_more_than_equal_allocation():
    floors = np.stack([floors_of(s, 120) for s in range(4)])
    nu = np.array([0.01, 0.1])[:, None]
    V = tune_V(floors[:, None, :], nu, LEAKAGE)
    run = algorithm1(floors, V, nu, LEAKAGE)
    np.testing.assert_allclose(run.excess.mean(-1) / nu, np.ones((2, 4)), atol=1.1e-6)
    equal = LEAKAGE.total(floors + nu[..., None]).mean(-1)
    assert np.all(LEAKAGE.total(run.noise).mean(-1) <= equal * (1 + 1e-5))


def test_tuning_on_several_traces_meets_the_cap_on_average():
    floors = np.stack([floors_of(s, 100) for s in range(3)])
    V = tune_V(floors, 0.05, LEAKAGE)
    assert algorithm1(floors, V, 0.05, LEAKAGE).excess.mean() == pytest.approx(0.05, rel=1.1e-6)


def test_tuned_reconstructions_spend_the_cap():
    floors = floors_of(5, 100)[None, :]
    budget = tune_budget(floors, 0.05, 0.06)
    assert play(rules.liu_simeone_rule(budget, 100), floors[0], 0.06)[0].mean() == pytest.approx(0.05, rel=2e-6)
    cost = lambda noise: LEAKAGE.total(noise).sum((-2, -1))  # noqa: E731
    found = tune_lyapunov(floors, 0.05, cost, points=9)
    assert play(rules.lyapunov_rule(found.budget, found.weight, 100), floors[0])[0].mean() == pytest.approx(
        0.05, rel=2e-6
    )


def test_setting_reproduces_the_symbol_table():
    assert MNIST.x_max == pytest.approx(5.190e5, rel=1e-3)
    assert MNIST.k_squared[0] == pytest.approx(1.0165)
    assert unit_noise(MNIST.deployment(), MNIST.message())[0] == pytest.approx(0.1445)
    assert CIFAR10.q[0] == 0.08
    assert path_loss_db(100.0) == pytest.approx(10 * np.log10(2.44e10), abs=0.01)


def test_floor_scaling_and_multiplier_by_the_papers_formulas():
    """(14), (15), (23), (25) written with h_min, x and eta as in the paper, unequal devices."""
    setting = Setting(M=4, T=5, d=1000, n=[100, 200, 300, 400], B=[10, 20, 15, 80], G=1.5)
    deployment, message = setting.deployment(), setting.message()
    gain = draw(setting, 3).gain
    h_min2 = np.min(np.abs(gain) ** 2 / setting.k_squared, axis=-1)
    floor = noise_floor(gain, deployment, message)
    np.testing.assert_allclose(floor, setting.noise_power * 1.5**2 / (setting.P_max * 16 * h_min2), rtol=1e-12)
    noise = floor + 0.1
    eta = receive_scaling(noise, deployment)
    x = eta / h_min2
    np.testing.assert_allclose(x, setting.x_max * floor / noise, rtol=1e-12)
    sigma = 4 * np.array(setting.B) * np.sqrt(setting.noise_power) / (np.sqrt(2 * x * h_min2)[:, None] * 1.5)
    np.testing.assert_allclose(noise_multiplier(noise, deployment, message), sigma, rtol=1e-12)
    power = eta[:, None] * 1.5**2 * setting.k_squared / (1000 * 16 * np.abs(gain) ** 2)
    assert np.all(power <= setting.P_max)


def test_statistical_floors_by_monte_carlo():
    """The weakest effective channel power is exponential: mean_of_min within 5 standard errors of 200,000 draws."""
    setting = Setting(M=6, T=200_000, d=10, n=100, B=10, G=1.0)
    deployment, message = setting.deployment(), setting.message()
    channels = draw(setting, 0)
    strength = 1 / noise_floor(channels.gain, deployment, message)
    mean = 1 / typical_floor(channels.rms, deployment, message)
    assert abs(strength.mean() - mean) < 5 * strength.std() / np.sqrt(strength.size)
    assert optimistic_floor(channels.rms, deployment, message) < typical_floor(channels.rms, deployment, message)


def test_distrusted_noise_divides_every_multiplier():
    part = Setting(M=10, T=5, d=26_010, n=6000, B=60, G=1.0, privacy_noise_power=1e-14)
    whole = noise_multiplier(0.1, MNIST.deployment(), MNIST.message())
    np.testing.assert_allclose(noise_multiplier(0.1, part.deployment(), part.message()), whole / 10)
    assert leakage_of(part.deployment(), part.message()).total(0.1) > 10
    assert any("PRIVACY RESTS ON RECEIVER NOISE" in text for text in MNIST.cautions())
    assert any("0.1 times" in text for text in part.cautions())


GOOD = {"M": 3, "T": 5, "d": 10, "n": 100, "B": 10, "G": 1.0}


@pytest.mark.parametrize(
    "change",
    [{"B": 0}, {"B": 101}, {"G": 0}, {"P_max": 0}, {"noise_power": -1}, {"d": 0}, {"M": 0}, {"T": 2.5}, {"n": [1, 2]},
     {"privacy_noise_power": 1.0}, {"privacy_noise_power": 0.0}],
)  # fmt: skip
def test_bad_settings_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        Setting(**(GOOD | change))


def test_a_silent_channel_is_refused():
    setting = Setting(**GOOD)
    with pytest.raises(InputError, match="leave it out"):
        noise_floor(np.array([1e-6, 0, 1e-6]), setting.deployment(), setting.message())


def test_watts_that_look_like_dbm_are_doubted():
    assert any("dBm" in text for text in Setting(**GOOD, P_max=2300.0).cautions())
