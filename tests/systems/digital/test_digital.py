"""Votes and orthogonal channels: error, charge and uses by Monte Carlo and by hand; the uplinks as they run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Message, Plan
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import Uplink, to_float32, uplink_of
from otafl.privacy import Budget, release
from otafl.privacy.events import inverse_square
from otafl.systems.digital import obda, orthogonal, rates, votes

ROUNDS, DIM = 6, 53
CONTEXT = small.CONTEXT._replace(rounds=ROUNDS, eps=60.0, delta=1e-5, accountant="zcdp")
SITE = small.deployment(noise_std=0.3, energy=4.0)
TRACE = small.trace(ROUNDS, seed=3)


def message(unit: Any = "client", adjacency: Any = "replace") -> Message:
    return Message(DIM, 0.5, np.full(4, 0.25), np.ones(4), np.ones(4), unit, adjacency)


def planned(name: str, config: Any, sent: Message) -> tuple[Plan, Uplink]:
    policy = systems.make(name, config, SITE, sent, CONTEXT)
    return plan_ahead(policy, policy.init(0), TRACE)[1], uplink_of(policy)


def decoded(uplink: Uplink, plan: Plan, x: np.ndarray, draws: int) -> np.ndarray:
    """(draws, D): what the server makes of messages (4, D) in round 0, through the compiled parts of the uplink."""
    link = to_float32(uplink.lower(Plan(*(leaf[0] for leaf in plan)), TRACE.gain[0], SITE))
    sent = jnp.asarray(plan.max_norm[0] >= 0)
    total = uplink.combine(link, jnp.arange(4), sent, jnp.ones(4, jnp.float32), jnp.asarray(x, jnp.float32))
    keys = jax.random.split(jax.random.key(1), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: uplink.decode(total, link, key)[0]))(keys))


def test_majority_error_of_the_reference_case_and_by_monte_carlo() -> None:
    exact = votes.majority_error(11, 0.7, 0.8, 0.5, 1.0)
    assert exact == pytest.approx(0.152911, abs=5e-7)
    rng, draws = np.random.default_rng(0), 200_000
    vote = np.where(rng.random((draws, 11)) < 0.7, 1, -1) * (rng.random((draws, 11)) < 0.8)
    wrong = np.mean(0.5 * vote.sum(-1) + rng.standard_normal(draws) < 0)
    assert abs(wrong - exact) < 5 * np.sqrt(exact / draws)


def test_more_or_surer_voters_err_less() -> None:
    errors = [votes.majority_error(k, 0.6, 1.0, 1.0, 1.0) for k in (1, 5, 25, 125)]
    assert np.all(np.diff(errors) < 0)
    assert votes.majority_error(3, 1.0, 1.0, 0.0, 1.0) == 0.5


@pytest.mark.parametrize(("unit", "adjacency", "moved"), [
    ("client", "replace", 4), ("client", "zero-out", 1), ("client", "add-remove", 1), ("record", "zero-out", 4),
])  # fmt: skip
def test_obda_is_charged_for_all_signs(unit: str, adjacency: str, moved: int) -> None:
    """c^2 D / v0 times 4 where signs may flip; c = 0.2 of the receiver's noise for everybody."""
    plan, uplink = planned("obda", obda.Config(vote=0.2), message(unit, adjacency))
    charged = inverse_square(release(uplink, plan, TRACE, SITE, message(unit, adjacency)))
    assert charged == pytest.approx(np.full((ROUNDS, 4), moved * 0.2**2 * DIM), rel=1e-12)
    by_hand = votes.vote_charge(0.2 * 0.3, DIM, 0.09, unit, adjacency)  # type: ignore[arg-type]
    assert by_hand == pytest.approx(moved * 0.2**2 * DIM, rel=1e-12)


def test_obda_decides_by_the_sign_of_the_noisy_sum() -> None:
    """Chances of + for four votes through the uplink: Phi(vote x sum of signs), within 5 standard errors."""
    from scipy.special import ndtr

    plan, uplink = planned("obda", obda.Config(vote=0.2), message())
    assert np.all(plan.max_norm[0] >= 0)
    x = 0.01 * np.random.default_rng(2).standard_normal((4, DIM))
    seen = decoded(uplink, plan, x, 4000)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 0.5, rtol=1e-4)  # the norm of the bound
    expected = ndtr(0.2 * np.sign(x).sum(0))
    assert np.max(np.abs(np.mean(seen > 0, 0) - expected)) < 5 * np.sqrt(0.25 / 4000)


def test_a_vote_costs_the_same_whatever_the_gradient() -> None:
    plan, uplink = planned("obda", obda.Config(vote=0.2), message())
    energy = uplink.energy(plan, np.full((ROUNDS, 4), 1e-3), plan.max_norm >= 0, DIM)
    signs = (0.2 * 0.3 / np.abs(TRACE.gain)) ** 2 * DIM  # c / abs(h) on every one of D signs
    np.testing.assert_allclose(energy, np.where(signs <= 4.0, signs, 0.0), rtol=1e-12)
    assert uplink.uses(plan, TRACE, SITE)[0] == 27


def test_digital_uses_of_the_reference_case() -> None:
    found = rates.channel_uses(np.array([10.0, 5.0, 20.0, 8.0]), 9610, 8)
    assert float(found.uses) == pytest.approx(sum(9610 * 8 / np.log2(1 + s) for s in (10, 5, 20, 8)), rel=1e-12)
    assert round(float(found.uses)) == 93_721
    assert found.snr.tolist() == [10, 5, 20, 8] and found.rate == pytest.approx(np.log2([11, 6, 21, 9]))
    assert float(rates.seconds(found.uses, 1e6)) == pytest.approx(0.093721, rel=1e-5)
    assert rates.snr(np.array([2.0]), np.array([3.0]), 6, 0.5)[0] == pytest.approx(2.0)


def test_orthogonal_hides_each_by_its_own_noise() -> None:
    plan, uplink = planned("orthogonal", orthogonal.Config(noise_std=0.8), message())
    charged = inverse_square(release(uplink, plan, TRACE, SITE, message()))
    assert charged == pytest.approx(np.full((ROUNDS, 4), 1 / 0.8**2), rel=1e-9)
    bare, uplink = planned("orthogonal", orthogonal.Config(noise_std=0.0), message())
    assert np.all(np.isinf(inverse_square(release(uplink, bare, TRACE, SITE, message()))))


def test_the_most_sensitive_device_meets_the_target_with_its_own_noise() -> None:
    """zCDP adds up: T rounds of Delta^2 / (2 std^2) are the whole budget of the device with the largest Delta."""
    sent = message()._replace(sensitivity=np.array([0.25, 1.0, 0.7, 0.5]))
    noise = orthogonal.own_noise(SITE, sent, CONTEXT)
    assert ROUNDS / (2 * noise**2) == pytest.approx(Budget(60.0, 1e-5, "zcdp", adjacency="replace").zcdp, rel=1e-9)


@pytest.mark.parametrize(("name", "config"), [("obda", obda.Config()), ("orthogonal", orthogonal.Config())])
def test_a_device_without_a_channel_is_left_out_of_its_round(name: str, config: Any) -> None:
    gone = np.zeros((ROUNDS, 4), bool)
    gone[2, 1] = gone[3] = True
    gain = np.where(gone, 0, TRACE.gain)
    policy = systems.make(name, config, SITE, message(), CONTEXT)
    _, plan, _ = plan_ahead(policy, policy.init(0), TRACE._replace(gain=gain, estimate=gain))
    link = uplink_of(policy).lower(plan, gain, SITE)
    assert np.all(np.isfinite(plan.tx)) and not plan.tx[gone].any() and not link.weight[gone].any()
    assert np.all(plan.max_norm[gone] == -1) and np.array_equal(link.weight > 0, plan.max_norm >= 0)


def test_the_link_of_a_quantiser_has_its_error_beside_the_noise() -> None:
    """Uniform within a step: step^2 / 12 of variance for each device."""
    plan, uplink = planned("orthogonal", orthogonal.Config(bits=3, noise_std=0.1), message())
    each = 0.1**2 + orthogonal.step_of(3, 0.5, DIM, 0.1) ** 2 / 12
    np.testing.assert_allclose(uplink.lower(plan, TRACE.gain, SITE).noise_std ** 2, each * np.sum(SITE.weights**2))


def test_noise_of_a_device_has_no_negative_deviation() -> None:
    with pytest.raises(InputError, match="noise_std="):
        planned("orthogonal", orthogonal.Config(noise_std=-0.1), message())


def test_orthogonal_quantises_every_message_and_averages() -> None:
    plan, uplink = planned("orthogonal", orthogonal.Config(bits=6, noise_std=0.0), message())
    x = 0.05 * np.random.default_rng(2).standard_normal((4, DIM))
    step = orthogonal.step_of(6, 0.5, DIM, 0.0)
    wanted = SITE.weights @ ((np.floor(x / step) + 0.5) * step)
    np.testing.assert_allclose(decoded(uplink, plan, x, 1)[0], wanted, atol=1e-6)


def test_orthogonal_noise_is_drawn_as_it_is_charged() -> None:
    """Variance of the update over 4,000 draws within 5 %; the step of 12 bits adds nothing visible."""
    plan, uplink = planned("orthogonal", orthogonal.Config(bits=12, noise_std=0.8), message())
    spread = decoded(uplink, plan, np.zeros((4, DIM)), 4000).std(0)
    np.testing.assert_allclose(spread.mean(), 0.8 * np.sqrt(np.sum(SITE.weights**2)), rtol=0.01)


def test_orthogonal_counts_uses_and_energy_at_the_analog_power() -> None:
    plan, uplink = planned("orthogonal", orthogonal.Config(), message())
    each = DIM * 8 / np.log2(1 + np.abs(TRACE.gain) ** 2 * 4.0 / (DIM * 2 * 0.09))
    np.testing.assert_allclose(uplink.uses(plan, TRACE, SITE), each.sum(-1), rtol=1e-9)
    np.testing.assert_allclose(uplink.energy(plan, np.ones(4), True, DIM), 4.0 * each / DIM, rtol=1e-9)
    _, site = uplink.site(TRACE, SITE)
    np.testing.assert_allclose(site.energy, 4.0 * each.max(0) / DIM, rtol=1e-9)
