"""Bias-variance presets: they parse and run small; tuning is reproducible; verdicts mean what they say."""

import json

import numpy as np
import pytest
import tomli_w
from rich.console import Console

from otafl.channels import Channel, Geometry, PathLoss, place
from otafl.core.files import as_toml, read_toml
from otafl.reproductions.curves import COLUMNS, Scheme, about, judge
from otafl.reproductions.preset_run import reproduce
from otafl.reproductions.reproduction import Reproduction
from otafl.runs import execution, workbench
from otafl.runs.comparing import tune
from otafl.runs.comparing.tune import best_of, settings_of, tune_step_size
from otafl.runs.presets import find, read_preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import load
from otafl.systems.biasvar import reproduce as reproduce_fig2
from otafl.systems.biasvar.bbfl import Config, heard_well, interior_mask
from otafl.systems.biasvar.reproduce import _rough

NAMES = ("biasvar-fig2", "biasvar-fig2-minibatch")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [False, True])
def test_presets_parse(name, quick):
    preset = read_preset(find(name))
    experiment = load(find(name), preset.overrides(quick))
    claims = preset.targets["claims"]
    assert about(claims, set(experiment.labels)) == claims
    ratio_db = 10 * np.log10(experiment.radio.energy(1) / (2 * experiment.radio.noise_var()))
    assert ratio_db == pytest.approx(113.0)


def test_interior_by_path_loss_is_the_interior_by_distance():
    """116.47 dB lie at 1050 m, 0.6 of the cell: both ways of stating the interior agree on drawn deployments."""
    limit = load(find("biasvar-fig2"), []).scheme[-1].max_loss_db
    channel = Channel(geometry=Geometry("disc", high_m=1750.0, clamp_m=10.0), path_loss=PathLoss("biasvar"))
    for seed in range(20):
        drawn = place(channel, 10, seed)
        by_distance = interior_mask(Config(distances_m=tuple(drawn.distance_m), cell_radius_m=1750.0), 10)
        by_loss = heard_well(Config(max_loss_db=limit), np.sqrt(drawn.mean_power_gain))
        np.testing.assert_array_equal(by_loss, by_distance)


def small(tmp_path, keep=("Ideal FedAvg", "design, rho 0.2")):
    """The preset at the smallest size that still goes through everything."""
    data = read_toml(find("biasvar-fig2-minibatch"))
    data["scheme"] = [scheme for scheme in data["scheme"] if scheme["label"] in keep]
    claim = {"text": "ideal is best", "place": "here", "panel": "a", "better": keep[0], "than": keep[-1]}
    data["preset"]["targets"]["claims"] = [claim]
    data["preset"]["quick"] |= {"rounds": 4, "evaluate_every": 2, "preset.settings.tune.step_sizes": [0.1, 0.3]}
    path = tmp_path / "small.toml"
    path.write_text(tomli_w.dumps(data))
    return path, [f"{key}={as_toml(value)}" for key, value in data["preset"]["quick"].items()]


@pytest.mark.slow
def test_figure_two_end_to_end(tmp_path):
    """Measured constants, steps tuned for each panel, a fixed deployment and drawn ones, both parts of F apart."""
    path, _ = small(tmp_path)
    reproduce(str(path), tmp_path / "out", [], True, Reporter(), Console(quiet=True))
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["measured"]["sigma2"] > 0 and found["measured"]["kappa2"] > 0
    assert len(found["verdicts"]) == 1 and set(found["step_sizes"]) == {"a", "b"}
    records = json.loads((tmp_path / "out" / "records.json").read_text())
    assert {(r["panel"], r["run"]) for r in records} == {(panel, run) for panel in "ab" for run in ("fixed", "drawn")}
    assert all(r["objective"] == pytest.approx(r["cross_entropy"] + r["penalty"]) for r in records)
    text = (tmp_path / "out" / "results.md").read_text()
    assert "client, replace" in text and "none, certified" in text and "placed anew for every seed" in text
    fixed, drawn = (load(tmp_path / "out" / f"{name}-a" / "config.toml") for name in ("fixed", "drawn"))
    assert (fixed.channel.placement_seed, drawn.channel.placement_seed) == (0, None)
    assert float(fixed.scheme[1].sigma2) == found["measured"]["sigma2"]


def test_only_the_first_panel_on_the_fixed_deployment_takes_all_seeds(monkeypatch, tmp_path):
    ran = {}
    monkeypatch.setattr(Reproduction, "run", lambda job, part, name: ran.update({name: part}) or tmp_path / name)
    monkeypatch.setattr(reproduce_fig2, "collect", lambda runs: [scheme(label, []) for label in labels])
    monkeypatch.setattr(reproduce_fig2, "_rough", lambda one: one)
    path, labels = find("biasvar-fig2"), load(find("biasvar-fig2")).labels
    set_to = ["preset.settings.deployment=0", "preset.settings.few=5"]
    preset = read_preset(path).model_copy(update={"settings": settings_of(path, set_to)})
    job = Reproduction(path, preset, tmp_path, set_to, False, Reporter(), Console(quiet=True))
    steps = {"a": dict.fromkeys(labels, 0.1), "b": {**dict.fromkeys(labels, 0.1), "OPC": 0.3}}
    reproduce_fig2.trained(job, steps)
    assert {name: len(part.seed_list) for name, part in ran.items()} == {
        "fixed-a": 10, "drawn-a": 5, "fixed-b": 5, "drawn-b": 5}  # fmt: skip
    assert ran["fixed-b"].labels == ["OPC"], "what has the same step in both panels is trained once"


def test_tuned_steps_are_reproducible_and_resumable(tmp_path):
    """Twice in two folders and again in the first: the same file to the byte; best by the rule that it states."""
    path, overrides = small(tmp_path, keep=("design, rho 0.2",))
    fast = [*overrides, "seeds=1", "rounds=2", "evaluate_every=1"]
    files = []
    for folder in ("a", "b", "a"):
        place = tmp_path / folder
        best = tune_step_size(path, [0.3, 0.1], place, overrides=fast)
        files.append((place / "step_sizes.json").read_bytes())
    assert files[0] == files[1] == files[2]
    told = json.loads(files[0])
    assert told["best"] == best
    for label, row in told["scores"].items():
        assert row[f"{best[label]:g}"] == max(row.values())


def test_all_step_sizes_share_the_data_and_the_program(tmp_path, monkeypatch):
    """Read and compiled once, and every score is that of a tuning of this step size alone."""
    path, overrides = small(tmp_path)
    fast, built, compiled = [*overrides, "seeds=1", "rounds=2", "evaluate_every=1"], [], []
    task, engine = workbench.build_task, execution.make_engine
    monkeypatch.setattr(workbench, "build_task", lambda *args: built.append(1) or task(*args))
    monkeypatch.setattr(execution, "make_engine", lambda *args, **more: compiled.append(1) or engine(*args, **more))
    tune_step_size(path, [0.1, 0.3], tmp_path / "both", overrides=fast)
    assert (len(built), len(compiled)) == (1, 1)
    both = json.loads((tmp_path / "both" / "step_sizes.json").read_bytes())["scores"]
    tune_step_size(path, [0.3], tmp_path / "one", overrides=fast)
    one = json.loads((tmp_path / "one" / "step_sizes.json").read_bytes())["scores"]
    assert {label: row["0.3"] for label, row in both.items()} == {label: row["0.3"] for label, row in one.items()}


def test_ties_go_to_the_smaller_step_and_divergence_loses():
    assert best_of({0.3: 0.2, 0.1: 0.2}, "accuracy") == 0.1
    assert best_of({0.1: float("nan"), 0.3: 0.1}, "accuracy") == 0.3
    assert best_of({0.1: float("nan"), 0.3: 5.0, 1.0: 4.0}, "loss") == 1.0


GRID = [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0]
MEASURED = {  # scores of the whole grid on 2026-11-16, with a dip beside the best or the best far out
    "Ideal FedAvg": ("accuracy", [0.134, 0.2364, 0.5733, 0.7815, 0.8426, 0.8865, 0.9059, 0.9085, 0.8859, 0.1149], 5),
    "BB-FL Alternative": ("accuracy", [0.12, 0.17, 0.19, 0.48, 0.7132, 0.8538, 0.8477, 0.8664, 0.822, 0.4672], 5),
    "BB-FL Interior": (
        "objective", [4.0166, 4.0029, 4.063, 4.1926, 4.6004, 5.4014, 8.3158, 14.1085, 20.4516, 43.6336], 8),
    "LCPC": ("accuracy", [0.1178, 0.1487, 0.2471, 0.5411, 0.7612, 0.8565, 0.8895, 0.8982, 0.8987, 0.876], 5),
    "diverges": ("loss", [2.3, 2.2, 2.1, *[float("nan")] * 7], 8),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURED)
def test_steps_beyond_the_middle_are_tried_until_the_best_has_two_worse_on_either_side(name, monkeypatch, tmp_path):
    metric, row, most = MEASURED[name]
    whole, tried = dict(zip(GRID, row)), []

    def scores(trial, folder, *_):
        tried.append((float(folder.name.removeprefix("step-")), trial.labels))
        return {label: whole[tried[-1][0]] if label == "OPC" else -abs(tried[-1][0] - 0.1) for label in trial.labels}

    monkeypatch.setattr(tune, "_scores", scores)
    path, overrides = small(tmp_path, keep=("OPC", "Vanilla"))
    found = tune_step_size(path, GRID, tmp_path, overrides=overrides, metric=metric, reach=2)
    steps = [step for step, labels in tried if "OPC" in labels]
    assert found["OPC"] == best_of(whole, metric), "as the whole grid says"
    assert len(steps) == len(set(steps)) <= most
    assert all(len(labels) == 1 for _, labels in tried[1:]), "alone, so that another metric finds them"
    if metric == "accuracy":
        assert [step for step, labels in tried if "Vanilla" in labels] == [0.1, 0.3, 0.6, 0.03, 0.01]


def scheme(label, values):
    finals = {metric: {("run", seed): value for seed, value in enumerate(values)} for metric in COLUMNS}
    return Scheme(label, finals, {}, {})


def test_verdicts_follow_the_paired_interval():
    """Better in every pair by about 0.1: holds; the other way round: fails; noise around 0: cannot be separated."""
    rng = np.random.default_rng(0)
    base = rng.normal(0.5, 0.2, 8)
    ahead, level = base + 0.1 + rng.normal(0, 0.01, 8), base + rng.normal(0, 0.01, 8)
    schemes = [scheme("base", base), scheme("ahead", ahead), scheme("level", level)]

    def word(better, than, larger=True):
        return judge([{"text": "", "better": better, "than": than, "lower": not larger}], schemes)[0].verdict

    assert word("ahead", "base") == "holds" and word("base", "ahead") == "does not hold"
    assert word("base", "ahead", larger=False) == "holds"
    assert word("level", "base") == "undecided"

    def near(one, other, within):
        claim = {"text": "", "better": one, "than": other, "within": within}
        return judge([claim], schemes)[0].verdict

    assert near("level", "base", 0.05) == near("base", "level", 0.05) == "holds"
    assert near("ahead", "base", 0.05) == near("base", "ahead", 0.05) == "does not hold"
    assert near("level", "base", 0.005) == "undecided"


def test_roughness_is_the_spread_of_the_changes_in_the_second_half():
    values = np.array([0.0, 9.0, 0.0, 0.5, 0.7, 0.5, 0.7])
    one = Scheme("a", {}, {}, {"accuracy": {("run", 0): (np.arange(7), values)}})
    assert _rough(one).finals["roughness"]["run", 0] == pytest.approx(np.std([0.2, -0.2, 0.2]))
