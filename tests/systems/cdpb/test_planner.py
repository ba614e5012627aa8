"""`otafl plan cdpb`: examples plan, numbers agree with the design, refusals name the cause."""

import json
from pathlib import Path

import numpy as np
import pytest

from otafl.core import files
from otafl.core.errors import Infeasible, InputError
from otafl.systems.cdpb import design as cdpb
from otafl.systems.cdpb.planner import PLANNER, Inputs, pictures, plan, show
from otafl.systems.planning import load
from screens import printed

EXAMPLES = Path("src/otafl/systems/cdpb/examples").resolve()
BASE = {"K": 100, "d": 50, "sigma2": 0.5, "tau_cap": 500}


def planned(**changes):
    return plan(files.parse(Inputs, {**BASE, **changes}, "test"), Path())


def test_the_planner_is_found():
    assert load("cdpb") is PLANNER


@pytest.mark.parametrize("name", ["cdpb.toml", "cdpb_devices.toml"])
def test_examples_plan_show_and_draw(name, tmp_path):
    report = plan(files.read(Inputs, EXAMPLES / name), EXAMPLES)
    json.loads(files.to_json(report))
    shown = printed(show, report, 120)
    assert f"{report['tau']} rounds" in shown
    drawn = pictures(report, tmp_path)
    assert len(drawn) == 2
    assert all(path.stat().st_size > 10_000 for path in drawn)


def test_the_example_text_is_the_example_file():
    import tomllib

    assert files.parse(Inputs, tomllib.loads(PLANNER.example), "example").K == 100


def test_numbers_are_those_of_the_design():
    report = planned(best_portion=True)
    params = cdpb.Params(K=100, d=50)
    best = cdpb.solve(params, tau_cap=500).design
    assert (report["rho"], report["tau"], report["G"]) == (best.rho, best.tau, best.G)
    assert report["eps"] == pytest.approx(float(cdpb.eps(params, best.u, best.tau)))
    assert report["gamma_full"] == pytest.approx(float(cdpb.gamma(params, best.u, best.tau, bound="full")))
    assert report["s2"] == pytest.approx(report["v"] / 50)
    assert report["K_t"] == pytest.approx(100 * np.exp(-best.u))
    assert report["best_portion"]["portion"] == 0
    assert report["certified"] is False
    least = min(report["utility"], key=lambda row: row["G"])
    assert least["G"] >= report["G"] * (1 - 1e-9) or least["eps"] > 100 or least["gamma"] > 1e-2


def test_paper_accounting_reproduces_the_joint_optimum_and_the_violations():
    report = planned(d=1, accounting="paper", tau_cap=None)
    assert report["tau"] == 62
    assert report["binding"] == ["eps"]
    assert report["paper"]["violates_eps"] == 14
    assert (report["paper"]["tau_gmin"], report["paper"]["tau_emax"]) == (59, 74)


@pytest.mark.parametrize(("strategy", "load"), [("idle", 0.375), ("noisy", 0.350782)])
def test_the_repaired_lemmas_are_answered(strategy, load):
    """Lemma 1 is the load of least B, Lemma 2 that of least eps by Theorem 1 (CDPB E5, E7)."""
    params = cdpb.Params(K=100, d=50, A=10, W=1.5)
    way = cdpb.scheme(strategy)
    found = planned(strategy=strategy, A=10, W=1.5, ebar=1e4)["lemmas"]
    assert found["u_gamma"] == pytest.approx(load, abs=1e-6)
    grid = cdpb.stats(params, np.linspace(1e-3, 1, 5000), way)
    assert found["B_least"] == pytest.approx(np.min(cdpb.error_energy(params, grid)), rel=1e-6)
    assert found["eps1_least"] == pytest.approx(np.min(cdpb.eps_round(params, grid, cdpb.PAPER)), rel=1e-6)
    assert found["rho_gamma"] * 1.5**2 == pytest.approx(found["u_gamma"])
    assert found["tau_gmin"] == np.ceil(600 * found["B_least"])
    assert found["tau_emax"] == np.floor(1e4 / found["eps1_least"])
    other = planned(strategy=strategy, A=10, W=1.5, ebar=1e4, alpha=2.5, gbar=np.inf)["lemmas"]
    assert other["tau_gmin"] is None and "u_eps" not in other  # Theorem 1 has whole orders


def test_infeasible_targets_are_refused_with_the_condition():
    with pytest.raises(Infeasible, match=r"3 alpha d W\^2 < mu gbar ebar K\^2") as refusal:
        planned(d=2000)
    assert refusal.value.exit_code == 3
    assert refusal.value.report["law"] == pytest.approx(1.2)
    assert refusal.value.report["law_relax"]["d"] == 1666
    assert planned(d=int(refusal.value.report["relax"]["d"]))["tau"] <= 500
    json.dumps(refusal.value.report)


def test_a_given_pair_is_judged_by_the_equations():
    """CDPB (53), (56), Theorem 2 and the visible accountant, written out for equal clients with receiver noise."""
    K, d, W, P, sigma2, sz2, A, mu, a, D0, alpha, u, tau = 40, 7, 1.5, 2.0, 0.8, 0.3, 5.0, 0.7, 30.0, 0.4, 4.0, 0.3, 60
    p, c = np.exp(-u), 2 * K * P * sigma2
    rho, v = 2 * P * sigma2 * u / W**2, c * (1 - u * np.exp(-u))
    file = {"K": K, "d": d, "W": W, "P": P, "sigma2": sigma2, "sz2": sz2, "A": A, "mu": mu, "a": a, "D0": D0,
            "alpha": alpha, "rho": rho, "tau": tau, "strategy": "noisy", "adjacency": "replacement"}  # fmt: skip
    out = plan(files.parse(Inputs, file, "test"), Path())
    B = A / (K * p) + (v + d * sz2) / ((K * p) ** 2 * rho)
    x = 4 * rho * W**2 / (v / d + sz2)
    S_tau = sum((a + t) ** 2 for t in range(tau))
    eps1 = np.log(1 - p + p * np.exp((alpha - 1) * alpha * x / 2)) / (alpha - 1)
    full = mu * a**3 / (4 * S_tau) * D0 + 2 * tau * (tau + 2 * a) / (mu * S_tau) * B
    expected = {"u": u, "p": p, "K_t": K * p, "c": c, "v": v, "s2": v / d + sz2, "h_th": rho * W**2 / P, "B": B,
                "gamma": 6 * B / (mu * tau), "gamma_full": full, "S_tau": S_tau, "eps1": eps1, "eps": tau * eps1,
                "G": 6 * B / (mu * tau) + 1e-5 * tau * eps1, "u_max": 1 / (2 * sigma2)}  # fmt: skip
    assert {name: out[name] for name in expected} == pytest.approx(expected, rel=1e-10)
    assert out["violated"] == ["gamma"]
    by_load = plan(files.parse(Inputs, {**file, "rho": None, "u": u}, "test"), Path())
    assert by_load["G"] == pytest.approx(out["G"], rel=1e-12)


def test_every_accountant_and_its_loss_distribution_are_in_the_answer():
    out = planned()
    rows = out["accountings"]
    assert set(rows) == {"visible", "hidden", "none", "paper"}
    assert rows["hidden"]["pld"] < rows["visible"]["pld"] < rows["none"]["pld"]
    for name in ("visible", "hidden", "none"):
        assert rows[name]["pld"] <= rows[name]["eps_dp"]
    assert (out["pld"], out["eps"]) == (rows["visible"]["pld"], rows["visible"]["eps"])
    assert rows["paper"]["pld"] is None  # Theorem 1 belongs to no mechanism
    assert 0 < out["realised"]["eps_tight"] < rows["none"]["pld"] * 1.5
    shown = printed(show, out, 120)
    assert "by PLD" in shown


def test_limits_can_be_switched_off_and_A_follows_from_G():
    free = planned(gbar=float("inf"), ebar=float("inf"))
    assert free["limits"]["gbar"] is free["limits"]["ebar"] is None
    assert planned(G=2.0, L=3, gbar=1.0)["A"] == 4 * 9 * 2.0


def test_devices_with_a_radio_block_bring_their_noise(tmp_path):
    (tmp_path / "site.toml").write_text(
        "[radio]\nbandwidth_hz = 1e6\nnoise_dbm_per_hz = -168\n"
        + "".join(f"[[device]]\ngain_db = {-90 - k}\npower_dbm = 20\nsamples = 100\n" for k in range(20))
    )
    inputs = {"devices": "site.toml", "d": 5, "gbar": 0.5, "ebar": 50.0, "tau_cap": 300, "capped": False}
    report = plan(files.parse(Inputs, inputs, "test"), tmp_path)
    assert report["eps"] <= 50
    assert report["s2"] > report["v"] / 5  # receiver noise is there


def test_unlike_clients_report_the_strongest():
    report = planned(K=4, sigma2=[0.2, 0.4, 0.8, 1.6], d=1, gbar=5.0, ebar=30.0, tau_cap=100, capped=False)
    assert report["p_top"] > report["p"]
    assert not report["paper"]["applies"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"portion": 0.3}, "portion"),
        ({"strategy": "mixed"}, "portion"),
        ({"strategy": "mixed", "portion": 1.5}, "portion"),
        ({"tau_cap": None}, "tau_cap"),
        ({"delta": 0.0}, "delta"),
        ({"d": 0}, "d=0"),
        ({"K": 0}, "K=0"),
        ({"P": [1.0, 1.0]}, "P"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": 2.5, "accounting": "paper"}, "alpha"),
        ({"devices": "x.csv"}, "devices"),
        ({"sigma2": None}, "sigma2"),
        ({"gbarr": 1.0}, "did you mean 'gbar'"),
        ({"accounting": "exact"}, "accounting"),
        ({"W": float("nan")}, "finite"),
        ({"accounting": "realised"}, "plan with 'visible'"),
        ({"A": 4.0, "G": 1.0}, "A and G"),
        ({"rho": 0.1, "u": 0.1}, "rho and u"),
        ({"rho": -1.0}, "rho"),
        ({"rho": 3.0}, "rho=3.0 must be <= P / W"),
        ({"tau": 0}, "tau"),
        ({"tau": 5, "best_portion": True, "gbar": float("inf")}, "best_portion"),
        ({"gbar": float("nan")}, "gbar"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_bad_files_are_named(changes, name):
    with pytest.raises(InputError, match=name):
        planned(**changes)


def test_fractional_orders_plan():
    assert planned(alpha=2.5)["alpha"] == 2.5


def test_hidden_accounting_carries_its_warning():
    assert any("E3" in line for line in planned(accounting="hidden")["warnings"])
    assert not planned(accounting="hidden", assume_hidden=True)["warnings"]
    assert any("E16" in line for line in planned(a=2.0)["warnings"])


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma2": 1e6, "gbar": float("inf")},
        {"sigma2": 1e6, "gbar": float("inf"), "tau": 50},
        {"sigma2": 1e6, "gbar": float("inf"), "strategy": "noisy", "accounting": "paper"},
        {"K": 3, "P": [1e-8, 1.0, 1.0], "gbar": float("inf")},
    ],
)
def test_rho_stays_below_its_cap_however_small_the_load_of_the_cap(changes):
    report = planned(**changes)
    assert report["u_max"] <= 1e-6 and report["u"] <= report["u_max"]
    cap = min(changes.get("P", [1.0]))
    assert report["rho"] <= cap * (1 + 1e-12)
    grid = [planned(**changes, rho=share * cap) for share in (1.0, 0.5, 0.1)] if "tau" in changes else []
    assert all(report["G"] <= other["G"] * (1 + 1e-9) for other in grid)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"K": 10**6}, "clients K = 1000000 is more than 30000"),
        ({"d": 1, "tau_cap": 10**9, "ebar": float("inf"), "gbar": 1e-6}, "K x tau = 100 x 1000000000 = "),
        (
            {"K": 3000, "sigma2": [0.5 + k / 1e4 for k in range(3000)]},
            "kinds of client (P, sigma2) = 3000 is more than",
        ),
        ({"alpha": 1e9}, "test: alpha=1000000000.0 must lie in (1, 10000]"),
    ],
)
def test_what_would_not_end_is_refused(changes, said):
    with pytest.raises(InputError) as refusal:
        planned(**changes)
    assert str(refusal.value).startswith(said)


def test_a_published_route_with_too_many_members_is_not_walked():
    paper = planned(d=1, ebar=1e6, gbar=0.5)["paper"]
    assert not paper["applies"] and "members of T" in paper["reason"]


def test_a_load_above_the_cap_is_named_as_the_load():
    with pytest.raises(InputError, match=r"^u=2\.0 must be <= u_max=1\.0 unless capped=false"):
        planned(u=2.0, tau=5)


@pytest.mark.parametrize("u", [30.0, 100.0, 800.0])
def test_loads_at_which_hardly_anyone_takes_part_are_planned(u):
    report = planned(u=u, tau=5, capped=False)
    tight = {name: row["pld"] for name, row in report["accountings"].items()}
    assert tight["hidden"] <= tight["visible"] <= tight["none"]
    assert report["warnings"] == []
    assert report["violated"][0] == "gamma"
    assert report["B_exact"] == ("inf" if u == 800 else pytest.approx(4.0, abs=0.1))
