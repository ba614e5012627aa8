"""The planner against the published setting's exact numbers and its own promises."""

import math
import tomllib
from pathlib import Path

import pytest

from otafl.core import files
from otafl.core.errors import Infeasible, InputError
from otafl.systems import planning
from otafl.systems.eezofl.convergence import Schedule, Theorem2
from screens import printed

PLANNER = planning.load("eezofl")
EXAMPLES = Path(planning.__file__).parent / "eezofl/examples"


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
    assert result["noise"]["decoded_std"] == pytest.approx(std, rel=1e-3)
    rounding = result["noise"]["decoded_std_rounded"] / result["noise"]["decoded_std"] - 1
    assert 0.003 < rounding < 0.005  # sigma_e^2 + 1/12 where the closed form has sigma_e^2


def test_a_file_in_the_papers_symbols_and_the_closed_forms():
    """EEZOFL 3.7, 3.8 and 8 written out for unlike devices."""
    n, f, Lambda, e, w, phi = 8192, 10, 2.0**44, 4.9, 0.7, 5.0
    mu, Omega = [1.0, 0.5, -2.0], [2.0, 0.3, 4.5]
    task = {"d": 50, "eta0": 0.1, "gamma0": 0.2, "L_f": 3.0, "L_g": 7.0, "b": 2.0, "gap": 1.5}
    file = {"N": 3, "K": 250, "n": n, "mu": mu, "Omega": Omega, "Lambda": Lambda, "f": f, "sigma_e": e, "sigma_w": w,
            "sigma_phi": phi, "tau": 0.01, "bandwidth_hz": 1e6, "convergence": task | {"b1": 0.75, "b2": 9.0,
            "eps": 2.0, "beta": 0.5}}  # fmt: skip

    def answer(**changes):
        return PLANNER.plan(files.parse(PLANNER.inputs, file | changes, "test.toml"), Path())

    out = answer()
    S_O = sum(Omega)
    X = S_O**2 + 2 * sum(o**2 for o in Omega) - 2 * sum(m**4 for m in mu)
    quadratic = 5 / 3 * n**2 * (e**2 * X + w**2 * S_O)
    linear = n * e**2 * S_O + 2 * n * w**2 + n * phi**2 * S_O
    assert (out["S_O"], out["X"]) == pytest.approx((S_O, X), rel=1e-12)
    assert out["noise"]["B_eps_squared"] == pytest.approx(quadratic + linear, rel=1e-12)
    var = (quadratic + 2.0 ** (-2 * f) * linear) / (n * Lambda**2)
    assert out["noise"]["decoded_variance"] == pytest.approx(var, rel=1e-12, abs=0)
    hybrid = n * 3 * (5 / 3 * e**2 * S_O + w**2) + e**2 * S_O + w**2 + 2.0 ** (-2 * f) * 3 * phi**2
    found = answer(mode="hybrid")["noise"]["decoded_variance"]
    assert found == pytest.approx(hybrid / Lambda**2, rel=1e-12, abs=0)

    theorem = out["convergence"]
    c1, c3 = 2 * 0.75, 2.0 * 9.0**3 * 3 / (2 * 0.75)
    C_g = 4 * 3.0**2 * 9.0**4 * (sum(o / m**2 for o, m in zip(Omega, mu)) + 6)
    R = 2 * 1.5 / (c1 * 0.1 * 0.2) + c3**2 * 0.2**2 + C_g * 7.0 * 0.1 * 0.2 / c1
    rho = 9.0**2 * var * 7.0 * 0.1 / (c1 * 0.2)
    expected = {"c1": c1, "c3": c3, "C_g": C_g, "C_e": 81 * var, "R": R, "rho": rho, "bound": R / 250**0.5 + rho,
                "K_needed": R**2 / (2.0 * 0.5 - rho) ** 2}  # fmt: skip
    assert {name: theorem[name] for name in expected} == pytest.approx(expected, rel=1e-12, abs=0)
    assert theorem["constant_steps"] == pytest.approx({"eta": 0.1 * 250**-0.25, "gamma": 0.2 * 250**-0.25})


def test_a_noise_floor_at_the_target_needs_for_ever():
    theorem = Theorem2(1.0, 1.0, 1.0, 1.0, R=2.0, rho=0.5)
    assert theorem.rounds_needed(2.0, 0.5) == 16
    with pytest.raises(InputError, match="the noise floor is above the target"):
        theorem.rounds_needed(1.0, 0.5)


def test_sums_of_powers_are_infinite_up_to_the_border():
    assert all(Schedule(eta_power=0.75, gamma_power=0.25).check().values())  # sum 1 / k
    assert list(Schedule(eta_power=0.25, gamma_power=0.25).check().values()) == [True, False, False, False]


def test_flooding_by_the_closed_forms_stands_beside_the_jobs_own():
    """EEZOFL 3.7 and 6 at sigma = 1, N = 10, f = 16; a job drowns rounded errors, which are a little wider."""
    n, f, Lambda = 4096, 16, 2.0**60
    out = plan(Lambda_log2=60, sigma_phi=None, smudging_bits=40)
    before = (5 / 3 * n**2 * (3.2**2 * 460 + 20) + 2.0 ** (-2 * f) * n * (3.2**2 * 20 + 2)) / n
    flood = 2.0 ** (f + 40) * math.sqrt(before / 20)
    printed = out["smudging"]["as_printed"]
    assert printed["residue_log2"] == pytest.approx(math.log2(before) / 2, rel=1e-12)
    assert printed["sigma_phi"] == pytest.approx(flood, rel=1e-12)
    assert printed["sigma_phi_log2"] == pytest.approx(66.311, abs=1e-3)
    std = math.sqrt(before + 2.0 ** (-2 * f) * flood**2 * 20) / Lambda
    assert printed["decoded_std"] == pytest.approx(std, rel=1e-12)
    assert 1.003 < out["sigma_phi"] / flood < 1.005
    given = plan()["smudging"]["as_printed"]
    assert given["sigma_phi"] == 3.2 and given["decoded_std"] == plan()["noise"]["decoded_std"]


def test_symbols_and_tables_are_the_same_file():
    tables = {"ring": "4096", "tau": 0.01, "bandwidth_hz": 1e6, "devices": {"count": 10}, "rounds": 7}
    symbols = {"n": 4096, "tau": 0.01, "bandwidth_hz": 1e6, "N": 10, "K": 7, "lambda_s": 40.0}
    answers = [PLANNER.plan(files.parse(PLANNER.inputs, data, "f"), Path()) for data in (tables, symbols)]
    assert answers[0] == answers[1]
    assert files.parse(PLANNER.inputs, tables | {"ring": 4096}, "f").ring == "4096"
    known = PLANNER.inputs.model_json_schema()
    assert {"N", "K", "n", "mu", "Omega", "Lambda", "lambda_s"} <= set(known["properties"])
    assert "devices" not in known["required"]


def test_a_lone_device_is_warned_of():
    assert "N=1" in plan(devices={"count": 1})["warnings"][0]
    assert plan()["warnings"] == []


def test_terms_add_up_in_every_mode():
    for mode in ("fixed-point", "hybrid", "digital"):
        noise = plan(mode=mode)["noise"]
        total = sum(noise["terms_decoded_variance"].values())
        assert total == pytest.approx(noise["decoded_variance"], rel=1e-12, abs=0)


def test_traffic_and_radio_of_the_published_setting():
    result = plan()
    assert result["traffic"]["ciphertext_bytes"] == 111_616
    assert result["traffic"]["expansion"] == 13_952
    assert result["traffic"]["uplink_bits"] == 1_785_856
    assert result["traffic"]["downlink_bits"] == 2 * 4096 * 109  # b~ and c~1, which the paper does not count
    assert result["traffic"]["storage_bits"] == 2 * 4096 * 109 + 4096  # a, b_i and a bit for each sign of s_i
    assert (result["traffic"]["symbols"], result["traffic"]["analog_seconds"]) == (16_384, pytest.approx(16.384e-9))
    assert result["traffic"]["digital_seconds"] == pytest.approx(1.786e-6, rel=1e-3)
    assert result["radio"]["snr_db_unit_noise"] == pytest.approx(645.5 + 3.0, abs=0.15)
    assert result["radio"]["snr_db_sum"] == pytest.approx(645.5 + 10 * math.log10(10 * 2), abs=0.15)  # ten such devices
    assert result["radio"]["snr_db_for_tau"] == pytest.approx(496, abs=0.5)
    assert result["radio"]["receiver_bits"] == 113
    assert result["radio"]["delta_for_tau_log2"] == pytest.approx(-84, abs=0.1)
    assert result["f_max"] == 28


def test_a_digital_round_shows_no_radio_and_has_weights_of_1():
    """Its constants are those of a channel without fading: Omega = mu^2. The JSON tells what the air would ask for."""
    task = {"d": 50, "eta0": 0.1, "gamma0": 0.2, "L_f": 3.0, "L_g": 7.0, "b": 2.0, "gap": 1.5, "b2": 9.0}
    result = plan(mode="digital", convergence=task)
    assert result["radio"] == plan()["radio"]
    assert result["convergence"]["C_g"] == pytest.approx(4 * 3.0**2 * 9.0**4 * (10 + 10 * 9), rel=1e-12)
    shown = printed(PLANNER.show, result, 160)
    assert "dB" not in shown and "multiples of 2^-f" not in shown


def test_hybrid_radio_carries_ciphertexts_alone():
    over_air, hybrid = plan()["radio"], plan(mode="hybrid")["radio"]
    apart = over_air["snr_db_for_tau"] - hybrid["snr_db_for_tau"]
    assert apart == pytest.approx(10 * math.log10(5 / 3 * 4096 * 20 / (4096 * 10 + 1)), abs=1e-9)


FREE = {"sigma_phi": None, "f": None, "Lambda_log2": None, "smudging_bits": 40.0}


@pytest.mark.parametrize("mode", ["fixed-point", "hybrid", "digital"])
@pytest.mark.parametrize("ring", ["4096", "8192"])
def test_plans_for_one_honest_device_reach_tau(mode, ring):
    result = plan(mode=mode, ring=ring, h_floor=0.5, **FREE)
    assert result["tau_met"] and result["headroom_bits"]["least"] >= 0
    assert result["smudging"]["smudging_bits"] == 40
    assert ("|h| >= 0.5" in result["smudging"]["covers"]) == (mode == "fixed-point")


@pytest.mark.parametrize(
    ("changes", "reason"), [({}, "Lambda_log2 is given"), (FREE | {"mode": "digital"}, "sends nothing by radio")]
)
def test_a_limit_on_the_snr_that_nothing_could_hold_is_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        plan(snr_db_max=300.0, **changes)
    assert plan(snr_db_max=300.0, **FREE)["radio"]["snr_db_for_tau"] <= 300.0


def test_default_example_plans_shows_and_draws(tmp_path):
    result = PLANNER.plan(files.parse(PLANNER.inputs, tomllib.loads(PLANNER.example), "example"), tmp_path)
    assert result["tau_met"]
    assert result["security"]["level_bits"] == 128
    assert result["convergence"]["vacuous"]
    assert not result["convergence"]["schedule_conditions"]["sum eta^2 < inf"]
    files.to_json(result)
    shown = printed(PLANNER.show, result, 160)
    for word in ("share noise", "headroom", "dB", "HomomorphicEncryption.org", "vacuous"):
        assert word in shown
    (picture,) = PLANNER.pictures(result, tmp_path)
    assert picture.stat().st_size > 5000


def test_unflooded_plans_are_labelled():
    result = plan()
    assert result["smudging"]["label"] == "no statistical flooding"
    shown = printed(PLANNER.show, result, 160)
    assert "floods nothing" in shown


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


@pytest.mark.parametrize("wish", [{"smudging_bits": 100.0}, {"smudging_bits": 64.0, "f": 20}, {"smudging_bits": 80.0}])
def test_every_remedy_is_a_plan(wish):
    free = {"sigma_phi": None, "Lambda_log2": None, "f": None} | wish
    with pytest.raises(Infeasible) as caught:
        plan(**free)
    relax = caught.value.report["relax"]
    assert "smudging_bits" in relax
    for name, value in relax.items():
        value = {"f": int, "guard": bool}.get(name, float)(value)
        assert plan(**free | {name: value})["headroom_bits"]["least"] >= 0
        if name in ("f", "smudging_bits"):  # the nearest whole number
            with pytest.raises(Infeasible):
                plan(**free | {name: value + 1})


def test_an_overflow_that_no_scale_mends_says_so():
    with pytest.raises(Infeasible, match="no Lambda fits this f"):
        plan(f=80)


def test_parameter_sets_outside_the_table_need_permission():
    small = {"n": 1024, "primes": [268369921, 134176769]}
    changes = {"ring": None, "custom_ring": small, "f": 1, "Lambda_log2": 10, "Mmax": 4.0, "guard": False}
    with pytest.raises(InputError, match="below 128 bits"):
        plan(**changes)
    allowed = plan(**changes, allow_insecure=True)
    assert allowed["security"]["insecure"]
    shown = printed(PLANNER.show, allowed, 160)
    assert "nothing here is secret" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"smudging_bits": 40.0}, "not both"),
        ({"custom_ring": {"n": 8, "primes": [17]}}, "exactly one"),
        ({"f": None}, "needs f and Lambda_log2"),
        ({"devices": {"count": 2, "mu": 0.0}}, "mu"),
        ({"devices": {"count": 2, "mu": [1.0]}}, "entries"),
        ({"devices": {"count": 2, "sigma": -1.0}}, "sigma"),
        ({"devices": {"count": 10**18}}, "count"),
        ({"sigma_phi": 0.0}, "sigma_phi=0.0 must be > 0"),
        ({"tua": 1.0}, "did you mean 'tau'"),
        ({"Lambda": 3.0, "Lambda_log2": None}, "Lambda=3.0 must be a power of two"),
        ({"Lambda": 4.0}, "two names"),
        ({"N": 10}, "not in both places"),
        ({"n": 1024, "ring": None}, "n=1024 needs primes"),
        ({"n": 4096}, "one of them"),
        ({"devices": {"count": 2, "Omega": 0.5}}, "Omega"),
        ({"devices": {"count": 2, "Omega": 2.0, "sigma": 1.0}}, "Omega"),
        ({"K": 0, "rounds": None}, "K=0"),
    ],
)
def test_mistakes_are_one_line(changes, words):
    with pytest.raises(InputError, match=words):
        plan(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigma_w": 1e308}, "sigma_w"),
        ({"convergence": {"L_f": 1e300}}, r"convergence\.L_f=1e\+300 must"),
        ({"devices": {"mu": 1e200}}, r"devices\.mu=1e\+200 must"),
        ({"tau": 1e-320}, "tau=1e-320 must"),
        ({"Lambda_log2": 600}, "Lambda_log2"),
        ({"smudging_bits": 1e5}, "smudging_bits"),
    ],
)
def test_numbers_beyond_double_precision_are_named_in_one_line(changes, words):
    data = tomllib.loads(PLANNER.example)
    for key, value in changes.items():
        data[key] = data[key] | value if isinstance(value, dict) else value
    with pytest.raises(InputError, match=words) as caught:
        PLANNER.plan(files.parse(PLANNER.inputs, data, "test.toml"), Path())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0.1, 3.1])
@pytest.mark.parametrize("name", ["sigma_e", "sigma_phi"])
def test_too_little_noise_is_refused_or_called_insecure(name, value):
    with pytest.raises(InputError, match=f"{name}={value:g} must be >= 3.19"):
        plan(**{name: value})
    allowed = plan(**{name: value}, allow_insecure=True)
    assert allowed["security"]["level_bits"] == 0 and allowed["security"]["insecure"]
    assert allowed["security"]["statement"] == "none" and allowed["secrecy"].startswith("none")
    shown = printed(PLANNER.show, allowed, 160)
    assert "nothing here is secret" in shown and "128 bits" not in shown


def test_digital_weights_need_no_grid():
    assert plan(mode="digital", f=None)["noise"] == plan(mode="digital", f=0)["noise"]


def test_without_a_bandwidth_only_the_seconds_are_missing():
    bare, whole = plan(bandwidth_hz=None), plan()
    lasting = {"digital_seconds": None, "analog_seconds": None}
    assert bare == whole | {"traffic": whole["traffic"] | lasting}
    shown = printed(PLANNER.show, bare, 200)
    assert "1,785,856 bits " in shown


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"N": 0}, "N=0 must be >= 1"),
        ({"mu": [1.0, 2.0]}, "mu has 2 entries but N=3"),
        ({"sigma": -1.0}, "sigma=-1.0 must be >= 0"),
        ({"n": 64, "primes": ["a"], "ring": None}, "primes.0='a' must be a whole number"),
        ({"N": None, "mu": None, "devices": {"count": 0}}, "devices.count=0 must be >= 1"),
    ],
)
def test_a_mistake_is_told_by_the_key_that_the_file_has(changed, said):
    file = {"ring": "4096", "smudging_bits": 40, "tau": 0.01, "N": 3, "mu": 1.0} | changed
    data = {key: value for key, value in file.items() if value is not None}
    with pytest.raises(InputError) as refusal:
        planning.design("eezofl", files.parse(PLANNER.inputs, data, "test.toml"), Path("test.toml"))
    assert str(refusal.value).startswith(f"test.toml: {said}")
