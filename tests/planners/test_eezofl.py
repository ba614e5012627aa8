"""The planner against the published setting's exact numbers and its own promises."""

import io
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from otafl import files, planners
from otafl.errors import Infeasible, InputError

PLANNER = planners.load("eezofl")
EXAMPLES = Path(planners.__file__).parent / "examples"


def plan(**changes):
    data = tomllib.loads((EXAMPLES / "eezofl-paper.toml").read_text())
    data |= changes
    data = {key: value for key, value in data.items() if value is not None}
    return PLANNER.plan(files.parse(PLANNER.inputs, data, "test.toml"), Path())


@pytest.mark.parametrize(
    ("ring", "sigma", "squared", "std"),
    [("4096", 1, 1.32273e11, 5.17e-9), ("4096", 10, 3.50526e14, 2.66e-7), ("8192", 1, 5.29090e11, 7.31e-9)],
)
def test_noise_budget_of_the_published_setting(ring, sigma, squared, std):
    result = plan(ring=ring, devices={"count": 10, "mu": 1.0, "sigma": float(sigma)})
    assert result["noise"]["B_eps_squared"] == pytest.approx(squared, rel=1e-5)
    assert result["noise"]["decoded_std"] == pytest.approx(std, rel=0.01)  # rounding the errors adds 0.4 %


def test_terms_add_up_in_every_mode():
    for mode in ("fixed-point", "hybrid", "digital"):
        noise = plan(mode=mode)["noise"]
        assert sum(noise["terms_decoded_variance"].values()) == pytest.approx(noise["decoded_variance"], rel=1e-12)


def test_traffic_and_radio_of_the_published_setting():
    result = plan()
    assert result["traffic"]["ciphertext_bytes"] == 111_616
    assert result["traffic"]["expansion"] == 13_952
    assert result["traffic"]["uplink_bits"] == 1_785_856
    assert result["traffic"]["digital_seconds"] == pytest.approx(1.786e-6, rel=1e-3)
    assert result["radio"]["snr_db_unit_noise"] == pytest.approx(645.5 + 3.0, abs=0.15)
    assert result["radio"]["snr_db_for_tau"] == pytest.approx(496, abs=0.5)
    assert result["radio"]["receiver_bits"] == 113
    assert result["radio"]["delta_for_tau_log2"] == pytest.approx(-84, abs=0.1)
    assert result["f_max"] == 28


def test_default_example_plans_shows_and_draws(tmp_path):
    result = PLANNER.plan(files.parse(PLANNER.inputs, tomllib.loads(PLANNER.example), "example"), tmp_path)
    assert result["tau_met"]
    assert result["security"]["level_bits"] == 128
    assert result["convergence"]["vacuous"]
    assert not result["convergence"]["schedule_conditions"]["sum eta^2 < inf"]
    files.to_json(result)
    screen = io.StringIO()
    PLANNER.show(result, Console(file=screen, width=160))
    for word in ("share noise", "headroom", "dB", "HomomorphicEncryption.org", "vacuous"):
        assert word in screen.getvalue()
    (picture,) = PLANNER.pictures(result, tmp_path)
    assert picture.stat().st_size > 5000


def test_unflooded_plans_are_labelled():
    result = plan()
    assert result["smudging"]["label"] == "no statistical flooding"
    screen = io.StringIO()
    PLANNER.show(result, Console(file=screen, width=160))
    assert "floods nothing" in screen.getvalue()


def test_free_grid_and_scale_meet_the_target():
    result = plan(sigma_phi=None, f=None, Lambda_log2=None, smudging_bits=40.0)
    assert result["tau_met"]
    assert result["headroom_bits"]["least"] >= 0
    assert result["f"] == result["f_max"]
    tighter = plan(sigma_phi=None, f=None, Lambda_log2=None, smudging_bits=64.0)
    assert tighter["f"] < result["f"]


def test_overflow_names_the_largest_f_and_scale():
    with pytest.raises(Infeasible, match=r"largest f is 28 .* largest Lambda 2\^") as caught:
        plan(f=40)
    assert caught.value.report["headroom_bits"]["least"] < 0


def test_impossible_flooding_names_the_binding_constraint():
    with pytest.raises(Infeasible, match="binding: message") as caught:
        plan(sigma_phi=None, f=None, Lambda_log2=None, smudging_bits=100.0)
    assert caught.value.report["relaxations"]


def test_parameter_sets_outside_the_table_need_permission():
    small = {"n": 1024, "primes": [268369921, 134176769]}
    changes = {"ring": None, "custom_ring": small, "f": 1, "Lambda_log2": 10, "Mmax": 4.0, "guard": False}
    with pytest.raises(InputError, match="below 128 bits"):
        plan(**changes)
    allowed = plan(**changes, allow_insecure=True)
    assert allowed["security"]["insecure"]
    screen = io.StringIO()
    PLANNER.show(allowed, Console(file=screen, width=160))
    assert "nothing here is secret" in screen.getvalue()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"smudging_bits": 40.0}, "not both"),
        ({"custom_ring": {"n": 8, "primes": [17]}}, "exactly one"),
        ({"f": None}, "needs f and Lambda_log2"),
        ({"devices": {"count": 2, "mu": 0.0}}, "mu"),
        ({"devices": {"count": 2, "mu": [1.0]}}, "entries"),
        ({"devices": {"count": 2, "sigma": -1.0}}, "sigma"),
        ({"sigma_phi": 0.0}, "greater than 0"),
        ({"tua": 1.0}, "did you mean 'tau'"),
    ],
)
def test_mistakes_are_one_line(changes, words):
    with pytest.raises(InputError, match=words):
        plan(**changes)
