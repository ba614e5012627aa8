"""Shared by all tests: one CPU thread pool, a compilation cache, and where the real data are."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsing import Browser

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OTAFL_OFFLINE", "1")

import jax

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


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
