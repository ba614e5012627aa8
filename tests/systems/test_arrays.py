"""Every scheme at a server with several antennas: it runs and is charged for all of them, or it is refused by name."""

from typing import Any

import numpy as np
import pytest

from otafl import systems
from otafl.channels import Channel, Drift, draw, receive
from otafl.channels.antennas import blind_moments
from otafl.clients.gradient import clipped_promise
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Plan, Policy
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import uplink_of
from otafl.privacy import Budget, check_release, events, inverse_square, release
from otafl.privacy.uplink_checks import meet
from otafl.systems import simulated
from otafl.systems.baselines import settings as baselines

CLIENTS, ROUNDS = 6, 8
MESSAGE = clipped_promise(40, 1.0, "replace", "client")(np.full(CLIENTS, 50))
OPTIONS: dict[str, dict[str, Any]] = {
    **{f"adascale{name}": {"nu": 50.0} for name in ("", "-optimal", "-equal", "-estim", "-stat-level", "-stat-water")},
    "adascale-liu-simeone": {"nu": 50.0}, "adascale-constant": {"noise": 50.0}, "bbfl": {"interior": (0, 1)},
    "cares-static": {"diagnostic": True}, "cdpb": {"load": 0.1},
}  # fmt: skip


def planned(name: str, channel: Channel, **options: Any) -> tuple[Policy, Plan, Any, Deployment]:
    site = Deployment(np.ones(CLIENTS), 0.04, 0.04, np.full(CLIENTS, 1 / CLIENTS), 40, receiver=channel.receiver)
    trace, site = receive(draw(channel, CLIENTS, ROUNDS, 3), site)
    context = Context(ROUNDS, 50.0, 1e-5, "zcdp", classes=10, trace=trace, sizes=np.full(CLIENTS, 50))
    config = systems.scheme(name).config(**{**OPTIONS.get(name, {}), **options})
    policy = systems.make(name, config, site, MESSAGE, context)
    trace, site = meet(uplink_of(policy), trace, site)
    with np.errstate(all="ignore"):
        _, plan, _ = plan_ahead(policy, policy.init(0), trace)
    return policy, plan, trace, site


def charge(name: str, channel: Channel) -> tuple[np.ndarray, np.ndarray]:
    """1/z^2 as it is charged, and as one antenna would be."""
    policy, plan, trace, site = planned(name, channel)
    uplink = uplink_of(policy)
    released = release(uplink, plan, trace, site, MESSAGE)
    check_release(uplink, released, plan, trace, site, MESSAGE)
    known = plan._replace(send_prob=np.nan_to_num(plan.send_prob))
    return inverse_square(released), inverse_square(events(known, trace, site, MESSAGE))


RIVALS = ["liu-simeone", "seif", "jammer", "random-participation"]


@pytest.mark.parametrize("name", ["constant", "weakest", "opc", "cares-static", *RIVALS])
@pytest.mark.parametrize("beam", ["fixed", "best_antenna", "iterated"])
def test_schemes_that_need_no_law_run_with_every_beam(name: str, beam: str) -> None:
    full, one = charge(name, Channel(antennas=3, beam=beam))
    assert np.all(full >= one * (1 - 1e-9)) and np.any(full > 1.5 * one)


@pytest.mark.parametrize("name", ["biasvar", "lcpc", "bbfl", "cdpb", "ridge", "adascale-equal", "phase-only", "cotaf"])
def test_statistical_schemes_run_with_a_fixed_beam_and_refuse_others_by_name(name: str) -> None:
    full, one = charge(name, Channel(antennas=3))
    assert np.all(full >= one * (1 - 1e-9)) and np.any(full > 1.5 * one)
    with pytest.raises(InputError, match=rf"{name}: channel.beam='iterated' must be 'fixed'"):
        planned(name, Channel(antennas=3, beam="iterated"))


@pytest.mark.parametrize("name", ["obda", "orthogonal", "fsk-mv", "energy-difference"])
def test_votes_and_energies_are_charged_for_one_antenna_and_refuse_more(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: channel.antennas=2 must be 1"):
        planned(name, Channel(antennas=2))


def test_two_antennas_null_one_jammer() -> None:
    """Without the receiver's noise a jammer hides everything from one antenna, nothing from two."""
    channel = Channel(antennas=2)
    policy, plan, trace, site = planned("jammer", channel)
    quiet = site._replace(trusted_noise_var=1e-9)
    full = inverse_square(release(uplink_of(policy), plan, trace, quiet, MESSAGE))[:, :-1]
    one = inverse_square(events(plan, trace, quiet, MESSAGE))[:, :-1]
    assert np.all(full > 1e4 * one)


@pytest.mark.parametrize("name", ["eezofl", "cares-adaptive"])
def test_encrypted_uplinks_and_closed_loops_refuse(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: channel.antennas=2 must be 1"):
        planned(name, Channel(antennas=2))


def test_an_array_needs_trusted_noise() -> None:
    site = Deployment(np.ones(2), 0.04, 0.0, np.full(2, 0.5), 40, receiver=Channel(antennas=2).receiver)
    config = systems.scheme("constant").config()
    with pytest.raises(InputError, match=r"constant: channel\.antennas=2 needs trusted receiver noise"):
        systems.make("constant", config, site, MESSAGE, Context())


def test_odometers_refuse() -> None:
    with pytest.raises(InputError, match=r"device_rdp: channel\.antennas=2 must be 1"):
        planned("adascale", Channel(antennas=2), device_rdp=3.0)


def test_a_fixed_beam_changes_the_charge_and_nothing_of_the_plan() -> None:
    one, four = (planned("constant", Channel(antennas=m)) for m in (1, 4))
    for name in one[1]._fields:
        assert np.array_equal(getattr(one[1], name), getattr(four[1], name))
    assert one[0].uplink == "analog" and uplink_of(four[0]).release is not None


def test_the_weaker_adversary_is_charged_what_the_beam_hears() -> None:
    """Aligned to 1/K: the combined amplitude, not more; the full charge is larger by 1/cos^2."""
    full, _ = charge("constant", Channel(antennas=4, beam="iterated"))
    part, one = charge("constant", Channel(antennas=4, beam="iterated", server="combined"))
    assert part == pytest.approx(one, rel=1e-9) and np.all(part <= full)


def test_more_antennas_silence_fewer_under_the_iterated_beam() -> None:
    silent = [np.mean(planned("constant", Channel(antennas=m, beam="iterated"), rx_scale=2.0)[1].max_norm < 0)
              for m in (2, 8)]  # fmt: skip
    assert silent[1] < silent[0]


def test_what_cares_certifies_at_an_array() -> None:
    """Participation by (H3) from one antenna's law, and no certified horizon."""
    policy, plan, trace, _ = planned("cares-static", Channel(antennas=4, beam="iterated"))
    _, _, info = plan_ahead(policy, policy.init(0), trace)
    rate = (1 / CLIENTS) ** 2 / 2 / 0.5
    wanted = -np.expm1(-(plan.rx_scale**2) * rate * CLIENTS)
    assert info.dropped_weight == pytest.approx(wanted**4) and not np.any(info.certified)
    assert any("horizon does not" in text for text in policy.uplink.remarks)


def test_cares_refuses_a_beam_that_may_be_worse_than_the_best_antenna() -> None:
    assert charge("constant", Channel(antennas=3, beam="matched"))[0].shape == (ROUNDS, CLIENTS)
    with pytest.raises(InputError, match="never worse than the best antenna"):
        planned("cares-static", Channel(antennas=3, beam="matched"))


@pytest.mark.parametrize("antennas", [1, 4])
@pytest.mark.parametrize("correct", [False, True])
def test_blind_weights_are_the_realised_ones_of_the_channel_sum(antennas: int, correct: bool) -> None:
    power = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    channel = Channel(antennas=antennas, mean_power_gain=power)
    policy, plan, trace, site = planned("blind", channel, correct=correct)
    h = draw(channel, CLIENTS, ROUNDS, 3).array
    weight = np.real(plan.tx * np.einsum("tm,tkm->tk", h.sum(1).conj(), h)) / plan.rx_scale[:, None]
    link = uplink_of(policy).lower(plan, trace.gain, site)
    assert link.weight == pytest.approx(weight, rel=1e-9)
    size = np.linalg.norm(h.sum(1), axis=-1)
    assert link.noise_std == pytest.approx(0.2 * size / plan.rx_scale, rel=1e-9)
    mean = blind_moments(power, antennas, 1.0, 1.0).mean * plan.tx[0].real / plan.rx_scale[0]
    assert mean.sum() == pytest.approx(1) and (not correct or mean == pytest.approx(np.full(CLIENTS, 1 / CLIENTS)))


@pytest.mark.parametrize("correct", [False, True])
def test_blind_devices_of_unlike_energies_send_what_the_tightest_can(correct: bool) -> None:
    """Half of the energy of the device that is nearest to its limit at a message of its mean square, no more of any."""
    channel = Channel(antennas=2, mean_power_gain=(0.5, 1.0, 1.5, 2.0, 2.5, 3.0))
    energy, square = np.linspace(3, 1, CLIENTS), np.linspace(1, 2, CLIENTS)
    site = Deployment(energy, 0.04, 0.04, np.array([0, 1, 2, 3, 2, 2]) / 10, 40, receiver=channel.receiver)
    trace, site = receive(draw(channel, CLIENTS, ROUNDS, 3), site)
    config = systems.scheme("blind").config(correct=correct, power=0.5)
    policy = systems.make("blind", config, site, MESSAGE._replace(mean_square=square), Context(trace=trace))
    trace, site = meet(uplink_of(policy), trace, site)
    _, plan, info = plan_ahead(policy, policy.init(0), trace)
    spent = np.abs(plan.tx[0]) ** 2 * square / energy
    assert spent.max() == pytest.approx(0.5)
    mean = np.abs(plan.tx[0]) * np.array(channel.mean_power_gain)
    bias = 0 if correct else np.abs(mean / mean.sum() - site.weights).sum() / 2
    assert info.bias == pytest.approx(np.full(ROUNDS, bias), abs=1e-12)


@pytest.mark.parametrize("power", [0.0, 1.1])
def test_blind_devices_cannot_send_with_no_or_more_than_all_of_their_power(power: float) -> None:
    with pytest.raises(InputError, match="power="):
        planned("blind", Channel(antennas=2), power=power)


def test_blind_is_charged_by_the_whole_array() -> None:
    policy, plan, trace, site = planned("blind", Channel(antennas=4))
    found = inverse_square(release(uplink_of(policy), plan, trace, site, MESSAGE))
    wanted = np.abs(plan.tx) ** 2 * 4 * np.sum(np.abs(trace.array) ** 2, -1) / 0.04
    assert found == pytest.approx(wanted, rel=1e-9)
    assert np.all(np.abs(plan.tx) <= 1) and policy.csi == "none"
    assert "combines them by beam 'sum'" in uplink_of(policy).assumed[0]
    assert np.all(plan.send_prob == 1) and np.all(plan.max_norm == np.inf)  # nobody is silent
    with pytest.raises(InputError, match=r"blind: the mean power .* leave out channel\.drift"):
        planned("blind", Channel(antennas=4, drift=Drift(every=2)))


@pytest.mark.parametrize("name", ["constant", "weakest"])
def test_settings_from_plans_spend_the_budget_at_an_array(name: str) -> None:
    """On the bench's own channels: about the budget, where one antenna's rule would spend several times as much."""
    channel = Channel(antennas=4, beam="iterated")
    site = Deployment(np.full(CLIENTS, 1e6), 0.04, 0.04, np.full(CLIENTS, 1 / CLIENTS), 40, receiver=channel.receiver)
    budget = Budget(8.0, 1e-5, "zcdp", adjacency="replace")
    chosen = getattr(baselines, name)(site, MESSAGE, budget, 30, channel, 0)
    at = simulated.bench(site, MESSAGE, budget, 30, channel, 0)
    assert simulated.cost(name, chosen, at) == pytest.approx(at.rho, rel=1e-6)


def test_a_scheme_without_channel_knowledge_is_not_told_the_mean_power_of_an_antenna() -> None:
    told = []

    def deaf(config: Any, deployment: Deployment, *others: Any) -> Policy:
        told.append(deployment.receiver.antenna_rms)
        return Policy("deaf", lambda key: (), lambda state, obs: (state, None, ()), "open", "none", "open")

    systems.register("deaf", deaf, systems.scheme("weakest").config)
    try:
        site = Deployment(np.ones(2), 0.04, 0.04, np.full(2, 0.5), 40, receiver=Channel(antennas=2).receiver)
        trace, site = receive(draw(Channel(antennas=2), 2, 3, 0), site)
        systems.make("deaf", systems.scheme("weakest").config(), site, MESSAGE, Context(trace=trace))
    finally:
        systems.remove(systems.OWN)
    assert told[-1] is None
