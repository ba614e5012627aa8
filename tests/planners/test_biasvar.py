"""`otafl plan biasvar`: files in, certified designs out."""

import csv
import io
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from otafl.channels import load_devices
from otafl.designs.biasvar import BoundParams, Radio, solve_exact
from otafl.errors import InputError
from otafl.files import parse, read, to_json
from otafl.planners.biasvar import PLANNER, Inputs
from otafl.privacy.gaussian import delta as gaussian_delta

EXAMPLES = Path(__file__).parents[2] / "src/otafl/planners/examples"
DISTANCES = np.array([1252, 1706, 664, 1704, 977, 1139, 1592, 1119, 1297, 291.0])


def planned(text=PLANNER.example, **changes):
    data = tomllib.loads(text)
    for key, value in changes.items():
        data.pop(key, None)
        if value is not None:
            data[key] = value
    return PLANNER.plan(parse(Inputs, data, "test"), EXAMPLES)


def test_example_is_the_exact_design_in_si_units():
    report = planned()
    radio = Radio(10 ** (-(50 + 22 * np.log10(DISTANCES)) / 10), 1e-9, 10**-20.3, 814_090)
    design = solve_exact(radio, BoundParams(10.0, 0.1, 5.0, 3.2))
    np.testing.assert_allclose([row["gamma"] for row in report["devices"]], design.gamma, rtol=1e-10)
    np.testing.assert_allclose([row["p"] for row in report["devices"]], design.p, rtol=1e-10)
    assert report["alpha"] == pytest.approx(design.alpha, rel=1e-10)
    assert report["kkt_residual"] <= 1e-12
    bound = report["bound"]
    assert bound["optimisation"] == pytest.approx(4 * 2.3 / (0.1 * 200))
    assert bound["total"] == pytest.approx(design.objective + bound["optimisation"], rel=1e-10)
    assert report["young_split"]["bound"] < report["young_split"]["printed"] == pytest.approx(bound["total"])
    json.loads(to_json(report))


def test_the_same_site_stated_in_four_ways():
    gains = 10 ** (-(50 + 22 * np.log10(DISTANCES)) / 10)
    snr_db = 10 * np.log10(gains * 1e-9 / 10**-20.3)
    base = [row["p"] for row in planned()["devices"]]
    site = {"distances_m": None}
    physical = {"power_dbm": None, "bandwidth_hz": None, "noise_dbm_per_hz": None}
    ways = [
        planned(**site, gains=gains.tolist()),
        planned(**site, snr_db=snr_db.tolist()),
        planned(**site, **physical, snr_db=snr_db.tolist()),
        planned(**site, **physical, gains=gains.tolist(), E_s=1e-9, N0=10**-20.3),
        planned(L=None, kappa=None, rho=3.2**2 / (0.1 * 5.0 * 100.0)),
    ]
    for other in ways:
        np.testing.assert_allclose([row["p"] for row in other["devices"]], base, rtol=1e-9)


def test_devices_file_gives_gains_powers_and_weights():
    report = PLANNER.plan(read(Inputs, EXAMPLES / "biasvar_devices.toml"), EXAMPLES)
    listed = load_devices(EXAMPLES / "biasvar_devices.csv")
    radio = Radio(listed.mean_power_gain, listed.power_w / 1e6, 10**-20.3, 9610)
    weights = listed.samples / listed.samples.sum()
    kappa = np.sqrt(0.3 * 1.0)
    design = solve_exact(radio, BoundParams(1.0, 0.1, 10.0, kappa, weights=weights))
    np.testing.assert_allclose([row["gamma"] for row in report["devices"]], design.gamma, rtol=1e-9)
    assert [row["name"] for row in report["devices"]] == list(listed.names)
    assert report["sca"]["status"] == "converged"
    assert 0 <= report["sca"]["gap"] <= 1e-5


def test_eps_is_that_of_the_gaussian_mechanism_each_device_is():
    report = planned()
    card = report["privacy"]
    gamma = np.array([row["gamma"] for row in report["devices"]])
    mu = np.sqrt(200) * 2 * 10.0 * gamma / np.sqrt(10**-20.3 / 2)
    np.testing.assert_allclose(gaussian_delta(np.array(card["eps"]), mu), 1e-5, rtol=1e-6)
    half = planned(adjacency="zero-out")["privacy"]
    np.testing.assert_allclose(half["noise_multiplier"], 2 * np.array(card["noise_multiplier"]), rtol=1e-12)
    assert planned(trusted_noise=0.0)["privacy"]["eps"] == ["inf"] * 10


def test_yardsticks_and_sensitivity_never_beat_the_design():
    report = planned()
    assert all(row["ratio"] >= 1 - 1e-12 for row in report["yardsticks"])
    table = np.array(report["sensitivity"]["table"])
    assert table.min() >= 1 - 1e-12
    np.testing.assert_allclose(np.diag(table), 1, rtol=1e-12)
    for key in ("true_kappa", "true_L"):
        assert report["sensitivity"][key][2] == pytest.approx(1, rel=1e-12)
    assert report["sensitivity"]["true_kappa"][-1] > report["sensitivity"]["true_kappa"][0] > 1


def test_frontier_runs_from_least_variance_to_zero_bias():
    line = planned(frontier_points=7)["frontier"]
    assert len(line["rho"]) == 9
    assert line["rho"][0] == 0 and line["rho"][-1] == "inf"
    assert np.all(np.diff(line["bias"]) < 0)
    assert np.all(np.diff(line["variance"]) > 0)


def test_pictures_and_table(tmp_path):
    report = planned()
    files = PLANNER.pictures(report, tmp_path)
    assert sorted(file.name for file in files) == ["frontier.png", "prescalers.csv"]
    assert (tmp_path / "frontier.png").read_bytes()[:4] == b"\x89PNG"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "prescalers.csv").read_text())))
    assert [float(row["gamma"]) for row in rows] == [row["gamma"] for row in report["devices"]]
    text = io.StringIO()
    PLANNER.show(report, Console(file=text, width=140))
    for word in ("device-10", "KKT residual", "zero-bias", "kappa", "eps at delta"):
        assert word in text.getvalue()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gains": [1.0]}, "exactly one of"),
        ({"distances_m": None}, "exactly one of"),
        ({"rho": 1.0}, "rho and kappa"),
        ({"L": None}, "kappa needs L"),
        ({"weighting": "samples"}, "samples"),
        ({"rounds": None}, "need rounds"),
        ({"power_dbm": None}, "E_s"),
        ({"bandwidth_hz": None}, "bandwidth_hz"),
        ({"noise_dbm_per_hz": None}, "N0"),
        ({"N0": 1e-20}, "N0"),
        ({"E_s": 1e-9}, "E_s"),
        ({"distances_m": [1.0, -2.0]}, "distances_m"),
        ({"distances_m": []}, "gains"),
        ({"sigma2": [1.0, 2.0]}, "sigma2"),
        ({"kappa": -1.0}, "kappa"),
        ({"L": 20.0, "strict": True}, r"eta\*L"),
        ({"d": 0}, "d="),
        ({"delta": 2.0}, "delta"),
        ({"frontier_rho": [1.0, 0.1]}, "frontier_rho"),
        ({"kapa": 1.0}, "kappa"),
    ],
)
def test_mistakes_are_one_clear_line(changes, words):
    with pytest.raises(InputError, match=words) as refused:
        planned(**changes)
    assert "\n" not in str(refused.value)
