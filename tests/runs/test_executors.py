"""Tasks on processes that die, on futures that fail: what is lost is done again, what failed is told, nothing hangs."""

import os
import pickle
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from otafl.connect.executors import opened
from otafl.core.errors import BudgetExceeded, InputError, Interrupted
from otafl.runs.executors import ATTEMPTS, BUSY, DONE, Outcome, attempt, each
from otafl.runs.folder.disk import FolderBusy
from otafl.runs.interrupts import StopFlag
from otafl.runs.workers import Local, WorkerLost
from worker_tasks import cores_of, out_of_order, square, until_told, who


class Script:
    """An executor whose futures end as they are told."""

    def __init__(self, *ends):
        self.ends, self.given = list(ends), 0

    def submit(self, function, argument, /):
        future, self.given = Future(), self.given + 1
        end = self.ends.pop(0) if self.ends else function(argument)
        future.set_exception(end) if isinstance(end, BaseException) else future.set_result(end)
        return future


def wait_for(true, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the loop ------------------------------------------------------------------------------------------------------


def test_anything_with_submit_is_an_executor():
    with opened(Script()) as executor:
        assert dict(each(executor, square, {"a": 2, "b": 3}, StopFlag())) == {
            "a": Outcome(DONE, value=4), "b": Outcome(DONE, value=9),
        }  # fmt: skip


def test_lost_task_is_given_out_again_and_said():
    script, notes = Script(OSError("node gone"), WorkerLost("signal 9")), []
    ((_, outcome),) = each(script, square, {"a": 2}, StopFlag(), notes.append)
    assert outcome.value == 4 and script.given == 3
    assert len(notes) == 2 and "node gone" in notes[0]


class Closed(Script):
    """Takes so many tasks and is closed then, or answers with what is no future."""

    def submit(self, function, argument, /):
        if self.given >= self.ends[0]:
            if self.ends[1] is None:
                return None
            raise self.ends[1]
        self.given += 1
        return Script().submit(function, argument)


@pytest.mark.parametrize(("refusal", "said"), [
    (RuntimeError("cannot schedule\nnew futures"), "RuntimeError: cannot schedule"), (None, "a NoneType, which is no"),
])  # fmt: skip
def test_task_that_the_executor_does_not_take_is_a_failure_and_what_was_done_stays(refusal, said):
    notes = []
    outcome = dict(each(Closed(1, refusal), square, {"a": 2, "b": 3}, StopFlag(), notes.append))
    assert outcome["a"] == Outcome(DONE, value=4)
    assert outcome["b"].exit_code == 1 and outcome["b"].said.startswith("the executor did not take it, 4 times; ")
    assert said in outcome["b"].said and len(notes) == ATTEMPTS - 1


def test_task_that_kills_every_worker_is_given_up_and_the_others_go_on():
    script = Script(*[WorkerLost("signal 9")] * ATTEMPTS)
    (first,) = each(script, square, {"a": 2}, StopFlag())
    assert not first[1].done and first[1].exit_code == 1 and script.given == ATTEMPTS
    assert dict(each(script, square, {"b": 3}, StopFlag()))["b"].done


@pytest.mark.parametrize("end", [Outcome("\x1b[31mred\n", 1), *[[WorkerLost("\x1b[31mred\x07")] * ATTEMPTS]], ids=str)
def test_what_a_failure_says_is_one_line_that_can_be_written_down(end):
    script = Script(*(end if isinstance(end, list) else [end]))
    ((_, outcome),) = each(script, square, {"a": 2}, StopFlag())
    assert "[31mred" in outcome.said and outcome.said.isprintable()


def test_folder_that_somebody_holds_is_tried_again(monkeypatch):
    monkeypatch.setattr("otafl.runs.executors.BUSY_S", 0.01)
    script = Script(Outcome(BUSY, 2, value="held"), Outcome(BUSY, 2, value="held"))
    ((_, outcome),) = each(script, square, {"a": 2}, StopFlag())
    assert outcome.value == 4


def test_stop_gives_out_nothing_more_and_is_interrupted():
    flag, script = StopFlag(), Script()
    flag.requested = True
    with pytest.raises(Interrupted, match="same command"):
        list(each(script, square, {"a": 2, "b": 3}, flag))
    assert script.given == 0


@pytest.mark.parametrize(("raised", "code"), [
    (BudgetExceeded("spent"), 4), (Interrupted("stop"), 130), (KeyboardInterrupt(), 130), (ValueError("odd"), 1),
])  # fmt: skip
def test_attempt_turns_what_is_raised_into_an_outcome(raised, code):
    def work():
        raise raised

    outcome = attempt(work)
    assert outcome.exit_code == code and not outcome.done
    assert ("Traceback" in outcome.fault) == isinstance(raised, ValueError)
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_busy_folder_is_no_failure():
    def work():
        raise FolderBusy("x: another process is writing this run")

    assert attempt(work).said == BUSY


# --- local processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def local():
    executor = Local(2)
    yield executor
    executor.close()


def test_killed_worker_loses_its_task_alone(local, tmp_path):
    """One worker dies by SIGKILL in its task; the task is done by another process, its neighbour notices nothing."""
    notes = []

    def kill():
        wait_for(lambda: any(tmp_path.iterdir()))
        os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)

    threading.Thread(target=kill).start()
    found = dict(each(local, who, {"a": str(tmp_path)}, StopFlag(), notes.append)) | dict(
        each(local, square, {"b": 5}, StopFlag())
    )
    workers = {int(path.name) for path in tmp_path.iterdir()}
    assert len(workers) == 2 and found["a"].value in workers and found["b"].value == 25
    assert "signal 9" in notes[0]


def test_worker_has_a_core_to_itself(local):
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert local.submit(cores_of, None).result().value["NPROC"] == share


def test_exception_of_a_task_is_raised_and_its_worker_lives(local):
    with pytest.raises(RuntimeError, match="fault outside"):
        local.submit(out_of_order, None).result()
    assert local.submit(square, 3).result().value == 9


def test_stop_reaches_workers_and_they_end_at_a_checkpoint(local, tmp_path):
    flag = StopFlag()

    def stop():
        wait_for((tmp_path / "began").exists)
        flag.requested = True

    threading.Thread(target=stop).start()
    with pytest.raises(Interrupted):
        list(each(local, until_told, {"a": str(tmp_path)}, flag))


def test_workers_die_with_their_command(tmp_path):
    """The command is killed in the middle; its worker must not hold the folder for the next one."""
    import subprocess
    import sys

    program = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "from otafl.runs.workers import Local\n"
        "from worker_tasks import who\n"
        "Local(1).submit(who, sys.argv[2]).result()"
    )
    command = subprocess.Popen([sys.executable, "-c", program, str(Path(__file__).parents[1]), str(tmp_path)])
    wait_for(lambda: any(tmp_path.iterdir()), 60)
    worker = int(next(tmp_path.iterdir()).name)
    command.kill()
    command.wait()
    wait_for(lambda: not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text())


@pytest.mark.parametrize("name", ["nowhere", "local:0", "local:x", 3, "local:-1"])
def test_unknown_executor_is_refused(name):
    with pytest.raises(InputError, match="executor"), opened(name):
        pass
