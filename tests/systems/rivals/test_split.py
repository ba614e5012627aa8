"""Seif's split and the jammer: the multiplier is reached, energy is kept, and (C3) is the covariance's own charge."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import small
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Message, Plan
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import lower, transmit_energy, uplink_of
from otafl.privacy.card_text import round_up
from otafl.privacy.events import events, noise_multiplier
from otafl.systems.rivals import jammer, seif, seif_planner
from otafl.systems.rivals.split import jammed, jammer_charge, power_split
from otafl.systems.rivals.target import round_multiplier

ROUNDS = 25
MESSAGE = Message(53, 1.0, np.ones(4), np.full(4, 2.0), np.ones(4), "client", "replace")
SITE = small.deployment(noise_std=0.3, energy=60.0)
TRACE = small.trace(ROUNDS, seed=3)
CONTEXT = small.CONTEXT._replace(rounds=ROUNDS, eps=60.0, delta=1e-5, accountant="zcdp")


def plan_of(name: str, config: object, trusted: float = 1.0, **site: object) -> tuple[Plan, np.ndarray, np.ndarray]:
    """A plan, its multipliers (T, K) and the noise of the update (T,)."""
    here = SITE._replace(trusted_noise_var=trusted * SITE.noise_var, **site)
    policy = systems.make(name, config, here, MESSAGE, CONTEXT)
    _, plan, _ = plan_ahead(policy, policy.init(0), TRACE)
    assert np.all(transmit_energy(plan, np.ones((ROUNDS, 4)), True, 53) <= here.energy * (1 + 1e-9))
    return plan, noise_multiplier(events(plan, TRACE, here, MESSAGE)), lower(plan, TRACE.gain, here).noise_std


def test_with_trusted_noise_the_split_is_reduced_power() -> None:
    """Where energy does not bind the update has the noise (m z)^2 per coordinate, as constant scaling at full trust."""
    _, z, noise = plan_of("seif", seif.Config(multiplier=3.0), energy=np.full(4, 1e6))
    assert z.min(-1) == pytest.approx(np.full(ROUNDS, 3.0), rel=1e-9)
    reduced = np.sqrt(SITE.noise_var) / (0.35 * 2 * 3.0)
    assert noise == pytest.approx(np.full(ROUNDS, np.sqrt(SITE.noise_var) / reduced), rel=1e-9)


def test_the_split_pays_where_noise_is_distrusted() -> None:
    _, z, noise = plan_of("seif", seif.Config(multiplier=3.0), trusted=0.1)
    assert np.all(z.min(-1) >= 3.0 * (1 - 1e-9))
    reduced = 0.35 * 2 * 3.0 / np.sqrt(0.1)  # noise of the update when only power is reduced
    assert np.median(noise) < 0.8 * reduced


def test_the_closed_form_is_the_largest_amplitude_that_reaches_the_multiplier() -> None:
    """A search over c: messages take c^2 p^2 G^2, everything else is noise, and z must be reached."""
    gain = np.abs(TRACE.gain)[7]
    site = {"energy": SITE.energy, "weights": SITE.weights, "bound": 1.0, "dim": 53, "sensitivity": MESSAGE.sensitivity}
    found = power_split(gain, **site, trusted_noise_var=0.01, multiplier=3.0)
    received = gain**2 * SITE.energy
    squares = np.linspace(0.9, 1.1, 2001) * float(found.square)
    left = received - squares[:, None] * SITE.weights**2
    fits = np.all(left >= -1e-12, -1)
    enough = 0.01 + left.sum(-1) / 53 >= (0.35 * 2 * 3.0) ** 2 * squares * (1 - 1e-12)
    assert squares[fits & enough].max() == pytest.approx(float(found.square), rel=2e-4)
    assert found.shares.sum() == pytest.approx(float(found.artificial))
    assert np.all(found.shares <= (received - float(found.square) * SITE.weights**2) / 53 * (1 + 1e-12))


def test_a_jammer_hides_the_others_and_sends_no_data() -> None:
    plan, z, _ = plan_of("jammer", jammer.Config(share=1.0), trusted=0.0)
    assert np.all(plan.tx[:, 3] == 0) and np.all(plan.max_norm[:, 3] < 0)
    np.testing.assert_allclose(np.abs(plan.noise[:, 3]), np.sqrt(SITE.energy[3] / 53))
    budget = round_multiplier("jammer", SITE._replace(weights=np.ones(4)), MESSAGE, CONTEXT)
    assert np.all(z[:, :3].min(-1) >= budget * (1 - 1e-9)) and np.all(z[:, 3] == np.inf)


def test_a_card_says_that_no_jammer_may_collude() -> None:
    policy = systems.make("jammer", jammer.Config(), SITE, MESSAGE, CONTEXT)
    assert any("only if no jammer colludes" in text for text in uplink_of(policy).assumed)


def test_a_client_of_weight_zero_jams_and_one_with_data_does_not() -> None:
    weights, jams = jammer.roles(np.array([0.5, 0.0, 0.5]), 0)
    assert jams.tolist() == [False, True, False] and weights.tolist() == [0.5, 0.0, 0.5]
    assert jammer.roles(np.array([0.25, 0.25, 0.5]), 1)[0].tolist() == [0.5, 0.5, 0.0]
    site = {"energy": np.ones(2), "weights": np.full(2, 0.5), "bound": 1.0, "dim": 4, "sensitivity": np.ones(2)}
    with pytest.raises(InputError, match=r"client 1 has weight 0\.5 and jams"):
        jammed(np.ones(2), **site, trusted_noise_var=0.1, multiplier=1.0, noise_energy=np.array([0.0, 1.0]))
    for count in (0, 3):
        with pytest.raises(InputError, match="there must be a jammer and somebody with data"):
            jammer.roles(np.full(3, 1 / 3), count)
    with pytest.raises(InputError, match="jammers=-1"):
        jammer.roles(np.full(3, 1 / 3), -1)


@pytest.mark.parametrize("angle", [0.0, 0.2, 0.4, 1.2, np.pi / 2])
def test_the_charge_is_that_of_the_whole_covariance(angle: float) -> None:
    """g' C^-1 g with the jammer's direction `angle` away from the message's."""
    amplitude, sensitivity, receiver, jam = 1.2, 0.7, 1.3, 63.4
    direction = np.array([np.cos(angle), np.sin(angle)])
    covariance = receiver * np.eye(2) + jam * np.outer(direction, direction)
    message = np.array([amplitude * sensitivity, 0.0])
    exact = message @ np.linalg.solve(covariance, message)
    assert jammer_charge(amplitude, sensitivity, receiver, jam, angle) == pytest.approx(exact, rel=1e-12)


def test_a_jammers_phase_error_is_charged() -> None:
    """The ledger's charge is (C3) at twice the declared phase error; above the aligned one."""
    off = SITE._replace(trusted_noise_var=0.5 * SITE.noise_var, phase_error=0.1)
    policy = systems.make("jammer", jammer.Config(), off, MESSAGE, CONTEXT)
    _, plan, _ = plan_ahead(policy, policy.init(0), TRACE)
    released = events(plan, TRACE, off, MESSAGE)
    amplitude, jam = np.abs(plan.tx * TRACE.gain)[:, 0], np.abs(plan.noise * TRACE.gain)[:, 3] ** 2
    wanted = jammer_charge(amplitude, 2.0, off.trusted_noise_var, jam, 0.2)
    np.testing.assert_allclose(1 / noise_multiplier(released)[:, 0] ** 2, wanted, rtol=1e-12)
    assert np.all(wanted > jammer_charge(amplitude, 2.0, off.trusted_noise_var, jam))


def test_beside_a_receiver_that_is_far_louder_no_energy_limit_is_passed() -> None:
    """What is left to add is a difference of two nearly equal variances."""
    energy, gain, bound, dim = np.array([1.11086009e-06]), np.array([4.77404397e-06]), 8.95888684e-4, 1000
    for multiplier in np.geomspace(1e5, 1e7, 200):
        found = power_split(
            gain, energy=energy, weights=np.ones(1), bound=bound, dim=dim, trusted_noise_var=2.633056918e-06,
            sensitivity=np.full(1, 2 * bound), multiplier=float(multiplier),
        )  # fmt: skip
        radiated = (found.square * bound**2 + dim * found.shares) / gain**2
        assert np.all(radiated <= energy * (1 + 1e-12))


@pytest.mark.parametrize("said", [{}, {"multiplier": 7.0}, {"eps": 2.0, "sensitivity": 0.5}])
def test_the_planner_names_the_eps_of_its_multiplier_and_whose_it_is(said: dict[str, float], tmp_path: Path) -> None:
    """Whatever the multiplier came from, the classic conversion of rounds / (2 z^2) holds, and no more is printed."""
    site = {"num_clients": 4, "rounds": 9, "eps": 6.0, "max_energy": 5.0, "noise_std": 0.3, "num_params": 53}
    report = seif_planner.plan(seif_planner.Inputs(**{**site, **said}), tmp_path)
    rho = 9 / (2 * report["multiplier"] ** 2)
    assert report["eps"] == pytest.approx(rho + 2 * np.sqrt(rho * np.log(1e5)), rel=1e-12)
    if "multiplier" not in said:
        assert report["eps"] == pytest.approx(said.get("eps", 6.0), rel=1e-9) and report["eps"] <= said.get("eps", 6.0)
    console = Console(record=True, width=200)
    seif_planner.show(report, console)
    text = console.export_text()
    assert f"ε = {round_up(report['eps'])} at δ = 1e-05 (zcdp)" in text
    whose = "moves by at most 0.5 where a unit of it" if "sensitivity" in said else "at most 2 where one client's data"
    assert whose in text
