"""A ServerApp that is stopped and started again: it goes on, and no round is released twice."""

import gc
import json

import numpy as np
import pytest
from grids import LocalGrid
from test_flower_strategy import (
    DEVICES,
    MODEL,
    SCHEME,
    SITE,
    app,
    leaves,
    of_round,
    own_loop,
    record,
    run,
    strategy,
    update,
)

import otafl
from otafl.connect.flower.folder import RunFolder
from otafl.core.errors import BudgetExceeded, InputError
from otafl.privacy import attack_success
from otafl.privacy.card_text import round_up

pytestmark = pytest.mark.flower


class Killed(BaseException):
    """As abrupt as an exception can be."""


def die_in(number):
    def tamper(replies):
        if of_round(replies, number):
            raise Killed
        return replies

    return tamper


def go_on(folder, client=None, **other):
    made = strategy(folder, **other)
    return made, made.start(LocalGrid(client or app(), DEVICES), record(MODEL), num_rounds=made.affordable_rounds)


def run_until_killed(folder, tamper=None) -> None:
    """As if the process was gone: the lock on the folder ends with the last reference to the loop."""
    try:
        run(folder, tamper=tamper)
    except Killed:
        pass
    else:
        raise AssertionError("the run came to its end")
    gc.collect()


@pytest.fixture
def stopped(tmp_path):
    """A run that ended while round 2 waited for its replies: charged, not sent."""
    run_until_killed(tmp_path, die_in(2))
    return tmp_path


def test_restart_ends_with_the_same_model_and_ledger(stopped, tmp_path_factory):
    _, result = go_on(stopped)
    whole, expected, _ = run(tmp_path_factory.mktemp("whole"))
    for name, leaf in leaves(expected.arrays).items():
        assert leaves(result.arrays)[name].tobytes() == leaf.tobytes()
    assert (stopped / "ledger.bin").read_bytes() == whole.air.ledger_bytes()


def test_restart_reports_all_rounds(stopped):
    _, result = go_on(stopped)
    assert list(result.train_metrics_clientapp) == [1, 2, 3]
    assert result.train_metrics_clientapp[1]["eps"] < result.train_metrics_clientapp[2]["eps"]


def test_papers_are_written_when_a_run_breaks_off(stopped):
    assert otafl.privacy.Ledger.load(stopped / "ledger.bin").rounds() == 2


def test_papers_tell_the_eps_of_the_ledger_whatever_the_record_says(stopped):
    rows = json.loads(str(np.load(stopped / "progress.npz")["rounds"]))
    forged = {**np.load(stopped / "progress.npz"), "rounds": np.array(json.dumps([{**rows[0], "eps": 0.0, "mu": 0.0}]))}
    np.savez(stopped / "progress.npz", **forged)
    made, _ = go_on(stopped)
    ledgers = [made.air.ledger_after(n) for n in (1, 2, 3)]
    counted, mu = [one.spent().worst for one in ledgers], [attack_success(one).mu for one in ledgers]
    told = json.loads((stopped / "rounds.json").read_text())
    assert [row["eps"] for row in told] == pytest.approx(counted, rel=1e-12) and [row["mu"] for row in told] == mu
    assert f"| {round_up(counted[0])} | {round_up(mu[0])} |" in (stopped / "report.md").read_text()


def test_a_record_of_rounds_that_were_not_charged_is_refused(stopped):
    kept = dict(np.load(stopped / "progress.npz"))
    rows = json.loads(str(kept["rounds"]))
    np.savez(stopped / "progress.npz", **{**kept, "rounds": np.array(json.dumps(rows * 3))})
    with pytest.raises(InputError, match="3 rounds, 2 were charged"):
        strategy(stopped)


def test_a_model_that_is_published_tells_nothing_but_the_model(stopped):
    """The record beside it has every device's energy, hence the norm of its update."""
    with np.load(stopped / "model.npz") as alone, np.load(stopped / "progress.npz") as kept:
        assert set(kept) - set(alone) == {"rounds"} and "energy-j" in str(kept["rounds"])
        assert all(np.array_equal(alone[name], kept[name]) for name in alone)


def test_a_run_whose_record_is_gone_does_not_begin_again(stopped):
    made, _ = go_on(stopped)
    made.air.close()
    (stopped / "progress.npz").unlink()
    with pytest.raises(InputError, match="its record has 0 rounds, 3 were charged and 3 answered"):
        strategy(stopped)


def test_finished_rounds_are_not_evaluated_again(stopped):
    made, seen = strategy(stopped), []
    made.start(LocalGrid(app(), DEVICES), record(MODEL), num_rounds=3, evaluate_fn=lambda n, arrays: seen.append(n))
    assert seen == [1, 2, 3]


@pytest.fixture
def unanswered(tmp_path, monkeypatch):
    """A run that ended in round 2 after the hash of its messages was kept, before its answer was."""
    from otafl.runs.air.state import Folder

    keep = Folder.keep_answer

    def die(self, state, flat):
        if state.last_answered == 1:
            raise Killed
        return keep(self, state, flat)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "keep_answer", die)
        run_until_killed(tmp_path)
    return tmp_path


def test_same_messages_get_the_answer_that_was_due(unanswered):
    _, result = go_on(unanswered)
    for name, leaf in own_loop()[1].items():
        np.testing.assert_allclose(leaves(result.arrays)[name], leaf, atol=1e-6)


def test_other_messages_for_a_round_that_was_sent_are_refused(unanswered):
    """Two answers under one noise would cancel it. The round is lost, stays charged, and the run goes on."""
    _, result = go_on(unanswered, client=app(lambda device, t: update(device + 50, t)))
    assert result.train_metrics_clientapp[2]["lost"] == 1
    assert "other messages" in (unanswered / "report.md").read_text()
    assert (unanswered / "ledger.bin").read_bytes() == own_loop()[0].ledger_bytes()


def test_answer_that_was_given_but_not_applied_is_lost_not_asked_for_again(tmp_path, monkeypatch):
    from otafl.connect.flower.folder import RunFolder

    keep = RunFolder.keep

    def die(self, row, model):
        if len(self.rows) == 1:
            raise Killed
        keep(self, row, model)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep", die)
        run_until_killed(tmp_path)
    _, result = go_on(tmp_path)
    assert result.train_metrics_clientapp[2]["lost"] == 1
    assert (tmp_path / "ledger.bin").read_bytes() == own_loop()[0].ledger_bytes()


def test_other_settings_are_refused(stopped):
    with pytest.raises(InputError, match="eps=20"):
        strategy(stopped, eps=30.0)


def test_another_model_is_refused(stopped):
    with pytest.raises(InputError, match="another model"):
        strategy(stopped, model={"weight": MODEL["weight"]})


def test_two_servers_at_once_are_refused(tmp_path):
    first = strategy(tmp_path)
    with pytest.raises(InputError, match="another process"):
        strategy(tmp_path)
    assert first.affordable_rounds == SITE["rounds"]


def test_damaged_model_is_refused(stopped):
    whole = dict(np.load(stopped / "progress.npz"))
    for rows in (b"PK", "{}", "[3]", "[" * 10**5):
        if isinstance(rows, bytes):
            (stopped / "progress.npz").write_bytes(rows)
        else:
            np.savez(stopped / "progress.npz", **{**whole, "rounds": np.array(rows)})
        with pytest.raises(InputError, match="cannot be read"):
            strategy(stopped)


def test_refused_plan_leaves_nothing_to_go_on_from(tmp_path):
    with pytest.raises(BudgetExceeded):
        strategy(tmp_path, eps=0.01)
    gc.collect()
    assert strategy(tmp_path).affordable_rounds == SITE["rounds"]


def test_folder_of_another_loop_is_refused(tmp_path):
    otafl.Air(SCHEME, num_params=9, folder=tmp_path, **SITE).close()
    with pytest.raises(InputError, match="no Flower app began"):
        strategy(tmp_path)


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", "7", "null", "9" * 5000, "{"])
def test_folder_whose_settings_are_nonsense_is_refused_in_one_line(content, tmp_path):
    folder = RunFolder(tmp_path, record(MODEL))
    (tmp_path / "flower.json").write_text(content)
    with pytest.raises(InputError, match=r"no Flower app began; use another folder$"):
        folder.check_asked({"rounds": 3})


def test_other_settings_of_any_length_are_one_short_line(tmp_path):
    folder = RunFolder(tmp_path, record(MODEL))
    folder.keep_asked({"label": "a\nb" * 1000})
    with pytest.raises(InputError, match=r"holds a run with label='a[^\n]{70,90}, not 'c'; give the same settings"):
        folder.check_asked({"label": "c"})


def test_finished_run_waits_for_nobody(tmp_path):
    made, expected, _ = run(tmp_path)
    made.air.close()
    again = strategy(tmp_path)
    result = again.start(LocalGrid(app(), 0), record(MODEL), num_rounds=3)
    assert list(result.train_metrics_clientapp) == list(expected.train_metrics_clientapp)
