"""Shared by all tests: a compilation cache, nothing that takes time without being asked for, and the real data."""

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from browsing import Browser

SETTINGS = {  # in the environment, so that processes started by tests have them too
    "JAX_PLATFORMS": "cpu",
    "OTAFL_OFFLINE": "1",
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parent.parent / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)

gc.disable()  # until everything is imported


def pytest_collection_finish() -> None:
    """What is imported by now is there to stay: the garbage collector need not walk through it, nor so often."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """No test pulls the plug, so no file has to be on the disk: a small run waits longer for that than it computes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def drawing() -> Iterator[Callable[..., list[Path]]]:
    """Reports have no plots: they take longer than most runs. Tests that look at plots ask for `plots`."""
    from otafl.reports import plots

    import_module("otafl.verbs")  # binds what it calls by name, before a test puts something else there
    with pytest.MonkeyPatch.context() as patch:
        drawn = plots.draw
        patch.setattr(plots, "draw", lambda data, folder: [])
        yield drawn


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch, drawing: Callable[..., list[Path]]) -> None:
    """Reports with their plots."""
    monkeypatch.setattr("otafl.reports.plots.draw", drawing)


@pytest.fixture
def data_folder() -> Path:
    """The folder with real image data; without it tests are skipped, or fail where it is required."""
    place = os.environ.get("OTAFL_DATA")
    if not place or not Path(place).is_dir():
        reason = "OTAFL_DATA is not set to a folder with mnist.npz etc."
        pytest.fail(reason) if os.environ.get("OTAFL_DATA_REQUIRED") else pytest.skip(reason)
    return Path(place)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a session; they are skipped where there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium found (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        running = Browser(program, profile)
        yield running
        running.close()
