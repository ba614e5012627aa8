"""`otafl plan FILE` against `otafl run FILE`, seed by seed, and each figure of a row against a slow, plain version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl import systems
from otafl.privacy import Ledger
from otafl.report.tables import numbers, summaries
from otafl.runs import runner
from otafl.runs.plan import plan
from otafl.runs.schema import Experiment, load
from otafl.runs.store import read_table

HEAD = """
rounds = 6
seeds = 2
evaluate_every = 3
channel = "cares"
task = { data = { name = "digits", train_size = 80 }, clients = 4, model = { name = "logistic" } }
radio = { noise_std = 0.05 }
clients = { kind = "gradient", batch = 8 }
privacy = { eps = 60.0 }
engine = { checkpoint_seconds = 0 }
"""
# What a scheme needs besides its name on this site; the others run on their defaults.
OPTIONS: dict[str, str] = {
    "constant": "rx_scale = 0.3",
    **{
        f"adascale{name}": "nu = 50.0"
        for name in ("", "-optimal", "-equal", "-estim", "-stat-level", "-stat-water", "-liu-simeone")
    },
    "bbfl": "interior = [0, 1]",
    "adascale-constant": "noise = 50.0",
    "eezofl": 'mode = "digital"\ndp_noise = 3.0\nsmudging_bits = 10\nallow_insecure = true\n'
    'clients = { kind = "zero-order", directions = 4, clip_norm = 2.0 }',
}
ELSEWHERE = {"adascale-lyapunov"}  # its tuning finds no weight on this site
SIZE = "num_params = 650\nclients = 30\nsamples = 40"


def text_of(name: str, label: str = "") -> str:
    return f'[[scheme]]\nname = "{name}"\nlabel = "{label or name}"\n{OPTIONS.get(name, "")}\n'


@pytest.fixture(scope="module")
def planned_and_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Experiment]:
    """Every scheme there is on one small site, planned, then run."""
    folder = tmp_path_factory.mktemp("plan")
    path = folder / "all.toml"
    path.write_text(HEAD + "".join(text_of(name) for name in systems.SCHEMES if name not in ELSEWHERE))
    experiment = load(path)
    return plan(experiment), runner.start(experiment, folder / "run"), experiment


def test_plan_and_run_agree(planned_and_run: tuple[Any, Path, Experiment]) -> None:
    """Rounds, eps and mu of every seed; energy is at most what is planned, and just that where messages are full."""
    table, folder, _ = planned_and_run
    for row, ran in zip(table.rows, summaries(folder), strict=True):
        assert row.label == ran["label"]
        if row.loop != "open":
            assert np.all(numbers(ran["final_eps"]) <= np.array(row.eps))
            continue
        if row.reason == "" or row.rounds is not None:
            assert row.rounds == [int(value) for value in ran["rounds"]], row.label
        if row.least_eps is not None:
            assert row.least_eps == ran["least_eps"], row.label
            continue
        if row.eps is None:
            continue
        ledgers = [Ledger.load(folder / "schemes" / row.label / f"ledger-{seed}.bin") for seed in (0, 1)]
        assert row.eps == [ledger.spent().worst for ledger in ledgers], row.label
        np.testing.assert_array_equal(numbers(row.mu), numbers(ran["mu"]))
        np.testing.assert_allclose(row.dropped_weight, np.mean(numbers(ran["silent_weight"])), atol=1e-12)
        if row.energy_mean is not None:
            devices = read_table(folder / "schemes" / row.label / "devices.parquet")
            each = np.bincount(devices["client"], devices["energy"]) / 2  # mean over the two seeds
            assert each.mean() <= row.energy_mean * (1 + 1e-6)
            assert each.max() <= row.energy_max * (1 + 1e-6)
