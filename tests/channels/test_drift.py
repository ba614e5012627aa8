import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otafl.channels import Channel, Drift, draw
from otafl.channels.channel import stream
from otafl.channels.drift import factors
from otafl.core.errors import InputError
from otafl.core.streams import Host


@given(
    every=st.integers(1, 9),
    rounds=st.integers(1, 40),
    more=st.integers(0, 20),
    amplitude=st.floats(0.01, 0.9),
    relative_to=st.sampled_from(["current", "initial"]),
)
def test_steps_stay_in_their_interval_and_extend(every, rounds, more, amplitude, relative_to):
    drift = Drift(every, amplitude, relative_to)
    long = factors(drift, 3, rounds + more, np.random.default_rng(0))
    np.testing.assert_array_equal(long[:rounds], factors(drift, 3, rounds, np.random.default_rng(0)))
    assert np.all(long[:every] == 1)
    for t in range(1, rounds + more):
        if t % every:
            np.testing.assert_array_equal(long[t], long[t - 1])
        else:
            base = long[t - 1] if relative_to == "current" else 1.0
            assert np.all(np.abs(long[t] / base - 1) <= amplitude * (1 + 1e-12))


def test_steps_are_uniform(assert_mean):
    steps = factors(Drift(1, 0.25, "initial"), 100, 500, np.random.default_rng(1))[1:] - 1
    assert_mean(steps, 0.0)
    assert_mean(steps**2, 0.25**2 / 3)


def test_accumulated_steps_spread(assert_mean):
    last = factors(Drift(40, 0.25), 20_000, 8 * 40 + 1, np.random.default_rng(2))[-1]
    assert_mean(last, 1.0)
    assert_mean(last**2, (1 + 0.25**2 / 3) ** 8)


def test_gains_drift_by_the_factors():
    drift = Drift(2, 0.5)
    fixed, moving = (draw(Channel(mean_power_gain=4.0, drift=drift), 3, 9, 1) for drift in (None, drift))
    level = factors(drift, 3, 9, stream(1, Host.DRIFT))
    np.testing.assert_allclose(moving.rms_gain, 2 * level, rtol=1e-15)
    np.testing.assert_allclose(moving.gain, level * fixed.gain, rtol=1e-15)


@pytest.mark.parametrize("fields", [{"every": 0}, {"amplitude": 0.0}, {"amplitude": 1.5}, {"relative_to": "last"}])
def test_refusals(fields):
    with pytest.raises(InputError):
        Drift(**fields)


def test_a_block_longer_than_the_run_costs_no_memory():
    """Four billion rounds per block of a ten-round run: the first block is all there is."""
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(factors(Drift(every=2**32), 3, 10, rng), np.ones((10, 3)))
