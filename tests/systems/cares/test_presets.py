"""CARES' presets: they read, their analyses say what the numbers say, and their smoke versions run on real data."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from otafl.reproductions.claims import Claim
from otafl.reproductions.findings import UNDECIDED
from otafl.reproductions.preset_run import reproduce
from otafl.runs.comparing.statistics import Gap
from otafl.runs.presets import find, presets
from otafl.runs.progress import Reporter
from otafl.runs.schema import load, resolved
from otafl.systems.cares import reproduce as cares
from otafl.systems.cares import reproduce_claims, reproduce_controller, reproduce_scalings
from otafl.systems.cares.certifier import Problem
from otafl.systems.cares.reproduce_certificates import certificates
from otafl.systems.cares.reproduce_figures import FIGURES, Curves, printed

NAMES = [name for name in presets() if name.startswith("cares-")]
TABLES = ["cares-table1", "cares-table2", "cares-table2-stress", "cares-table3"]


def test_every_table_and_figure_has_a_preset():
    figures = [f"cares-fig{n}" for n in range(1, 8)]
    assert {*TABLES, *figures, "cares-sweep", "cares-wide", "cares-controller", "cares-rounds"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_an_experiment_also_in_its_quick_version(name: str):
    preset, path = presets()[name], find(name)
    whole, small = load(path), load(path, preset.overrides(quick=True))
    assert whole.privacy.eps == 500 and whole.privacy.delta == 1e-5
    assert small.rounds * len(small.seed_list) < whole.rounds * len(whole.seed_list) or name in (
        "cares-sweep",
        "cares-fig2",
    )


@pytest.mark.parametrize("name", TABLES)
def test_targets_and_claims_are_about_schemes_of_the_table(name: str):
    preset, labels = presets()[name], load(find(name)).labels
    assert set(preset.targets.get("schemes", {})) <= set(labels)
    assert preset.settings["reference"] in labels
    for record in preset.targets["claims"]:
        claim = Claim(**record)
        assert {claim.better, *(rival.partition(" @ ")[0] for rival in claim.rivals)} <= set(labels)


@pytest.mark.parametrize("name", ["cares-table1", "cares-table2", "cares-controller", "cares-wide"])
def test_claims_are_judged_again_on_seeds_that_neither_the_first_record_nor_tuning_saw(name):
    assert not set(load(find(name)).seed_list) & {*range(30), *range(1000, 1003)}


def test_table_settings_are_the_papers():
    one = load(find("cares-table1"))
    assert one.task.clients == 20 and one.radio.noise_std == 0.05 and one.server.step_size == 0.1
    controller = one.scheme[one.labels.index("CARES adaptive")]
    assert (controller.rule, controller.features, controller.arms_from, controller.ucb_width) == (
        "ratio",
        "raw",
        "safe",
        1,
    )
    assert one.horizon(one.scheme[0]) == 600 and one.horizon(controller) == one.rounds
    assert not one.scheme[one.labels.index("OTA-FFL†")].stop_at_budget
    three = load(find("cares-table3"))
    assert three.task.clients == 100 and three.radio.noise_std == 0.03 and three.task.data.pca.components == 128  # type: ignore[union-attr]


def test_figures_show_the_runs_of_their_table():
    for n, figure in FIGURES.items():
        path = find(f"cares-fig{n}")
        table = find(presets()[path.stem].experiment)
        assert resolved(load(path)) == resolved(load(table))
        assert set(figure.schemes) <= set(load(path).labels)


# --- analyses on numbers made up for the purpose ----------------------------------------------------------------------


def entry(label: str, values: list[float]) -> dict[str, Any]:
    return {"label": label, "seeds": list(range(len(values))), "accuracy_at_eps": values}


@pytest.mark.parametrize(("shift", "word"), [(0.05, "holds"), (-0.05, "does not hold"), (0.0005, UNDECIDED)])
def test_claims_are_judged_by_paired_intervals(shift: float, word: str):
    base = [0.7, 0.8, 0.75, 0.9]
    moved = [value + shift + error for value, error in zip(base, (0.001, -0.001, 0.002, -0.002))]
    claim = {"text": "a over b", "better": "a", "than": "b", "metric": "accuracy_at_eps"}
    (verdict,) = reproduce_claims.judge([claim], [entry("a", moved), entry("b", base)])
    assert verdict.verdict == word and "4 pairs" in verdict.evidence


def test_one_pair_decides_nothing():
    claim = {"text": "a over b", "better": "a", "than": "b", "metric": "accuracy_at_eps"}
    (verdict,) = reproduce_claims.judge([claim], [entry("a", [0.9]), entry("b", [0.1])])
    assert verdict.verdict == UNDECIDED


def test_printed_numbers_are_judged_and_a_subset_decides_none():
    found = [entry("a", [0.80, 0.81, 0.79, 0.80]) | {"best_accuracy": [0.9] * 4}]
    said = printed({"a": {"accuracy_at_eps": "0.806", "best_accuracy": "0.95 ± 0.01", "final_eps": "≤ 500"}})
    rules = {"paper_seeds": 10, "within": {"accuracy_at_eps": 0.02, "best_accuracy": 0.02}, "place": "Table 1"}
    assert [one.verdict for one in reproduce_claims.levels(found, said, rules)] == ["holds", "does not hold"]
    some = reproduce_claims.levels(found, said, {**rules, "subset": "a subset"})
    assert {one.verdict for one in some} == {UNDECIDED} and all("does not decide it" in one.evidence for one in some)


@pytest.mark.parametrize(("gain", "word"), [(0.09, "holds"), (0.01, "does not hold"), (0.027, UNDECIDED)])
def test_two_tasks_are_compared_by_their_leads(gain: float, word: str):
    def run(lead: float) -> list[dict[str, Any]]:
        spread = [-0.002, 0.0, 0.001, 0.001]
        return [entry("CARES static", [0.5 + lead + e for e in spread]), entry("fixed", [0.5] * 4)]

    assert reproduce_claims.larger_gain(run(gain), run(0.027), "fixed").verdict == word


def test_some_setting_must_lead_every_rival_and_chance_is_counted():
    """Twenty settings with one p value of 0.03 are no discovery; one that leads surely is; all behind is a failure."""
    lucky, level, none = Gap(0.01, 0.009, 20, 0.03), Gap(0, 0.01, 20, 1.0), Gap(float("nan"), float("inf"), 0)
    ahead, behind = Gap(0.1, 0.01, 20, 1e-9), Gap(-0.1, 0.01, 20, 1e-9)

    def word(*settings: list[Gap]) -> str:
        return reproduce_controller.any_of("t", settings, [str(n) for n in range(len(settings))], "acc").verdict

    assert word([lucky, lucky], *[[level, level]] * 19) == UNDECIDED
    assert word([ahead, ahead], [behind, ahead], [none, none]) == "holds"
    assert word([behind, ahead], [behind, behind], [none, none]) == "does not hold"


@pytest.mark.parametrize(("power", "word"), [(-1.0, "holds"), (1.0, "does not hold")])
def test_following_the_channel_is_a_rank_correlation(power: float, word: str):
    """Scalings that fall (rise) with the drop rate, three seeds of eight drift periods."""
    tables: list[dict[str, np.ndarray]] = []
    for seed in range(3):
        rate = np.repeat(np.random.default_rng(seed).uniform(0.5, 2.0, 8), 40)
        scale = 0.3 * rate ** (0.2 * power)
        tables.append({"seed": np.full(320, seed), "rx_scale": scale, "info_dropped_weight": 1e-3 * rate * scale**2})
    rounds = {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}
    curves = Curves("x", {}, {"seed": rounds["seed"]}, rounds)
    verdict = reproduce_scalings.follows_the_channel({}, lambda label: curves)
    assert verdict.verdict == word


def made_up(**columns: list[float]) -> Curves:
    """Two seeds alike: sent weight and envelope by round, accuracy after every tenth."""
    rounds = {name: np.tile(column, 2) for name, column in columns.items() if name != "accuracy"}
    rounds["seed"] = np.repeat([0, 1], len(columns["sent_weight"]))
    count = len(columns["accuracy"])
    after = {"seed": np.repeat([0, 1], count), "round": np.tile(10 * np.arange(1, count + 1), 2)}
    return Curves("x", {}, {**after, "accuracy": np.tile(columns["accuracy"], 2)}, rounds)


@pytest.mark.parametrize(("envelope", "word"), [(0.5, "holds"), (0.3, "does not hold")])
def test_dropped_weight_is_held_against_its_envelope(envelope: float, word: str):
    """A fifth is dropped on average: less than half of 0.5, not of 0.3."""
    curves = made_up(sent_weight=[1.0, 0.6], info_dropped_weight=[envelope] * 2, accuracy=[0.5])
    assert reproduce_scalings.drops_less({}, lambda label: curves).verdict == word


@pytest.mark.parametrize(("third", "word"), [(0.6, "holds"), (0.8, "does not hold")])
def test_learning_is_compared_after_as_many_rounds(third: float, word: str):
    """What the fixed scaling does with its further rounds does not count."""
    static, fixed = ([0.3, 0.5, 0.7], [0.2, 0.4, third, 0.9])
    known = {"CARES static": static, "OTA-FFL budget": fixed}
    curves = {label: made_up(sent_weight=[1.0], accuracy=values) for label, values in known.items()}
    assert reproduce_scalings.learns_faster({}, curves.__getitem__).verdict == word


@pytest.mark.parametrize(("scales", "remarks", "words"), [
    ([0.30, 0.31], [], ("holds", "holds")),
    ([0.25, 0.26], ["no joint certificate in 39.7% of the rounds"], ("does not hold", "does not hold")),
])  # fmt: skip
def test_figure_five_looks_at_scalings_and_certificates(scales: list[float], remarks: list[str], words: tuple):
    method = {"mean_rx_scale": scales, "remarks": remarks}
    known = {"CARES adaptive": method}
    found = [ask(known, lambda label: None) for ask in (reproduce_scalings.near, reproduce_scalings.always_certified)]
    assert tuple(verdict.verdict for verdict in found) == words


def test_wide_study_takes_the_best_of_the_validation_scores():
    scores = {
        "η = 0.4": {"0.1": 0.80, "0.2": 0.82},
        "η = 0.6": {"0.1": 0.85, "0.2": 0.84},
        "η = 0.8": {"0.1": 0.7, "0.2": 0.9},
        "auto": {"0.1": 0.3, "0.2": 0.2},
    }
    steps = {"η = 0.4": 0.2, "η = 0.6": 0.1, "η = 0.8": 0.2, "auto": 0.1}
    chosen = cares.candidates(scores, steps, "η = 0.4", 0.1)
    assert chosen.pairs[chosen.published] == ("η = 0.4", 0.1)
    assert chosen.pairs[chosen.published_tuned] == ("η = 0.4", 0.2)
    assert chosen.pairs[chosen.wide] == ("η = 0.6", 0.1)
    assert chosen.pairs[chosen.wide_tuned] == ("η = 0.8", 0.2)
    assert chosen.pairs[chosen.certified] == ("auto", 0.1)
    assert len(chosen.pairs) == 5 and len(cares.wide_claims(chosen)) == 5
    experiment = load(find("cares-wide"))
    renamed = chosen._replace(pairs={"a": ("η = 0.6", 0.3), "b": ("η = 0.4", 0.1)})
    confirmed = cares.confirmation(experiment, renamed)
    assert confirmed.labels == ["a", "b"]
    assert [(s.rx_scale, s.server.step_size) for s in confirmed.scheme] == [(0.6, 0.3), (0.4, 0.1)]


def test_a_claim_about_one_and_the_same_pair_is_no_claim():
    scores = {"η = 0.4": {"0.1": 0.9}, "η = 0.6": {"0.1": 0.8}, "auto": {"0.1": 0.3}}
    chosen = cares.candidates(scores, {"η = 0.4": 0.1, "η = 0.6": 0.1, "auto": 0.1}, "η = 0.4", 0.1)
    assert [claim["better"] for claim in cares.wide_claims(chosen)] == ["auto, step 0.1"]


@pytest.mark.parametrize(("version", "arms"), [(0, [10, 3, 0]), (1, [8, 4, 0])])
def test_noise_sweep_empties_the_set_on_a_site_like_the_papers(version: int, arms: list[int]):
    """CARES E7, both versions, at p_max = 0.09."""
    weights = np.array([0.09, *np.full(19, 0.91 / 19)])
    problem = Problem(weights, np.linspace(0.2, 1, 20), 0.05, 9610, np.log(10), 500.0, 1e-5)
    found = certificates(problem, presets()["cares-sweep"].settings["versions"][version])
    assert [int(answer.verdict.feasible.sum()) for _, answer in found] == arms


# --- smoke versions on real data ---------------------------------------------------------------------------------


def smoke(name: str, folder: Path) -> tuple[str, dict[str, Any]]:
    text = io.StringIO()
    reproduce(name, folder / name, [], True, Reporter(), Console(file=text, width=200))
    return text.getvalue(), json.loads((folder / name / "results.json").read_text())


@pytest.mark.slow
def test_table_and_its_figures_run(data_folder: Path, tmp_path: Path):
    text, results = smoke("cares-table1", tmp_path)
    assert len(results["schemes"]) == 6 and "PCA basis fitted on private training data" in text
    for scheme in results["schemes"]:
        place = tmp_path / "cares-table1" / "run" / "schemes"
        assert scheme["stopped_by"] == ["horizon", "horizon"] and place.is_dir()
    smoke("cares-fig5", tmp_path)
    assert "paper, as printed" in (tmp_path / "cares-fig5" / "results.svg").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cares-table2", "cares-table3", "cares-wide", "cares-fig2"])
def test_other_smoke_versions_run(name: str, data_folder: Path, tmp_path: Path):
    text, _ = smoke(name, tmp_path)
    assert "subset" in text if name == "cares-table3" else text
