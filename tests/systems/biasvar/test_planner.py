"""`otafl plan biasvar`: files in, certified designs out."""

import csv
import io
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from otafl.channels import load_devices
from otafl.core.errors import InputError
from otafl.core.files import parse, read, to_json
from otafl.privacy.card_text import round_up
from otafl.privacy.gaussian import delta as gaussian_delta
from otafl.systems.biasvar.design import BoundParams, Radio, solve_exact
from otafl.systems.biasvar.planner import PLANNER, Inputs
from screens import printed

EXAMPLES = Path(__file__).parents[3] / "src/otafl/systems/biasvar/examples"
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


def test_a_file_in_the_papers_symbols_and_the_answer_in_them():
    """Against (8)-(10) written out for N devices, from nothing but the numbers of the file."""
    Lambda, E_s, N_0, d, G, eta, L, kappa = np.array([1e-12, 1e-11, 3e-12]), 1e-9, 5e-21, 400, 8.0, 0.05, 4.0, 2.0
    sigma2, T, gap0 = np.array([0.5, 0.0, 2.0]), 150, 1.7
    text = f"""
        N = 3\nLambda = {Lambda.tolist()}\nE_s = {E_s}\nN_0 = {N_0}\nd = {d}\nG_max = {G}\neta = {eta}\nL = {L}
        kappa = {kappa}\nsigma2 = {sigma2.tolist()}\nn_f = 1.0\nT = {T}\ngap0 = {gap0}"""
    out = planned(text)
    gamma, alpha, p, P = (np.array(out[name]) for name in ("gamma", "alpha", "p", "P"))
    np.testing.assert_allclose(P, np.exp(-(gamma**2) * G**2 / (d * Lambda * E_s)), rtol=1e-12)
    np.testing.assert_allclose(out["alpha_m"], gamma * P, rtol=1e-12)
    np.testing.assert_allclose(alpha, np.sum(gamma * P), rtol=1e-12)
    np.testing.assert_allclose(p, gamma * P / alpha, rtol=1e-12)
    np.testing.assert_allclose(out["gamma_max"], np.sqrt(d * Lambda * E_s / 2) / G, rtol=1e-12)
    np.testing.assert_allclose(out["alpha_max"], np.sqrt(d * Lambda * E_s / (2 * np.e)) / G, rtol=1e-12)
    zeta = G**2 * np.sum(p * gamma / alpha - p**2) + np.sum(p**2 * sigma2) + d * N_0 / alpha**2
    assert out["zeta"] == pytest.approx(zeta, rel=1e-10)
    bias = 2 * 3 * kappa**2 * np.sum((p - 1 / 3) ** 2)
    assert out["J"] == pytest.approx(2 * eta * L * zeta + bias, rel=1e-10)
    assert out["J_n"] == pytest.approx(out["J"] / (2 * eta * L * G**2), rel=1e-12)
    assert out["bound"]["total"] == pytest.approx(out["J"] + 4 * gap0 / (eta * T), rel=1e-12)
    assert out["rho"] == pytest.approx(kappa**2 / (eta * L * G**2), rel=1e-12)


def test_energies_may_differ_by_device():
    text = "Lambda = [1e-12, 2e-12]\nE_s = [2e-9, 1e-9]\nN_0 = 5e-21\nd = 10\nG = 1.0\neta = 1.0\nrho = 0.1"
    out = planned(text)
    assert out["p"] == pytest.approx([0.5, 0.5], rel=1e-12)
    assert out["gamma_max"] == pytest.approx([np.sqrt(10 * 2e-21 / 2)] * 2, rel=1e-12)


@pytest.mark.parametrize("steering", ["rho = inf", "kappa = inf\nL = 5.0"])
def test_infinite_rho_is_the_best_design_without_bias(steering):
    text = "\n".join(line for line in PLANNER.example.splitlines() if not line.startswith(("kappa", "L ")))
    out = planned(f"{text}\n{steering}")
    assert out["p"] == pytest.approx([0.1] * 10, rel=1e-9)
    assert out["bound"]["bias"] == 0
    assert out["J_n"] == pytest.approx(
        next(r["normal_objective"] for r in out["yardsticks"] if r["design"] == "zero-bias")
    )
    assert out["warnings"] == []


def test_a_step_beyond_the_theorem_is_a_warning_in_the_answer(recwarn):
    assert planned(L=20.0)["warnings"] == ["eta*L=2 must be <= 1 for the convergence bound to hold"]
    assert not recwarn.list


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


def test_doubts_about_a_devices_file_are_told_in_the_report(tmp_path):
    (tmp_path / "odd.csv").write_text("name,gain_db,power_dbm,samples,colour\nnear,12,10,5,red\nfar,-80,10,5,blue\n")
    file = tmp_path / "plan.toml"
    file.write_text((EXAMPLES / "biasvar_devices.toml").read_text().replace("biasvar_devices.csv", "odd.csv"))
    told = "\n".join(PLANNER.plan(read(Inputs, file), tmp_path)["warnings"])
    assert "not used: 'colour'" in told and "means amplification" in told


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
    shown = printed(PLANNER.show, report)
    for word in ("device-10", "KKT residual", "zero-bias", "kappa", "eps at delta"):
        assert word in shown


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
        ({"distances_m": []}, "distances_m is empty"),
        ({"L": 0.0}, r"L=0\.0 must be"),
        ({"weighting": [1.0]}, "weighting has shape"),
        ({"sigma2": [1.0, 2.0]}, "sigma2"),
        ({"kappa": -1.0}, "kappa"),
        ({"L": 20.0, "strict": True}, r"eta\*L"),
        ({"d": 0}, "d="),
        ({"delta": 2.0}, "delta"),
        ({"frontier_rho": [1.0, 0.1]}, "frontier_rho"),
        ({"kapa": 1.0}, "kappa"),
        ({"N": 9}, "N=9 but 10 devices"),
        ({"rounds": 0}, "rounds=0 must be a whole number >= 1"),
        ({"gap0": -1.0}, "gap0"),
        ({"N_0": 1e-20}, "exactly one of N0"),
        ({"kappa": None, "rho": float("nan")}, "rho=nan"),
    ],
)
def test_mistakes_are_one_clear_line(changes, words):
    with pytest.raises(InputError, match=words) as refused:
        planned(**changes)
    assert "\n" not in str(refused.value)


def test_of_many_devices_a_screenful_is_printed_from_the_weakest_to_the_strongest_with_the_largest_eps(tmp_path):
    distances = [float(r) for r in np.random.default_rng(0).uniform(100, 1700, 1000)]
    report = planned(distances_m=distances)
    text = printed(PLANNER.show, report, 80)
    assert "of 1,000 devices, the weakest first; all of them with --json" in text
    assert "no room for eps" not in text and "no room for mini-batch" in text
    assert len(text.splitlines()) < 80
    shown = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│ device-")]
    names = [report["devices"][i]["name"] for i in np.argsort(distances)[::-1]]
    eps = report["privacy"]["eps"]
    worst = report["devices"][int(np.argmax(eps))]["name"]
    assert shown == sorted(shown, key=names.index) and {names[0], worst, names[-1]} <= set(shown)
    assert f"largest eps: {round_up(max(eps))}, of {worst}" in text
    table = next(path for path in PLANNER.pictures(report, tmp_path) if path.suffix == ".csv")
    with table.open() as rows:
        assert [float(row["eps"]) for row in csv.DictReader(rows)] == eps
