"""A run killed at any moment and resumed leaves the bytes of a run that was never stopped."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otafl.runs import runner
from otafl.runs.schema import Experiment

Same = Callable[[Path, Path], None]
CHANGES = ("fsync", "replace", "unlink", "rmdir", "mkdir")  # every call that changes what a kill leaves behind


def snapshots(run: Callable[[], object], folder: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folder before every change: exactly what SIGKILL at that moment leaves."""
    taken: list[Path] = []
    real = {name: getattr(os, name) for name in CHANGES}

    def before(name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            with monkeypatch.context() as paused:
                for each, function in real.items():
                    paused.setattr(os, each, function)
                if folder.exists():
                    taken.append(store / f"{len(taken):04d}-{name}")
                    shutil.copytree(folder, taken[-1])
            return real[name](*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, before(name))
        run()
    return taken


def contents(folder: Path) -> frozenset[tuple[Path, bytes]]:
    found = folder.rglob("*")
    return frozenset((path.relative_to(folder), path.read_bytes() if path.is_file() else b"") for path in found)


def test_every_moment_of_a_run_can_be_resumed(
    tiny: Callable[..., Experiment],
    tmp_path: Path,
    reference: Path,
    same_results: Same,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, store = tmp_path / "run", tmp_path / "kills"
    store.mkdir()
    monkeypatch.setenv("NPROC", "1")  # one scheme after the other: a copy misses what another thread does
    taken = snapshots(lambda: runner.start(tiny(), folder), folder, store, monkeypatch)
    same_results(folder, reference)
    assert len(taken) > 80
    for left in {contents(left): left for left in taken}.values():  # what was left behind twice is resumed once
        if (left / "manifest.json").exists():
            runner.resume(left)
        else:  # killed before the run had a name: it is started again
            runner.start(tiny(), left)
        same_results(left, reference)
        shutil.rmtree(left)


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_random_kills_of_real_processes(
    kills: int, tiny_file: Path, tmp_path: Path, reference: Path, same_results: Same
) -> None:
    """SIGKILL at random times, some of them aimed at the moments when files are written."""
    began = time.monotonic()
    script = Path(__file__).with_name("killing.py")
    command = [sys.executable, str(script), str(tiny_file), str(tmp_path), str(kills), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 30 * kills, check=True)
    report = json.loads(done.stdout)
    assert report["kills"] == kills
    assert report["runs"], f"no run was finished in {time.monotonic() - began:.0f} s"
    for run in report["runs"]:
        same_results(Path(run), reference)
