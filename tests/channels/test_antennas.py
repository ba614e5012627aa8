"""Beams, arrays of gains, and what blind combining makes of them."""

import numpy as np
import pytest

from otafl.channels import Channel, CsiError, draw, receive
from otafl.channels.antennas import (
    KINDS,
    beams,
    best_antenna,
    blind_error,
    blind_moments,
    channel_sum,
    demand_of,
    iterated,
    matched,
)
from otafl.core.errors import InputError
from otafl.core.plan import Deployment


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


def weakest_heard(array: np.ndarray, beam: np.ndarray, demand: np.ndarray) -> float:
    """min_k |f^H h_k| / t_k: what a beam is judged by."""
    return float(np.min(np.abs(array @ beam.conj()) / demand))


@pytest.fixture(scope="module")
def cases() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(normal(rng, 6, 4) * 1e-4, rng.uniform(0.5, 2, 6)) for _ in range(60)]


def test_the_iterated_beam_is_a_unit_vector_between_the_best_antenna_and_the_limit(cases) -> None:
    gain = []
    for array, need in cases:
        beam = iterated(array, need)
        level, least = weakest_heard(array, beam, need), weakest_heard(array, best_antenna(array, need), need)
        assert np.linalg.norm(beam) == pytest.approx(1.0, abs=1e-12)
        assert least * (1 - 1e-12) <= level <= np.min(np.linalg.norm(array, axis=1) / need) * (1 + 1e-12)
        gain.append(level / least)
    assert np.mean(gain) == pytest.approx(1.95, abs=0.2)  # the mean at K = 6, M = 4


def test_the_iterated_beam_is_a_local_optimum(cases) -> None:
    rng = np.random.default_rng(1)
    for array, need in cases[:10]:
        beam = iterated(array, need)
        level = weakest_heard(array, beam, need)
        for _ in range(200):
            near = beam + 1e-4 * normal(rng, 4)
            assert weakest_heard(array, near / np.linalg.norm(near), need) <= level * (1 + 1e-6)


def test_the_iterated_beam_does_not_depend_on_the_unit_of_gains(cases) -> None:
    for array, need in cases[:10]:
        level = [weakest_heard(array, iterated(scale * array, need), need) for scale in (1.0, 1e-9, 1e9)]
        assert level == pytest.approx([level[0]] * 3, rel=1e-6)


def test_the_sum_beam_is_along_the_sum_however_weak_it_is() -> None:
    array = normal(np.random.default_rng(7), 3, 4)
    for scale in (1e-9, 1.0, 1e9):
        assert channel_sum(scale * array) == pytest.approx(array.sum(0) / np.linalg.norm(array.sum(0)), rel=1e-12)
    assert np.linalg.norm(channel_sum(np.array([[1.0, 2.0], [-1.0, -2.0]]))) == 1.0  # nothing to follow


def test_a_demand_is_the_weight_over_the_root_of_the_energy() -> None:
    site = Deployment(np.array([4.0, 9.0, 1.0]), 1.0, 1.0, np.array([0.5, 0.3, 0.0]), 7)
    assert demand_of(site) == pytest.approx([0.25, 0.1, 0.0])


def test_the_best_antenna_is_the_one_whose_weakest_client_is_heard_best(cases) -> None:
    for array, need in cases:
        heard = [weakest_heard(array, antenna, need) for antenna in np.eye(4)]
        assert weakest_heard(array, best_antenna(array, need), need) == max(heard)


@pytest.mark.parametrize("kind", KINDS)
def test_where_nobody_has_a_path_the_beam_is_the_first_antenna(kind: str) -> None:
    assert np.array_equal(beams(kind, np.zeros((1, 2, 3)), np.ones(2)), np.eye(3)[:1])


def test_one_client_gets_its_matched_filter() -> None:
    array = normal(np.random.default_rng(2), 1, 5)
    for make in (matched, iterated, channel_sum):
        assert abs(np.vdot(make(array, np.ones(1)), array[0])) == pytest.approx(np.linalg.norm(array), rel=1e-9)


def test_the_matched_beam_serves_the_weakest_client() -> None:
    array = np.array([[3.0, 0.0], [1j, 1.0]])
    assert np.vdot(matched(array, np.ones(2)), array[1]) == pytest.approx(np.sqrt(2))
    assert np.vdot(matched(array, np.array([10.0, 1.0])), array[0]) == pytest.approx(3.0)


def test_a_client_without_a_path_leaves_the_others_their_beam() -> None:
    array = normal(np.random.default_rng(3), 3, 4)
    array[1] = 0
    alone = iterated(array[[0, 2]], np.ones(2))
    assert np.abs(array @ iterated(array, np.ones(3)).conj()) == pytest.approx(np.abs(array @ alone.conj()), rel=1e-6)


def test_a_client_that_asks_for_nothing_has_no_say() -> None:
    array, need = normal(np.random.default_rng(6), 4, 3), np.array([1.0, 0.0, 2.0, 1.0])
    for make in (best_antenna, matched, iterated):
        assert np.array_equal(make(array, need), make(array[need > 0], need[need > 0]))
    with pytest.raises(InputError, match="nobody to hear"):
        iterated(array, np.zeros(4))


def deployment(channel: Channel, clients: int) -> Deployment:
    return Deployment(np.ones(clients), 0.1, 0.1, np.full(clients, 1 / clients), 10, receiver=channel.receiver)


def test_more_antennas_leave_the_first_one_as_it_was() -> None:
    one, four = (draw(Channel(antennas=m, csi=CsiError(0.1)), 3, 5, 7) for m in (1, 4))
    for name in one._fields:
        assert np.array_equal(getattr(one, name), getattr(four, name))
    assert np.array_equal(four.array[..., 0], one.gain) and np.array_equal(four.array_estimate[..., 0], one.estimate)
    longer = draw(Channel(antennas=4, csi=CsiError(0.1)), 3, 9, 7)
    assert np.array_equal(longer.array[:5], four.array)


def test_antennas_fade_independently_with_the_declared_power() -> None:
    """Rayleigh: covariance of the array is rms^2 I; 6 standard errors."""
    trace = draw(Channel(antennas=3, mean_power_gain=2.0), 1, 20_000, 0)
    array = trace.array[:, 0]
    assert array.T @ array.conj() / len(array) == pytest.approx(2 * np.eye(3), abs=6 * 2 / np.sqrt(len(array)))


@pytest.mark.parametrize("kind", ["best_antenna", "matched", "iterated"])
def test_the_site_is_heard_through_the_beam_of_the_estimates(kind: str) -> None:
    channel = Channel(antennas=3, beam=kind, csi=CsiError(0.2))
    drawn, site = draw(channel, 4, 6, 1), deployment(channel, 4)
    trace, heard = receive(drawn, site)
    f = beams(kind, drawn.array_estimate, demand_of(site))
    assert trace.gain == pytest.approx(np.einsum("tm,tkm->tk", f.conj(), drawn.array))
    assert trace.estimate == pytest.approx(np.einsum("tm,tkm->tk", f.conj(), drawn.array_estimate))
    assert np.all(np.isnan([trace.rms_gain, trace.rms_estimate, trace.rms_low, trace.rms_high]))
    assert np.array_equal(heard.receiver.antenna_rms, drawn.rms_estimate[0])


def test_the_law_of_one_antenna_is_kept_only_where_it_does_not_change() -> None:
    channel = Channel(antennas=3, beam="matched")
    drawn, site = draw(channel, 2, 4, 1), deployment(channel, 2)
    drifting = drawn._replace(rms_estimate=drawn.rms_estimate * np.array([1.0, 1.0, 1.0, 0.9])[:, None])
    assert receive(drawn, site)[1].receiver.antenna_rms is not None
    assert receive(drifting, site)[1].receiver.antenna_rms is None


def test_a_fixed_beam_is_heard_like_one_antenna() -> None:
    """f^H h of a fixed f is Rayleigh with the antenna's own rms: E|f^H h|^2 = f^H R f."""
    trace, _ = receive(draw(Channel(antennas=4), 2, 5, 0), deployment(Channel(antennas=4), 2))
    assert np.array_equal(trace.gain, draw(Channel(), 2, 5, 0).gain)
    assert np.all(trace.rms_gain == 1)


def test_blind_weights_have_the_moments_of_the_closed_form() -> None:
    """(A5) for unequal powers by simulation, 6 standard errors."""
    rng, power, draws, antennas, tx, rx = np.random.default_rng(4), np.array([0.5, 1.0, 2.0]), 200_000, 4, 0.7, 2.5
    h = np.sqrt(power)[:, None] * normal(rng, draws, 3, antennas)
    weight = np.real(tx * np.einsum("nm,nkm->nk", h.sum(1).conj(), h)) / rx
    found = blind_moments(power, antennas, tx, rx)
    spread = np.sqrt(np.diag(found.covariance))
    assert weight.mean(0) == pytest.approx(found.mean, abs=6 * spread.max() / np.sqrt(draws))
    assert np.cov(weight.T) == pytest.approx(found.covariance, abs=20 * spread.max() ** 2 / np.sqrt(draws))


def test_blind_error_is_that_of_a_simulated_sum() -> None:
    rng, clients, dim, antennas, tx, noise_var, power = np.random.default_rng(5), 3, 2, 8, 0.6, 0.05, 1.5
    x = rng.normal(size=(clients, dim))
    draws = 100_000
    h = np.sqrt(power) * normal(rng, draws, clients, antennas)
    noise = np.sqrt(2 * noise_var) * normal(rng, draws, dim, antennas)
    f, rx = h.sum(1), tx * antennas * power
    y = np.einsum("nkm,kd->ndm", tx * h, x) + noise
    error = np.sum((np.real(np.einsum("nm,ndm->nd", f.conj(), y)) / rx - x.sum(0)) ** 2, 1)
    wanted = blind_error(np.sum(x**2, 1), np.sum(x.sum(0) ** 2), antennas, dim, noise_var, tx, power)
    assert error.mean() == pytest.approx(wanted, abs=5 * error.std() / np.sqrt(draws))


@pytest.mark.parametrize("wrong", [
    {"antennas": 0}, {"antennas": 2, "beam": "nonsense"}, {"beam": "iterated"}, {"server": "combined"},
    {"antennas": 2, "server": "half"}, {"antennas": 2, "draw_order": "single"},
])  # fmt: skip
def test_bad_receivers_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match=r"antennas|beam|server|antenna"):
        Channel(**wrong)
