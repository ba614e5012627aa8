"""Deployment files: what loads, what is refused and how, what is doubted, and that nothing else can happen."""

import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otafl.channels import (
    Devices,
    IgnoredWarning,
    PathLoss,
    TrustWarning,
    UnitWarning,
    load_devices,
    load_site,
    save_devices,
    to_deployment,
)
from otafl.core.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"
CSV = "name,gain_db,power_dbm,samples\na,-90,20,100\nb,-95.5,17,200\n"
TOML = """
[radio]
bandwidth_hz = 1e5
noise_dbm = -120.0
path_loss = { kind = "adascale" }

[[device]]
name = "a"
distance_m = 100
power_dbm = 23
samples = 6000

[[device]]
mean_gain = 1e-10
power_w = 0.1
samples = 3000
"""


@pytest.fixture
def write(tmp_path):
    def put(text, name="site.csv"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return put


def test_csv(write):
    devices = load_devices(write(CSV))
    assert devices.names == ("a", "b")
    assert devices.distance_m is None
    np.testing.assert_allclose(devices.mean_power_gain, [1e-9, 10**-9.55])
    np.testing.assert_allclose(devices.power_w, [0.1, 10**-1.3])
    np.testing.assert_array_equal(devices.samples, [100, 200])


def test_toml(write):
    devices, radio = load_site(write(TOML, "site.toml"))
    assert devices.names == ("a", "device-2")
    np.testing.assert_allclose(devices.mean_power_gain, [1 / 2.44e10, 1e-10], rtol=3e-3)
    np.testing.assert_allclose(devices.power_w, [0.19953, 0.1], rtol=1e-4)
    assert radio.noise_w == radio.trusted_noise_w == pytest.approx(1e-15, rel=1e-9, abs=0)
    assert radio.path_loss == PathLoss("adascale")
    assert radio.symbol_time_s == 1e-5


def test_distances_are_kept_where_all_are_known(write):
    text = "distance_m,power_w,samples\n100,0.1,5\n200,0.1,5\n"
    devices = load_devices(write(text), PathLoss("biasvar"))
    np.testing.assert_array_equal(devices.distance_m, [100.0, 200.0])
    np.testing.assert_allclose(10 * np.log10(devices.mean_power_gain), [-94.0, -50 - 22 * np.log10(200)])


def test_spreadsheet_habits_load(write):
    text = "\ufeff name , gain_db,power_w,mean_gain,samples\r\na,-90,0.1,,1e3\r\n\r\n,,,,\r\nb,,0.1,1e-9,20\r\n"
    devices = load_devices(write(text))
    assert devices.names == ("a", "b")
    np.testing.assert_allclose(devices.mean_power_gain, [1e-9, 1e-9])
    np.testing.assert_array_equal(devices.samples, [1000, 20])


def test_example_files_load_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        site = load_site(EXAMPLES / "deployment.toml")
        deployment = to_deployment(site, dim=1000)
    assert len(site.devices.names) == 6
    np.testing.assert_allclose(deployment.energy[:4], 1e-3 * 1e-6 * 1000)
    assert deployment.noise_var == pytest.approx(10**-20.0 / 2, rel=1e-9, abs=0)
    assert deployment.trusted_noise_var == pytest.approx(10**-20.3 / 2, rel=1e-9, abs=0)
    assert deployment.weights.sum() == pytest.approx(1)


floats = st.floats(1e-19, 1.0)
names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)


@given(st.dictionaries(names, st.tuples(floats, floats, st.integers(1, 10**12)), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_saved_devices_load_to_the_same_bits(tmp_path, rows):
    gain, power, samples = (np.array(column) for column in zip(*rows.values(), strict=True))
    devices = Devices(tuple(rows), None, gain, power, samples)
    save_devices(tmp_path / "saved.csv", devices)
    loaded = load_devices(tmp_path / "saved.csv")
    assert loaded.names == devices.names and loaded.distance_m is None
    for one, other in zip(loaded[2:], devices[2:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("a,-90,20,100", "a,-90,20,0", "row 2, samples=0: must be a whole number >= 1"),
        ("a,-90,20,100", "a,-90,20,1.5", "row 2, samples=1.5: must be a whole number >= 1"),
        ("a,-90,20,100", "a,-90,20,", "row 2, samples: missing"),
        ("a,-90,20,100", "a,-90,nan,100", "row 2, power_dbm=nan: must be finite"),
        ("a,-90,20,100", "a,-inf,20,100", "row 2, gain_db=-inf: must be finite; leave out a device without a path"),
        ("a,-90,20,100", "a,-90,1_0,100", "row 2, power_dbm=1_0: must be a number"),
        ("a,-90,20,100", "a,-90,high,100", "row 2, power_dbm=high: must be a number"),
        ("a,-90,20,100", "a,-900,20,100", "row 2, gain_db=-900: must lie in [-400, 400] dB"),
        ("a,-90,20,100", "a,,20,100", "row 2, distance_m or gain_db or mean_gain: missing, one is required"),
        ("a,-90,20,100", "a,-90,20,100,7", "row 2 has 5 cells but the header has 4"),
        ("b,-95.5", "a,-95.5", "row 3, name='a': already used in row 2"),
        ("name,", "nam,", "row 1, unknown column 'nam'; did you mean 'name'?"),
        ("gain_db", "mean_gain", "row 2, mean_gain=-90: must be > 0; a value in dB belongs in gain_db"),
        ("gain_db", "distance_m", "row 2, distance_m=-90: must be > 0"),
        ("gain_db", "name", "row 1, column 'name' appears twice"),
        ("power_dbm", "gain_db,", "row 1, column 'gain_db' appears twice"),
        ("a,-90,20,100\nb,-95.5,17,200\n", "", "no devices; at least one is required"),
        ("a,-90", '"a,-90', "not valid CSV"),
    ],
)
def test_mistakes_in_csv_are_one_line_with_place_value_and_rule(write, old, new, message):
    path = write(CSV.replace(old, new, 1))
    with pytest.raises(InputError, match=re.escape(message)) as refusal:
        load_devices(path)
    assert str(refusal.value).startswith(str(path)) and "\n" not in str(refusal.value)


def test_only_one_of_alternatives(write):
    with pytest.raises(InputError, match="row 2, gain_db and mean_gain: only one of them may be given"):
        load_devices(write("gain_db,mean_gain,power_w,samples\n-90,1e-9,0.1,5\n"))


def test_distance_without_a_law(write):
    with pytest.raises(InputError, match="row 2, distance_m=50: needs a path-loss law"):
        load_devices(write("distance_m,power_w,samples\n50,0.1,5\n"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bandwidth_hz", "bandwith_hz", "[radio], unknown key 'bandwith_hz'; did you mean 'bandwidth_hz'?"),
        ("bandwidth_hz = 1e5", "", "[radio], bandwidth_hz: missing"),
        ("noise_dbm = -120.0", "", "noise_dbm_per_hz or noise_dbm or noise_w: missing"),
        ("noise_dbm = -120.0", "noise_dbm = -120.0\nnoise_w = 1e-15", "noise_dbm and noise_w: only one"),
        ("noise_dbm = -120.0", "noise_w = -120.0", "noise_w=-120.0: must be > 0; a value in dBm belongs in noise_dbm"),
        ("noise_dbm = -120.0", 'noise_dbm = "-120"', "noise_dbm='-120': must be a number"),
        ("noise_dbm = -120.0", "noise_dbm = true", "noise_dbm=True: must be a number"),
        ("noise_dbm = -120.0", "noise_dbm = -120.0\ntrusted_noise_dbm = -110", "must not exceed the noise itself"),
        ('{ kind = "adascale" }', '"adascale"', "path_loss='adascale': must be a table with a kind"),
        ('"adascale" }', '"ada" }', "[radio] path_loss: kind='ada' must be one of"),
        ('"adascale" }', '"adascale", slop_db = 3 }', "unknown key 'slop_db'; did you mean 'slope_db'?"),
        ('"adascale" }', '"exponent", exponent = "2" }', "exponent='2': must be a number"),
        ('"adascale" }', '"cost231_hata", extrapolate = 1 }', "extrapolate=1: must be true or false"),
        ("distance_m = 100", "distance_m = 1e300", "device 1, distance_m=1e+300: gives a path loss"),
        ("samples = 6000", "samples = true", "device 1, samples=True: must be a number"),
        ("samples = 6000", "samples = 1" + "0" * 400, "must be a number"),
        ('name = "a"', "name = 3", "device 1, name=3: must be printable text of at most 200"),
        ('name = "a"', 'name = "device-2"', "device 2, name='device-2': already used in device 1"),
        ("[radio]", "[radios]", "unknown key 'radios'; did you mean 'radio'?"),
        ("[radio]", 'devices_file = "x.csv"\n[radio]', "either [[device]] tables or devices_file"),
        ("power_w = 0.1", "power_w = 0.1\npower = 3", "device 2, unknown key 'power'"),
    ],
)
def test_mistakes_in_toml(write, old, new, message):
    with pytest.raises(InputError, match=re.escape(message)) as refusal:
        load_site(write(TOML.replace(old, new, 1), "site.toml"))
    assert "site.toml" in str(refusal.value) and "\n" not in str(refusal.value)


def test_columns_that_nothing_uses_are_named(write):
    text = "id,power_w,gain_db,colour,samples\n7,0.1,-90,red,5\n"
    with pytest.warns(IgnoredWarning, match=r"site\.csv: not used: 'id', 'colour'$"):
        assert load_devices(write(text)).samples.tolist() == [5]
    with pytest.raises(InputError, match="row 1 has none of the columns"):
        load_devices(write("a,b,c\n1,2,3\n"))


@pytest.mark.parametrize(("column", "units"), [("power_mw", "power_dbm or power_w"), ("distance_km", "distance_m")])
def test_a_column_of_another_unit_is_to_be_converted_not_renamed(write, column, units):
    with pytest.raises(InputError, match=f"unknown column '{column}'; convert it to {units}$"):
        load_devices(write(f"{column},samples\n5,10\n"))


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_table_of_another_separator_is_told_which_to_use(write, mark):
    text = mark.join(("name", "gain_db", "power_dbm", "samples")) + "\n" + mark.join(("a", "-90,5", "10", "5"))
    with pytest.raises(InputError, match=re.escape(f"site.csv: its cells are separated by {mark!r}; write commas")):
        load_devices(write(text))


def test_antenna_heights_of_devices_enter_a_law_that_has_them(write):
    law = PathLoss("cost231_hata", carrier_mhz=1800, base_height_m=30, device_height_m=1.5)
    rows = "distance_m,power_w,samples,device_height_m\n1000,0.1,5,\n1000,0.1,5,10\n"
    gain = load_devices(write(rows), law).mean_power_gain
    # COST-231 Hata at 1800 MHz: (1.1 log10 f - 0.7) dB per metre of antenna height
    assert 10 * np.log10(gain[1] / gain[0]) == pytest.approx((1.1 * np.log10(1800) - 0.7) * 8.5)
    with pytest.warns(IgnoredWarning, match="'device_height_m'.*'adascale' has no heights"):
        load_devices(write(rows), PathLoss("adascale"))


def test_a_noise_figure_stands_on_thermal_noise(write):
    _, radio = load_site(write(TOML.replace("noise_dbm = -120.0", "noise_figure_db = 7.0"), "site.toml"))
    assert radio.noise_w == pytest.approx(10 ** ((-174 + 7) / 10 - 3) * 1e5, rel=1e-12, abs=0)


def test_a_hundred_thousand_devices_load_in_seconds(write):
    rows = "\n".join(f"{100 + i / 1000},10,{i % 7 + 1}" for i in range(100_000))
    before = time.process_time()
    devices = load_devices(write(f"distance_m,power_dbm,samples\n{rows}\n"), PathLoss("adascale"))
    assert len(devices.names) == 100_000
    assert time.process_time() - before < 10


@pytest.mark.parametrize(
    ("column", "hint"),
    [("rssi_dbm", "gain_db = level - power_dbm"), ("path_loss_db", "gain_db = -loss"), ("PathLoss", "gain_db = -loss"),
     ("loss", "gain_db = -loss"), ("x", "distance_m is"), ("lat", "distance_m is"), ("colour", "")],
)  # fmt: skip
def test_a_column_that_a_gain_follows_from_says_how(write, column, hint):
    missing = pytest.raises(InputError, match="distance_m or gain_db or mean_gain: missing")
    with pytest.warns(IgnoredWarning, match=f"not used: '{column}'") as seen, missing:
        load_devices(write(f"{column},power_w,samples\n7,0.1,5\n"))
    assert hint in str(seen[0].message) and str(seen[0].message).count(";") == bool(hint)
    with pytest.warns(IgnoredWarning, match=f"not used: '{column}'$"):  # beside a gain it is somebody else's
        load_devices(write(f"{column},gain_db,power_w,samples\n7,-90,0.1,5\n"))


def test_devices_without_a_path_are_named_as_they_are_listed(write, tmp_path):
    (tmp_path / "gains.csv").write_text("1e-5,0j\n")
    (tmp_path / "list.csv").write_text("name,power_w,samples\ngate,0.1,5\nroof,0.1,5\n")
    text = 'devices_file = "list.csv"\ngains_file = {}\n[radio]\nbandwidth_hz = 1e6\nnoise_figure_db = 5\n'
    with pytest.raises(InputError, match=r"no path to roof; .* beside the file's name"):
        load_site(write(text.format('"gains.csv"'), "site.toml"))
    kept = load_site(write(text.format('{ file = "gains.csv", without_path = "drop" }'), "site.toml")).devices
    assert kept.names == ("gate",) and kept.trace.dropped == ("roof",)


def test_measured_gains_stand_for_the_law(write, tmp_path):
    (tmp_path / "gains.csv").write_text("1e-5,2e-5+1e-5j\n3e-5,1e-5\n")
    text = TOML.replace("distance_m = 100\n", "").replace("mean_gain = 1e-10\n", "")
    site = load_site(write('gains_file = "gains.csv"\n' + text, "site.toml"))
    np.testing.assert_allclose(site.devices.mean_power_gain, [5e-10, 3e-10])
    assert site.devices.trace.gain.shape == (2, 2)
    with pytest.raises(InputError, match=r"device 2, mean_gain=1e-10: gains\.csv has measured gains"):
        load_site(write('gains_file = "gains.csv"\n' + TOML.replace("distance_m = 100\n", ""), "site.toml"))
    shorter = write('gains_file = "gains.csv"\n' + text, "site.toml")
    (tmp_path / "gains.csv").write_text("1e-5,inf+0j\n")
    with pytest.raises(InputError, match=r"gains\.csv: gain at \(1, 2\) is \(inf\+0j\); it must be finite"):
        load_site(shorter)
    (tmp_path / "gains.csv").write_text("1e-5,0j\n")
    with pytest.raises(InputError, match=r"gains\.csv: no path to device-2; move them, or say without_path"):
        load_site(shorter)
    (tmp_path / "gains.csv").write_text("-99,5;-98,1\n-97,5;-97,2\n")
    with pytest.raises(InputError, match=r"gains\.csv: its cells are separated by ';'; write commas, and points in"):
        load_site(shorter)
    (tmp_path / "gains.csv").write_text("-99,-98\n")
    named = write('gains_file = { file = "gains.csv", unit = "dB" }\n' + text, "site.toml")
    with pytest.raises(InputError, match=r"gains\.csv: unit='dB' must be one of amplitude, db, power"):
        load_site(named)


def test_doubts_about_measured_gains_name_their_file(write, tmp_path, recwarn):
    (tmp_path / "gains.csv").write_text("1e5+0j,2e5\n")
    text = TOML.replace("distance_m = 100\n", "").replace("mean_gain = 1e-10\n", "")
    load_site(write('gains_file = "gains.csv"\n' + text, "site.toml"))
    doubts = [str(one.message) for one in recwarn if one.category is UnitWarning]
    assert len(doubts) == 2 and all(said.startswith(f"{tmp_path / 'gains.csv'}: ") for said in doubts)


def test_hata_range_is_reported_at_the_device(write):
    law = 'kind = "cost231_hata", carrier_mhz = 1800, base_height_m = 30, device_height_m = 1.5'
    with pytest.raises(InputError, match=r"device 1, distance_m=100: .* must lie in .*extrapolate"):
        load_site(write(TOML.replace('kind = "adascale"', law), "site.toml"))


def test_files_that_are_not_there(tmp_path):
    for name in ("none.csv", "none.toml"):
        with pytest.raises(InputError, match=name):
            load_devices(tmp_path / name)
    with pytest.raises(InputError, match="radio"):
        load_site(tmp_path / "none.csv")
    (tmp_path / "site.toml").write_text('devices_file = "none.csv"')
    with pytest.raises(InputError, match=r"none\.csv"):
        load_devices(tmp_path / "site.toml")


@pytest.mark.parametrize(
    ("row", "doubt"),
    [
        ("gain_db,power_w,samples\n90,0.1,5\n", "amplification"),
        ("gain_db,power_w,samples\n-1e-9,0.1,5\n", "a linear value belongs in mean_gain"),
        ("mean_gain,power_w,samples\n1e-9,2000,5\n", "above 1 kW"),
        ("mean_gain,power_w,samples\n1e-25,0.1,5\n", "median mean power gain"),
        ("distance_m,power_w,samples\n0.04,0.1,5\n", "distance_m=0.04: is less than a metre; metres or kilometres?"),
    ],
)
def test_units_that_look_wrong_are_doubted(write, row, doubt):
    with pytest.warns(UnitWarning) as caught:
        load_devices(write(row), PathLoss("log_distance", reference_db=40.0, slope_db=35.0))
    assert any(doubt in str(warning.message) for warning in caught)


def test_a_received_level_is_told_how_it_becomes_a_gain(write):
    with pytest.warns(IgnoredWarning, match="gain_db = level - power_dbm"), pytest.raises(InputError, match="gain_db"):
        load_devices(write("RSSI,power_dbm,samples\n-70,14,5\n"))


def test_noise_that_looks_wrong_is_doubted(write):
    with pytest.warns(UnitWarning, match="above 1 mW"), pytest.warns(TrustWarning):
        load_site(write(TOML.replace("noise_dbm = -120.0", "noise_w = 1.0"), "site.toml"))


def test_interference_is_not_trusted_in_silence(write):
    loud = TOML.replace("-120.0", "-90.0")
    with pytest.warns(TrustWarning, match="34 dB above thermal noise"):
        load_site(write(loud, "site.toml"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, radio = load_site(write(loud.replace("-90.0", "-90.0\ntrusted_noise_dbm_per_hz = -174"), "site.toml"))
    assert radio.trusted_noise_w == pytest.approx(10**-20.4 * 1e5, rel=1e-9, abs=0)


def test_many_doubtful_devices_make_one_warning(write):
    rows = "\n".join("90,0.1,5" for _ in range(50))
    with pytest.warns(UnitWarning) as caught:
        load_devices(write(f"gain_db,power_w,samples\n{rows}\n"))
    assert len(caught) == 2  # amplification, and the median
    assert "row 2, gain_db=90" in str(caught[0].message) and "(and 49 more)" in str(caught[0].message)


BYTES = st.binary(max_size=6) | st.sampled_from(
    [b"-", b"nan", b"1e999", b",", b"\n", b'"', b"[", b"{", b"=", b"_", b"\x00"]
)


@pytest.mark.parametrize(("text", "name"), [(CSV, "site.csv"), (TOML, "site.toml")])
@given(edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), BYTES), min_size=1, max_size=4))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_loads_or_is_refused(write, text, name, edits):
    data = text.encode()
    for place, length, new in edits:
        start = int(place * len(data))
        data = data[:start] + new + data[start + length :]
    try:
        devices = load_devices(write(data, name))
    except InputError:
        return
    for column in devices[2:5]:
        assert column.shape == (len(devices.names),) and np.all(np.isfinite(column)) and np.all(column > 0)
