"""The comparison: who is ranked, what may be said, and that all schemes met the same channels."""

import io
import json
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from otafl import systems
from otafl.core.errors import Diverged, InputError
from otafl.privacy import Budget, Ledger, Release
from otafl.reports.compared import brief, lines, run_and_write
from otafl.reports.comparison import HEAD, rows, sentence, show, table, unspent, verdicts
from otafl.runs import build
from otafl.runs.board import Board
from otafl.runs.comparing import from_plans
from otafl.runs.comparing.compare import Part, compare, not_separated, question_of, rank
from otafl.runs.comparing.trials import CLIP_RANGE, SEEDS, STEP_RANGE, on_validation, points
from otafl.runs.comparing.tune import trained
from otafl.runs.execution import Execution
from otafl.runs.folder.store import RunFolder
from otafl.runs.folder.summaries import summaries
from otafl.runs.planning import places, steps
from otafl.runs.progress import Reporter, Tick
from otafl.runs.remote import Elsewhere
from otafl.runs.runner import run_in
from otafl.runs.schema import load
from otafl.runs.schema.blocks import Server
from otafl.runs.server import optimizer_of
from otafl.runs.workbench import Workbench
from sweeps import Here

TWO = """
rounds = 6
seeds = [3, 4]
evaluate_every = 3
channel = "cares"
[task]
clients = 4
model = { name = "logistic" }
[privacy]
eps = 5000.0
[[scheme]]
name = "constant"
label = "a"
rx_scale = 0.2
[[scheme]]
name = "constant"
label = "b"
rx_scale = 0.4
[[scheme]]
name = "fedavg"
"""


def entry(label: str, accuracy: list[float], eps: float, **changes: object) -> dict:
    base = {
        "label": label, "private": True, "unit": "client", "adjacency": "replace", "delta": 1e-5, "accountant": "zcdp",
        "seeds": list(range(len(accuracy))), "final_accuracy": accuracy, "worst_client": accuracy, "uplink": "analog",
        "final_eps": [eps] * len(accuracy), "rounds": [10.0] * len(accuracy), "energy_per_round": [0.1] * len(accuracy),
        "joules_mean": [0.1] * len(accuracy), "joules_max": [0.1] * len(accuracy), "clients": 4,
        "efficiency": [0.9] * len(accuracy), "snr": [50.0] * len(accuracy),
        "channel_uses": 100, "csi": "own", "seconds": 1.0, "target_eps": 10.0, "capped": True,
        "card": {"spent": [{"accountant": "zcdp", "eps_worst": eps}]},
    }  # fmt: skip
    return {**base, **changes}


def test_more_privacy_than_the_target_is_refused_not_ranked():
    found = rank([entry("fair", [0.5, 0.6], 9.9), entry("greedy", [0.9, 0.9], 10.1)], target=10.0)
    assert [e["label"] for e in found.ranked] == ["fair"]
    assert "more than the target" in found.refused[0][1]


def test_who_counts_clients_alike_is_ranked_among_its_like_alone():
    """The noise of a weighted mean is that of its heaviest client: an unweighted one is another task."""
    alike, weighed = entry("alike", [0.9, 0.9], 9.0, unweighted=True), entry("weighed", [0.5, 0.6], 9.0)
    found = rank([alike, weighed], 10.0)
    assert [e["label"] for e in found.ranked] == ["weighed"]
    assert "set task.weights = 'equal'" in found.refused[0][1]
    assert rank([alike], 10.0).ranked == [alike]


def test_another_unit_is_refused_and_references_stand_apart():
    found = rank(
        [
            entry("a", [0.5, 0.6], 9.0),
            entry("b", [0.4, 0.5], 9.0),
            entry("c", [0.9, 0.9], 9.0, unit="record"),
            entry("ideal", [1.0, 1.0], np.inf, private=False),
        ],
        target=10.0,
    )
    assert [e["label"] for e in found.ranked] == ["a", "b"]
    assert found.refused[0][0]["label"] == "c" and found.references[0]["label"] == "ideal"
    assert len(rows(found)) == 4


def test_neighbours_are_separated_only_where_the_paired_interval_says_so():
    apart = rank([entry("a", [0.80, 0.71, 0.92], 9.0), entry("b", [0.70, 0.60, 0.82], 9.0)], 10.0)
    assert "cannot be separated" not in verdicts(apart)[0]
    alike = rank([entry("a", [0.80, 0.60, 0.70], 9.0), entry("b", [0.60, 0.79, 0.70], 9.0)], 10.0)
    assert "cannot be separated" in verdicts(alike)[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    return path


def test_all_schemes_see_the_same_channels_and_data(file: Path):
    experiment = load(file)
    task = build.build_task(experiment)
    first, second, _ = (build.build_scheme(experiment, scheme, task) for scheme in experiment.scheme)
    for a, b in zip(first.sites, second.sites):
        for x, y in zip(a.trace, b.trace):
            np.testing.assert_array_equal(x, y)
    seeds = [first.sites[0].trace.gain, first.sites[1].trace.gain]
    assert not np.array_equal(*seeds)


def test_a_comparison_needs_a_target(file: Path, tmp_path: Path):
    file.write_text(TWO.replace("eps = 5000.0", ""))
    with pytest.raises(InputError, match="privacy target"):
        question_of(file, [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("3", "preset.settings=3 must be a table"),
        ("{ eps = 3 }", "eps=3 must be a list"),
        ("{ eps = [] }", "eps must list at least 1"),
        ("{ eps = ['x'] }", r"eps\.0='x' must be a number"),
        ("{ eps = [true] }", r"eps\[0\] must be a number, not true"),
        ("{ eps = [-1.0] }", r"eps\.0=-1\.0 must be > 0"),
        ("{ eps = [2.0, 2] }", "eps=2.0 is there twice"),
        ("{ trials = 1e9 }", "trials=1000000000.0 must be <= 10000"),
        ("{ trials = 'x' }", "trials='x' must be a whole number"),
    ],
)
def test_the_settings_of_a_preset_are_checked_before_anything_is_trained(file: Path, settings: str, said: str):
    with pytest.raises(InputError, match=said):
        question_of(file, [f"preset.settings={settings}"])


def test_compare_runs_ranks_and_is_resumable(file: Path, tmp_path: Path):
    (part,) = run_and_write(question_of(file, []), tmp_path / "out", Reporter())
    found = rank(summaries(part.run), 5000.0)
    assert {e["label"] for e in found.ranked} == {"a", "b"} and found.references[0]["label"] == "fedavg"
    assert json.loads((tmp_path / "out" / "compare.json").read_text())["target"] == 5000.0
    text = (tmp_path / "out" / "compare.md").read_text()
    for e in found.ranked:  # the table's figures are the store's
        assert f"{np.mean(e['final_accuracy']):.3f}" in text
        assert 0 < e["efficiency"][0] <= 1 + 1e-9 and e["snr"][0] <= e["snr_max"][0] * (1 + 1e-9)
    assert "<svg" not in (tmp_path / "out" / "compare.html").read_text()  # one target is no frontier


def test_every_pair_is_corrected_for_all_the_others():
    """Six near copies: with Holm over 15 pairs a single small p is no separation, a large gap still is."""
    rng = np.random.default_rng(0)
    base = rng.normal(0.7, 0.02, 5)
    near = [entry(f"n{k}", list(base + rng.normal(0, 0.01, 5)), 9.0) for k in range(5)]
    far = entry("far", list(base - 0.4 + rng.normal(0, 0.005, 5)), 9.0)
    found = rank([*near, far], 10.0)
    tied = [e["label"] for e, _ in not_separated(found)]
    assert "far" not in tied and len(tied) == 4
    assert all(p >= gap.p for gap, p in found.behind)
    said = sentence(found, 10.0)
    assert said.startswith("ε = 10: n") and "far" not in said.split("cannot tell")[1]
    assert sentence(rank([far], 10.0), 10.0).startswith("ε = 10: far reaches 0.")  # first of none


def test_the_report_of_a_run_names_the_same_equals_as_its_comparison():
    from otafl.reports.sections import opening

    rng = np.random.default_rng(3)
    base = rng.normal(0.7, 0.02, 6)
    found = [entry(f"n{k}", list(base - 0.003 * k + rng.normal(0, 0.003, 6)), 9.0) for k in range(6)]
    schemes = [{"finished": True, "label": e["label"], "summary": e} for e in found]
    comparison = rank(found, 10.0)
    tied = [e["label"] for e, _ in not_separated(comparison)]
    by_interval = [e["label"] for e, (gap, _) in zip(comparison.ranked[1:], comparison.behind) if not gap.apart]
    assert set(by_interval) < set(tied)  # single intervals tell more pairs apart than they may
    said = opening({"schemes": schemes, "metric": "accuracy"}).split("cannot tell it from ")[1]
    assert said.rstrip(".").replace(" or ", ", ").split(", ") == tied


def test_the_report_of_a_run_sets_apart_whom_its_comparison_does_not_rank():
    from otafl.reports.sections import opening, ranked

    found = [entry("most", [0.9, 0.9], 9.0, unweighted=True), entry("a", [0.6, 0.7], 9.0), entry("b", [0.4, 0.5], 9.0)]
    data = {"schemes": [{"finished": True, "label": e["label"], "summary": e} for e in found], "metric": "accuracy"}
    ((_, why),) = rank(found, 10.0).refused
    assert [scheme["label"] for scheme in ranked(data)] == ["a", "b", "most"]
    assert opening(data).startswith("a is first") and opening(data).endswith(f"Not ranked: most: {why}.")


def test_the_screen_needs_no_more_than_80_columns():
    both = [rank([entry("a scheme with a long name", [0.5, 0.6], 1.9), entry("b", [0.4, 0.5], 1.9)], 2.0)] * 2
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table([(2.0, both[0]), (8.0, both[1])]), table([(2.0, both[0])]))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "0.550 ± 0.071" in text and "0.90" in text and "1.0e-01" in text
    assert any("ε = 2" in line for line in lines(both[0], 2.0))


MANY = (
    TWO.replace("eps = 5000.0", 'eps = 20.0\naccountant = "gaussian"').replace("rx_scale = 0.2\n", "")
    + """
[[scheme]]
name = "fedavg-dp"
[[scheme]]
name = "ridge"
[[scheme]]
name = "adascale"
nu = 1.0
"""
)


def test_settings_from_plans_spend_the_budget_and_look_at_no_data(tmp_path: Path):
    """Other pixels and labels give the same settings; rounds planned are rounds afforded; step follows the noise."""
    (path := tmp_path / "many.toml").write_text(MANY)
    experiment = load(path, ["rounds=20", "seeds=1", 'task.weights="equal"', "radio.max_energy=1e3"])
    task = build.build_task(experiment)
    chosen, said = from_plans.from_plans(experiment, task)
    other = task._replace(data=task.data._replace(x=-3 * task.data.x, y=(task.data.y + 1) % 10))
    assert from_plans.from_plans(experiment, other)[0] == chosen and not said
    constant, ideal = chosen.scheme[0], chosen.scheme[3]
    assert constant.server.step_size == pytest.approx(ideal.server.step_size, rel=1e-3)  # the same Gaussian mechanism
    again = load(path, ["rounds=20", "seeds=1", 'task.weights="equal"', "radio.max_energy=1e3", "privacy.eps=5"])
    quieter = from_plans.from_plans(again, task)[0].scheme[0]
    assert quieter.rx_scale < constant.rx_scale and quieter.server.step_size < constant.server.step_size
    shorter = ["rounds=20", "seeds=1", 'task.weights="equal"', "radio.max_energy=1e3"]
    run = compare(question_of(path, shorter, 0), tmp_path / "out")
    spent = {e["label"]: e for e in summaries(run[0].run)}
    for label in ("a", "b", "fedavg-dp", "ridge"):
        assert spent[label]["rounds"] == [20.0] and 0.9 * 20 < spent[label]["final_eps"][0] <= 20.0
        assert 0.9 < spent[label]["efficiency"][0] <= 1 + 1e-6, label
    assert not any("trials" in text for text in spent["a"]["card"]["outside_the_guarantee"])


def test_settings_from_plans_are_for_what_an_earlier_run_left(tmp_path: Path):
    """Half of the budget's zCDP: as with a target of the eps that the other half is worth."""
    (path := tmp_path / "many.toml").write_text(MANY)
    before = Ledger(Budget(20.0, 1e-5, "gaussian", adjacency="replace", unit="client"), 4)
    before.release(Release("before", np.sqrt(before.budget.zcdp), 1.0))
    before.save(spent := tmp_path / "ledger.bin")
    rest = before.budget.counted.convert(before.budget.zcdp / 2, 1e-5)
    asked = ["rounds=20", "seeds=1", "radio.max_energy=1e3"]
    halved, whole = load(path, [*asked, f'privacy.already_spent="{spent}"']), load(path, asked)
    task = build.build_task(whole)
    found, wanted, before_it = (
        from_plans.from_plans(one, task)[0].scheme[0]
        for one in (halved, load(path, [*asked, f"privacy.eps={rest}"]), whole)
    )
    assert found.rx_scale == pytest.approx(wanted.rx_scale, rel=1e-6) and found.rx_scale < 0.9 * before_it.rx_scale


def test_a_design_that_fails_numerically_leaves_the_file_as_it_is(tmp_path: Path):
    """As `otafl advise` has it; a search without a bracket ended in a traceback."""
    (path := tmp_path / "many.toml").write_text(MANY.replace('name = "ridge"', 'name = "biasvar"'))
    experiment = load(path, ["rounds=6", "seeds=1", "radio.noise_std=1e-40"])
    chosen, said = from_plans.from_plans(experiment, build.build_task(experiment))
    assert any(text.startswith("biasvar: no setting from plans (its design fails numerically") for text in said)
    assert chosen.labels == experiment.labels


def test_settings_of_very_many_devices_come_from_some_of_the_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Under their share of the budget: nearly what all rounds give, and nothing that grows with rounds x clients."""
    (path := tmp_path / "many.toml").write_text(MANY)
    asked = ["rounds=60", "seeds=1", 'task.weights="equal"', "radio.max_energy=1e3"]
    whole = load(path, asked)
    task = build.build_task(whole)
    monkeypatch.setattr(places, "DEVICE_ROUNDS", 15 * whole.task.clients)
    part = load(path, [*asked, "engine.stream=true"])
    assert places.place_of(part, part.scheme[0], task).rounds == 15
    every, some = (from_plans.from_plans(one, task)[0].scheme for one in (whole, part))
    for one, other in zip(every[:1] + every[3:5], some[:1] + some[3:5]):
        assert other.server.step_size == pytest.approx(one.server.step_size, rel=0.1), one.label
    assert some[0].rx_scale == pytest.approx(every[0].rx_scale, rel=0.1)


def test_trials_are_the_same_low_discrepancy_points_for_all():
    """The first Halton point is a half, a third and a fifth along the ranges, on a log scale."""
    tried = points(16, 200, 0.35)
    assert tried[1] == (71, pytest.approx(0.05 * 24 ** (1 / 3)), pytest.approx(0.1 * 10 ** (1 / 5)))
    assert tried[0] == (200, 0.35, 1.0) and len(set(tried)) == 16
    for point in tried:
        assert 25 <= point.rounds <= 200
        assert STEP_RANGE[0] <= point.step_scale <= STEP_RANGE[1] and CLIP_RANGE[0] <= point.clip <= CLIP_RANGE[1]


def test_validation_keeps_whole_devices_out(tmp_path: Path):
    one_each = TWO.replace("clients = 4", 'clients = 1437\npartition = { kind = "iid" }')
    (path := tmp_path / "one.toml").write_text(one_each)
    experiment = load(path)
    held_out = on_validation(experiment)
    task = build.build_task(held_out)
    assert task.partitions[0].sizes.max() == 1 and held_out.task.clients < 1437  # nobody holds two
    assert not set(held_out.seed_list) & set(experiment.seed_list) and held_out.seed_list == list(SEEDS)
    assert held_out.task.report_on == "validation"


def test_a_scheme_that_diverges_after_a_later_one_has_finished_is_the_one_without_results(tmp_path, monkeypatch):
    """Schemes run side by side: which of them has no results is said by the error, not by how many are finished."""
    (tmp_path / "two.toml").write_text(TWO)
    finished, run = threading.Event(), Execution.run

    def in_this_order(self, *how):
        if self.label == "a":
            assert finished.wait(60)
            raise Diverged("a: round 0, seed 3: the model is not finite", self.label)
        run(self, *how)
        finished.set()

    monkeypatch.setenv("NPROC", "2")
    monkeypatch.setattr(Execution, "run", in_this_order)
    found = trained(load(tmp_path / "two.toml"), tmp_path / "trial", Reporter())
    assert {label: place is not None and place.finished for label, place in found.items()} == {
        "a": False, "b": True, "fedavg": True,
    }  # fmt: skip


def test_trials_choose_for_every_scheme_and_the_card_says_so(tmp_path: Path):
    text = TWO.replace("eps = 5000.0", "eps = 20.0").partition("[[scheme]]")[0]
    (path := tmp_path / "few.toml").write_text(text + '[[scheme]]\nname = "constant"\nlabel = "a"\n')
    overrides = ["rounds=30", "seeds=[7]", 'task.weights="equal"']
    parts = compare(question_of(path, overrides, 2), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "trials" / "trials.json").read_text())
    assert len(told["points"]) == 2 and set(told["scores"]) == set(told["best"])
    assert all(len(scores) == 2 for scores in told["scores"].values())
    card = summaries(parts[0].run)[0]["card"]
    assert any("2 trials per scheme" in text for text in card["outside_the_guarantee"])
    assert "outside the guarantee" in parts[0].notes[0]
    there = Here()
    compare(question_of(path, overrides, 2), tmp_path / "there", elsewhere=Elsewhere(there, Board()))
    assert [Path(task.folder).name for task in there.given] == ["trial-000", "trial-001", "run"]
    for name in ("trials/trials.json", "run/schemes/a/done.json"):  # the same choice and the same bytes by an executor
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_what_is_left_of_the_budget_is_said_with_its_reason():
    assert unspent(entry("a", [0.5], 9.8)) == ""
    assert "power limit in 80%" in unspent(entry("a", [0.5], 4.0, full_power=[0.8]))
    assert "energy of the run" in unspent(entry("a", [0.5], 4.0, full_power=[0.8], run_energy=0.1))
    assert "60% of ε" in unspent(entry("a", [0.5], 4.0))
    assert "in 1 of 2 seeds not one round fits" in unspent(entry("a", [0.5, 0.1], 4.0, rounds=[10.0, 0.0]))


def test_a_page_has_one_row_per_scheme_with_every_target():
    found = rank([entry("a", [0.5, 0.6], 9.0), entry("b", [0.7, 0.9], 9.9)], target=10.0)
    parts = [Part(eps, Path("x"), Path("x"), [], found) for eps in (5.0, 10.0)]
    text = brief(parts).splitlines()
    assert text[0].startswith("| scheme | ε = 5 | ε = 10 | e | J per device")
    assert text[2].startswith("| b | 0.800 ± 0.141 | 0.800 ± 0.141 | 0.90, 0.90 |")
    assert sum(line.startswith("| ") for line in text) == 3 and "b is first" in "".join(text)


@pytest.mark.browser
def test_the_page_of_a_comparison_sorts_and_has_no_barrier(browser, tmp_path: Path):
    from types import SimpleNamespace

    from browsing import violations
    from otafl.reports.compare_page import page
    from otafl.reports.frontier import STORED
    from otafl.reports.page import stored

    found = rank([entry("first", [0.9, 0.91], 1.9), entry("second", [0.4, 0.5], 1.8)], 2.0)
    part = SimpleNamespace(found=found, target=2.0, folder=tmp_path / "eps-2", run=tmp_path / "run", notes=[])
    path = tmp_path / "compare.html"
    path.write_text(page([part], "Two schemes", stored(STORED)), encoding="utf-8")
    browser.open(path)
    names = "[...document.querySelectorAll('tbody th')].map(th => th.textContent)"
    assert browser.complaints == [] and violations(browser) == []
    assert browser.run(names) == ["first", "second"]
    button = "[...document.querySelectorAll('thead button')].find(b => b.textContent === 'accuracy')"
    browser.run(f"{button}.click(); {button}.click()")
    assert browser.run(names) == ["second", "first"]
    assert browser.run("document.documentElement.scrollWidth") <= 1280
    frame, name = "document.querySelector('.scroll')", "document.querySelector('tbody th').getBoundingClientRect()"
    shown = "[...document.querySelectorAll('thead th')].filter(th => th.offsetWidth).map(th => th.textContent.trim())"
    assert {"scheme", "accuracy", "ε zCDP"} < set(browser.run(shown)) < set(HEAD)
    assert browser.run(f"{frame}.scrollWidth <= {frame}.clientWidth")  # until all columns are asked for
    browser.run("document.querySelector('.choice input').click()")
    assert len(browser.run(shown)) == len(HEAD)
    browser.resize(390)
    assert browser.run("document.documentElement.scrollWidth") <= 390  # the picture and the table scroll by themselves
    browser.run(f"{frame}.scrollLeft = 300")
    assert browser.run(f"{name}.left >= {frame}.getBoundingClientRect().left")  # whose row it is stays in sight
    browser.open(path, width=1016, dark=True)  # a lying A4 less its margins
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 24)"
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert len(browser.run(shown)) == len(HEAD)  # on paper, whatever was asked for
    assert browser.run(f"{frame}.scrollWidth <= {frame}.clientWidth")


def test_a_page_concludes_nothing_about_schemes_that_it_has_not_seen():
    from otafl.reports.compare_page import page
    from otafl.reports.frontier import STORED, points_of
    from otafl.reports.page import stored

    parts = [Part(eps, Path("x"), Path("x"), [], rank([entry("a", [0.5, 0.6], 1.7)], eps)) for eps in (2.0, 8.0)]
    own = page(parts, "One scheme", {"points": points_of(parts, 6)})
    assert "for 6 devices; marks: schemes." in own and "differ little" not in own
    assert "differ little" in page(parts, "The demo", stored(STORED))


def test_every_eps_of_a_comparison_says_what_it_means(tmp_path: Path):
    from otafl.reports.compare_page import page

    closed = entry("adaptive", [0.5, 0.6], 1.7, loop="round", target_eps=2.0)
    parts = [Part(eps, tmp_path, tmp_path, [], rank([closed], eps)) for eps in (2.0, 8.0)]
    kept = ("\n".join(lines(parts[0].found, 2.0)), page(parts, "One scheme", None))
    console = Console(width=200, record=True, file=io.StringIO())
    show(parts, console)
    for text in (*kept, console.export_text()):
        assert "ε at δ=1e-05, client level, replace, worst client, zcdp" in text and "seeds, ε of the worst" in text
        assert "adaptive: closed loop, ε is what was spent" in text
    assert "e and J/device at ε = 8" in text


def test_no_eps_of_a_comparison_stands_without_what_an_attacker_finds():
    """On a narrow screen and in a notebook, too, whose tables have neither μ nor the attacker's column."""
    few = [entry("a", [0.5, 0.6], 1.7, mu=[0.5016, 0.4], tpr_at_1pct=[0.03402, 0.03]), entry("b", [0.5, 0.4], 1.0)]
    many = [entry("a", [0.5, 0.6], 7.0, mu=[None, None], tpr_at_1pct=[0.25, 0.2]), few[1]]  # under sampling
    parts = [Part(eps, Path("x"), Path("x"), [], rank(found, eps)) for eps, found in ((2.0, few), (8.0, many))]
    console = Console(width=200, record=True, file=io.StringIO())
    show(parts, console)
    for text in (console.export_text(), brief(parts)):
        assert "at 1 % false alarms, at most: 3.402 % at ε = 2 (μ = 0.5016), 25 % at ε = 8." in text


def test_momentum_and_decay_count_in_the_step_by_rule(tmp_path: Path):
    """What a server keeps of each round is played out: a unit of noise in every round, moved by optax itself."""
    (path := tmp_path / "many.toml").write_text(MANY)
    for words in ({"momentum": 0.9}, {"step_decay": 0.5}, {"momentum": 0.8, "step_decay": 0.3}):
        server = Server(step_size=1.0, **words)
        optimizer, moved = optimizer_of(server), []
        for t in range(20):
            state, place = optimizer.init(np.zeros(1, np.float32)), 0.0
            for now in range(20):
                change, state = optimizer.update(np.full(1, now == t, np.float32), state, np.zeros(1, np.float32))
                place += float(change[0])
            moved.append(place)
        assert steps.lasting(server, 20) == pytest.approx(np.sqrt(np.mean(np.square(moved))), rel=1e-5)
    plain, fast = (
        load(path, ["rounds=20", "seeds=1", 'task.weights="equal"', f"server.momentum={m}"]) for m in (0.0, 0.9)
    )
    task = build.build_task(plain)
    one, other = (from_plans.from_plans(experiment, task)[0].scheme[0].server.step_size for experiment in (plain, fast))
    assert one / other == pytest.approx(steps.lasting(Server(momentum=0.9), 20))


class Heard(Reporter):
    """Who was trained, chunk by chunk."""

    def __init__(self) -> None:
        self.trained: list[str] = []

    def tick(self, tick: Tick) -> None:
        self.trained.append(tick.label)

    def note(self, text: str) -> None: ...


SEVERAL = ["privacy.accountant=gaussian", "task.weights=equal", "scheme=[{name='fedavg'}, {name='ridge'}]"]


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_scheme_without_privacy_is_trained_once_and_every_target_holds_the_same_bytes(
    file: Path, tmp_path: Path, stream: str
):
    """Each target's folder is what a comparison at this target alone writes, verified and resumable."""
    question = question_of(file, [*SEVERAL, f"engine.stream={stream}"], 0)._replace(targets=[20.0, 40.0])
    compare(question, tmp_path / "both", together := Heard())
    for eps in (20.0, 40.0):
        compare(question._replace(targets=[eps]), tmp_path / f"{eps:g}", alone := Heard())
        assert together.trained.count("fedavg") == alone.trained.count("fedavg") > 0
        assert together.trained.count("ridge") == 2 * alone.trained.count("ridge")
        places = [RunFolder.open(tmp_path / part / "run") for part in (f"both/eps-{eps:g}", f"{eps:g}")]
        for label in ("fedavg", "ridge"):  # the hashes of all files, and whose they are
            one, other = ((place.scheme(label).path / "done.json").read_bytes() for place in places)
            assert one == other, label
        assert {place.label for place in places[0].verified()} == {"fedavg", "ridge"}
    done = tmp_path / "both" / "eps-40" / "run" / "schemes" / "fedavg"
    before = (done / "done.json").read_bytes()
    shutil.rmtree(done)
    compare(question, tmp_path / "both")
    assert (done / "done.json").read_bytes() == before


@dataclass(frozen=True)
class Nothing:
    """No options."""


def test_nothing_else_is_taken_over_between_targets(file: Path, tmp_path: Path):
    """Another step, other seeds, a scheme of somebody's own that says it has no privacy: each is trained."""
    shared, heard = Workbench(), Heard()
    shared.ends = {}

    def run(*changes: str, scheme: str = "fedavg") -> bool:
        """Whether it was trained."""
        before = len(heard.trained)
        run_in(tmp_path / str(len(list(tmp_path.iterdir()))), load(file, [f"scheme=[{{name={scheme!r}}}]", *changes]),
               heard, shared)  # fmt: skip
        return len(heard.trained) > before

    different = ("server.step_size=0.2", "seeds=[5, 6]", "evaluate_every=2", "radio.noise_std=0.1", "task.clients=5")
    assert run() and all(run(change) for change in different)
    assert not run("privacy.eps=7")

    def own(config, deployment, message, context):
        return systems.make("fedavg", Nothing(), deployment, message, context)

    systems.register("quietly", own, Nothing, private=False)
    assert run("privacy.eps=1", scheme="quietly") and run("privacy.eps=2", scheme="quietly")
