"""Energies: (G1), (G2) and (G3) by Monte Carlo and random search; the uplink as it runs, against its own law."""

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
from otafl.privacy import release
from otafl.privacy.events import inverse_square
from otafl.systems.noncoherent import energies, energy_difference, fsk_mv

ROUNDS, DIM, DRAWS = 4, 53, 200_000
SITE = small.deployment(noise_std=0.3, energy=4.0)
TRACE = small.trace(ROUNDS, seed=3)
CONTEXT = small.CONTEXT._replace(rounds=ROUNDS)


def message(unit: Any = "client", adjacency: Any = "replace") -> Message:
    return Message(DIM, 0.5, np.full(4, 0.25), np.ones(4), np.ones(4), unit, adjacency)


def planned(name: str, config: Any, sent: Message) -> tuple[Plan, Uplink]:
    policy = systems.make(name, config, SITE, sent, CONTEXT)
    return plan_ahead(policy, policy.init(0), TRACE)[1], uplink_of(policy)


def bins(energy: np.ndarray, rms: np.ndarray, noise_var: float, rng: np.random.Generator) -> np.ndarray:
    """(DRAWS,) energies of a bin into which devices put `energy` over Rayleigh channels of their own."""
    shape = (DRAWS, len(rms))
    gain = rms * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)
    noise = np.sqrt(noise_var) * (rng.standard_normal(DRAWS) + 1j * rng.standard_normal(DRAWS))
    return np.abs(gain @ np.sqrt(energy) + noise) ** 2


def test_energies_are_exponential_and_the_louder_bin_wins_as_often_as_said() -> None:
    rng, rms = np.random.default_rng(0), np.array([1.0, 0.5, 2.0])
    plus, minus = np.array([0.3, 0.0, 0.2]), np.array([0.0, 1.0, 0.0])
    means = energies.bin_means(plus, minus, rms, 0.1)
    seen = bins(plus, rms, 0.1, rng), bins(minus, rms, 0.1, rng)
    for one, mean in zip(seen, means):  # (G1): an exponential has its mean for a standard deviation
        assert one.mean() == pytest.approx(float(mean), abs=5 * float(mean) / np.sqrt(DRAWS))
        assert one.var() == pytest.approx(float(mean) ** 2, rel=0.05)
    chance = float(energies.plus_probability(means))
    assert abs(np.mean(seen[0] > seen[1]) - chance) < 5 * np.sqrt(chance / DRAWS)


def test_the_difference_has_the_stated_mean_and_variance() -> None:
    """(G2) with one and with three looks."""
    rng, rms, weights = np.random.default_rng(1), np.array([1.0, 0.5, 2.0]), np.array([0.2, 0.3, 0.5])
    x, scale = np.array([0.4, -0.7, 0.1]), 2.0
    plus, minus = np.maximum(x, 0), np.maximum(-x, 0)
    for looks in (1, 3):
        drawn = [[bins(scale * weights * side / rms**2, rms, 0.1, rng) for side in (plus, minus)] for _ in range(looks)]
        seen = np.mean([(a - b) / scale for a, b in drawn], axis=0)
        wanted = float(energies.difference_variance(weights @ plus, weights @ minus, scale, 0.1, looks))
        assert abs(seen.mean() - weights @ x) < 5 * np.sqrt(wanted / DRAWS)
        assert seen.var() == pytest.approx(wanted, rel=0.05)


def test_no_change_of_a_message_passes_the_charge_and_a_change_of_sign_meets_it() -> None:
    """(G3): the squared move of all bins, over random pairs at L2 distance Delta."""
    rng = np.random.default_rng(2)
    charge = float(energies.difference_charge(1.5, 0.3, 0.8, 2.0, 16, 0.6, 0.1))
    level = 1.5**2 * 2.0 * 0.3 / 0.8**2 / 0.1

    def moved(x: np.ndarray, other: np.ndarray) -> float:
        roots = [np.concatenate([np.sqrt(np.maximum(v, 0)), np.sqrt(np.maximum(-v, 0))]) for v in (x, other)]
        return float(level * np.sum((roots[0] - roots[1]) ** 2))

    for _ in range(2000):
        x, step = rng.standard_normal(16) * rng.choice([0.01, 0.1, 1]), rng.standard_normal(16)
        assert moved(x, x + 0.6 * step / np.linalg.norm(step)) <= charge * (1 + 1e-12)
    even = np.full(16, 0.6 / 4 / 2)
    assert moved(even, -even) == pytest.approx(charge, rel=1e-12)


@pytest.mark.parametrize(("unit", "adjacency", "number"), [
    ("client", "replace", 2), ("client", "zero-out", 1), ("record", "zero-out", 2),
])  # fmt: skip
def test_the_ledger_charges_fsk_for_all_bins(unit: str, adjacency: str, number: int) -> None:
    sent = message(unit, adjacency)
    plan, uplink = planned("fsk-mv", fsk_mv.Config(share=0.5), sent)
    charged = inverse_square(release(uplink, plan, TRACE, SITE, sent))
    wanted = np.abs(TRACE.gain) ** 2 * (0.5 * 4.0 / DIM) * number * DIM / 0.09
    np.testing.assert_allclose(charged, wanted, rtol=1e-12)
    by_hand = energies.fsk_charge(TRACE.gain, 0.5 * 4.0 / DIM, DIM, 0.09, unit, adjacency)  # type: ignore[arg-type]
    np.testing.assert_allclose(by_hand, wanted, rtol=1e-12)


def test_the_ledger_charges_differences_by_their_l1_norm_and_energy_goes_by_it() -> None:
    plan, uplink = planned("energy-difference", energy_difference.Config(), message())
    scale = energies.energy_scale(SITE.energy, np.ones(4), SITE.weights, 0.5, DIM)
    charged = inverse_square(release(uplink, plan, TRACE, SITE, message()))
    wanted = energies.difference_charge(TRACE.gain, SITE.weights, np.ones(4), scale, DIM, 1.0, 0.09)
    np.testing.assert_allclose(charged, wanted, rtol=1e-12)
    most = uplink.energy(plan, np.full(4, 0.5), np.ones(4, bool), DIM)
    assert most.max() == pytest.approx(4.0)  # the heaviest client is at its limit with an even message
    x = np.random.default_rng(0).standard_normal((4, DIM))
    x *= 0.5 / np.linalg.norm(x, axis=1, keepdims=True)
    sent = np.abs(plan.tx[0]) ** 2 * np.abs(x).sum(1)
    assert np.all(sent <= uplink.energy(plan, np.linalg.norm(x, axis=1), np.ones(4, bool), DIM)[0])
    assert uplink.uses(plan, TRACE, SITE)[0] == 2 * DIM


def test_fsk_spends_its_share_whatever_the_gradient_and_its_link_is_the_mean_decision() -> None:
    """All devices on one side: the mean decision is twice the chance of + less one."""
    plan, uplink = planned("fsk-mv", fsk_mv.Config(share=0.5), message())
    np.testing.assert_allclose(uplink.energy(plan, np.full(4, 1e-3), np.ones(4, bool), DIM), 0.5 * 4.0)
    each = 0.5 * 4.0 / DIM * np.ones((ROUNDS, 4))  # into the bin of a coordinate
    for t, weight in enumerate(uplink.lower(plan, TRACE.gain, SITE).weight):
        means = energies.bin_means(each[t], 0 * each[t], np.abs(TRACE.gain[t]), SITE.noise_var)
        assert weight.sum() == pytest.approx(2 * float(energies.plus_probability(means)) - 1, rel=1e-12)


def decoded(uplink: Uplink, plan: Plan, x: np.ndarray, draws: int) -> np.ndarray:
    link = to_float32(uplink.lower(Plan(*(leaf[0] for leaf in plan)), TRACE.gain[0], SITE))
    total = uplink.combine(
        link, jnp.arange(4), jnp.ones(4, bool), jnp.ones(4, jnp.float32), jnp.asarray(x, jnp.float32)
    )
    keys = jax.random.split(jax.random.key(1), draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: uplink.decode(total, link, key)[0]))(keys))


def test_the_uplink_simulates_bins_phase_by_phase() -> None:
    """Mean and variance of e+ - e- given one gain per device: (sum)^2 - sum of squares, receiver noise and both."""
    plan, uplink = planned("energy-difference", energy_difference.Config(), message())
    x = np.random.default_rng(2).uniform(-0.06, 0.06, (4, DIM))
    seen, scale = decoded(uplink, plan, x, 6000), plan.rx_scale[0]
    square = np.abs(TRACE.gain[0] * plan.tx[0]) ** 2 / scale  # (K,) weights in this round
    floor = 2 * SITE.noise_var / scale
    variance = 0.0
    for side in (np.maximum(x, 0), np.maximum(-x, 0)):
        received = (square[:, None] * side).T  # (D, K)
        mixed = received.sum(-1) ** 2 - np.sum(received**2, axis=-1)  # phases are random
        variance = variance + mixed + 2 * received.sum(-1) * floor + floor**2
    assert np.max(np.abs(seen.mean(0) - square @ x) / np.sqrt(variance / 6000)) < 5
    np.testing.assert_allclose(seen.var(0).sum(), variance.sum(), rtol=0.03)


def test_phases_fill_the_circle() -> None:
    """Two devices a quarter turn apart in one bin, no noise: (sum)^2 - sum of squares = 2, as for any other gains."""
    plan, uplink = planned("energy-difference", energy_difference.Config(), message())
    link = to_float32(uplink.lower(Plan(*(leaf[0] for leaf in plan)), TRACE.gain[0], SITE))
    one, zero = np.float32([1, 0]), np.float32([0, 1])
    link = link._replace(extra=link.extra._replace(real=one, imag=zero, noise_std=np.float32(0)))
    seen = np.asarray(jax.jit(lambda key: uplink.decode(jnp.ones((2, 20_000)), link, key)[0])(jax.random.key(2)))
    assert abs(seen.mean() - 2) < 5 * np.sqrt(2 / seen.size)
    assert seen.var() == pytest.approx(2, abs=5 * 2 / np.sqrt(seen.size))  # 0, 2, 2 or 4


def test_votes_are_decided_by_the_louder_bin() -> None:
    """One device alone: the chance of its sign against receiver noise, of a noncentral against a central energy."""
    from scipy.stats import expon, ncx2

    plan, uplink = planned("fsk-mv", fsk_mv.Config(share=1.0), message())
    x = np.zeros((4, DIM))
    x[2] = np.where(np.arange(DIM) % 2, 1.0, -1.0)
    seen = decoded(uplink, plan, x, 4000)
    right = np.mean(np.sign(seen) == np.sign(x[2]))
    signal = np.abs(TRACE.gain[0, 2] * plan.tx[0, 2]) ** 2 / SITE.noise_var
    grid = (np.arange(20_000) + 0.5) / 20_000
    exact = np.mean(expon.cdf(ncx2.ppf(grid, 2, signal) / 2))  # P(central < noncentral), both over v0
    assert right == pytest.approx(exact, abs=5 * np.sqrt(0.25 / (4000 * DIM)) + 1e-4)
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 0.5, rtol=1e-4)


@pytest.mark.parametrize(("name", "module"), [("fsk-mv", fsk_mv), ("energy-difference", energy_difference)])
def test_privacy_from_fading_is_refused(name: str, module: Any) -> None:
    with pytest.raises(InputError, match="credit='fading': privacy from fading"):
        planned(name, module.Config(credit="fading"), message())
