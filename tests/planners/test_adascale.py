"""`otafl plan adascale`: sources of channels, the report, pictures and refusals."""

import csv
import io
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from otafl.designs.adascale import MNIST, algorithm1, draw, optimal_excess, system
from otafl.errors import InputError
from otafl.files import parse
from otafl.planners import load

PLANNER = load("adascale")
SMALL = {
    "nu": 0.05, "M": 4, "T": 40, "d": 1000, "n": 500, "B": 20, "G": 1.0, "P_max_dbm": 23.0, "noise_power_dbm": -90.0,
    "tuning": "given", "V": 1.0, "compare": ["equal-alloc"], "pld": False,
}  # fmt: skip


def planned(folder=Path("."), **changes):
    data = {key: value for key, value in (SMALL | changes).items() if value is not None}
    return PLANNER.plan(parse(PLANNER.inputs, data, "FILE"), folder)


@pytest.fixture(scope="module")
def example():
    data = tomllib.loads(PLANNER.example) | {"tuning": "hindsight", "compare": ["optimal", "equal-alloc"]}
    return PLANNER.plan(parse(PLANNER.inputs, data, "example"), Path("."))


def test_example_reproduces_the_published_cell(example):
    """nu = 0.04, seed 0: V 1.7, RDP(3) 1.03 times the optimum of 0.191; eps 2.84 and PLD 2.21 with coarser sigmas."""
    assert example["V"] == pytest.approx(1.7, rel=0.01)
    rows = {row["method"]: row for row in example["comparison"]}
    assert rows["optimal"]["rdp_mean"] == pytest.approx(0.191, rel=0.005)
    assert rows["adascale"]["ratio_to_optimal"] == pytest.approx(1.034, abs=0.001)
    assert rows["equal-alloc"]["ratio_to_optimal"] == pytest.approx(2.52, abs=0.01)
    totals = example["totals"]
    assert totals["eps_pld_worst"] < totals["eps_rdp_worst"] < 2.84
    assert totals["eps_pld_worst"] == pytest.approx(2.21, rel=0.05)


def test_rounds_are_algorithm_one_in_the_papers_symbols(example):
    rounds = {key: np.array(value) for key, value in example["rounds"].items()}
    deployment, message = MNIST.deployment(), MNIST.message()
    floors = system.noise_floor(draw(MNIST, 0).gain, deployment, message)
    run = algorithm1(floors, example["V"], 0.04, system.leakage_of(deployment, message))
    np.testing.assert_allclose(rounds["f"], floors, rtol=1e-12)
    np.testing.assert_allclose(rounds["y"], run.excess, atol=1e-12)
    np.testing.assert_allclose(rounds["Q"], run.queue[:-1], atol=1e-12)
    np.testing.assert_allclose(rounds["eta"], 26010 * 1e-12 / rounds["N"], rtol=1e-12)
    assert np.all((rounds["x"] > 0) & (rounds["x"] <= MNIST.x_max * (1 + 1e-12)))
    assert rounds["sigma"].shape == (500, 10)
    np.testing.assert_allclose(rounds["sigma"][:, 0], np.sqrt(rounds["N"] / 0.1445), rtol=1e-12)


def test_certificates_are_reported_and_the_papers_are_called_vacuous(example):
    proof = example["certificate"]
    assert proof["violation"] <= proof["violation_bound"] + 1e-12
    assert proof["regret"] <= proof["regret_bound"]
    assert proof["regret_bound_paper_vacuous"] is True and proof["violation_bound_paper_vacuous"] is True
    assert proof["regret_bound_paper"] == pytest.approx(3.76, rel=0.01)


def test_report_is_strict_json_and_loud_about_noise(example):
    json.dumps(example, allow_nan=False)
    assert any("PRIVACY RESTS ON RECEIVER NOISE" in text for text in example["warnings"])
    console = Console(width=200, record=True, file=io.StringIO())
    PLANNER.show(example, console)
    text = console.export_text()
    assert "PRIVACY RESTS ON RECEIVER NOISE" in text and "vacuous" in text and "equal-alloc" in text


def test_pictures_and_export(example, tmp_path):
    files = PLANNER.pictures(example, tmp_path / "out")
    assert [f.name for f in files] == ["adascale_rounds.svg", "adascale_methods.svg", "adascale_rounds.csv"]
    rows = list(csv.DictReader(files[2].open()))
    assert len(rows) == 500 and float(rows[7]["eta"]) == example["rounds"]["eta"][7]


def test_privacy_noise_divides_sigma_but_not_the_schedule():
    whole, part = planned(), planned(privacy_noise_power_dbm=-100.0, method="equal-alloc", V=None, tuning="hindsight")
    assert np.array(part["rounds"]["sigma"])[0, 0] < np.array(whole["rounds"]["sigma"])[0, 0]
    ratio = np.sqrt(np.array(part["rounds"]["N"]) / part["setting"]["c"][0]) / np.array(part["rounds"]["sigma"])[:, 0]
    np.testing.assert_allclose(ratio, 1, rtol=1e-12)
    assert part["setting"]["c"][0] == pytest.approx(10 * whole["setting"]["c"][0])


def test_distances_path_losses_and_devices_file_give_the_same_channels(tmp_path):
    distance = [20.0, 60.0, 110.0, 190.0]
    loss = [float(33.44 + 35.22 * np.log10(x)) for x in distance]
    (tmp_path / "site.csv").write_text(
        "name,gain_db,power_dbm,samples\n" + "".join(f"d{i},{-x!r},23,500\n" for i, x in enumerate(loss))
    )
    one = planned(distances_m=distance)
    two = planned(path_loss_db=loss, M=None)
    three = planned(tmp_path, devices="site.csv", M=None, n=None, P_max_dbm=None)
    np.testing.assert_allclose(one["rounds"]["f"], two["rounds"]["f"], rtol=1e-9)
    np.testing.assert_allclose(one["rounds"]["f"], three["rounds"]["f"], rtol=1e-9)


def test_gains_from_csv_and_npz(tmp_path):
    gain = draw(MNIST, 1).gain[:30, :3]
    np.savez(tmp_path / "gains.npz", gain=gain)
    np.savetxt(tmp_path / "gains.csv", gain, delimiter=",", fmt="%s")
    np.savetxt(tmp_path / "magnitudes.csv", np.abs(gain), delimiter=",")
    reports = [planned(tmp_path, gains=name, M=None, T=None) for name in ("gains.npz", "gains.csv", "magnitudes.csv")]
    for report in reports:
        np.testing.assert_allclose(report["rounds"]["f"], reports[0]["rounds"]["f"], rtol=1e-12)
    assert reports[0]["setting"]["T"] == 30 and reports[0]["setting"]["M"] == 3


def test_unequal_devices_have_their_own_epsilon_and_the_worst_is_named():
    report = planned(B=[5, 20, 20, 20], pld=True)
    eps = report["totals"]["eps_rdp"]
    assert report["totals"]["worst_device"] == 0 and eps[0] > eps[1] == eps[2]
    pld = report["totals"]["eps_pld"]
    assert pld[0] == report["totals"]["eps_pld_worst"] and pld[0] < eps[0]


def test_a_powered_down_device_lowers_the_ceiling():
    weak = planned(P_max_dbm=[23.0, 23.0, 23.0, 3.0])
    assert np.median(weak["rounds"]["f"]) > np.median(planned()["rounds"]["f"])


def test_no_cap_is_full_power_for_every_method():
    report = planned(nu=0.0, V=None, tuning="calibrated", compare=["optimal", "adascale", "lyapunov", "stat-water"])
    assert not np.any(report["rounds"]["y"])
    assert all(row["mean_y"] == 0 for row in report["comparison"])


def test_optimal_can_be_planned():
    report = planned(method="optimal", V=None, tuning="hindsight")
    np.testing.assert_allclose(report["rounds"]["y"], optimal_excess(np.array(report["rounds"]["f"]), 0.05), atol=1e-14)
    assert any("hindsight" in text for text in report["warnings"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"nu": -1}, "nu"), ({"alpha": 1}, "alpha"), ({"B": 501}, "B"), ({"G": 0}, "G"), ({"d": 0}, "d"),
        ({"delta": 1.0}, "delta"), ({"T": None}, "T"), ({"M": None}, "M"), ({"n": None}, "n"), ({"V": None}, "V"),
        ({"V": -1.0}, "V"), ({"tuning": "hindsight"}, "V"), ({"P_max_w": 0.2}, "P_max"),
        ({"noise_power_dbm": None}, "noise_power"),
        ({"privacy_noise_power_dbm": -80.0}, "privacy_noise_power"), ({"distances_m": [1, 2, 3, -4]}, "distance_m"),
        ({"distances_m": [1, 2]}, "shape"), ({"gains": "nowhere.csv", "M": None, "T": None}, "no such file"),
        ({"distances_m": [1, 2, 3, 4], "path_loss_db": [1, 2, 3, 4]}, "at most one"), ({"nue": 1}, "nu"),
        ({"method": "best"}, "method"),
    ],
)  # fmt: skip
def test_refusals_name_the_key(change, word, tmp_path):
    with pytest.raises(InputError, match=word):
        planned(tmp_path, **change)


def test_bad_gains_are_refused(tmp_path):
    (tmp_path / "zero.csv").write_text("1e-6,0\n1e-6,1e-6\n")
    with pytest.raises(InputError, match="leave it out"):
        planned(tmp_path, gains="zero.csv", M=None, T=None)
    (tmp_path / "words.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"words\.csv"):
        planned(tmp_path, gains="words.csv", M=None, T=None)
    np.savez(tmp_path / "other.npz", channel=np.ones((2, 2)))
    with pytest.raises(InputError, match="gain"):
        planned(tmp_path, gains="other.npz", M=None, T=None)


def test_amplitudes_that_look_like_powers_are_doubted(tmp_path):
    np.savetxt(tmp_path / "powers.csv", np.full((5, 2), 1e-12), delimiter=",")
    report = planned(tmp_path, gains="powers.csv", M=None, T=None)
    assert any("amplitudes" in text for text in report["warnings"])


def test_thermal_noise_alone_protects_nobody_and_is_said_so():
    report = planned(privacy_noise_power_dbm=-124.0, pld=True)
    assert report["totals"]["eps_rdp_worst"] > 1000
    assert "eps_pld_worst" not in report["totals"]
    assert any("of 1e-12 W receiver noise" in text for text in report["warnings"])
