import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otafl.channels import dbm_to_w, energy_from_power, noise_var_from_power, w_to_dbm
from otafl.core.errors import InputError


@given(st.floats(-300, 300))
def test_dbm_round_trip(power_dbm):
    assert float(w_to_dbm(dbm_to_w(power_dbm))) == pytest.approx(power_dbm, abs=1e-9)


def test_adascale_numbers():
    power_w, dim, devices = float(dbm_to_w(23.0)), 26_010, 10
    assert power_w == pytest.approx(0.19953, rel=1e-4)
    energy = energy_from_power(power_w, dim, symbol_time_s=1.0)
    assert energy * devices**2 == pytest.approx(5.190e5, rel=1e-3)  # x_max with G = 1
    assert noise_var_from_power(float(dbm_to_w(-90.0)), 1.0) == pytest.approx(0.5e-12, rel=1e-9, abs=0)


def test_biasvar_numbers():
    symbol_time_s = 1 / 1e6
    energy = energy_from_power(dbm_to_w(0.0), 814_090, symbol_time_s)
    assert energy / 814_090 == pytest.approx(1e-9, rel=1e-9, abs=0)  # E_s
    noise_w = float(dbm_to_w(-173.0)) * 1e6
    assert 2 * noise_var_from_power(noise_w, symbol_time_s) == pytest.approx(10**-20.3, rel=1e-9, abs=0)  # N_0


@given(st.floats(1e-9, 1.0), st.integers(1, 10**7), st.floats(1e3, 1e9))
def test_ratio_of_energy_to_noise_is_free_of_the_bandwidth(power_w, dim, bandwidth_hz):
    """Counting in watts (symbol time 1) and in joules gives the same signal-to-noise ratio."""
    ratios = [
        float(energy_from_power(power_w, dim, time)) / noise_var_from_power(1e-12, time)
        for time in (1.0, 1 / bandwidth_hz)
    ]
    assert ratios[0] == pytest.approx(ratios[1])


@pytest.mark.parametrize("arguments", [(0.0, 1, 1.0), ([1.0, np.nan], 1, 1.0), (1.0, 0, 1.0), (1.0, 1, 0.0)])
def test_refusals(arguments):
    with pytest.raises(InputError):
        energy_from_power(*arguments)
