"""`otafl plan cares`: files in, report, table and picture out; every refusal one line."""

import json
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from otafl.core import files
from otafl.core.errors import Infeasible, InputError
from otafl.systems import planning
from otafl.systems.cares.certifier import NO_CERTIFICATE
from screens import printed

PLANNER = planning.load("cares")
EXAMPLES = Path(str(resources.files("otafl.systems.cares"))) / "examples"
BASE = {
    "weights": [0.5, 0.3, 0.2],
    "channel_scale": [1.0, 0.8, 0.5],
    "noise_std": 0.2,
    "num_params": 10,
    "loss_gap": 1.0,
    "eps_target": 50.0,
    "delta": 1e-5,
    "arms": [0.05, 0.1, 0.2],
}


def run(folder: Path = EXAMPLES, **changes):
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    return PLANNER.plan(files.parse(PLANNER.inputs, data, "test.toml"), folder)


@pytest.mark.parametrize("name", ["cares.toml", "cares_devices.toml"])
def test_examples_plan_show_and_draw(name, tmp_path):
    report = PLANNER.plan(files.read(PLANNER.inputs, EXAMPLES / name), EXAMPLES)
    assert report["feasible"]
    assert json.loads(files.to_json(report)) == report
    shown = printed(PLANNER.show, report)
    assert f"rx_scale = {report['eta_init']:.6g}" in shown
    assert "client level" in shown
    png, pdf = PLANNER.pictures(report, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_a_target_that_nobody_set_and_the_sets_are_explained():
    text = shown(run(conv_target=None))
    assert ", twice the best of all arms)" in text and "twice" not in shown(run(conv_target=1e6))
    assert re.search(r"  C, convergence target kept, at \d+ rounds: \[", text)
    assert "F_H: arms that keep all four" in text


def test_of_many_arms_some_are_printed_the_chosen_one_among_them():
    report = run(arms=[float(eta) for eta in np.geomspace(0.05, 0.2, 1000)])
    shown = printed(PLANNER.show, report)
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    assert 40 <= len(rows) <= 43 and f"{len(rows)} of 1,000 arms; all of them with --json" in shown
    ends = np.flatnonzero(report["feasible_arms"])[[0, -1]]
    shown = [row.split()[1] for row in rows]
    assert {f"{report['arms'][i]:.5g}" for i in (0, 999, report["init"], *ends)} <= set(shown)


def test_the_example_is_a_whole_file(tmp_path):
    path = tmp_path / "cares.toml"
    path.write_text(PLANNER.example)
    assert PLANNER.plan(files.read(PLANNER.inputs, path), tmp_path)["eta_init"] == 0.4


def test_report_holds_consistent_columns():
    report = run()
    total = sum(np.array(report["conv_parts"][part]) for part in report["conv_parts"])
    assert total == pytest.approx(np.array(report["conv_bound"]))
    assert report["conv_target"] == 2 * min(report["conv_bound"])
    cost = 2 * np.array(report["arms"]) ** 2 * 0.25 / 0.2**2
    assert report["zcdp_cost"] == pytest.approx(cost)
    assert report["F_H"] == [eta for eta, good in zip(report["arms"], report["feasible_arms"], strict=True) if good]
    assert np.shape(report["drop_prob"]) == (3, 3)
    assert np.array(report["drop_prob"]) @ BASE["weights"] == pytest.approx(np.array(report["dropped_weight"]))
    assert report["privacy"]["record"] is None


def test_eps_is_an_alias():
    assert run(eps_target=None, eps=50.0) == run()


def test_a_file_in_the_papers_symbols():
    symbols = {
        **{
            "p": [0.5, 0.3, 0.2],
            "mu": [1.0, 0.8, 0.5],
            "sigma_z": 0.2,
            "d": 10,
            "K": 3,
            "alpha": 0.05,
            "L": 1.0,
            "G": 2.0,
        },
        **{"P_max": 3.0, "sigma_g2": 0.7, "eps": 40.0, "psi": 0.2, "tau": 0.3, "T": 9, "loss_gap": 1.0, "delta": 1e-5},
    }
    words = {
        **{"num_clients": 3, "step_size": 0.05, "smoothness": 1.0, "clip_norm": 2.0, "max_power": 3.0, "grad_var": 0.7},
        **{"eps_target": 40.0, "max_asymmetry": 0.2, "max_dropped": 0.3, "rounds": 9},
    }
    data = {**symbols, "arms": BASE["arms"]}
    assert PLANNER.plan(files.parse(PLANNER.inputs, data, "symbols.toml"), EXAMPLES) == run(**words)


def test_the_answer_holds_what_was_used():
    """Inputs by their names, defaults filled in: alpha = 0.1, L = 1/(12 alpha), grad_var = G^2."""
    report = run(num_clients=3)
    assert report["num_clients"] == 3
    names = ("num_params", "noise_std", "clip_norm", "max_power", "step_size", "smoothness", "grad_var", "loss_gap")
    assert [report[name] for name in names] == pytest.approx([10, 0.2, 1.0, 1.0, 0.1, 1 / 1.2, 1.0, 1.0])
    assert report["constants"] == {"set": "main", "C0": 4.0, "C1": 10.0, "C2": 10.0, "C3": 3.0}


def test_every_arm_after_the_same_rounds():
    """(10), (11) and (13) at T = 40, by hand."""
    report, eta = run(rounds=40), np.array(BASE["arms"])
    after = report["at_rounds"]
    zcdp = 40 * 2 * np.multiply.outer(eta**2, np.array(BASE["weights"]) ** 2) / 0.2**2
    assert np.array(after["zcdp"]) == pytest.approx(zcdp)
    assert np.array(report["zcdp"]) == pytest.approx(zcdp / 40)
    assert np.array(after["eps_each"]) == pytest.approx(zcdp + 2 * np.sqrt(zcdp * np.log(1e5)))
    assert after["eps"] == pytest.approx(np.max(after["eps_each"], -1))
    bound = (
        4 * 1.0 / (0.1 * 40) + 10 * 0.1 * 1.0 + 10 * 0.1 * 0.2**2 * 10 / eta**2 + 3 * np.array(report["dropped_weight"])
    )
    assert after["conv_bound"] == pytest.approx(bound)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"silence": "bound"},
        {"independent_channels": True, "independent_batches": True},
        {"noise_std": [0.15, 0.2], "gain_error_max": 0.1, "accounting": "gaussian", "constants": "tight"},
        {"granularity": "record", "silence": "bound", "batch_sizes": [10, 10, 5]},
        {"certify_with": "limits", "num_pilots": 64},
    ],
)
def test_a_constant_sequence_is_the_arm(changes):
    """CARES section 9, check 12, from a file: (12)-(13) of equal rounds are (10)-(11)."""
    report = run(rx_scale=0.1, rounds=40, arms=[0.1], **changes)
    found, after = report["sequence"], report["at_rounds"]
    assert found["conv_bound"]["total"] == pytest.approx(after["conv_bound"][0])
    assert found["zcdp"] == pytest.approx(after["zcdp"][0])
    assert found["eps"] == pytest.approx(after["eps"][0])
    assert found["label"] == "realised_bound"


def test_a_sequence_averages_over_its_rounds():
    found = run(rx_scale=[0.05, 0.1, 0.2, 0.2], predictable=True)["sequence"]
    alone = [run(rx_scale=[eta] * 4)["sequence"] for eta in (0.05, 0.1, 0.2, 0.2)]
    assert found["conv_bound"]["total"] == pytest.approx(np.mean([one["conv_bound"]["total"] for one in alone]))
    assert found["zcdp"] == pytest.approx(np.mean([one["zcdp"] for one in alone], axis=0))
    assert found["label"] == "certificate"


def test_weights_beside_the_sizes_they_come_from():
    assert run(sizes=[50, 30, 20])["conv_bound"] == pytest.approx(run()["conv_bound"])
    changes = {"granularity": "record", "silence": "bound", "batch_size": 25}
    assert run(sizes=[50, 30, 20], **changes)["zcdp_cost"] == pytest.approx(
        run(batch_sizes=[25, 25, 20], granularity="record", silence="bound")["zcdp_cost"]
    )


def test_printed_relaxations_are_enough():
    """What the message says, typed into the file as printed, is feasible; six digits used to be cut below the need."""
    rng = np.random.default_rng(5)
    tried = 0
    for _ in range(60):
        targets = {"max_dropped": 10 ** rng.uniform(-4, -2), "max_asymmetry": 10 ** rng.uniform(-4, -2)}
        changes = {
            "eps_target": 10 ** rng.uniform(-1, 2),
            "arms": np.sort(rng.uniform(0.02, 0.4, 3)).tolist(),
            **targets,
        }
        try:
            run(**changes)
        except Infeasible as refused:
            for part in str(refused).split("; ")[1:]:
                stated = re.match(r"feasible if (\w+) >= (\S+)(?: with conv_target = (\S+))? ", part)
                if stated:
                    tried += 1
                    name, value, held = stated.groups()
                    conv_target = {"conv_target": float(held)} if held else {}
                    assert run(**{**changes, name: float(value), **conv_target})["feasible"]
    assert tried >= 20


def test_sizes_become_weights():
    assert run(weights=None, sizes=[50, 30, 20])["conv_bound"] == pytest.approx(run()["conv_bound"])


def test_fixed_horizon_sets_take_the_given_rounds():
    report = run(rounds=77)
    assert report["sets"]["rounds"] == report["conv_budget"]["rounds"] == report["curves"]["rounds"] == 77
    assert run()["sets"]["rounds"] == run()["horizon"][run()["init"]]


def test_both_granularities_are_reported_apart():
    report = run(granularity="record", silence="bound", batch_sizes=[10, 10, 5], eps_target=1.0)
    client, record = report["privacy"]["client"], report["privacy"]["record"]
    assert np.array(client["zcdp_cost"]) == pytest.approx(100 * np.array(record["zcdp_cost"]))
    assert report["zcdp_cost"] == record["zcdp_cost"]
    assert max(record["eps_classic_at_horizon"]) <= 1.0 < min(client["eps_classic_at_horizon"])


def test_a_private_reward_is_part_of_costs_and_horizons_and_named():
    report = run(reward_data="private_noisy", reward_noise=2.0)
    cost = 2 * np.array(report["arms"]) ** 2 * 0.25 / 0.2**2 + 0.25 / (2 * 2.0**2)
    assert report["zcdp_cost"] == pytest.approx(cost)
    assert report["horizon"] == [int(report["zcdp_budget"] / c) for c in cost]
    assert (report["reward_data"], report["reward_noise"]) == ("private_noisy", 2.0)
    assert report["reward_zcdp"] == report["privacy"]["client"]["reward_zcdp"] == pytest.approx(0.25 / 8)
    fixed = run(reward_data="private_noisy", reward_noise=2.0, rx_scale=0.1, rounds=7)["sequence"]
    assert max(fixed["zcdp"]) == pytest.approx(7 * cost[1])
    assert shown(report).count("std 2: zCDP 0.03125 at client level in every round") == 1
    free = run()
    assert (free["reward_data"], free["reward_noise"], free["reward_zcdp"]) == ("public", None, 0.0)
    assert "on public data, free" in shown(free)


def test_a_private_reward_at_record_level_counts_records():
    changes = {"weights": None, "sizes": [50, 30, 20], "granularity": "record", "silence": "bound", "batch_size": 10}
    report = run(**changes, reward_data="private_noisy", reward_noise=0.1)
    assert report["reward_zcdp"] == pytest.approx(1 / (2 * 100**2 * 0.1**2))
    assert report["privacy"]["client"]["reward_zcdp"] == pytest.approx(0.5**2 / (2 * 0.1**2))
    apart = np.array(report["zcdp_cost"]) - np.array(run(**changes)["zcdp_cost"])
    assert apart == pytest.approx(np.full(3, report["reward_zcdp"]))


def test_a_reward_beyond_the_budget_is_infeasible_with_its_reason(tmp_path):
    for arms in ([0.05, 0.1], "auto"):
        with pytest.raises(Infeasible, match=r"one reward at reward_noise=0\.02 costs zCDP 312\.5") as caught:
            run(reward_data="private_noisy", reward_noise=0.02, arms=arms)
        assert caught.value.exit_code == 3
        assert set(caught.value.report["horizon"]) == {0}
        assert shown(caught.value.report)
        assert len(PLANNER.pictures(caught.value.report, tmp_path)) == 2


def shown(report) -> str:
    return printed(PLANNER.show, report, 200)


def test_batch_size_is_capped_by_the_data():
    changes = {"weights": None, "sizes": [50, 30, 20], "granularity": "record", "silence": "bound"}
    assert run(**changes, batch_size=25)["zcdp_cost"] == run(**changes, batch_sizes=[25, 25, 20])["zcdp_cost"]


def test_pilots_give_limits_around_the_estimate():
    report = run(certify_with="limits", num_pilots=64)
    low, mid, high = (np.array(report[key]) for key in ("mu_low", "channel_scale", "mu_high"))
    assert np.all((low < mid) & (mid < high))
    assert report["dropped_weight"][1] > run()["dropped_weight"][1]
    assert report["asymmetry"][1] > run()["asymmetry"][1]


def test_three_conversions_of_one_cost_are_answered():
    """CARES E12: classic, the best Renyi order, the exact Gaussian."""
    told = run()["privacy"]["client"]
    order = 1 + np.geomspace(1e-3, 1e3, 200_000)
    columns = (told[f"{name}_at_horizon"] for name in ("eps_classic", "eps_rdp", "eps_gaussian", "zcdp"))
    for classic, rdp, exact, rho in zip(*columns):
        best = np.min(rho * order + np.log1p(-1 / order) - np.log(1e-5 * order) / (order - 1))
        assert rdp == pytest.approx(best, rel=1e-7) and exact < rdp < classic


@pytest.mark.parametrize("told", [{"num_pilots": 64}, {"mu_low": [0.2] * 3, "mu_high": [2.0] * 3}])
def test_estimates_certify_nothing_but_at_their_limits(told):
    """CARES E16: the numbers are those of the estimate, and the label says that they bind nobody."""
    plain, estimated = run(), run(**told)
    assert estimated["eta_init"] == plain["eta_init"] and plain["label"] == "certified"
    assert estimated["label"] == NO_CERTIFICATE
    assert any("E16" in said for said in estimated["warnings"])


def test_devices_with_radio_bring_their_noise(tmp_path):
    (tmp_path / "site.toml").write_text(
        """
[radio]
bandwidth_hz = 1e6
noise_dbm = -100.0
trusted_noise_dbm = -104.0
[[device]]
gain_db = -100.0
power_dbm = 20.0
samples = 100
[[device]]
gain_db = -103.0
power_dbm = 20.0
samples = 300
"""
    )
    changes = dict.fromkeys(("weights", "channel_scale", "noise_std"))
    report = run(tmp_path, **changes, devices="site.toml", arms="auto")
    assert report["weights"] == [0.25, 0.75]
    assert 2 * np.array(report["channel_scale"]) ** 2 == pytest.approx([1e-10, 10**-10.3])
    trusted = 10**-13.4 * 1e-6 / 2  # W * s per real dimension
    expected = 2 * np.array(report["arms"]) ** 2 * 0.75**2 / trusted
    assert report["zcdp_cost"] == pytest.approx(expected)
    energy = 0.1 * 1e-6 * 10
    assert report["drop_rate"] == pytest.approx([0.25**2 / (1e-10 * energy), 0.75**2 / (10**-10.3 * energy)])


def test_infeasible_names_the_nearest_relaxations():
    with pytest.raises(Infeasible) as caught:
        run(conv_target=0.5)
    message, report = str(caught.value), caught.value.report
    assert caught.value.exit_code == 3
    assert "feasible if conv_target >= " in message
    value = next(r["value"] for r in report["relaxations"] if r["target"] == "conv_target")
    assert run(conv_target=value)["feasible"]
    assert report["eta_init"] is None


@pytest.mark.parametrize("name", ["max_dropped", "max_asymmetry"])
def test_a_target_of_zero_is_infeasible_on_an_automatic_grid(name):
    with pytest.raises(Infeasible, match=f"feasible if {name} >= "):
        run(arms="auto", **{name: 0.0})


def test_diagnostic_goes_on_with_a_label(tmp_path):
    report = run(conv_target=0.5, diagnostic=True)
    assert report["label"] == "no joint certificate"
    assert report["eta_init"] == 0.1
    shown = printed(PLANNER.show, report)
    assert "no joint certificate" in shown
    assert len(PLANNER.pictures(report, tmp_path)) == 2


def test_budget_below_one_round_is_infeasible(tmp_path):
    with pytest.raises(Infeasible, match="eps_target >= ") as caught:
        run(eps_target=1e-4)
    assert set(caught.value.report["horizon"]) == {0}
    assert len(PLANNER.pictures(caught.value.report, tmp_path)) == 2
    assert printed(PLANNER.show, caught.value.report)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wieghts": [1.0]}, "did you mean 'weights'"),
        ({"sizes": [1, 2, 3]}, "weights and sizes disagree"),
        ({"weights": None}, "exactly one of weights, sizes, devices"),
        ({"num_clients": 4}, "num_clients=4 but 3 clients are given"),
        ({"eps": 50.0}, "eps and eps_target are two names of one thing"),
        ({"rx_scale": 0.1}, "one number needs rounds"),
        ({"rx_scale": [0.1, 0.0]}, r"rx_scale\[1\]=0.0"),
        (
            {"certify_with": "limits", "mu_low": [0.9, 0.7, 0.4], "mu_high": [0.8, 1.0, 1.0]},
            r"mu_low\[0\]=0.9 must be <= mu_high\[0\]=0.8",
        ),
        ({"channel_scale": None}, "channel_scale"),
        ({"noise_std": None}, "noise_std"),
        ({"num_classes": 10}, "loss_gap and num_classes"),
        ({"devices": "x.csv", "weights": None}, "devices imply it"),
        ({"devices": "x.csv", "weights": None, "channel_scale": None, "max_power": 1.0}, "max_power"),
        ({"devices": "x.csv", "weights": None, "channel_scale": None}, "x.csv"),
        ({"batch_size": 5}, "batch_size"),
        ({"num_pilots": 5, "mu_low": [1.0, 1.0, 1.0]}, "num_pilots"),
        ({"eps": 50.0}, "give one of them"),
        ({"arms": [1e-20]}, "more rounds than can be counted"),
        ({"arms": []}, "arms"),
        ({"arms": "wide"}, "arms"),
        ({"rounds": 0}, "rounds"),
        ({"granularity": "record"}, "silence"),
        ({"noise_std": [0.1, 0.2, 0.3]}, "noise_std"),
        ({"delta": 2.0}, "delta"),
        ({"eps_target": float("inf")}, "eps_target"),
        ({"reward_data": "secret"}, "reward_data"),
        ({"reward_data": "private_noisy"}, "needs reward_noise"),
        ({"reward_data": "private_noisy", "reward_noise": 0.0}, "reward_noise=0.0"),
        ({"reward_noise": 0.1}, "is for reward_data='private_noisy'"),
        (
            {
                "reward_data": "private_noisy",
                "reward_noise": 1.0,
                "granularity": "record",
                "silence": "bound",
                "batch_sizes": [5, 5, 5],
            },
            "needs sizes",
        ),
    ],
)
def test_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        run(**changes)
    assert "\n" not in str(caught.value)


def test_warnings_about_delta_and_loss_gap():
    report = run(weights=None, sizes=[50, 30, 20], delta=0.02, loss_gap=None, num_classes=10)
    assert any("1/n" in line for line in report["warnings"])
    assert any("assumed" in line for line in report["warnings"])
    quiet = run(loss_gap=None, num_classes=10, zero_output_init=True)
    assert not any("assumed" in line for line in quiet["warnings"])


def test_weights_that_sum_to_a_little_more_than_one_may_all_be_dropped():
    weights = [0.5 + 5e-7, 0.5]
    clients = {"sizes": None, "weights": weights, "channel_scale": [1e-3, 1e-3], "max_power": 1e-6}
    report = run(**clients, max_dropped=1.0, max_asymmetry=1.0, arms=[0.25, 0.3], conv_target=1e30)
    assert report["passes"]["max_dropped"] == [True, True]
    assert report["dropped_weight"] == [1.0, 1.0]


def test_one_client_beyond_reach_is_named_on_an_automatic_grid():
    """Its drop rate alone moves the grid to where rounds cost next to nothing; the units are right."""
    scale = [1.0] * len(BASE["channel_scale"])
    scale[1] = 1e-12
    with pytest.raises(InputError, match=r"channel_scale\[1\]=1e-12 is so weak .* leave client 1 out"):
        run(channel_scale=scale, arms="auto")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": "auto", "num_arms": 10**7}, "arms x clients = 10000000 x 3 = 30000000 is more than 3e+06"),
        ({"rx_scale": 0.1, "rounds": 10**12}, "rounds=1000000000000 must be a whole number from 1 to 1000000"),
        ({"rx_scale": []}, "rx_scale must be a non-empty list"),
    ],
)
def test_what_would_not_end_is_refused(changes, said):
    with pytest.raises(InputError) as refusal:
        run(**changes)
    assert str(refusal.value).startswith(said)


def test_antennas_whose_exposure_nobody_states_have_no_certificate():
    """1/cos^2 of the angle to the beam has no closed form: at 1 every client would lie along it in every round."""

    def planned(**more):
        return PLANNER.plan(PLANNER.inputs(**{**BASE, "antennas": 4, **more}), Path())

    stated, unstated = planned(exposure=1.0), planned()
    assert (stated["label"], unstated["label"]) == ("certified", "no joint certificate")
    assert any(warning.startswith("exposure is not stated") for warning in unstated["warnings"])


def test_local_steps_and_antennas_add_keys_only_where_they_are_asked_for():
    def planned(**more):
        given = {**BASE, "constants": "tight", "diagnostic": True, **more}
        return PLANNER.plan(PLANNER.inputs(**given), Path())

    plain, array = planned(), planned(antennas=4, exposure=3.0)
    local = planned(local_steps=5, local_step_size=0.02)
    assert set(local) - set(plain) == {"local_steps", "local_step_size", "drift"}
    assert set(array) - set(plain) == {"antennas", "exposure", "any_silent"}
    assert not set(plain) - set(local) and not set(plain) - set(array)
    assert local["horizon"] == plain["horizon"] and local["conv_bound"] != plain["conv_bound"]
    assert array["dropped_weight"] == array["asymmetry"] == array["any_silent"]
    assert array["zcdp_cost"] == pytest.approx([3 * cost for cost in plain["zcdp_cost"]])
    assert any("local steps" in note for note in local["notes"]) and any("1/cos^2" in note for note in array["notes"])
