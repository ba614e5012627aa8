"""`otafl reproduce --all --quick` on the real presets: one of each family here, all of them among the slow tests."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from otafl.reproductions import all_presets, verdicts
from otafl.runs import presets
from otafl.runs.progress import Reporter

ONE_EACH = ("adascale-fig1", "biasvar-designs", "cares-sweep", "cdpb-fig9", "eezofl-table2")  # no training


def reproduced(folder: Path) -> dict[str, str]:
    return all_presets.reproduce_all(folder, True, Reporter, Console(quiet=True))


def test_one_preset_of_each_family(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chosen = {name: preset for name, preset in presets.presets().items() if name in ONE_EACH}
    monkeypatch.setattr(presets, "presets", lambda: chosen)
    assert reproduced(tmp_path) == dict.fromkeys(ONE_EACH, "done")
    judged = verdicts.judged_in(tmp_path)
    assert set(judged) == set(ONE_EACH) - {"biasvar-designs"}, "designs make no claim"
    told = {name: json.loads((tmp_path / name / "results.json").read_text()) for name in ONE_EACH}
    assert all(one["quick"] for one in told.values()), "smoke versions must say so"
    assert [record["arms"] for record in told["cares-sweep"]["records"]] == [10, 3, 0, 8, 4, 0, 8, 0, 0]
    assert told["cares-sweep"]["verdicts"][-1]["evidence"] == "4 empty sets, 4 without a scaling"
    assert (tmp_path / "eezofl-table2" / "results.md").read_text().count("|") > 50
    page = (tmp_path / "index.md").read_text()
    for row in verdicts.record().row:
        said = "smoke version" if row.preset in ONE_EACH else "not run yet"
        assert f"[{row.source}]({row.preset}/results.md) | `otafl reproduce {row.preset}`" in page
        assert said in next(line for line in page.splitlines() if f"[{row.source}]" in line)


@pytest.mark.slow
def test_all_presets(data_folder: Path, tmp_path: Path):
    outcome = reproduced(tmp_path)
    assert outcome == dict.fromkeys(presets.presets(), "done")
    for name in outcome:
        assert (tmp_path / name / "results.md").exists(), name
    for row in verdicts.record().row:
        told = json.loads((tmp_path / row.preset / "results.json").read_text())
        assert told.get("verdicts"), f"{row.preset} judges no claim"
