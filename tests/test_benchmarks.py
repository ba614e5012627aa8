"""The machinery of `make bench`: the page is what the JSON says, rates add up, and the whole command runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # scripts that import each other by name

import arrangements  # noqa: E402
import memory  # noqa: E402
import page  # noqa: E402
import rounds  # noqa: E402

WORKER = """
import sys, time
sys.path.insert(0, {here!r})
from arrangements import processes, serve, threads
held = bytearray({mib} * 2**20)
def work():
    time.sleep(0.01)
    return float(threads())
serve(work)
"""


def test_rates_of_processes_add_up_and_their_memory_too():
    """Each worker does one unit of its threads per 10 ms: twice the processes, half the threads, the same rate."""
    worker = [sys.executable, "-c", WORKER.format(here=str(BENCHMARKS), mib=50)]
    found = arrangements.both(worker, arrangements.Effort(0.2, 2))
    cores = len(arrangements.CORES)
    alone, per_core = found["one process"], found["a process per core"]
    assert (alone["processes"], alone["threads"], per_core["processes"], per_core["threads"]) == (1, cores, cores, 1)
    assert len(alone["all_per_s"]) == 2 and alone["per_s"] == max(alone["all_per_s"])
    assert alone["per_s"] <= 100 * cores and per_core["per_s"] <= 100 * cores
    assert alone["peak_mib"] > 50 and per_core["peak_mib"] > 50 * cores


def test_memory_is_that_of_grandchildren_too():
    grown = "import time; held = bytearray(80 * 2**20); time.sleep(1.5)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grown!r}])"]
    )
    with memory.Peak([child.pid]) as peak:
        child.wait()
    assert peak.mib > 80


def test_arithmetic_of_a_round_is_counted_by_hand():
    """Forward 64 x 128 + 128 x 10; backward the same for weights, and 128 x 10 for the hidden layer; twice each."""
    forward = 64 * 128 + 128 * 10
    assert rounds.flop("mlp") == 2 * (20 * 64 * (2 * forward + 128 * 10) + 1000 * forward)


def test_a_block_without_numbers_says_so_and_text_around_blocks_stays():
    text = "before\n<!-- bench:scale -->\nold\n<!-- /bench -->\nafter\n"
    assert page.filled(text, {"parts": {}, "facts": {}}) == text.replace("old", "Not measured in the last run.")


def test_the_page_is_what_the_json_says():
    """Nobody has edited a measured number by hand."""
    measured = json.loads((BENCHMARKS / "benchmarks.json").read_text(encoding="utf-8"))
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text, measured) == text


@pytest.mark.slow
def test_the_whole_command_runs(tmp_path):
    out = tmp_path / "quick.json"
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent / "src")})
    parts = json.loads(out.read_text())["parts"]
    assert all("found" in part for part in parts.values())
    text = page.filled(page.PAGE.read_text(encoding="utf-8"), json.loads(out.read_text()))
    assert "**otafl**" in text and parts["scale"]["found"]["slopes"]["clients"]
