"""The comparison: who is ranked, what may be said, and that all schemes met the same channels."""

import json
from pathlib import Path

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.report.tables import summaries
from otafl.runs import build
from otafl.runs.compare import compare, rank, rows, tuning_notes, verdicts
from otafl.runs.progress import Reporter
from otafl.runs.schema import load

TWO = """
rounds = 6
seeds = [3, 4]
evaluate_every = 3
channel = "cares"
[task]
clients = 4
model = { name = "logistic" }
[privacy]
eps = 5000.0
[[scheme]]
name = "constant"
label = "a"
rx_scale = 0.2
[[scheme]]
name = "constant"
label = "b"
rx_scale = 0.4
[[scheme]]
name = "fedavg"
"""


def entry(label: str, accuracy: list[float], eps: float, **changes: object) -> dict:
    base = {
        "label": label, "private": True, "unit": "client", "adjacency": "replace", "delta": 1e-5, "accountant": "zcdp",
        "seeds": list(range(len(accuracy))), "final_accuracy": accuracy, "worst_client": accuracy, "uplink": "analog",
        "final_eps": [eps] * len(accuracy), "rounds": [10.0] * len(accuracy), "energy_per_round": [0.1] * len(accuracy),
        "channel_uses": 100, "csi": "own", "seconds": 1.0, "target_eps": 10.0, "capped": True,
        "card": {"spent": [{"accountant": "zcdp", "eps_worst": eps}]},
    }  # fmt: skip
    return {**base, **changes}


def test_more_privacy_than_the_target_is_refused_not_ranked():
    found = rank([entry("fair", [0.5, 0.6], 9.9), entry("greedy", [0.9, 0.9], 10.1)], target=10.0)
    assert [e["label"] for e in found.ranked] == ["fair"]
    assert "more than the target" in found.refused[0][1]


def test_another_unit_is_refused_and_references_stand_apart():
    found = rank(
        [
            entry("a", [0.5, 0.6], 9.0),
            entry("b", [0.4, 0.5], 9.0),
            entry("c", [0.9, 0.9], 9.0, unit="record"),
            entry("ideal", [1.0, 1.0], np.inf, private=False),
        ],
        target=10.0,
    )
    assert [e["label"] for e in found.ranked] == ["a", "b"]
    assert found.refused[0][0]["label"] == "c" and found.references[0]["label"] == "ideal"
    assert len(rows(found)) == 4


def test_neighbours_are_separated_only_where_the_paired_interval_says_so():
    apart = rank([entry("a", [0.80, 0.71, 0.92], 9.0), entry("b", [0.70, 0.60, 0.82], 9.0)], 10.0)
    assert "cannot be separated" not in verdicts(apart)[0]
    alike = rank([entry("a", [0.80, 0.60, 0.70], 9.0), entry("b", [0.60, 0.79, 0.70], 9.0)], 10.0)
    assert "cannot be separated" in verdicts(alike)[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    return path


def test_all_schemes_see_the_same_channels_and_data(file: Path):
    experiment = load(file)
    task = build.build_task(experiment)
    first, second, _ = (build.build_scheme(experiment, scheme, task) for scheme in experiment.scheme)
    for a, b in zip(first.sites, second.sites):
        for x, y in zip(a.trace, b.trace):
            np.testing.assert_array_equal(x, y)
    seeds = [first.sites[0].trace.gain, first.sites[1].trace.gain]
    assert not np.array_equal(*seeds)


def test_a_comparison_needs_a_target(file: Path, tmp_path: Path):
    file.write_text(TWO.replace("eps = 5000.0", ""))
    with pytest.raises(InputError, match="privacy target"):
        compare(file, tmp_path / "out", [], None, Reporter())


def test_compare_runs_ranks_and_is_resumable(file: Path, tmp_path: Path):
    run = compare(file, tmp_path / "out", [], None, Reporter())
    found = rank(summaries(run), 5000.0)
    assert {e["label"] for e in found.ranked} == {"a", "b"} and found.references[0]["label"] == "fedavg"
    assert (tmp_path / "out" / "compare.json").exists()
    text = (tmp_path / "out" / "compare.md").read_text()
    for e in found.ranked:  # the table's figures are the store's
        assert f"{np.mean(e['final_accuracy']):.3f}" in text


def test_a_step_size_at_the_edge_of_its_grid_is_named(tmp_path: Path):
    (tmp_path / "tuning").mkdir()
    told = {"best": {"a": 0.1, "b": 0.3}, "grid": [0.1, 0.3, 1.0], "rule": "largest accuracy", "edge": ["a"]}
    (tmp_path / "tuning" / "step_sizes.json").write_text(json.dumps(told))
    taken, edge = tuning_notes(tmp_path)
    assert "a 0.1, b 0.3" in taken and edge.endswith("better: a")
    assert tuning_notes(tmp_path / "elsewhere") == []
