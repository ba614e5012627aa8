"""What a run says while it works."""

import io
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from otafl.runs import runner
from otafl.runs.interrupts import FINISHING, graceful_stop, stopping
from otafl.runs.progress import JsonLog, LiveLine, Reporter, Tick, reporter
from otafl.runs.schema import Experiment


def terminal() -> Console:
    environ = {"TERM": "xterm"}  # whatever terminal these tests are run in
    return Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None, _environ=environ)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_live_line_shows_pace_accuracy_and_epsilon_of_its_target() -> None:
    console = terminal()
    live = LiveLine(console)
    live.start("CARES", 300, 0)
    live.tick(Tick("CARES", 120, 300, 0.8123, 41.701, 200.0, 57.3))
    live.close()
    for part in ("CARES", "120/300", "57 rounds/s", "acc 0.812", "ε 41.71/200 ▰▰▱▱▱▱▱▱▱▱"):
        assert part in written(console)


@pytest.mark.parametrize(("eps", "target", "said"), [(float("nan"), 200.0, None), (3.0, float("inf"), "ε 3 ")])
def test_what_is_not_counted_is_not_shown(eps: float, target: float, said: str | None) -> None:
    console = terminal()
    live = LiveLine(console)
    live.start("x", 10, 0)
    live.tick(Tick("x", 5, 10, 0.5, eps, target, 1.0))
    live.close()
    assert "inf" not in written(console) and "nan" not in written(console)
    assert (said in written(console)) if said else ("ε" not in written(console))


def test_what_ran_for_an_earlier_target_does_not_compile() -> None:
    console = terminal()
    live = LiveLine(console)
    live.start("FedAvg", 10, 10)
    live.close()
    assert "10/10" in written(console) and "compiling" not in written(console)


def test_a_terminal_is_left_alone_until_a_scheme_starts() -> None:
    console = terminal()
    LiveLine(console).close()
    assert "\x1b[?25l" not in written(console)  # the cursor stays visible


def test_the_cursor_comes_back() -> None:
    console = terminal()
    live = LiveLine(console)
    live.start("x", 10, 0)
    live.close()
    assert written(console).rfind("\x1b[?25h") > written(console).rfind("\x1b[?25l") >= 0


@pytest.mark.parametrize("label", ["x [/y]", "constant [bound]", "[bold]", "a\\\\[b]", "[link=http://x]"])
def test_brackets_in_a_label_are_shown_as_they_are(label: str) -> None:
    console = terminal()
    live = LiveLine(console)
    live.start(label, 10, 0)
    live.tick(Tick(label, 5, 10, 0.5, 1.0, 2.0, 1.0))
    live.note(f"{label}: damaged")
    live.close()
    assert f"{label}: damaged" in written(console)
    assert written(console).count(label) > 1


def test_the_live_line_leaves_room_for_what_ctrl_c_echoes() -> None:
    """A line as wide as the terminal breaks at the echoed ^C, and is then drawn twice."""
    console = terminal()
    console.width = 60
    live = LiveLine(console)
    live.start("a rather long label of a scheme", 100, 0)
    live.tick(Tick("a rather long label of a scheme", 5, 100, 0.5, 1.0, 2.0, 1.0))
    live.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written(console))
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]", shown)) <= 60 - len("^C^C")


def test_what_was_asked_to_stop_says_that_it_finishes() -> None:
    """A chunk may take many seconds; whoever sees nothing presses Ctrl-C again and loses it."""
    console = terminal()
    live = LiveLine(console)
    with graceful_stop():
        live.start("x", 10, 0)
        live.progress.refresh()
        assert FINISHING not in written(console)
        os.kill(os.getpid(), signal.SIGINT)
        live.progress.refresh()
        assert FINISHING in written(console)
        live.close()
    assert not stopping()


def test_a_terminal_that_cannot_move_its_cursor_gets_no_live_line() -> None:
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert type(reporter(dumb)) is Reporter


def test_quiet_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = reporter(Console(file=io.StringIO(), force_terminal=False))
    assert type(quiet) is Reporter
    quiet.start("x", 10, 0)
    quiet.tick(Tick("x", 5, 10, 0.5, 1.0, 2.0, 3.0))
    quiet.close()
    assert capsys.readouterr() == ("", "")
    quiet.note("damaged")
    assert capsys.readouterr() == ("", "damaged\n")


def test_the_choice_of_reporter() -> None:
    assert isinstance(reporter(terminal()), LiveLine)
    assert isinstance(reporter(terminal(), json_log=True), JsonLog)


def test_json_lines_of_a_run(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    stream = io.StringIO()
    runner.start(tiny(), tmp_path / "run", JsonLog(stream))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["label"] for line in lines if line["event"] == "start"} == {"constant", "cares-adaptive"}
    ticks = [line for line in lines if line["event"] == "chunk" and line["label"] == "constant"]
    assert [tick["round"] for tick in ticks] == [2, 4, 5]
    assert all(tick["eps"] > 0 and tick["eps_target"] == 200 and 0 <= tick["accuracy"] <= 1 for tick in ticks)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_ticks_report_what_the_tables_hold(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    import pandas as pd

    stream = io.StringIO()
    folder = runner.start(tiny("seeds=1"), tmp_path / "run", JsonLog(stream))
    for label in ("constant", "cares-adaptive"):
        said = [
            line
            for line in map(json.loads, stream.getvalue().splitlines())
            if line["event"] == "chunk" and line["label"] == label
        ]
        table = pd.read_parquet(folder / "schemes" / label / "evaluations.parquet")
        assert [tick["accuracy"] for tick in said] == pytest.approx(table["accuracy"].tolist())
        assert [tick["eps"] for tick in said] == pytest.approx(table["eps"].tolist())
