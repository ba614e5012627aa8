"""Sweeps: every point a run of its own, one index; whatever dies in between, the bytes of undisturbed runs."""

import json
import os
import shutil
import signal
from concurrent.futures import Future

import pytest
from scipy.stats import norm

from otafl.core.errors import BudgetExceeded, InputError
from otafl.reports.sweep import Sweep, rows
from otafl.runs import runner
from otafl.runs.board import Board
from otafl.runs.executors import Outcome
from otafl.runs.folder.sealed import with_seal
from otafl.runs.remote import NotDone, Task, arrived, check, task_of
from otafl.runs.schema import load
from otafl.runs.sweep import axis, points, read, run_all
from otafl.runs.workers import Local
from sweeps import LONG, TEXT, Heard, Here, at_a_checkpoint, content, sweep


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "small.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def done(file, tmp_path_factory):
    """eps = 500 and 400 can be paid for, 0.001 cannot."""
    folder, live = tmp_path_factory.mktemp("sweep"), Heard()
    outcomes = sweep(file, folder, {"privacy.eps": ["500.0", "400.0", "0.001"]}, Here(), live)
    return folder, outcomes, live


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["privacy.eps", "=1,2", "rounds=", "rounds=1,,2"])
def test_axis_that_says_nothing_is_refused(text):
    with pytest.raises(InputError, match="-m"):
        axis(text)


def test_every_combination_is_a_point_with_its_own_folder(file, tmp_path):
    found = points(tmp_path, {"rounds": ["2", "4"], "privacy.eps": ["1", "2", "3"]}, lambda v: load(file, v))
    assert [(p.experiment.rounds, p.experiment.privacy.eps) for p in found] == [
        (2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (4, 3),
    ]  # fmt: skip
    assert len({point.folder for point in found}) == 6


def test_points_that_are_one_experiment_are_refused(file, tmp_path):
    with pytest.raises(InputError, match="same experiment"):
        points(tmp_path, {"privacy.eps": ["2", "2.0"]}, lambda v: load(file, v))


def test_mistake_in_any_point_is_found_before_anything_runs(file, tmp_path):
    with pytest.raises(InputError, match="roundz"):
        sweep(file, tmp_path / "x", {"roundz": ["1", "2"]}, Here())
    assert not (tmp_path / "x").exists()


# --- what becomes of it ----------------------------------------------------------------------------------------------


def test_failed_point_does_not_stop_the_others(done):
    folder, outcomes, live = done
    assert [outcome.exit_code for outcome in outcomes.values()] == [0, 0, BudgetExceeded.exit_code]
    assert [point["outcome"] == "done" for point in read(folder)] == [True, True, False]
    assert [line[2:] for line in live.lines] == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(NotDone, match=r"privacy.eps=0.001: .*\(exit code 4\)") as refusal:
        check(outcomes)
    assert refusal.value.exit_code == 4


def test_index_shows_points_and_failures(done):
    page = (done[0] / "index.html").read_text()
    assert page.count("report.html") == 2 and "<svg" in page and "exit code 4" in page
    assert Sweep(done[0]).table["privacy.eps"].tolist() == [500.0, 400.0]
    assert len((done[0] / "table.csv").read_text().splitlines()) == 3


def test_eps_stands_beside_what_an_attacker_finds(done):
    found = Sweep(done[0])
    head, first, _ = rows(found.entries, found.keys)
    assert head[head.index("ε") + 1] == "TPR@1 %"
    table = found.table
    expected = norm.sf(norm.isf(0.01) - table["mu_mean"])
    assert table["tpr_at_1pct_mean"].tolist() == pytest.approx(list(expected), abs=1e-3)
    assert float(first[head.index("μ")]) >= table["mu_mean"][0] > 0


def test_finished_points_are_not_run_again(done, file):
    """Called again: those that are done are found by their seals, the failed one is tried."""
    again, live = Here(), Heard()
    before = {p["folder"]: content(done[0] / p["folder"]) for p in read(done[0])}
    sweep(file, done[0], {"privacy.eps": ["500.0", "400.0", "0.001"]}, again, live)
    assert len(again.given) == 1 and "eps = 0.001" in again.given[0].config
    assert {folder: content(done[0] / folder) for folder in before} == before


def test_damaged_point_is_told_and_left_alone(file, tmp_path):
    (found,) = points(tmp_path, {"rounds": ["2"]}, lambda v: load(file, v))
    run_all([found], tmp_path, Here(), Board())
    card = found.folder / "schemes" / "constant" / "card.md"
    card.write_text("edited")
    again = Here()
    (outcome,) = run_all([found], tmp_path, again, Board()).values()
    assert outcome.exit_code == 2 and "card.md" in outcome.said and not again.given
    assert card.read_text() == "edited"


def test_point_is_the_run_of_its_config(done, file, tmp_path):
    plain = runner.start(load(file, ["privacy.eps=400.0"]), tmp_path / "plain")
    assert content(plain) == content(done[0] / read(done[0])[1]["folder"])


def test_folder_out_of_sight_and_other_versions_are_refused(file, tmp_path):
    task = task_of(load(file), tmp_path / "run", tmp_path)
    with pytest.raises(InputError, match="cannot be seen"):
        arrived(task._replace(shared=str(tmp_path / "elsewhere")))
    with pytest.raises(InputError, match="same otafl"):
        arrived(Task(task.config, "0" * 64, task.folder, task.shared))


# --- what is killed ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_worker_goes_on_from_its_checkpoint_to_the_same_bytes(file, tmp_path):
    """One of two workers dies by SIGKILL once its point has a checkpoint; the sweep ends as if nothing had been."""
    long = tmp_path / "long.toml"
    long.write_text(LONG)
    folder, live, executor = tmp_path / "sweep", Heard(), Local(2)
    killed: list[int] = []
    thread = at_a_checkpoint(folder, lambda: list(executor._running), lambda pid: os.kill(pid, signal.SIGKILL), killed)
    try:
        outcomes = sweep(long, folder, {"scheme.0.rx_scale": ["0.2", "0.3"]}, executor, live)
    finally:
        thread.join()
        executor.close()
    assert killed and any("lost" in note for note in live.notes)
    check(outcomes)
    other = tmp_path / "undisturbed"
    sweep(long, other, {"scheme.0.rx_scale": ["0.2", "0.3"]}, Here())
    for point in read(other):
        assert content(folder / point["folder"]) == content(other / point["folder"])


def test_outcomes_are_written_for_programs(done):
    told = json.loads((done[0] / "sweep.json").read_text())
    assert told["keys"] == ["privacy.eps"] and told["points"][2]["exit_code"] == 4


def test_outcome_that_is_no_outcome_is_a_failure(file, tmp_path):
    class Odd(Here):
        def submit(self, function, argument, /):
            future = Future()
            future.set_result(None)
            return future

    (found,) = points(tmp_path, {"rounds": ["2"]}, lambda v: load(file, v))
    (outcome,) = run_all([found], tmp_path, Odd(), Board()).values()
    assert isinstance(outcome, Outcome) and not outcome.done


class Mixed(Here):
    """Workers that bring one point's results into every folder, or none at all."""

    def __init__(self, source=None):
        self.source = source

    def submit(self, function, argument, /):
        future = Future()
        if self.source is not None:
            shutil.copytree(self.source, argument.folder, dirs_exist_ok=True)
        future.set_result(Outcome("done", value=argument.folder))
        return future


def test_a_worker_that_brings_another_points_folder_is_not_believed(done, file, tmp_path):
    (other, *_) = (done[0] / point["folder"] for point in read(done[0]))
    outcomes = sweep(file, tmp_path, {"privacy.eps": ["450.0"]}, Mixed(other))
    (said,) = (outcome.said for outcome in outcomes.values())
    assert "other settings" in said and not Sweep(tmp_path).entries


def test_a_worker_that_has_done_nothing_is_not_believed(file, tmp_path):
    outcomes = sweep(file, tmp_path, {"privacy.eps": ["450.0"]}, Mixed())
    assert not any(outcome.done for outcome in outcomes.values())


def test_a_point_in_whose_place_another_run_lies_is_refused(done, tmp_path):
    shutil.copytree(done[0], tmp_path / "sweep")
    first, second, _ = (tmp_path / "sweep" / point["folder"] for point in read(tmp_path / "sweep"))
    shutil.rmtree(first)
    shutil.copytree(second, first)
    with pytest.raises(InputError, match="is the run of another point"):
        Sweep(tmp_path / "sweep").entries  # noqa: B018


@pytest.mark.parametrize(
    "forged",
    [{"points": []}, {"points": 3}, {"keys": []}, {"points": [{"folder": "../../x"}]}, {"keys": ["\x1b[2J"]}],
)
def test_an_index_of_nonsense_is_one_line(done, tmp_path, forged):
    told = json.loads((done[0] / "sweep.json").read_text())
    del told["seal"]
    (tmp_path / "sweep.json").write_text(json.dumps(with_seal({**told, **forged})))
    with pytest.raises(InputError, match=r"sweep\.json: is damaged"):
        Sweep(tmp_path)
