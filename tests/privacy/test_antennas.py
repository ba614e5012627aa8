"""The charge of an array: closed forms, Monte Carlo, random beams, and errors of the gains."""

import numpy as np
import pytest

from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.plan import ArrayTrace, Receiver
from otafl.core.uplink import ANALOG
from otafl.privacy import check_release, events, inverse_square, release
from otafl.privacy.antennas import combined, combined_charge, covariance, full_charge, received, uncertain_charge
from otafl.privacy.array_uplink import array_error, array_uplink


def drawn(seed: int, clients: int = 5, antennas: int = 3, rounds: tuple[int, ...] = ()) -> tuple:
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.normal(size=(*rounds, *shape)) + 1j * rng.normal(size=(*rounds, *shape))  # noqa: E731
    return normal(clients, antennas), 0.3 * normal(clients), 0.8 * normal(clients), rng


def naive(array: np.ndarray, tx: np.ndarray, noise: np.ndarray, noise_var: float, keep: np.ndarray) -> np.ndarray:
    """g' C^-1 g of every client, straight from (A2) and (A3)."""
    g = np.concatenate([(array * tx[:, None]).real, (array * tx[:, None]).imag], 1)
    q = np.concatenate([(array * noise[:, None]).real, (array * noise[:, None]).imag], 1)
    c = noise_var * np.eye(g.shape[1]) + sum(np.outer(one, one) for one in q[keep])
    return np.array([one @ np.linalg.inv(c) @ one for one in g])


@pytest.mark.parametrize("antennas", [1, 2, 8])
def test_full_charge_is_the_quadratic_form_of_the_whole_covariance(antennas: int) -> None:
    array, tx, noise, _ = drawn(antennas, antennas=antennas)
    colluders = np.array([False, True, False, False, True])
    wanted = 4.0 * naive(array, tx, noise, 0.5, ~colluders)
    assert full_charge(array, tx, noise, 0.5, 2.0, colluders) == pytest.approx(wanted, rel=1e-12)


def test_sampled_privacy_loss_has_the_charged_mean_and_variance() -> None:
    """log p/q of the received vector under x_0 = 0 or sensitivity: N(1/(2 z^2), 1/z^2); 5 standard errors."""
    array, tx, noise, rng = drawn(1)
    charge = full_charge(array, tx, noise, 0.5, 1.5)[0]
    shift = 1.5 * received(array, tx)[0]
    draws = 200_000
    seen = rng.multivariate_normal(np.zeros(6), covariance(array, noise, 0.5), draws) + shift
    inverse = np.linalg.inv(covariance(array, noise, 0.5))
    loss = seen @ inverse @ shift - shift @ inverse @ shift / 2
    assert loss.mean() == pytest.approx(charge / 2, abs=5 * np.sqrt(charge / draws))
    assert loss.var() == pytest.approx(charge, rel=5 * np.sqrt(2 / draws))


def test_the_covariance_is_that_of_simulated_noise() -> None:
    array, _, noise, rng = drawn(2, clients=3, antennas=2)
    own = rng.standard_normal((100_000, 3))
    y = (own * noise) @ array
    y = np.concatenate([y.real, y.imag], 1) + np.sqrt(0.3) * rng.standard_normal((100_000, 4))
    assert np.cov(y.T) == pytest.approx(covariance(array, noise, 0.3), abs=0.15)


def test_no_beam_hears_more_than_is_charged() -> None:
    array, tx, noise, rng = drawn(3, rounds=(200,))
    beam = rng.normal(size=(200, 3)) + 1j * rng.normal(size=(200, 3))
    beam /= np.linalg.norm(beam, axis=-1, keepdims=True)
    full, part = full_charge(array, tx, noise, 0.5, 1.0), combined_charge(array, beam, tx, noise, 0.5, 1.0)
    assert np.all(part <= full * (1 + 1e-12))


def test_alignment_costs_the_angle_to_the_beam() -> None:
    """Without artificial noise: (amplitude sensitivity)^2 / v0 over cos^2 of the angle, to the last digits."""
    array, _, noise, _ = drawn(4)
    beam = np.eye(3)[0]
    heard = combined(array, beam)
    cos2 = np.abs(heard) ** 2 / np.sum(np.abs(array) ** 2, axis=1)
    wanted = (0.2 * 3.0) ** 2 / 0.7 / cos2
    assert full_charge(array, 0.2 / heard, 0 * noise, 0.7, 3.0) == pytest.approx(wanted, rel=1e-12)


def test_own_noise_survives_any_number_of_antennas() -> None:
    """K = 5, b = 0.3, a = 3, all aligned: the charge rises to (b/a)^2 = 0.01 and never passes it."""
    found = []
    for antennas in (1, 4, 64, 1024):
        array = drawn(5, antennas=antennas)[0]
        phase = np.exp(-1j * np.angle(array[:, 0]))
        found.append(full_charge(array, 0.3 * phase, 3 * phase, 1.0, 1.0).max())
    assert np.all(np.diff(found) > 0) and found[-1] == pytest.approx(0.01, rel=1e-3) and found[-1] < 0.01


def test_circular_noise_has_the_complex_form() -> None:
    """|b|^2 h^H S^-1 h with S = v0 I + sum |a_j|^2 h_j h_j^H, per real dimension."""
    array, tx, noise, _ = drawn(6)
    s = 0.5 * np.eye(3) + sum(abs(a) ** 2 * np.outer(h, h.conj()) for a, h in zip(noise, array))
    wanted = [abs(b) ** 2 * (h.conj() @ np.linalg.inv(s) @ h).real for b, h in zip(tx, array)]
    assert full_charge(array, tx, noise, 0.5, 1.0, circular=True) == pytest.approx(wanted, rel=1e-12)


def test_without_receiver_noise_only_what_lies_along_artificial_noise_is_hidden() -> None:
    """One antenna, both along the real axis: today's ratio; a second antenna sees a direction without noise."""
    one = np.array([[1.0 + 0j], [2.0]])
    assert full_charge(one, [0.3, 0.1], [1.0, 1.0], 0.0, 1.0) == pytest.approx([0.09 / 5, 0.04 / 5], rel=1e-12)
    two = np.array([[1.0 + 0j, 1j], [2.0, 1.0]])
    assert np.all(np.isinf(full_charge(two, [0.3, 0.1], [0.0, 1.0], 0.0, 1.0)[:1]))


def test_noise_far_below_the_loudest_is_not_lost() -> None:
    """v0 = 1e-20 beside artificial noise of 1: across it the charge is |g|^2 / v0."""
    array = np.array([[1.0 + 0j, 0.0], [0.0, 1.0]])
    assert full_charge(array, [0.0, 1e-10], [1.0, 0.0], 1e-20, 1.0)[1] == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("share", [None, 0.05, 0.5, 1.0])
def test_no_array_within_the_error_passes_the_uncertain_charge(share: float | None) -> None:
    array, tx, noise, rng = drawn(7)
    tx, noise = 0.3 * np.exp(-1j * np.angle(array[:, 0])), 0.4 * np.exp(-1j * np.angle(array[:, 0]))
    bound = uncertain_charge(array, tx, noise, 1.0, 2.0, 0.1, share=share)
    worst = np.zeros(5)
    for _ in range(400):
        off = rng.normal(size=array.shape) + 1j * rng.normal(size=array.shape)
        off *= 0.1 * np.linalg.norm(array, axis=1, keepdims=True) / np.linalg.norm(off, axis=1, keepdims=True)
        worst = np.maximum(worst, full_charge(array + off, tx, noise, 1.0, 2.0))
    assert np.all(worst <= bound)


def test_the_searched_share_is_the_best_of_all() -> None:
    """Against a fine grid over (0, 1], without the bound by own noise (phases apart switch that off)."""
    array, tx, noise, _ = drawn(8)
    found = uncertain_charge(array, tx, 0.2 * noise, 1.0, 1.0, 0.05)
    grid = [uncertain_charge(array, tx, 0.2 * noise, 1.0, 1.0, 0.05, share=s) for s in np.linspace(1e-3, 1, 800)]
    assert found == pytest.approx(np.min(grid, axis=0), rel=1e-4)
    assert np.all(found <= np.min(grid, axis=0) * (1 + 1e-12))
    known = uncertain_charge(array, tx, noise, 1.0, 1.0, 0.0)
    assert known == pytest.approx(full_charge(array, tx, noise, 1.0, 1.0), rel=1e-12)


def arrays(make_run, antennas: int, **changes):
    """The run of one antenna with others beside it."""
    plan, trace, deployment, message = make_run(**changes)
    rng = np.random.default_rng(9)
    more = rng.normal(size=(*trace.gain.shape, antennas - 1)) + 1j * rng.normal(size=(*trace.gain.shape, antennas - 1))
    array = np.concatenate([trace.gain[..., None], more], -1)
    known = np.concatenate([trace.estimate[..., None], more], -1)
    receiver = Receiver(antennas)
    return plan, ArrayTrace(*trace, array, known), deployment._replace(receiver=receiver), message


def test_one_aligned_antenna_is_charged_as_today(make_run) -> None:
    plan, trace, deployment, message = make_run()
    aligned = np.exp(-1j * np.angle(trace.estimate))
    plan = plan._replace(tx=np.abs(plan.tx) * aligned, noise=np.abs(plan.noise) * aligned)
    uplink = array_uplink(Receiver(1))
    own = inverse_square(release(uplink, plan, trace, deployment, message))
    assert own == pytest.approx(inverse_square(events(plan, trace, deployment, message)), rel=1e-9)


def test_release_charges_all_antennas_and_leaves_colluders_out(make_run) -> None:
    plan, trace, deployment, message = arrays(make_run, 3)
    colluders = np.array([True, False, True, False])
    uplink = array_uplink(deployment.receiver)
    for who in (None, colluders):
        found = inverse_square(release(uplink, plan, trace, deployment, message, who))
        keep = np.ones(4, bool) if who is None else ~who
        for t in range(len(found)):
            wanted = naive(trace.array[t], plan.tx[t], plan.noise[t], deployment.trusted_noise_var, keep)
            assert found[t] == pytest.approx(message.sensitivity**2 * wanted, rel=1e-9)
    one = inverse_square(release(ANALOG, plan, trace, deployment, message))
    assert np.all(inverse_square(release(uplink, plan, trace, deployment, message)) >= one * (1 - 1e-9))


def test_the_weaker_release_charges_what_the_beam_makes_of_messages_and_noise(make_run) -> None:
    """Gains known exactly, any phases: events by events what `combined_charge` says of the first antenna."""
    plan, trace, deployment, message = arrays(make_run, 3)
    uplink = array_uplink(Receiver(3, "fixed", "combined"))
    colluders, first = np.array([True, False, True, False]), np.array([1.0, 0.0, 0.0])
    released = release(uplink, plan, trace, deployment, message)
    for who in (None, colluders):
        wanted = combined_charge(
            trace.array, first, plan.tx, plan.noise, deployment.trusted_noise_var, message.sensitivity, who
        )
        assert inverse_square(released, who) == pytest.approx(wanted, rel=1e-9)


def test_an_antenna_that_hears_more_than_declared_is_refused(make_run) -> None:
    plan, trace, deployment, message = arrays(make_run, 3)
    uplink = array_uplink(deployment.receiver)
    released = release(uplink, plan, trace, deployment, message)
    check_release(uplink, released, plan, trace, deployment, message)
    louder = trace._replace(array=trace.array * [1.0, 1.0, 1.01])
    with pytest.raises(PrivacyViolation, match=r"above the .* that was charged"):
        check_release(uplink, released, plan, louder, deployment, message)


@pytest.mark.parametrize("server", ["full", "combined"])
def test_errors_within_the_declared_ones_never_pass_the_charge(make_run, server: str) -> None:
    plan, trace, deployment, message = arrays(make_run, 3)
    deployment = deployment._replace(gain_error=0.1, phase_error=0.1, receiver=Receiver(3, "fixed", server))
    rng, uplink = np.random.default_rng(3), array_uplink(deployment.receiver)
    released = release(uplink, plan, trace, deployment, message)
    for _ in range(20):
        off = rng.uniform(0.9, 1.1, trace.array.shape) * np.exp(1j * rng.uniform(-0.1, 0.1, trace.array.shape))
        true = trace._replace(array=trace.array_estimate * off, gain=(trace.array_estimate * off)[..., 0])
        check_release(uplink, released, plan, true, deployment, message)


@pytest.mark.parametrize("server", ["full", "combined"])
def test_gains_at_the_declared_error_are_charged_where_no_noise_makes_up_for_them(make_run, server: str) -> None:
    plan, trace, deployment, message = arrays(make_run, 3)
    deployment = deployment._replace(gain_error=0.1, phase_error=0.0, receiver=Receiver(3, "fixed", server))
    plan, uplink = plan._replace(noise=0 * plan.noise), array_uplink(deployment.receiver)
    louder = trace._replace(array=1.1 * trace.array_estimate, gain=1.1 * trace.estimate)
    released = release(uplink, plan, trace, deployment, message)
    check_release(uplink, released, plan, louder, deployment, message)


def test_errors_that_all_point_one_way_reach_the_bound() -> None:
    """Noise at 45 degrees to either side of a message that is weakened along it: (A4) is what then arrives."""
    error, side = 0.1, np.exp(1j * np.pi / 4 * np.array([1, -1, 1, -1, 1, -1]))
    tx, noise = np.ones(7), np.concatenate([[0.0], side])
    true = np.concatenate([[1 + error], 1 - error / side])[:, None]
    bound = uncertain_charge(np.ones((7, 1)), tx, noise, 0.5, 1.0, error)[0]
    assert full_charge(true, tx, noise, 0.5, 1.0)[0] == pytest.approx(bound, rel=1e-6)
    assert bound == pytest.approx((1 + error) ** 2 / (0.5 + 6 * (np.sqrt(0.5) - error) ** 2), rel=1e-6)


@pytest.mark.parametrize("antennas", [1, 4])
def test_a_client_alone_is_charged_at_its_strongest_gains_beside_its_own_noise(antennas: int) -> None:
    """|b|^2 n / (v0 + |a|^2 n), n = (1 + error)^2 |h|^2: those gains are among the possible, so the bound is exact."""
    array, error = drawn(5, clients=1, antennas=antennas)[0], 0.2
    tx, noise = np.array([5.0 * np.exp(0.7j)]), np.array([3.0 * np.exp(0.7j)])
    size = 1.2**2 * np.sum(np.abs(array) ** 2)
    for who, wanted in ((None, 25 * size / (0.5 + 9 * size)), (np.array([True]), 25 * size / 0.5)):
        found = uncertain_charge(array, tx, noise, 0.5, 1.0, error, who)
        assert found == pytest.approx(wanted, rel=1e-9)
        assert full_charge(1.2 * array, tx, noise, 0.5, 1.0, who) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("server", ["full", "combined"])
def test_a_chance_to_send_that_nobody_knows_counts_as_certain(make_run, server: str) -> None:
    plan, trace, deployment, message = arrays(make_run, 3)
    unknown = np.arange(plan.send_prob.size).reshape(plan.send_prob.shape) % 3 == 0
    said = plan._replace(send_prob=np.where(unknown, np.nan, 0.4))
    released = release(array_uplink(Receiver(3, "fixed", server)), said, trace, deployment, message)
    np.testing.assert_array_equal(released.send_prob, np.where(unknown, 1.0, 0.4))


def test_declared_errors_bound_the_array_error() -> None:
    from otafl.core.plan import Deployment

    site = Deployment(np.ones(1), 1.0, 1.0, np.ones(1), 1, gain_error=0.2, phase_error=0.3)
    ratio = np.linspace(0.8, 1.2, 101)[:, None] * np.exp(1j * np.linspace(-0.3, 0.3, 101))
    assert array_error(site) == pytest.approx(np.abs(ratio - 1).max(), rel=1e-12)
    assert array_error(site._replace(phase_error=None)) == 0.2


def test_a_weaker_adversary_is_said() -> None:
    uplink = array_uplink(Receiver(4, "iterated", "combined"))
    assert "WEAKER ADVERSARY" in uplink.alarm and any("weaker" in text for text in uplink.assumed)
    whole = array_uplink(Receiver(4, "iterated"))
    assert not whole.alarm and "what all antennas together tell" in whole.assumed[0]


def test_bad_numbers_are_one_line() -> None:
    with pytest.raises(InputError, match="noise_var"):
        full_charge([[1.0]], [1.0], [0.0], -1.0, 1.0)
    with pytest.raises(InputError, match="error"):
        uncertain_charge([[1.0]], [1.0], [0.0], 1.0, 1.0, -0.1)
