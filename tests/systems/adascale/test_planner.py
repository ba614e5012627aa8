"""`otafl plan adascale`: sources of channels, the report, pictures and refusals."""

import csv
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from otafl.channels import dbm_to_w
from otafl.core.errors import Infeasible, InputError
from otafl.core.files import parse
from otafl.systems.adascale import variables
from otafl.systems.adascale.design import MNIST, Convergence, Setting, algorithm1, draw, optimal_excess
from otafl.systems.planning import load
from screens import printed

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


def test_dbm_are_the_watts_of_every_other_verb(example):
    """To the last bit: the plan of a system's own file and the run of an experiment meet the same radio."""
    said = example["setting"]
    assert (said["P_max"], said["noise_power"]) == (float(dbm_to_w(23.0)), float(dbm_to_w(-90.0)))


def test_rounds_are_algorithm_one_in_the_papers_symbols(example):
    rounds = {key: np.array(value) for key, value in example["rounds"].items()}
    deployment, message = MNIST.deployment(), MNIST.message()
    floors = variables.noise_floor(draw(MNIST, 0).gain, deployment, message)
    run = algorithm1(floors, example["V"], 0.04, variables.leakage_of(deployment, message))
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


def test_the_best_stationary_policy_is_answered(example):
    """W_inf and R_inf (AdaScale 3.7) against a million floors a/X with X standard exponential."""
    told, setting = example["stationary"], example["setting"]
    rate = np.sum(setting["k_squared"] / draw(MNIST, 0).rms ** 2) / setting["M"] ** 2
    floor = setting["noise_power"] / setting["P_max"] * rate / np.random.default_rng(0).exponential(size=10**6)
    assert np.mean(np.maximum(told["W_inf"] - floor, 0)) == pytest.approx(0.04, rel=0.01)
    leakage = variables.leakage_of(MNIST.deployment(), MNIST.message())
    assert told["R_inf"] == pytest.approx(np.mean(leakage.total(np.maximum(floor, told["W_inf"]))), rel=0.01)
    assert told["R_inf"] == pytest.approx(3.7e-3, rel=0.02)
    assert "stationary" not in planned(nu=0.0, V=None, tuning="calibrated")


def test_report_is_strict_json_and_loud_about_noise(example):
    json.dumps(example, allow_nan=False)
    assert any("PRIVACY RESTS ON RECEIVER NOISE" in text for text in example["warnings"])
    text = printed(PLANNER.show, example, 200)
    assert "PRIVACY RESTS ON RECEIVER NOISE" in text and "vacuous" in text and "equal-alloc" in text


def test_pictures_and_export(example, tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.axes.Axes.barh", None)  # a bar on a logarithmic axis has no zero to begin at
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
        ({"privacy_noise_power_dbm": -80.0}, "privacy_noise_power"), ({"distances_m": [1, 2, 3, -4]}, "distances_m"),
        ({"distances_m": [1, 2]}, "shape"), ({"gains": "nowhere.csv", "M": None, "T": None}, "no such file"),
        ({"distances_m": [1, 2, 3, 4], "path_loss_db": [1, 2, 3, 4]}, "at most one"), ({"nue": 1}, "nu"),
        ({"method": "best"}, "method"), ({"max_floor": -1.0}, "max_floor"), ({"device_rdp": -0.1}, "device_rdp"),
        ({"device_order": 3}, "device_order"), ({"device_rdp": 0.1, "device_order": 1}, "device_order"),
        ({"hard_budget": True, "method": "equal-alloc", "V": None, "tuning": "hindsight"}, "hard_budget"),
    ],
)  # fmt: skip
def test_refusals_name_the_key(change, word, tmp_path):
    with pytest.raises(InputError, match=word):
        planned(tmp_path, **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bandwidth_hz": 0.0}, "bandwidth_hz=0.0 must be"),  # not the usual one in its place
        ({"q": [0.04, 0.04]}, "q has shape"),
        ({"distances_m": []}, "distances_m has shape"),
        ({"A1": -1.0}, "A1=-1.0 must be"),
        ({"h": [[1e-6, 0.0, 1e-6, 1e-6]], "T": None}, r"h\[0, 1\]=0.0 must be"),
    ],
)
def test_what_is_not_used_is_checked_too(change, said):
    with pytest.raises(InputError, match=said):
        planned(**change)


def test_noise_that_nobody_trusts_is_not_replaced_by_that_of_the_site(tmp_path):
    (tmp_path / "devices.csv").write_text("name,distance_m,power_dbm,samples\na,50,10,400\nb,120,10,600\n")
    (tmp_path / "site.toml").write_text(
        'devices_file = "devices.csv"\n[radio]\nbandwidth_hz = 1e6\nnoise_dbm_per_hz = -168.0\n'
        'path_loss = { kind = "log_distance", reference_db = 40.0, slope_db = 35.0 }\n'
    )
    site = {"devices": "site.toml", "M": None, "n": None, "P_max_dbm": None, "noise_power_dbm": None}
    assert planned(tmp_path, **site)["setting"]["privacy_noise_power"] > 0
    with pytest.raises(InputError, match=r"privacy_noise_power=0\.0 must lie"):
        planned(tmp_path, **site, privacy_noise_power_w=0.0)


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


H = (1e-6 * np.random.default_rng(7).rayleigh(size=(6, 3))).tolist()
THEOREM = {"loss_gap": 2.0, "L": 1.5, "lambda": 0.05, "A1": 0.5, "A2": 0.3, "C1": 1.0, "C2": 0.2}


def test_a_file_in_the_papers_symbols_with_its_channels():
    """Every column from the definitions of the symbols, channels stated as abs(h)."""
    symbols = {"P_max": 0.2, "sigma_n2": 1e-12, "C": 0.8, "q": 0.04, "n": 500, "h": H}
    report = planned(**symbols, **dict.fromkeys(("P_max_dbm", "noise_power_dbm", "G", "B", "M", "T", "tuning")))
    rounds, setting = {key: np.array(value) for key, value in report["rounds"].items()}, report["setting"]
    h_min = np.min(H, axis=1) / np.sqrt(1 + (1 - 0.04) / 20)
    energy, x_max = 1000 * 1e-12 / h_min**2, 0.2 * 1000 * 3**2 / 0.8**2
    assert setting["x_max"] == pytest.approx(x_max)
    assert rounds["h_min"] == pytest.approx(h_min)
    assert rounds["D"] == pytest.approx(energy)
    assert rounds["f"] == pytest.approx(energy / x_max)
    assert rounds["x"] == pytest.approx(rounds["eta"] / h_min**2)
    assert rounds["y"] == pytest.approx(energy * (1 / rounds["x"] - 1 / x_max), abs=1e-12)
    sigma = 3 * 20 * 1e-6 / (np.sqrt(2 * rounds["eta"]) * 0.8)
    assert rounds["sigma"] == pytest.approx(np.repeat(sigma[:, None], 3, 1))
    p, u = 0.96, sigma**-2
    moment = np.log(p**3 + 3 * p**2 * 0.04 + 3 * p * 0.04**2 * np.exp(u) + 0.04**3 * np.exp(3 * u))
    assert rounds["R"] == pytest.approx(3 * moment / 2)
    assert report["tuning"] == "given"


@pytest.mark.parametrize("given", [{"n": 500, "B": 20}, {"q": 0.04, "B": 20}, {"q": 0.04, "n": 500}, {"q": [0.04] * 4}])
def test_two_of_n_B_and_q(given):
    changes = {"n": None, "B": None, **({"n": 500} if isinstance(given.get("q"), list) else {}), **given}
    assert planned(**changes)["totals"]["rdp"] == pytest.approx(planned()["totals"]["rdp"])


def test_linear_path_losses():
    assert planned(PL=[1e8, 1e9, 1e10, 1e9])["rounds"] == planned(path_loss_db=[80.0, 90.0, 100.0, 90.0])["rounds"]


def test_theorem_one_and_the_cap_it_implies():
    """(21), (22), (27) by hand; nu = 2 (gamma - phi') / (lambda L), with which a run that spends it meets gamma."""
    report = planned(**THEOREM)
    bound, rounds = report["convergence"], {key: np.array(value) for key, value in report["rounds"].items()}
    phi = 2 * 2.0 / (0.05 * 40) + 2 * 1.5 * 0.05 * (2 * 0.2 * 1.5 + 0.3)
    assert bound["phi"] == pytest.approx(phi)
    assert bound["phi_prime"] == pytest.approx(phi + 1.5 * 0.05 / 2 * rounds["f"].mean())
    assert bound["conv_bound"] == pytest.approx(phi + 1.5 * 0.05 / 2 * (1000 * 1e-12 / rounds["eta"]).mean())
    capped = planned(**THEOREM, nu=None, gamma=bound["phi_prime"] + 0.01, method="equal-alloc")
    assert capped["nu"] == pytest.approx(2 * 0.01 / (0.05 * 1.5))
    assert capped["convergence"]["conv_bound"] == pytest.approx(bound["phi_prime"] + 0.01)


def test_the_step_may_be_as_large_as_theorem_one_allows_and_no_larger():
    constants = {"loss_gap": 1.0, "L": 2.0, "A1": 0.5, "C1": 1.0}  # 1 / (4 L (C1 + 1) (A1 + 1)) = 1/24
    Convergence(learning_rate=1 / 24, **constants)
    with pytest.raises(InputError, match=r"learning_rate=0\.042 must be <= .* = 0\.0416667"):
        Convergence(learning_rate=0.042, **constants)


def test_a_gamma_below_full_power_is_infeasible():
    with pytest.raises(Infeasible, match="feasible if gamma >= ") as caught:
        planned(**THEOREM, nu=None, gamma=0.1)
    value = caught.value.report["relaxations"][0]["value"]
    assert planned(**THEOREM, nu=None, gamma=value)["nu"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"B": None}, "B: missing; two of n, B and q are required"),
        ({"q": 1.5}, r"q=1.5 must lie in \(0, 1\]"),
        ({"q": 0.5}, "B=20.0 must be q n=250.0"),
        ({"h": [[1e-6, 1e-6], [1e-6]]}, "h must be a list of rounds"),
        ({"h": H}, "M=4 but the channels given have 3"),
        ({"V": 0.0}, "V=0.0 must be finite and > 0"),
        ({"nu": None}, "exactly one of nu and gamma"),
        ({"gamma": 1.0, "nu": None}, "loss_gap, L and learning_rate"),
        ({**THEOREM, "lambda": 0.2}, "learning_rate=0.2 must be <= 1/"),
        ({"noise_power": 1e-12, "sigma_n2": 1e-12, "noise_power_dbm": None}, "two names of one thing"),
    ],
)
def test_more_refusals(changes, message):
    with pytest.raises(InputError, match=message):
        planned(**changes)


def test_a_path_loss_below_one_is_doubted():
    doubted = planned(path_loss_db=[-10.0, 80.0, 90.0, 90.0])["warnings"]
    assert any("were dB and linear confused" in line for line in doubted)
    assert not any("confused" in line for line in planned()["warnings"])


def test_skipped_fades_and_refusals_are_counted_and_not_charged():
    whole = planned()
    limit, cap = float(np.quantile(whole["rounds"]["f"], 0.75)), 0.4 * whole["totals"]["rdp_worst"]
    report = planned(max_floor=limit, device_rdp=cap, pld=True)
    totals, sending = report["totals"], np.array(report["rounds"]["sending"])
    assert totals["rounds_skipped"] == 10 and sum(totals["refusals"]) > 0
    assert np.all(sending[np.array(report["rounds"]["f"]) > limit] == 0)
    assert totals["rdp_worst"] <= cap < whole["totals"]["rdp_worst"]
    assert totals["eps_pld_worst"] <= totals["eps_rdp_worst"] < whole["totals"]["eps_rdp_worst"]
    assert totals["mean_f_sent"] < totals["mean_f"]
    row = next(row for row in report["comparison"] if row["method"] == "adascale")
    assert row["rdp_worst"] == totals["rdp_worst"] and row["eps_rdp_worst"] == totals["eps_rdp_worst"]
    json.dumps(report, allow_nan=False)
    assert "10 of 40 rounds skipped" in printed(PLANNER.show, report, 200)


def test_planned_silence_costs_what_the_ledger_of_the_policy_says():
    from otafl.core.plan import Context, Trace
    from otafl.core.rounds import plan_ahead
    from otafl.privacy.accountants import account
    from otafl.privacy.events import events
    from otafl.systems.adascale import policy

    cap = 0.3 * planned()["totals"]["rdp_worst"]
    report = planned(max_floor=0.2, device_rdp=cap)
    setting = Setting(M=4, T=40, d=1000, n=500, B=20, G=1.0)
    channels = draw(setting, 0)
    rms = np.broadcast_to(channels.rms, channels.gain.shape)
    trace = Trace(channels.gain, channels.gain, rms, rms, rms, rms, np.zeros(channels.gain.shape))
    config = policy.Config(0.05, tuning="given", V=1.0, max_floor=0.2, device_rdp=cap)
    made = policy.adascale(config, setting.deployment(), setting.message(), Context(rounds=40))
    _, plan, info = plan_ahead(made, made.init(None), trace)
    np.testing.assert_array_equal(report["rounds"]["sending"], 4 - np.array(info.silent))
    spent = account("rdp", events(plan, trace, setting.deployment(), setting.message()), 1e-5)
    np.testing.assert_allclose(report["totals"]["eps_rdp"], spent.eps, rtol=1e-9)
    assert 0 < np.sum(info.silent) < 160


def test_certificates_are_left_out_where_the_schedule_is_not_algorithm_one():
    limit = float(np.quantile(planned()["rounds"]["f"], 0.5))
    assert "certificate" in planned(max_floor=1e9) and "certificate" in planned(device_rdp=1e-3)
    assert "certificate" not in planned(max_floor=limit)
    cut = planned(hard_budget=True, V=100.0)
    assert "certificate" not in cut and any("hard_budget" in text for text in cut["warnings"])
    assert cut["totals"]["mean_y"] == pytest.approx(0.05, rel=1e-12)


@pytest.mark.parametrize("method", ["adascale", "adascale-warm"])
def test_the_printed_queue_is_that_of_the_printed_schedule(method):
    """(29), also where a hard budget cut the schedule."""
    rounds = planned(hard_budget=True, V=100.0, method=method)["rounds"]
    queue, excess = np.array(rounds["Q"]), np.array(rounds["y"])
    assert excess[-1] == 0 and queue.max() > 0
    np.testing.assert_allclose(queue[1:], np.maximum(queue[:-1] + excess[:-1] - 0.05, 0), atol=1e-12)


def test_a_missed_gamma_is_said():
    theorem = {"loss_gap": 2.0, "L": 1.0, "learning_rate": 0.1, "nu": None, "gamma": 1.02}
    over = planned(**theorem, V=100.0)
    assert over["convergence"]["conv_bound"] > 1.02
    assert any("gamma=1.02 IS NOT MET" in text for text in over["warnings"])
    held = planned(**theorem, V=100.0, hard_budget=True)
    assert held["convergence"]["conv_bound"] <= 1.02 * (1 + 1e-12)
    assert not any("gamma" in text for text in held["warnings"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"M": 10**6}, "M x T = 1000000 x 40 = 40000000 is more than 5e+06, the most that is planned; lower M or T"),
        ({"T": 10**5}, "T=100000 must be a whole number from 1 to 10000"),
        ({"alpha": 10**9}, "alpha=1000000000 must be a whole number >= 2 and <= 1000"),
        ({"device_rdp": 1.0, "device_order": 10**9}, "device_order=1000000000 must be a whole number from 2 to 1000"),
    ],
)
def test_what_would_not_end_is_refused(changes, said):
    with pytest.raises(InputError) as refusal:
        planned(**changes)
    assert str(refusal.value).startswith(said)


def test_a_small_excess_over_a_deep_fade_keeps_its_digits():
    """y = nu by EqualAlloc, over floors 1e9 times as large: the difference of two noise energies would lose it."""
    fades = {"h": [[1e-8, 1e-6]] * 3, "distances_m": None, "M": None, "T": None, "nu": 1e-9, "tuning": "hindsight"}
    report = planned(method="equal-alloc", **fades, V=None, compare=["equal-alloc"])
    assert min(report["rounds"]["f"]) > 1
    assert report["rounds"]["y"] == [1e-9] * 3 and report["totals"]["mean_y"] == pytest.approx(1e-9, rel=1e-15)
