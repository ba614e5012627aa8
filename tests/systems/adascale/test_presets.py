"""AdaScale's presets: that they say what the paper says, run end to end, and that their verdicts can fail."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from otafl import channels
from otafl.privacy import Ledger, noise_multiplier
from otafl.reproductions.findings import FAILS, HOLDS, UNDECIDED
from otafl.reproductions.preset_run import reproduce
from otafl.runs import build, runner
from otafl.runs.folder.store import RunFolder
from otafl.runs.presets import find, read_preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import load
from otafl.systems.adascale import reproduce as adascale
from otafl.systems.adascale import variables
from otafl.systems.adascale.design import CIFAR10, MNIST, Setting, algorithm1, draw
from otafl.systems.adascale.methods import NU_CIFAR10, NU_MNIST, run_epsilon
from otafl.systems.adascale.reproduce_leakage import leakage_verdict
from otafl.systems.adascale.rivals import discounted_level
from otafl.tasks import models

SMALL = [
    "rounds=6", "seeds=2", "evaluate_every=3", "clients.batch=10",
    'task.data="digits"', 'task.model={name="logistic"}',
]  # fmt: skip
SCHEMES = [
    {"name": name, "label": f"{label}, nu {nu}", "nu": nu, **more}
    for name, label, more in (("adascale-optimal", "Optimal", {}), ("adascale", "AdaScale", {"tuning": "hindsight"}))
    for nu in ((0.04, 0.16) if name == "adascale" else (0.04,))
]


def toml_list(schemes) -> str:
    tables = [", ".join(f"{key} = {json.dumps(value)}" for key, value in scheme.items()) for scheme in schemes]
    return "scheme=[" + ", ".join(f"{{{table}}}" for table in tables) + "]"


# --- what the files say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "setting", "nus"), [("fig1", MNIST, NU_MNIST), ("fig2", CIFAR10, NU_CIFAR10)])
def test_leakage_presets_hold_the_published_settings(name, setting, nus):
    told = read_preset(find(f"adascale-{name}")).settings
    assert Setting(**told["setting"]) == setting
    assert tuple(told["nus"]) == nus and told["few"] == 3


def test_mnist_training_preset_is_the_published_setting():
    experiment = load(find("adascale-fig1-accuracy"))
    assert (experiment.rounds, experiment.task.clients, experiment.clients.batch) == (MNIST.T, MNIST.M, MNIST.B)
    assert (experiment.server.step_size, experiment.server.weight_decay, experiment.server.momentum) == (0.5, 1e-4, 0)
    assert experiment.radio.noise_var() == pytest.approx(MNIST.noise_power / 2, rel=1e-12, abs=0)
    assert experiment.radio.energy(MNIST.d) == pytest.approx(MNIST.P_max * MNIST.d)
    nus = {(scheme.name, scheme.nu) for scheme in experiment.scheme if scheme.name in adascale.METHODS}
    ends = {(name, nu) for name in adascale.METHODS for nu in (NU_MNIST[0], NU_MNIST[-1])}
    assert nus == {("adascale", nu) for nu in NU_MNIST} | ends


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [([], 550_570), (['task.model={name="resnet",depth=32}', "engine.client_map=2"], 464_154)],
)
def test_cifar_training_preset_is_the_published_setting_in_both_readings(changes, parameters):
    experiment = load(find("adascale-fig2-accuracy"), changes)
    assert (experiment.clients.batch, experiment.task.data.train_size) == (CIFAR10.B, CIFAR10.M * CIFAR10.n)
    assert (experiment.rounds, experiment.clients.clip_norm) == (CIFAR10.T, CIFAR10.G)
    assert (experiment.server.step_size, experiment.server.momentum) == (0.25, 0.9)
    assert {scheme.nu for scheme in experiment.scheme if scheme.name == "adascale"} == set(NU_CIFAR10)
    options = {"depth": experiment.task.model.depth} if changes else {}
    assert models.build(experiment.task.model.name, (32, 32, 3), 10, **options).num_params == parameters


# --- leakage ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def leakage_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("leakage")
    reproduce("adascale-fig1", folder, [], True, Reporter(), Console(quiet=True))
    return folder


def test_leakage_leaves_a_picture_records_and_verdicts(leakage_folder):
    for name in ("results.svg", "records.csv", "results.md"):
        assert (leakage_folder / name).stat().st_size > 500
    rows = json.loads((leakage_folder / "records.json").read_text())
    assert len(rows) == 4 * 2 * 4 + 7 * 2 * 2  # methods, nus, realisations
    results = json.loads((leakage_folder / "results.json").read_text())
    assert len(results["verdicts"]) == 11 and all(one["place"] and one["rule"] for one in results["verdicts"])
    assert any("smoke version" in note for note in results["notes"])
    line = next(one for one in results["panels"][1]["lines"] if one["label"] == "equal-alloc")
    flat = [r["eps"] for r in rows if r["method"] == "equal-alloc" and r["nu"] == 0.16]
    assert line["mean"][-1] == pytest.approx(np.mean(flat), rel=1e-4)


def made_up(factors, seeds=12):
    """A table in which every method leaks so many times as much as the optimum at nu = 0.04 and 0.16."""
    rng = np.random.default_rng(0)
    level = np.exp(rng.normal(0, 1, seeds))
    out = []
    for method, pair in factors.items():
        for nu, factor, base in zip((0.04, 0.16), pair, (1.0, 0.3)):
            values = (base * factor * level * np.exp(rng.normal(0, 0.01, seeds))).tolist()
            out.append({"method": method, "nu": nu, "rdp": values, "eps": values, "eps_mean": float(np.mean(values)),
                        "eps_half_width_95": 0.5})  # fmt: skip
    return out


GOOD = {"optimal": (1, 1), "adascale": (1.1, 1.05), "estim-future": (1.5, 1.3), "equal-alloc": (3, 1.5)}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("below", {"estim-future": (1.5, 1.0)}),
        ("close", {"adascale": (1.3, 1.05)}),
        ("narrows", {"equal-alloc": (3, 30)}),
        ("approaches", {"estim-future": (1.5, 1.6)}),
        ("rises", {"equal-alloc": (3, 30)}),
    ],
)
def test_verdicts_on_leakage_hold_and_can_fail(kind, changes):
    claims = [one for one in read_preset(find("adascale-fig1")).targets["claims"] if one["kind"] == kind]
    assert claims
    for claim in claims:
        assert leakage_verdict(claim, made_up(GOOD), {}).verdict == HOLDS
        assert leakage_verdict(claim, made_up(GOOD | changes), {}).verdict == FAILS


def test_alpha_is_negligible_below_the_shaded_interval_and_reconstructions_stay_undecided():
    claims = {one["kind"]: one for one in read_preset(find("adascale-fig1")).targets["claims"]}
    plain = [r for r in made_up(GOOD) if r["method"] == "adascale"]
    for moved, word in ((0.4, HOLDS), (0.6, FAILS)):
        other = [{**r, "eps_mean": r["eps_mean"] + moved} for r in plain]
        assert leakage_verdict(claims["negligible"], plain, {2: plain, 3: other}).verdict == word
    assert leakage_verdict(claims["reconstructed"], plain, {}).verdict == UNDECIDED


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.01, 5),
    st.integers(0, 40),
    st.floats(0.5, 400),
    st.floats(0.01, 5),
    st.floats(0.9, 0.999),
    st.floats(-9, 9),
)
def test_a_guess_of_the_level_changes_nothing(floor, left, budget, later, decay, log_near):
    cold = discounted_level(floor, left, budget, later, decay)
    assert discounted_level(floor, left, budget, later, decay, np.exp(log_near)) == pytest.approx(cold, rel=1e-12)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("accuracy")
    overrides = [*SMALL, toml_list(SCHEMES)]
    reproduce("adascale-fig1-accuracy", folder, overrides, False, Reporter(), Console(quiet=True))
    return folder


def sites(folder: Path):
    """The radio of every scheme and seed, built again from the run's own config."""
    experiment = load(folder / "config.toml")
    task = build.build_task(experiment)
    return {
        label: build.build_scheme(experiment, s, task).sites for label, s in zip(experiment.labels, experiment.scheme)
    }


def test_the_ledger_counts_what_the_design_counts(trained):
    """Final eps of every run against the noise energies of its plan, sampled Gaussian at the Poisson rates."""
    run, built = RunFolder.open(trained), sites(trained)
    for label in run.labels():
        rounds, summary = run.scheme(label).read("rounds"), run.scheme(label).json("summary")
        for seed, site in enumerate(built[label]):
            noise = rounds["info_noise"][rounds["seed"] == seed]
            expected = run_epsilon(noise, site.deployment, site.message, 1e-5).max()
            assert summary["final_eps"][seed] == pytest.approx(expected, rel=1e-6)
            ledger = Ledger.load(run.scheme(label).path / f"ledger-{seed}.bin")
            np.testing.assert_array_equal(ledger.events.rate, site.message.rate)
            assert np.all(ledger.events.rate < 0.1) and ledger.rounds() == 6


def test_the_cap_is_spent_exactly_in_hindsight(trained):
    rows = json.loads((trained / "records.json").read_text())
    assert len(rows) == len(SCHEMES) * 2
    for row in rows:
        assert row["mean_excess"] == pytest.approx(row["nu"], rel=2e-6)


def test_card_has_both_accountants_and_says_whose_noise(trained):
    card = RunFolder.open(trained).scheme("AdaScale, nu 0.04").json("card")
    spent = {entry["accountant"]: entry["eps_worst"] for entry in card["spent"]}
    assert 0 < spent["pld"] < spent["rdp"] < spent["zcdp"]
    assert card["unit"] == "record" and card["adjacency"] == "zero-out"
    assert "receiver" in card["trusted_noise"] and "Poisson" in card["sampling"]


def test_accuracy_leaves_figures_and_verdicts(trained):
    for name in ("results.svg", "results.md", "records.csv", "report.html"):
        assert (trained / name).stat().st_size > 500
    results = json.loads((trained / "results.json").read_text())
    (verdict,) = results["verdicts"]  # the only claim whose labels were trained
    assert "90%: 90%" in verdict["claim"] and verdict["verdict"] != HOLDS  # six rounds of two seeds on digits
    assert [one["y"] for one in results["panels"][0]["said"]] == [0.9]


def test_training_meets_the_channels_of_the_leakage_figures():
    for seed in (0, 2):
        trace = channels.draw(channels.PUBLISHED["adascale"], MNIST.M, MNIST.T, seed)
        np.testing.assert_allclose(trace.gain, draw(MNIST, seed).gain, rtol=1e-12)


def test_adascale_plans_with_the_trusted_part():
    """A quarter trusted: half the multiplier for the same noise, and four times as much noise for the same leakage."""
    part = replace(MNIST, privacy_noise_power=MNIST.noise_power / 4)
    whole_leakage, leakage = (variables.leakage_of(s.deployment(), s.message()) for s in (MNIST, part))
    noise = np.array([0.05, 0.5])
    half, full = (variables.noise_multiplier(noise, s.deployment(), s.message()) for s in (part, MNIST))
    np.testing.assert_allclose(half, full / 2, rtol=1e-12)
    np.testing.assert_allclose(leakage.total(4 * noise), whole_leakage.total(noise), rtol=1e-12)
    floors = variables.noise_floor(draw(MNIST, 0).gain, MNIST.deployment(), MNIST.message())
    run, distrustful = (algorithm1(floors, 1.0, 0.1, one) for one in (whole_leakage, leakage))
    assert distrustful.excess.mean() > run.excess.mean()


def test_only_the_trusted_part_of_the_noise_counts(tmp_path):
    """A quarter trusted halves every multiplier in the ledger and changes nothing that is learnt."""
    scheme = toml_list([{"name": "adascale-equal", "label": "equal", "nu": 0.1}])
    folders = {}
    for share in (1.0, 0.25):
        experiment = load(find("adascale-fig1-accuracy"), [*SMALL, "seeds=1", scheme, f"radio.trusted_share={share}"])
        folders[share] = RunFolder.open(runner.start(experiment, tmp_path / f"share-{share}")).scheme("equal")
    whole, part = (Ledger.load(folders[share].path / "ledger-0.bin").events for share in (1.0, 0.25))
    np.testing.assert_allclose(noise_multiplier(part), noise_multiplier(whole) / 2, rtol=1e-12)
    for name in ("accuracy", "loss"):
        np.testing.assert_array_equal(*(folders[share].read("evaluations")[name] for share in (1.0, 0.25)))
    eps = {share: folders[share].json("summary")["final_eps"][0] for share in (1.0, 0.25)}
    assert eps[0.25] > eps[1.0]
