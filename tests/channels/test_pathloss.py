"""Path loss against worked values and against each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otafl.channels import PATH_LOSS_LAWS, PathLoss, from_db, loss_db, to_db
from otafl.channels.pathloss import shadowing_db
from otafl.core.errors import InputError

HATA = {"kind": "cost231_hata", "carrier_mhz": 1800.0, "base_height_m": 30.0, "device_height_m": 1.5}
LAWS = [
    PathLoss("log_distance", reference_db=40.0, slope_db=30.0),
    PathLoss("exponent", exponent=2.5, reference_db=10.0, reference_m=3.0),
    PathLoss(**HATA),
    PathLoss("biasvar"),
    PathLoss("adascale"),
]


def test_every_law_is_tested():
    assert {law.kind for law in LAWS} == {kind for kind in PATH_LOSS_LAWS if not kind.startswith("38.901-")}


@pytest.mark.parametrize(("distance_m", "linear"), [(10.0, 7.35e6), (100.0, 2.44e10), (200.0, 2.81e11)])
def test_adascale_values(distance_m, linear):
    assert 1 / from_db(-loss_db(PathLoss("adascale"), distance_m)) == pytest.approx(linear, rel=3e-3)


def test_biasvar_values():
    edge_db = float(loss_db(PathLoss("biasvar"), 1750.0))
    assert edge_db == pytest.approx(121.35, abs=5e-3)
    assert 113.0 - edge_db == pytest.approx(-8.35, abs=5e-3)  # SNR at the edge


def test_exponent_in_linear_terms():
    law = PathLoss("exponent", exponent=2.5, reference_db=10.0, reference_m=3.0)
    assert from_db(-loss_db(law, 12.0)) == pytest.approx(0.1 * 4**-2.5)


def test_hata_by_hand():
    # 46.3 + 33.9 * 3.25527 - 13.82 * 1.47712 - a, a = 2.88080 * 1.5 - 4.27822; slope 44.9 - 6.55 * 1.47712
    law = PathLoss(**HATA)
    assert loss_db(law, 1000.0) == pytest.approx(136.197, abs=2e-3)
    assert loss_db(law, 10_000.0) - loss_db(law, 1000.0) == pytest.approx(35.225, abs=1e-3)
    assert loss_db(PathLoss(**HATA, metropolitan=True), 1000.0) == pytest.approx(139.197, abs=2e-3)


@pytest.mark.parametrize(
    ("change", "distance_m", "name"),
    [
        ({}, 500.0, "distance_m"),
        ({}, 20_001.0, "distance_m"),
        ({"carrier_mhz": 2400.0}, 2000.0, "carrier_mhz"),
        ({"base_height_m": 10.0}, 2000.0, "base_height_m"),
        ({"device_height_m": 0.5}, 2000.0, "device_height_m"),
    ],
)
def test_hata_outside_its_range(change, distance_m, name):
    with pytest.raises(InputError, match=name):
        loss_db(PathLoss(**{**HATA, **change}), distance_m)
    assert np.isfinite(loss_db(PathLoss(**{**HATA, **change}, extrapolate=True), distance_m))


@pytest.mark.parametrize("law", LAWS)
@given(near=st.floats(1000, 10_000), ratio=st.floats(1.001, 2))
def test_loss_grows_with_distance(law, near, ratio):
    assert loss_db(law, near * ratio) > loss_db(law, near)


@given(st.floats(-300, 300))
def test_decibels_round_trip(value_db):
    assert float(to_db(from_db(value_db))) == pytest.approx(value_db, abs=1e-9)


def test_shadowing_has_the_given_std_in_db(assert_mean):
    shadow = shadowing_db(np.random.default_rng(0), 50_000, 4.0)
    assert_mean(shadow, 0.0)
    assert_mean(shadow**2, 16.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "free_space"},
        {"kind": "log_distance", "reference_db": 30.0},
        {"kind": "log_distance", "reference_db": 30.0, "slope_db": 0.0},
        {"kind": "biasvar", "reference_db": 0.0},
        {"kind": "biasvar", "extrapolate": True},
        {"kind": "exponent", "exponent": -2.0},
        {**HATA, "carrier_mhz": None},
    ],
)
def test_refusals(fields):
    with pytest.raises(InputError):
        PathLoss(**fields)


def test_no_distance_no_loss():
    with pytest.raises(InputError, match="distance_m"):
        loss_db(PathLoss("biasvar"), [10.0, 0.0])
