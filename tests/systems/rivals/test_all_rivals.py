"""What every rival must keep, whatever it does: its energy, its CSI level, and a charge that true gains do not pass."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import small
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message, Plan, Policy, Trace, check_silence
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import uplink_of
from otafl.privacy import check_release, inverse_square, release
from otafl.privacy.uplink_checks import check_links, meet
from otafl.runs.audit.targets import prepare
from otafl.runs.planning.energy import check_energy
from otafl.runs.schema import load

RIVALS = [name for system in ("rivals", "digital", "noncoherent") for name in systems.SYSTEMS[system].schemes]
ROUNDS = 12
MESSAGE = Message(53, 0.7, np.full(4, 0.49), np.full(4, 1.4), np.ones(4), "client", "replace")
CONTEXT = small.CONTEXT._replace(rounds=ROUNDS, eps=40.0, delta=1e-5, accountant="zcdp")


def trace_with_errors(error: float, rounds: int) -> Trace:
    """True gains off their estimates by `error` in magnitude alone."""
    trace = small.trace(rounds, seed=4)
    off = 1 + error * np.random.default_rng(0).uniform(-1, 1, trace.gain.shape)
    return trace._replace(gain=trace.estimate * off)


def planned(
    name: str, error: float = 0.0, rounds: int = ROUNDS, energy: float = 3.0
) -> tuple[Policy, Plan, Trace, Deployment]:
    site, trace = small.deployment(0.2, energy, gain_error=error), trace_with_errors(error, rounds)
    context = CONTEXT._replace(rounds=rounds, trace=trace)
    policy = systems.make(name, systems.scheme(name).config(), site, MESSAGE, context)
    trace, site = meet(uplink_of(policy), trace, site)
    return policy, plan_ahead(policy, policy.init(0), trace)[1], trace, site


def test_there_are_ten() -> None:
    named = "liu-simeone seif random-participation phase-only jammer cotaf obda orthogonal fsk-mv energy-difference"
    assert set(RIVALS) == set(named.split())


@pytest.mark.parametrize("error", [0.0, 0.1])
@pytest.mark.parametrize("name", RIVALS)
def test_energy_silence_and_charge_are_kept(name: str, error: float) -> None:
    policy, plan, trace, site = planned(name, error)
    uplink = uplink_of(policy)
    check_silence(policy, MESSAGE, plan)
    check_energy(plan, plan.live, site, MESSAGE, name, uplink=uplink)
    released = release(uplink, plan, trace, site, MESSAGE)
    check_release(uplink, released, plan, trace, site, MESSAGE)
    check_links(uplink, uplink.lower(plan, trace.gain, site), plan, released)
    assert np.all(np.isfinite(inverse_square(released))) and np.any(inverse_square(released) > 0)


@pytest.mark.parametrize("name", RIVALS)
def test_send_prob_is_the_share_of_rounds_in_which_a_device_may_send(name: str) -> None:
    """Rayleigh fading, coins and little energy: 5 standard errors, and none where it is sure."""
    _, plan, _, _ = planned(name, rounds=4000, energy=0.1)
    chance, share = np.mean(plan.send_prob, axis=0), np.mean(plan.max_norm >= 0, axis=0)
    assert np.all(np.abs(share - chance) <= 5 * np.sqrt(chance * (1 - chance) / 4000))


@pytest.mark.parametrize("name", ["seif", "jammer", "liu-simeone"])
def test_noise_without_a_target_is_refused_by_the_key_to_set(name: str) -> None:
    context = CONTEXT._replace(eps=np.inf, trace=small.trace(ROUNDS))
    with pytest.raises(InputError, match=f"{name} needs a privacy target: set privacy.eps"):
        systems.make(name, systems.scheme(name).config(), small.deployment(), MESSAGE, context)


@pytest.mark.parametrize("name", ["obda", "orthogonal", "fsk-mv", "energy-difference"])
def test_what_is_scaled_by_the_largest_message_refuses_messages_without_one(name: str) -> None:
    with pytest.raises(InputError, match="needs a norm bound"):
        systems.make(name, systems.scheme(name).config(), small.deployment(), MESSAGE._replace(bound=np.inf), CONTEXT)


@pytest.mark.parametrize("name", RIVALS)
def test_csi_level_is_honest(name: str) -> None:
    """A rival that claims less than global knowledge does not react to another client's channel."""
    policy, plan, trace, _ = planned(name)
    if policy.csi == "global":
        pytest.skip("it may know everything of the round")
    other = trace._replace(estimate=trace.estimate * np.array([1, 1, 1, 7.0]))
    moved = plan_ahead(policy, policy.init(0), other)[1]
    np.testing.assert_array_equal(plan.tx[:, :3], moved.tx[:, :3])
    np.testing.assert_array_equal(plan.rx_scale, moved.rx_scale)


def test_an_audit_declines_where_the_charge_averages_over_private_coins(tmp_path: Path) -> None:
    text = (
        "rounds = 3\nseeds = [0]\nchannel = 'cares'\nradio = { noise_std = 0.05 }\n"
        "task = { num_params = 20, clients = 3, samples = 10, weights = 'equal' }\n"
        "clients = { kind = 'gradient' }\nprivacy = { eps = 500.0, accountant = 'rdp' }\n"
        "[[scheme]]\nname = 'random-participation'\ncredit = 'hidden'\n"
    )
    (tmp_path / "coins.toml").write_text(text)
    experiment: Any = load(tmp_path / "coins.toml")
    found = prepare(experiment, experiment.scheme[0])
    assert found.rounds == 3 and not found.targets and "private coins" in found.reason
