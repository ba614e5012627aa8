"""Runs whose rounds go by in blocks: the same models and ledgers as runs that keep everything, whatever the blocks."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.privacy import Ledger, Release
from otafl.reports.run import Run
from otafl.runs import runner
from otafl.runs.build import build_task
from otafl.runs.folder.store import RunFolder
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.table import plan
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment, load
from otafl.runs.streamed import choice
from otafl.runs.streamed.ahead import Ahead
from otafl.runs.streamed.execution import StreamedExecution
from otafl.runs.streamed.planned import StreamedPlanned

LABELS = ("constant", "cares-adaptive")
LOOP = "{name='cares-adaptive'}"
CLIENTS_AND_SEEDS = 4 * 2
pytestmark = pytest.mark.released
Tiny = Callable[..., Experiment]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_text: str) -> dict[str, Path]:
    """The tiny experiment kept whole, gone by round by round, and its open loop in blocks of three."""
    folder = tmp_path_factory.mktemp("streamed")
    (folder / "tiny.toml").write_text(tiny_text)
    made = {"whole": runner.start(load(folder / "tiny.toml"), folder / "whole")}
    for rounds, alone in ((1, []), (3, ["scheme=[{name='constant', rx_scale=0.4}]"])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "BLOCK", rounds * CLIENTS_AND_SEEDS)
            experiment = load(folder / "tiny.toml", ["engine.stream=true", *alone])
            made[f"blocks of {rounds}"] = runner.start(experiment, folder / f"by{rounds}")
    return made


def content(folder: Path, label: str, name: str) -> bytes:
    return RunFolder.open(folder).scheme(label).content(name)


@pytest.mark.parametrize("label", LABELS)
def test_models_are_those_of_a_run_that_keeps_everything_to_the_bit(runs: dict[str, Path], label: str) -> None:
    for name in ("model.npz", "rounds.parquet"):
        found = [content(folder, label, name) for folder in runs.values() if label in Run(folder).labels]
        assert len(found) >= 2 and set(found) == {found[0]}, name


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_ledgers_say_the_same_eps_and_do_not_depend_on_the_blocks(runs: dict[str, Path], label: str, seed: int) -> None:
    one = content(runs["blocks of 1"], label, f"ledger-{seed}.bin")
    if label == "constant":
        assert one == content(runs["blocks of 3"], label, f"ledger-{seed}.bin")
    whole, summed = Ledger.from_bytes(content(runs["whole"], label, f"ledger-{seed}.bin")), Ledger.from_bytes(one)
    np.testing.assert_array_equal(summed.zcdp(), whole.zcdp())
    assert summed.spent().worst == whole.spent().worst and summed.rounds() == whole.rounds()
    assert summed.parts == [] and summed.sums is not None


def close(name: str) -> float:
    """A loss is a float32 sum, whose order XLA chooses anew for every program; models are what is equal to the bit."""
    return 1e-6 if "loss" in name else 1e-12


@pytest.mark.parametrize("label", LABELS)
def test_everything_else_that_is_told_agrees(runs: dict[str, Path], label: str) -> None:
    whole, by = Run(runs["whole"]), Run(runs["blocks of 1"])
    for name in ("summary", "certificate"):
        left, right = (RunFolder.open(run.folder).scheme(label).json(name) for run in (whole, by))
        assert set(left) == set(right)
        for key, value in left.items():
            assert right[key] == (pytest.approx(value, rel=close(key)) if _numeric(value) else value), key
    assert whole.card(label).data["guarantee"] == by.card(label).data["guarantee"]
    left, right = (RunFolder.open(run.folder).scheme(label).read("evaluations") for run in (whole, by))
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=close(name))
    files = [set(RunFolder.open(run.folder).scheme(label).hashes()) for run in (whole, by)]
    assert files[0] ^ files[1] == {"devices.parquet", "device_quantiles.parquet"}


def _numeric(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int | float) for item in value)


def test_device_quantiles_are_those_of_the_devices(runs: dict[str, Path]) -> None:
    devices = Run(runs["whole"]).frame("devices").groupby(["scheme", "seed", "round"], sort=False)
    table = Run(runs["blocks of 1"]).frame("device_quantiles").set_index(["scheme", "seed", "round", "quantile"])
    for place, own in devices:
        for quantile in (0.0, 0.25, 1.0):
            row = table.loc[(*place, quantile)]
            for name in ("norm", "raw_norm", "energy", "noise_multiplier"):
                assert row[name] == np.quantile(own[name], quantile, method="lower")


@pytest.mark.parametrize(("label", "scheme"), [("constant", "{name='constant', rx_scale=0.4}"), (LABELS[1], LOOP)])
def test_a_run_that_was_interrupted_in_a_block_goes_on_to_the_same_bytes(
    runs: dict[str, Path], tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, scheme: str
) -> None:
    monkeypatch.setattr(choice, "BLOCK", CLIENTS_AND_SEEDS)

    class Breaks(Reporter):
        def tick(self, tick: Tick) -> None:
            if tick.round == 4:
                raise MemoryError("in the fourth round")

    with pytest.raises(MemoryError):
        runner.start(tiny("engine.stream=true", f"scheme=[{scheme}]"), tmp_path / "cut", Breaks())
    assert RunFolder.open(tmp_path / "cut").scheme(label).saved() == [2, 3]
    went_on = []

    class Watches(Reporter):
        def tick(self, tick: Tick) -> None:
            went_on.append(tick.round)

    runner.resume(tmp_path / "cut", Watches())
    assert went_on == [4, 5]  # from the third round on, not from the beginning
    for name in ("model.npz", "ledger-0.bin", "rounds.parquet", "evaluations.parquet", "device_quantiles.parquet"):
        assert content(runs["blocks of 1"], label, name) == content(tmp_path / "cut", label, name), name


def test_the_budget_ends_a_run_at_the_same_round(tiny: Tiny, tmp_path: Path) -> None:
    for eps in (5.0, 30.0, 60.0):
        experiment = tiny(f"privacy.eps={eps}", "scheme=[{name='constant', rx_scale=0.4}]", "engine.stream=true")
        task = build_task(experiment)
        whole = Planned(experiment, experiment.scheme[0], task)
        place = RunFolder(tmp_path, "", {}).scheme("constant")
        streamed = StreamedExecution(experiment, experiment.scheme[0], task, place, Reporter())
        assert streamed.ran == [int(np.sum(plan.live)) for plan in whole.plans]
        assert streamed.least_eps == whole.least_eps and streamed.affordable == whole.affordable


def test_each_seed_trains_the_rounds_that_it_can_afford(tiny: Tiny, tmp_path: Path) -> None:
    """Amplitudes that follow the channel end the seeds at rounds of their own."""
    experiment = tiny("privacy.eps=600", "rounds=40", "scheme=[{name='weakest'}]", "engine.stream=true", "seeds=3")
    place = RunFolder(tmp_path, "", {}).scheme("weakest")
    found = StreamedExecution(experiment, experiment.scheme[0], build_task(experiment), place, Reporter())
    found._ahead = [Ahead(site, seed) for site, seed in zip(found.setup.sites, experiment.seed_list)]
    row, _ = found._prepare(0)
    assert len(set(found.ran)) > 1 and max(found.ran) < 40
    assert np.sum(row.link.live & row.in_horizon, axis=1).tolist() == found.ran


@pytest.mark.parametrize("block", [1, 2])
def test_a_plan_whose_rounds_go_by_says_what_a_kept_one_says(
    tiny: Tiny, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "BLOCK", block * CLIENTS_AND_SEEDS)
    names = ("{name='constant', rx_scale=0.4}", "{name='cdpb'}", *(f"{{name='{n}'}}" for n in ("fedavg", "fedavg-dp")))
    asked = [f"scheme=[{', '.join((*names, LOOP))}]", "privacy.eps=60", "rounds=40"]
    kept, passed = (plan(tiny(*asked, f"engine.stream={stream}")).to_dict() for stream in ("false", "true"))
    assert passed["notes"] == kept["notes"] and passed["terms"] == kept["terms"]
    for one, other in zip(kept["schemes"], passed["schemes"]):
        assert one["rounds"] == other["rounds"] and one["eps"] == other["eps"]
        left, right = ((row.pop("merit") or {}) | row for row in (one, other))
        for name, value in left.items():
            if isinstance(value, float) or name == "mu":
                np.testing.assert_allclose(np.array(right[name], float), np.array(value, float), rtol=1e-12)
            else:
                assert right[name] == value, name
    goes_by = tiny(*asked, "engine.stream=true")
    made = StreamedPlanned(goes_by, goes_by.scheme[0], facts_of(goes_by))
    assert made.plans == [] and max(len(part.live) for _, part in made.blocks(0)) == block
    assert sum(len(part.live) for _, part in made.blocks(0)) == made.ran[0] > block


def test_a_release_of_an_earlier_run_counts_before_the_first_round(tiny: Tiny, tmp_path: Path) -> None:
    """It stands beside the sums of rounds: without it a run was trained past its cap, and refused only then."""
    scheme, spent = "scheme=[{name='constant', rx_scale=0.4}]", tmp_path / "ledger.bin"
    first = tiny(scheme)
    budget = Planned(first, first.scheme[0], build_task(first)).budget
    before = Ledger(dataclasses.replace(budget, eps=1e9), first.task.clients)
    before.release(Release("a noisy count", 1.0, 0.25, times=2))  # nearly half of what is to be had
    before.save(spent)
    asked = [scheme, f"privacy.already_spent='{spent}'", "privacy.eps=60", "rounds=40"]
    said = [plan(tiny(*asked, f"engine.stream={stream}")).to_dict()["schemes"][0] for stream in ("false", "true")]
    assert said[0]["eps"] == pytest.approx(said[1]["eps"], rel=1e-12) and said[0]["rounds"] == said[1]["rounds"]
    kept, passed = (
        Run(runner.start(tiny(*asked, f"engine.stream={stream}"), tmp_path / stream)).frame()
        for stream in ("false", "true")
    )
    assert kept["round"].max() == passed["round"].max() < 40
    np.testing.assert_allclose(passed["eps"], kept["eps"], rtol=1e-12)


@pytest.mark.parametrize(("setting", "reason"), [
    ("privacy.accountant='rdp'", "needs every round"),
    ("privacy.stop='each'", "retire"),
    ("scheme=[{name='adascale', nu=1.0, tuning='hindsight'}]", "whole channel"),
    ("channel.antennas=2", "channel.antennas=2"),
    ("channel={trace={file='gains.npz'}}", "plays measured gains"),
    ("privacy.accounting='hidden'", "privacy.accounting='hidden'"),
    ("radio.run_energy=1.0", "radio.run_energy"),
    ("privacy.eavesdropper={gain=1.0, noise_std=0.1}", "eavesdropper"),
    ("scheme=[{name='fsk-mv'}]", "uplink 'energy votes' of its own"),
])  # fmt: skip
def test_what_needs_all_rounds_at_once_is_refused(tiny: Tiny, tmp_path: Path, setting: str, reason: str) -> None:
    np.savez(tmp_path / "gains.npz", gain=np.ones((5, 4), complex))
    with pytest.raises(InputError, match=reason) as refusal:
        runner.start(tiny("engine.stream=true", "scheme=[{name='constant'}]", setting), tmp_path / "run")
    assert str(refusal.value).count("constant: ") + str(refusal.value).count("fsk-mv: ") <= 1


def test_large_runs_go_by_unless_told_otherwise(tiny: Tiny) -> None:
    assert not choice.goes_by(tiny())
    large = ["task.clients=100000", "rounds=100", "task.partition={kind='shared'}"]
    assert choice.goes_by(tiny(*large)) and not choice.goes_by(tiny(*large, "engine.stream=false"))
    assert choice.rounds_at_once(tiny(*large, "task.clients=10000000")) == 1


def test_a_record_that_several_clients_hold_has_no_record_level_guarantee(tiny: Tiny, tmp_path: Path) -> None:
    shared = ["task.partition={kind='shared', per_client=5}", "clients={kind='gradient', unit='record'}"]
    with pytest.raises(InputError, match="several clients hold one record"):
        runner.start(tiny(*shared, "scheme=[{name='constant'}]"), tmp_path / "run")
