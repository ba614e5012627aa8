"""Ctrl-C and SIGTERM: a checkpoint, its path, exit code 130, and the same bytes after --resume."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from otafl.core.errors import Interrupted
from otafl.runs import runner
from otafl.runs.interrupts import graceful_stop
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment
from processes import ENVIRONMENT, start_until_checkpoint


class SignalAt(Reporter):
    """Sends this process a signal after a given chunk."""

    def __init__(self, label: str, round_: int, number: signal.Signals):
        self.label, self.round, self.number = label, round_, number

    def tick(self, tick: Tick) -> None:
        if (tick.label, tick.round) == (self.label, self.round):
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("label", "round_"), [("constant", 2), ("cares-adaptive", 4)])
def test_a_stopped_run_resumes_to_the_same_bytes(
    number: signal.Signals, label: str, round_: int, tiny: Callable[..., Experiment], tmp_path: Path, reference: Path,
    same_results: Callable[[Path, Path], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NPROC", "1")  # one scheme after the other: it is this one that is stopped
    with pytest.raises(Interrupted, match="--resume") as stopped:
        runner.start(tiny(), tmp_path / "run", SignalAt(label, round_, number))
    where = tmp_path / "run" / "schemes" / label / "checkpoints" / f"checkpoint-{round_:07d}"
    assert str(where) in str(stopped.value)
    assert where.exists()
    runner.resume(tmp_path / "run")
    same_results(tmp_path / "run", reference)


def test_a_run_that_is_part_of_another_command_goes_on_by_that_command(
    tiny: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPROC", "1")
    for round_ in (2, 4):  # begun, and gone on with
        with pytest.raises(Interrupted, match="interrupted; what was done is kept, and the same command goes on"):
            runner.run_in(tmp_path / "run", tiny(), SignalAt("constant", round_, signal.SIGINT))


def test_a_signal_in_the_last_chunk_of_a_scheme_finishes_it_and_stops_before_the_next(
    tiny: Callable[..., Experiment], tmp_path: Path, reference: Path, same_results: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NPROC", "1")  # one scheme after the other
    with pytest.raises(Interrupted, match="between two schemes"):
        runner.start(tiny(), tmp_path / "run", SignalAt("constant", 5, signal.SIGINT))
    assert (tmp_path / "run/schemes/constant/done.json").exists()
    assert not (tmp_path / "run/schemes/cares-adaptive").exists()
    runner.resume(tmp_path / "run")
    same_results(tmp_path / "run", reference)


def test_a_signal_in_the_last_chunk_of_all_is_heard_by_those_who_run_more(
    tiny: Callable[..., Experiment], tmp_path: Path, reference: Path, same_results: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("NPROC", "1")  # one scheme after the other
    with pytest.raises(Interrupted, match="all rounds are done; continue with: otafl run --resume"):
        runner.start(tiny(), tmp_path / "run", SignalAt("cares-adaptive", 5, signal.SIGTERM))
    same_results(tmp_path / "run", reference)
    assert runner.resume(tmp_path / "run") == tmp_path / "run"


def test_the_second_ctrl_c_stops_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)  # a job in the background ignores it

    def twice() -> None:
        with graceful_stop() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("it went on")

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_that_a_library_swallows_still_stops() -> None:
    """Python prints an exception inside a callback and goes on; the run must not end as if nothing had been asked."""
    before = signal.getsignal(signal.SIGINT)

    def swallowed() -> None:
        with graceful_stop():
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        swallowed()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_sigterm_is_patient() -> None:
    with graceful_stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested


def catches(process: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_signal_outside_the_rounds_ends_the_command_with_130(tiny_file: Path, tmp_path: Path) -> None:
    """At any moment of the start, once or twice, by either signal: one code, no traceback, no half a run as a whole."""
    command = [sys.executable, "-m", "otafl.cli", "run", str(tiny_file), "--out", str(tmp_path / "run")]
    for number, delay, times in (
        (signal.SIGTERM, 0.0, 1),
        (signal.SIGINT, 0.3, 2),
    ):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        while not catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.05)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, (number, delay, err)
        assert "Traceback" not in out + err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("times", [1, 2])
def test_the_command_line_leaves_without_an_exception_that_could_be_lost(times: int) -> None:
    """One signal outside the rounds, or the second Ctrl-C within them."""
    inside = "with graceful_stop():" if times == 2 else "if True:"
    program = f"""
import os, signal
from otafl.runs.interrupts import graceful_stop, immediate_stop
with immediate_stop():
    {inside}
        try:
            for _ in range({times}):
                os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            pass  # as a library may do
        print("went on")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("otafl: stopped at once") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_line_is_imported_is_one_line_too(number: signal.Signals) -> None:
    """In the first moment somebody finds out that it was the wrong command."""
    program = f"""
import os, sys
from importlib.metadata import EntryPoint
class Meanwhile:
    def find_spec(self, name, path=None, target=None):
        if name == "otafl.cli":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Meanwhile())
EntryPoint("otafl", sys.argv[1], "console_scripts").load()()
"""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command = [sys.executable, "-c", program, project["scripts"]["otafl"]]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 130 and done.stderr.startswith("otafl: stopped at once"), done.stderr


def test_a_signal_while_python_ends_is_one_line_too() -> None:
    program = """
import atexit, os, signal, sys
from otafl import cli
own, sys.argv = cli.main, ["otafl", "--version"]
cli.main = lambda: atexit.register(os.kill, os.getpid(), signal.SIGINT) and own()
cli.process()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 130 and done.stderr.startswith("otafl: stopped at once"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_end_does_not_change_the_exit_code(number: signal.Signals) -> None:
    program = f"""
import os, sys
class Late:
    def __del__(self, kill=os.kill, process=os.getpid()):  # Python takes objects down after its signal handlers
        kill(process, {int(number)})
late = Late()
from otafl import cli
sys.argv = ["otafl", "plan", "no-such-file"]
cli.process()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_other_threads_leave_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def inside() -> None:
        with graceful_stop():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]


def start_process(file: Path, folder: Path) -> subprocess.Popen[str]:
    """`otafl run` of a long horizon; returns when its first checkpoint is there."""
    command = [sys.executable, "-m", "otafl.cli", "run", str(file), "--out", str(folder), "--set", "rounds=100000"]
    command += ["--set", "privacy.eps=1e9"]
    return start_until_checkpoint(command, folder)


def test_the_command_line_ends_with_130_and_says_how_to_go_on(tiny_file: Path, tmp_path: Path) -> None:
    process = start_process(tiny_file, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    said = [line for line in err.splitlines() if line.startswith("otafl:")]
    assert len(said) == 1
    assert f"--resume {tmp_path / 'run'}" in said[0]
    assert "Traceback" not in err + out
    assert Path(said[0].split("checkpoint ")[1].split(";")[0]).exists()


@pytest.mark.released
def test_calls_that_span_several_evaluations_resume_to_the_same_bytes(
    tiny: Callable[..., Experiment], tmp_path: Path, same_results: Callable[[Path, Path], None]
) -> None:
    """With rare checkpoints one compiled call runs through several evaluations; a stop comes after such a call."""
    overrides = (
        "engine.checkpoint_seconds=1000",
        "evaluate_every=25",
        "rounds=130",
        "privacy.eps=1e5",
        "scheme=[{name='constant'}]",
    )
    whole = Ticks()
    runner.start(tiny(*overrides), tmp_path / "whole", whole)
    assert whole.rounds[0] > 25
    assert len(whole.rounds) > 1
    with pytest.raises(Interrupted):
        runner.start(tiny(*overrides), tmp_path / "run", SignalAt("constant", whole.rounds[0], signal.SIGINT))
    runner.resume(tmp_path / "run")
    same_results(tmp_path / "run", tmp_path / "whole")


class Ticks(Reporter):
    def __init__(self) -> None:
        self.rounds: list[int] = []

    def tick(self, tick: Tick) -> None:
        self.rounds.append(tick.round)
