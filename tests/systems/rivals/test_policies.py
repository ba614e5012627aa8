"""Phase-only, random participation and COTAF: means, variances, identities, and what is refused."""

import numpy as np
import pytest

import small
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Message, Plan, Trace
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import lower, transmit_energy, uplink_of
from otafl.privacy import Budget, Ledger, pld_eps, release
from otafl.privacy.events import events
from otafl.privacy.participation import run_rdp, visible_eps
from otafl.privacy.rdp import ORDERS, sampled_gaussian_rdp
from otafl.systems.baselines.constant import Config as Constant
from otafl.systems.rivals import cotaf, phase_only, random_participation

MESSAGE = Message(53, 1.0, np.ones(4), np.ones(4), np.ones(4), "client", "zero-out")
SITE = small.deployment(noise_std=0.3, energy=4.0)
MANY = small.trace(20_000, seed=5)


def plan_of(name: str, config: object, trace: Trace, message: Message = MESSAGE) -> tuple[Plan, object]:
    context = small.CONTEXT._replace(rounds=len(trace.gain), trace=trace)
    policy = systems.make(name, config, SITE, message, context)
    return plan_ahead(policy, policy.init(0), trace)[1], uplink_of(policy)


def test_phase_only_is_unbiased_with_the_variance_of_a_rayleigh_gain() -> None:
    """Means within 5 standard errors; variances p^2 (4/pi - 1) within 5 %."""
    plan, _ = plan_of("phase-only", phase_only.Config(), MANY)
    weight = lower(plan, MANY.gain, SITE).weight
    spread = SITE.weights * np.sqrt(4 / np.pi - 1)
    assert np.all(np.abs(weight.mean(0) - SITE.weights) < 5 * spread / np.sqrt(20_000))
    np.testing.assert_allclose(weight.var(0), phase_only.weight_variance(SITE.weights), rtol=0.05)
    assert np.max(transmit_energy(plan, np.ones((20_000, 4)), True, 53)) == pytest.approx(4.0)  # the loudest: its limit


def test_phase_only_is_charged_its_realised_amplitude() -> None:
    plan, _ = plan_of("phase-only", phase_only.Config(headroom=0.5), MANY)
    np.testing.assert_allclose(events(plan, MANY, SITE, MESSAGE).amp, np.abs(plan.tx) * np.abs(MANY.gain))


@pytest.mark.parametrize("headroom", [0.0, 1.01])
def test_phase_only_spends_some_of_its_energy_and_no_more_than_all(headroom: float) -> None:
    with pytest.raises(InputError, match="headroom="):
        plan_of("phase-only", phase_only.Config(headroom=headroom), small.trace(3))


def test_random_participation_is_unbiased_over_coins() -> None:
    plan, _ = plan_of("random-participation", random_participation.Config(participation=0.3, rx_scale=0.02), MANY)
    weight = lower(plan, MANY.gain, SITE).weight
    error = SITE.weights * np.sqrt(0.7 / 0.3 / 20_000)
    assert np.all(np.abs(weight.mean(0) - SITE.weights) < 5 * error + 0.01 * SITE.weights)  # fades: under 1 %
    heard = np.unique(np.round(weight[:, 0], 12))
    assert len(heard) == 2  # one amplitude, or nothing


def test_hidden_participation_is_a_sampled_gaussian_and_ignores_the_coins() -> None:
    trace = small.trace(30, seed=2)
    config = random_participation.Config(participation=0.2, rx_scale=0.05, credit="hidden")
    plan, uplink = plan_of("random-participation", config, trace)
    released = release(uplink, plan, trace, SITE, MESSAGE)  # type: ignore[arg-type]
    z = np.sqrt(SITE.noise_var) / (0.05 * SITE.weights / 0.2)
    wanted = np.stack([30 * sampled_gaussian_rdp(0.2, one, ORDERS) for one in z])
    np.testing.assert_allclose(run_rdp(released, "none"), wanted, rtol=1e-9)
    other = release(uplink, plan, trace._replace(coin=1 - trace.coin), SITE, MESSAGE)  # type: ignore[arg-type]
    assert np.all(released.possible) and np.array_equal(other.possible, released.possible)
    full = Ledger(Budget(50.0, 1e-5, "rdp", adjacency="zero-out"), 4)
    assert full.affordable(released).sum() >= full.affordable(events(plan, trace, SITE, MESSAGE)).sum()


def test_hidden_participation_is_refused_where_something_tells() -> None:
    config, trace = random_participation.Config(credit="hidden"), small.trace(5)
    with pytest.raises(InputError, match="sampled records"):
        plan_of("random-participation", config, trace, MESSAGE._replace(rate=np.full(4, 0.1)))
    with pytest.raises(InputError, match="pilots"):
        plan_of("random-participation", config, trace._replace(rms_low=0.9 * trace.rms_low))
    whole = MESSAGE._replace(adjacency="replace", sensitivity=2 * MESSAGE.sensitivity)  # of a replaced message: allowed
    plan_of("random-participation", config, trace, whole)
    for told in (
        MESSAGE._replace(unit="record"),
        MESSAGE._replace(sensitivity=MESSAGE.sensitivity / 2),
        whole._replace(sensitivity=1.99 * MESSAGE.sensitivity),
    ):
        with pytest.raises(InputError, match="tells that it sends"):
            plan_of("random-participation", config, trace, told)


def test_a_record_under_a_coin_that_its_clients_other_records_tell_costs_far_more_than_sampling() -> None:
    """Why `hidden` is for clients: q = 0.1, z = 1, 50 rounds, the rest of the message much louder than the noise."""
    assert pld_eps(np.ones(50), 0.1, 1e-5) < 5.2 and visible_eps(0.1, 1.0, 50, 1e-5) > 16
    with pytest.raises(InputError, match="needs unit='client'"):
        Budget(8.0, 1e-5, "rdp", "hidden", unit="record")


def test_cotaf_with_a_public_schedule_is_constant_scaling() -> None:
    trace = small.trace(50, seed=1)
    ours, _ = plan_of("cotaf", cotaf.Config(threshold=0.2), trace)
    scale = 0.2 * float(np.min(np.sqrt(SITE.energy) / SITE.weights))
    constant, _ = plan_of("constant", Constant(rx_scale=scale), trace)
    for one, other in zip(ours, constant):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_cotafs_cost_does_not_fall_with_the_step() -> None:
    """What arrives of the pseudo-gradient Delta/(alpha L) is sqrt(E)/G, whatever alpha: so is what a change moves."""
    steps = 0.1 / np.sqrt(1 + np.arange(20))
    bounds, scales = cotaf.precoding(steps, 4, 0.5, 9.0)
    np.testing.assert_allclose(bounds, steps * 4 * 0.5)
    np.testing.assert_allclose(scales * steps * 4, np.full(20, 3.0 / 0.5))
    with pytest.raises(InputError, match=r"threshold=0\.0"):
        plan_of("cotaf", cotaf.Config(threshold=0.0), small.trace(3))
    with pytest.raises(InputError, match="schedule='measured' is refused"):
        plan_of("cotaf", cotaf.Config(schedule="measured"), small.trace(3))
