"""TR 38.901: printed check values, a naive scalar version, ranges, and the laws of what is drawn."""

import math

import numpy as np
import pytest

from otafl.channels import (
    Channel,
    Fading,
    Geometry,
    PathLoss,
    draw,
    inf_db,
    inf_los_prob,
    large_scale,
    load_site,
    los_prob,
    loss_db,
    place,
    rma_db,
    rma_los_prob,
    roll,
    shadowing_std_db,
    uma_db,
    uma_los_prob,
    umi_db,
    umi_los_prob,
)
from otafl.channels.line_of_sight import uma_environment_height_m, uma_ground_prob
from otafl.core.errors import InputError
from otafl.core.plan import cut

LAWS = {
    "umi": PathLoss("38.901-umi", carrier_ghz=3.5),
    "uma": PathLoss("38.901-uma", carrier_ghz=3.5),
    "rma": PathLoss("38.901-rma", carrier_ghz=0.7),
    "inf": PathLoss("38.901-inf", carrier_ghz=3.5, scenario="DL"),
}

PRINTED = [
    (umi_db(100.0, 3.5, True), 85.3142),
    (umi_db(500.0, 3.5, True), 107.1138),
    (umi_db(200.0, 3.5, False), 115.2288),
    (uma_db(200.0, 3.5, True), 89.5695),
    (uma_db(1000.0, 3.5, True), 109.4119),
    (uma_db(500.0, 3.5, False), 129.9158),
    (rma_db(500.0, 0.7, True), 84.6325),
    (rma_db(3000.0, 0.7, True), 112.4578),
    (rma_db(2000.0, 0.7, False), 128.0677),
    (rma_db(1000 * math.sqrt(2), 3.5, True, 30.0, street_width_m=25.0, building_height_m=7.0), 110.1615),
    (inf_db(40.0, 3.5, True, "SL"), 76.6216),
    (inf_db(40.0, 3.5, False, "SL"), 84.7339),
    (inf_db(40.0, 3.5, False, "DL"), 86.6749),
    (inf_db(40.0, 3.5, False, "SH", 8.0), 80.2589),
    (inf_db(40.0, 3.5, False, "DH", 8.0), 79.7204),
]


@pytest.mark.parametrize(("found", "printed"), PRINTED)
def test_losses_of_the_report(found, printed):
    assert abs(float(found) - printed) < 1e-4


@pytest.mark.parametrize(
    ("found", "printed"),
    [
        (umi_los_prob(50.0), 0.519585),
        (uma_los_prob(200.0), 0.128048),
        (uma_los_prob(200.0, 22.5), 0.440582),
        (rma_los_prob(500.0), 0.612626),
        (inf_los_prob(30.0, "SL"), 0.512),
        (inf_los_prob(30.0, "SH", 8.0), 0.949809),
        (umi_los_prob(18.0), 1.0),
        (uma_los_prob(18.01, 22.5), 1.0),
        (rma_los_prob(10.0), 1.0),
        (inf_los_prob(300.0, "HH"), 1.0),
    ],
)
def test_line_of_sight_of_the_report(found, printed):
    assert abs(float(found) - printed) < 1e-6


def lg(x: float) -> float:
    return math.log(x) / math.log(10)


def naive(name: str, d2: float, f: float, los: bool, bs: float, ut: float, w: float, h: float, he: float) -> float:
    """One device at a time, as the report prints it; InF as DL."""
    d3 = math.sqrt(d2 * d2 + (bs - ut) ** 2)
    if name in ("umi", "uma"):
        start, near, foot = (32.4, 21.0, 9.5) if name == "umi" else (28.0, 22.0, 9.0)
        bp = 4 * (bs - he) * (ut - he) * f * 1e9 / 3.0e8
        sight = start + near * lg(d3) + 20 * lg(f)
        if d2 > bp:
            sight = start + 40 * lg(d3) + 20 * lg(f) - foot * lg(bp * bp + (bs - ut) ** 2)
        hidden = 22.4 + 35.3 * lg(d3) + 21.3 * lg(f) - 0.3 * (ut - 1.5)
        if name == "uma":
            hidden = 13.54 + 39.08 * lg(d3) + 20 * lg(f) - 0.6 * (ut - 1.5)
    elif name == "rma":

        def p(d: float) -> float:
            free, steep = 20 * lg(40 * math.pi * d * f / 3), min(0.03 * h**1.72, 10) * lg(d)
            return free + steep - min(0.044 * h**1.72, 14.77) + 0.002 * lg(h) * d

        bp = 2 * math.pi * bs * ut * f * 1e9 / 3.0e8
        sight = p(d3) if d2 <= bp else p(bp) + 40 * lg(d3 / bp)
        hidden = 161.04 - 7.1 * lg(w) + 7.5 * lg(h) - (24.37 - 3.7 * (h / bs) ** 2) * lg(bs)
        hidden += (43.42 - 3.1 * lg(bs)) * (lg(d3) - 3) + 20 * lg(f) - (3.2 * lg(11.75 * ut) ** 2 - 4.97)
    else:
        sight = 31.84 + 21.5 * lg(d3) + 19 * lg(f)
        hidden = max(33 + 25.5 * lg(d3) + 20 * lg(f), 18.6 + 35.7 * lg(d3) + 20 * lg(f))
    return sight if los else max(sight, hidden)


@pytest.mark.parametrize("name", LAWS)
def test_a_naive_version_agrees(name):
    rng = np.random.default_rng(3)
    for _ in range(200):
        los, f = bool(rng.integers(2)), float(rng.uniform(0.5, 30))
        d2 = float(rng.uniform(10, 500 if name == "inf" else 5000))
        ut = float(rng.uniform(1.5, 10)) if name == "rma" else float(rng.uniform(1.5, 22.5))
        bs = {"umi": 10.0, "uma": 25.0, "rma": float(rng.uniform(10, 150)), "inf": float(rng.uniform(1, 10))}[name]
        w, h = (float(rng.uniform(5, 50)) for _ in range(2))
        he = float(rng.choice([1.0, 12.0])) if name == "uma" and ut > 13.5 else 1.0
        law, numbers = {
            "umi": (umi_db, (bs, ut)),
            "uma": (uma_db, (bs, ut, he)),
            "rma": (rma_db, (bs, ut, w, h)),
            "inf": (inf_db, ("DL", bs, ut)),
        }[name]
        assert abs(float(law(d2, f, los, *numbers)) - naive(name, d2, f, los, bs, ut, w, h, he)) < 1e-9


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: umi_db(9.0, 3.5, True), r"distance_m=9.0 must lie in \[10, 5000\], where 38.901 UMi holds; set extra"),
        (lambda: umi_db(100.0, 3.5, True, base_height_m=11.0), "base_height_m=11.0 must lie in"),
        (lambda: uma_db(100.0, 0.4, True), "carrier_ghz=0.4 must lie in"),
        (lambda: uma_db(100.0, 3.5, True, device_height_m=30.0), "device_height_m=30.0"),
        (lambda: rma_db(6000.0, 0.7, False), r"distance_m=6000.0 must lie in \[10, 5000\] without line of sight"),
        (lambda: rma_db(100.0, 31.0, True), "carrier_ghz=31.0"),
        (lambda: inf_db(601.0, 3.5, True, "SL"), "distance_3d_m=601.0 must lie in"),
        (lambda: inf_db(10.0, 3.5, False, "HH"), "always has line of sight"),
        (lambda: inf_db(10.0, 3.5, False, "XX"), "scenario='XX' must be one of"),
        (lambda: inf_los_prob(10.0, "SH", device_height_m=2.0), "must be below clutter_height_m=2.0"),
        (lambda: loss_db(LAWS["umi"], 100.0), "draws line of sight per device; set state"),
        (lambda: PathLoss("38.901-umi"), "carrier_ghz is missing"),
        (lambda: PathLoss("38.901-inf", carrier_ghz=3.5), "scenario is missing"),
        (lambda: PathLoss("38.901-umi", carrier_ghz=3.5, street_width_m=3.0), "street_width_m=3.0 has no meaning"),
        (lambda: PathLoss("biasvar", state="los"), "state='los' has no meaning"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_extrapolate_goes_outside():
    assert float(rma_db(6000.0, 0.7, False, extrapolate=True)) > float(rma_db(5000.0, 0.7, False))
    far = PathLoss("38.901-umi", carrier_ghz=3.5, state="nlos", extrapolate=True)
    assert float(loss_db(far, 6000.0)) > 150


@pytest.mark.parametrize("name", LAWS)
def test_share_of_line_of_sight_and_shadowing_follow_the_law(name):
    """Within 5 standard errors (chance 6e-7 each): state, shadowing per state in dB, Rice factor."""
    law, count, distance = LAWS[name], 200_000, 3.0 if name == "inf" else 60.0
    site = large_scale(law, np.full(count, distance), roll(count, 1))
    p = float(los_prob(law, distance))
    assert abs(site.los.mean() - p) <= 5 * math.sqrt(p * (1 - p) / count)
    for los in (True, False):
        shadow = site.shadowing_db[site.los == los]
        std = float(shadowing_std_db(law, distance, los))
        assert abs(shadow.mean()) <= 5 * std / math.sqrt(shadow.size)
        assert abs(shadow.std() / std - 1) <= 5 / math.sqrt(2 * shadow.size)
    mean, spread = {"umi": (9, 5), "uma": (9, 3.5), "rma": (7, 4), "inf": (7, 8)}[name]
    rice = site.k_factor_db[site.los]
    assert np.all(np.isneginf(site.k_factor_db[~site.los]))
    assert abs(rice.mean() - mean) <= 5 * spread / math.sqrt(rice.size)


def test_shadowing_lifts_the_mean_linear_gain():
    """Zero mean in dB: the mean power is up by exp((sigma ln10/10)^2 / 2), 5.1 times at 7.82 dB."""
    law, count = PathLoss("38.901-umi", carrier_ghz=3.5, state="nlos"), 2_000_000
    power = 10 ** (-large_scale(law, np.full(count, 100.0), roll(count, 0)).shadowing_db / 10)
    lifted = math.exp((7.82 * math.log(10) / 10) ** 2 / 2)
    assert abs(lifted - 5.06) < 0.01
    assert abs(power.mean() - lifted) <= 5 * power.std() / math.sqrt(count)


def test_rural_shadowing_grows_beyond_the_break_point():
    law = PathLoss("38.901-rma", carrier_ghz=0.7, state="los")
    turn = 2 * math.pi * 35 * 1.5 * 0.7e9 / 3e8
    assert shadowing_std_db(law, [turn - 1, turn + 1], True).tolist() == [4.0, 6.0]
    assert float(shadowing_std_db(law, turn, False)) == 8.0


def test_environment_height_has_its_law():
    """1 m with probability 1/(1+C), else one of 12, 15, 18, 21 alike; 5 standard errors."""
    count, distance, height = 200_000, 300.0, 22.5
    found = uma_environment_height_m(np.full(count, distance), height, roll(count, 2).ground)
    term = 0.95**1.5 * 1.25 * 27 * math.exp(-2)
    ground = float(uma_ground_prob(distance, height))
    assert abs(ground - 1 / (1 + term)) < 1e-12
    for value, p in [(1.0, ground), *((high, (1 - ground) / 4) for high in (12.0, 15.0, 18.0, 21.0))]:
        assert abs(np.mean(found == value) - p) <= 5 * math.sqrt(p * (1 - p) / count)
    low = uma_environment_height_m(np.full(100, distance), 13.2, np.ones((100, 2)) - 1e-9)
    assert np.all(low == 1.0)


def test_each_kind_of_chance_has_its_own_stream():
    distance = np.linspace(20, 200, 50)
    whole = large_scale(LAWS["uma"], distance, roll(50, 4), 22.5)
    plain = large_scale(PathLoss("38.901-uma", carrier_ghz=3.5, median=True), distance, roll(50, 4), 22.5)
    assert np.array_equal(whole.los, plain.los) and np.array_equal(whole.loss_db, plain.loss_db)
    assert np.all(plain.shadowing_db == 0) and np.all(whole.shadowing_db != 0)
    fewer = large_scale(LAWS["uma"], distance[:20], roll(20, 4), 22.5)
    for name in whole._fields:
        np.testing.assert_array_equal(getattr(fewer, name), getattr(whole, name)[:20])
    sighted = large_scale(PathLoss("38.901-uma", carrier_ghz=3.5, state="los"), distance, roll(50, 4), 22.5)
    np.testing.assert_array_equal(sighted.k_factor_db[whole.los], whole.k_factor_db[whole.los])


def test_a_channel_places_devices_by_the_law():
    channel = Channel(geometry=Geometry("ring", low_m=20.0, high_m=200.0), path_loss=LAWS["umi"], placement_seed=3)
    placed = place(channel, 30, seed=9)
    site = large_scale(LAWS["umi"], placed.distance_m, roll(30, 3))
    np.testing.assert_allclose(placed.mean_power_gain, 10 ** (-(site.loss_db + site.shadowing_db) / 10), rtol=1e-14)
    np.testing.assert_array_equal(placed.los, site.los)


def test_rice_factors_shape_the_fading_of_devices_that_are_seen():
    """E|h|^4 / (E|h|^2)^2 = 1 + (1 + 2K)/(1 + K)^2: 2 without line of sight."""
    channel = Channel(
        fading=Fading("38.901"),
        geometry=Geometry("interval", low_m=30.0, high_m=90.0),
        path_loss=LAWS["umi"],
        placement_seed=0,
    )
    trace, placed = draw(channel, 8, 40_000, 0), place(channel, 8, 0)
    assert 0 < placed.los.sum() < 8
    factor = 10 ** (placed.k_factor_db / 10)
    power = (np.abs(trace.gain) / trace.rms_gain) ** 2
    np.testing.assert_allclose(power.mean(0), 1.0, atol=5 / math.sqrt(40_000))
    np.testing.assert_allclose((power**2).mean(0), 1 + (1 + 2 * factor) / (1 + factor) ** 2, atol=5 * 4.5 / 200)


def test_own_shadowing_is_not_added_twice():
    with pytest.raises(InputError, match="brings its own shadowing"):
        Channel(geometry=Geometry("disc", high_m=100.0), path_loss=LAWS["umi"], shadowing_db=4.0)


SITE = """
[radio]
bandwidth_hz = 1e6
noise_figure_db = 7
path_loss = {{ kind = "38.901-{law} }}
[[device]]
distance_m = 60
power_dbm = 10
samples = 10
[[device]]
distance_m = 150
power_dbm = 10
samples = 10
device_height_m = 4.5
[[device]]
gain_db = -90
power_dbm = 10
samples = 10
"""


def site_of(tmp_path, law):
    path = tmp_path / "site.toml"
    path.write_text(SITE.format(law=law))
    return load_site(path).devices


def test_a_deployment_file_draws_its_devices_once(tmp_path):
    devices = site_of(tmp_path, 'umi", carrier_ghz = 3.5, seed = 5, extrapolate = false')
    chance = roll(3, 5)
    law = PathLoss("38.901-umi", carrier_ghz=3.5)
    for k, (distance, height) in enumerate([(60.0, 1.5), (150.0, 4.5)]):
        one = large_scale(law, distance, cut(chance, k), height)
        np.testing.assert_allclose(devices.mean_power_gain[k], 10 ** (-(one.loss_db + one.shadowing_db) / 10))
        assert devices.k_factor_db[k] == one.k_factor_db
    assert devices.mean_power_gain[2] == 1e-9 and np.isneginf(devices.k_factor_db[2])
    with pytest.raises(InputError, match=r"device 1, distance_m=60: base_height_m=50.0 must lie in"):
        site_of(tmp_path, 'umi", carrier_ghz = 3.5, base_height_m = 50.0')
