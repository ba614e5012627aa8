"""A tiny experiment with an open and a closed loop, and how to compare what two runs left behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from otafl.runs import runner
from otafl.runs.schema import Experiment, load, resolved

TINY = """
rounds = 5
seeds = 2
evaluate_every = 2
channel = "cares"

[task]
data = { name = "digits", train_size = 80 }
clients = 4
partition = { kind = "iid" }
model = { name = "logistic" }

[radio]
noise_std = 0.05

[clients]
kind = "gradient"
batch = 8

[server]
momentum = 0.5

[privacy]
eps = 200.0

[engine]
checkpoint_seconds = 0

[[scheme]]
name = "constant"
rx_scale = 0.4

[[scheme]]
name = "cares-adaptive"
"""

NOT_COMPARED = {"timing.json", "report.html"}


def results(folder: Path) -> dict[str, bytes]:
    """Every file of a run but its times, its page and its plots, by its name below the folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_COMPARED]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if "plots" not in path.parts}


@pytest.fixture(scope="session")
def tiny_text() -> str:
    return TINY


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> Callable[..., Experiment]:
    """The tiny experiment, with overrides as in --set."""
    return lambda *overrides: load(tiny_file, list(overrides))


@pytest.fixture(scope="session")
def same_results() -> Callable[[Path, Path], None]:
    def same(one: Path, other: Path) -> None:
        left, right = results(one), results(other)
        assert sorted(left) == sorted(right)
        assert [name for name in left if left[name] != right[name]] == []

    return same


ENGINES: dict[tuple[str, str], Any] = {}
MOST_ENGINES = 40  # programs are mapped into memory, and past 65,530 maps of a process the compiler crashes
compile_engine = runner.Execution._engine


def compiled_once(self: runner.Execution) -> Any:
    key = (resolved(self.experiment), self.label)
    if key not in ENGINES:
        if len(ENGINES) == MOST_ENGINES:
            ENGINES.clear()
        ENGINES[key] = compile_engine(self)
    return ENGINES[key]


@contextmanager
def quickly() -> Iterator[None]:
    """Within one process an experiment is compiled once, and no page is drawn; neither touches a result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner.Execution, "_engine", compiled_once)
        patch.setattr("otafl.reports.write_report", lambda runs, out_file=None, plots=True: [])
        yield


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with quickly():
        yield


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of the tiny experiment."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "tiny.toml").write_text(TINY)
    with quickly():
        return runner.start(load(folder / "tiny.toml"), folder / "run")
