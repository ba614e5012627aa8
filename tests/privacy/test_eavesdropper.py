"""A second receiver is never charged below what it sees."""

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Events, Message, Plan
from otafl.privacy.eavesdropper import Eavesdropper, loudest, overheard


def parts(values: np.ndarray) -> np.ndarray:
    """(n,) complex -> (2n,) real and imaginary parts."""
    return np.concatenate([values.real, values.imag])


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("downlink", [True, False])
def test_the_charge_covers_all_that_both_receivers_hear(seed, downlink):
    """Artificial noise of three devices reaches both receivers with any gains: the full covariance never shows more."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)  # noqa: E731
    antennas, server_var, who_std = 2, rng.uniform(0.1, 1), rng.uniform(0.1, 1)
    tx, noise, server_gain = draw(3), draw(3), draw(3)
    gains = draw(3, antennas)
    largest = float(np.abs(gains).max())
    who = Eavesdropper(gain=largest, noise_std=who_std, antennas=antennas, downlink=downlink)
    plan = Plan(tx[None], noise[None], np.full((1, 3), np.inf), np.ones(1), np.ones((1, 3)), np.ones(1, bool))
    run = Events(np.abs(server_gain * tx)[None], np.abs(server_gain * noise)[None] ** 2, np.ones((1, 3), bool),
                 np.ones((1, 3)), np.array([server_var]), np.ones(1, bool), np.ones(3), np.ones(3))  # fmt: skip
    charged = overheard(plan, run, who).amp[0] ** 2
    for k in range(3):
        heard = [parts(gains[k] * tx[k])]
        common = [np.array([parts(gains[j] * noise[j]) for j in range(3)])]
        own = [np.full(2 * antennas, who_std**2)]
        if downlink:
            heard.append(parts(server_gain[k : k + 1] * tx[k]))
            common.append(np.array([parts(server_gain[j : j + 1] * noise[j]) for j in range(3)]))
            own.append(np.full(2, server_var))
        shift, factors = np.concatenate(heard), np.concatenate(common, axis=1)
        covariance = np.diag(np.concatenate(own)) + factors.T @ factors
        assert shift @ np.linalg.solve(covariance, shift) <= charged[k] * (1 + 1e-9)


def test_no_artificial_noise_counts_and_nothing_of_rounds_that_were_not_run():
    """Nor is there a leak besides, and an ideal server that hears nobody tells nothing."""
    one, who = np.ones((2, 2)), Eavesdropper(gain=0.2, noise_std=0.1)
    plan = Plan(0.5 * one, 0 * one, np.inf * one, one[:, 0], one, np.array([True, False]))
    run = Events(one * [0.3, 0.0], 5 * one, one > 0, one, np.zeros(2), plan.live, one[0], one[0], leak_angle=0.1)
    found = overheard(plan, run, who)
    assert found.amp.tolist() == [[np.inf, 1.0], [0.0, 0.0]]
    assert not np.any(found.artificial_var) and found.leak_angle == 0 and found.receiver_var.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("said", [{"noise_std": 0.0}, {"gain": 0.0}, {"antennas": 0}, {"antennas": 1.5}])
def test_a_receiver_without_noise_antennas_or_a_gain_is_refused(said):
    with pytest.raises(InputError, match=rf"eavesdropper\.{next(iter(said))}"):
        Eavesdropper(**{"gain": 1.0, "noise_std": 1.0, **said})


def test_devices_that_carry_the_model_on_are_charged_though_no_model_is_heard():
    """Client 0 speaks once, softly. Client 1 then sends the model, which is what the server heard of client 0, loudly.

    All is linear and Gaussian: mu^2 of the eavesdropper's two sums by hand. Client 0's own rounds, added up, say less.
    """
    gain, own_std, server_std, heard = 1.0, 1.0, 0.01, 0.5
    tx = np.array([[0.1, 2.0], [0.1, 2.0]])
    direct = (2 * gain * tx[0, 0]) ** 2 / own_std**2
    carried = (2 * gain * tx[1, 1] * heard) ** 2 / (own_std**2 + (gain * tx[1, 1] * server_std) ** 2)
    ones = np.ones((2, 2))
    plan = Plan(tx, 0 * ones, np.inf * ones, np.ones(2), ones, np.ones(2, bool))
    quiet, live = np.full(2, server_std**2), np.ones(2, bool)
    run = Events(heard * ones, 0 * ones, ones > 0, ones, quiet, live, ones[0], 2 * ones[0])
    who = Eavesdropper(gain, own_std, downlink=False)
    charged = float(np.sum((2 * overheard(plan, run, who).amp[:, 0]) ** 2))
    assert direct + carried > 40 * direct  # what its own two rounds tell directly is 2 direct
    assert charged >= direct + carried


def test_a_record_moves_the_loudest_message_by_its_share():
    """At full energy a message of norm G is sent at sqrt(E)/G: a record moves it by Delta sqrt(E)/G, each time."""
    site = Deployment(np.array([3.0, 0.5]), 0.1, 0.1, np.ones(2) / 2, 3)
    share, bound = np.array([0.05, 0.2]), 1.5
    told = Message(3, bound, np.full(2, bound**2), share, np.ones(2), "record", "zero-out")
    who = Eavesdropper(gain=0.3, noise_std=0.7, antennas=5)
    moved = np.sqrt(site.energy) / bound * share * 0.3
    assert loudest(site, told, 4, who) == pytest.approx(4 * 5 * (moved / 0.7) ** 2 / 2)


@pytest.mark.parametrize("gate", ["message", "bound"])
def test_no_round_of_a_closed_loop_is_louder_than_the_energy_of_its_device(gate):
    """Any scale, any two messages that the gate lets pass: what a second receiver hears move is within (O2)."""
    rng = np.random.default_rng(0)
    energy, bound = rng.uniform(0.5, 2, 500), 1.5
    site = Deployment(energy, 0.1, 0.1, np.full(500, 1 / 500), 3)
    told = Message(3, bound, np.full(500, bound**2), np.full(500, 2 * bound), np.ones(500), "client", "replace")
    who = Eavesdropper(gain=0.3, noise_std=0.7, antennas=2)
    scale = np.sqrt(energy) / bound * (rng.uniform(0, 1, 500) if gate == "bound" else rng.exponential(3, 500))
    largest = np.minimum(bound, np.sqrt(energy) / scale)
    first, second = (rng.normal(size=(500, 3)) for _ in range(2))
    first *= (largest * rng.uniform(0.9, 1, 500) / np.linalg.norm(first, axis=1))[:, None]
    second *= (-largest / np.linalg.norm(second, axis=1))[:, None]
    second[::2] = -first[::2]  # opposed: the largest change
    moved = np.linalg.norm(scale[:, None] * (first - second), axis=1) * who.gain
    rho = who.antennas * moved**2 / (2 * who.noise_std**2)
    ceiling = loudest(site, told, 1, who)
    assert np.all(rho <= ceiling * (1 + 1e-12)) and np.max(rho / ceiling) > 0.9
    np.testing.assert_allclose(loudest(site, told, 7, who), 7 * ceiling)
