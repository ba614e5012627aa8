"""The run folder: damage is noticed, full disks and read-only folders are said in one line, nothing saved is lost."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otafl
from archives import harmed
from otafl.core.errors import InputError, Interrupted, OtaflError
from otafl.runs import runner
from otafl.runs.audit.audit import audit
from otafl.runs.folder.disk import StorageError, ready, storage
from otafl.runs.folder.sealed import _head, npz, pack, reading, unpack
from otafl.runs.folder.store import RunFolder, SchemeFolder, parquet, read_table
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment
from otafl.runs.sweep import Point, verified
from otafl.tasks.datasets import load

Same = Callable[[Path, Path], None]
Tiny = Callable[..., Experiment]
ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(True), "c": np.zeros((0, 4), np.int32)}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        one[n].dtype == other[n].dtype and np.array_equal(one[n], other[n]) for n in one
    )


# --- sealed files ----------------------------------------------------------------------------------------------------


def test_sealed_arrays_come_back_with_their_dtypes_and_the_same_bytes() -> None:
    assert equal(unpack(pack(ARRAYS, "here"), "here") or {}, ARRAYS)
    assert pack(ARRAYS, "here") == pack(ARRAYS, "here")


def test_a_sealed_file_of_another_place_is_not_taken() -> None:
    assert unpack(pack(ARRAYS, "here"), "there") is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 8 * len(pack(ARRAYS, "here")) - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    content = bytearray(pack(ARRAYS, "here"))
    content[bit // 8] ^= 1 << bit % 8
    assert unpack(bytes(content), "here") is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(pack(ARRAYS, "here")) - 1))
def test_every_truncation_is_noticed(length: int) -> None:
    assert unpack(pack(ARRAYS, "here")[:length], "here") is None


@pytest.mark.parametrize("harm", ["encrypted", "unknown method", "torn stream", "endless array"])
def test_an_archive_that_cannot_be_read_is_a_damaged_one_whoever_sealed_it(harm: str) -> None:
    body = harmed(npz(ARRAYS), harm)
    assert unpack(_head(body, "here") + b"\n" + body, "here") is None


def test_a_missing_sealed_file_is_a_damaged_one(tmp_path: Path) -> None:
    assert SchemeFolder(tmp_path, "a", "c0").unseal("records", 3) is None


# --- checkpoints -----------------------------------------------------------------------------------------------------


def saved(folder: Path, rounds: tuple[int, ...] = (2, 4, 6)) -> SchemeFolder:
    place = SchemeFolder(folder, "a", "c0")
    place.prepare()
    for round_ in rounds:
        place.save(round_, {"state": np.array(round_)}, {"record": np.array([round_])})
    return place


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def test_the_last_two_checkpoints_and_all_records_are_kept(tmp_path: Path) -> None:
    place = saved(tmp_path)
    assert sorted(file.name for file in place.checkpoints.iterdir()) == [
        "checkpoint-0000004",
        "checkpoint-0000006",
        "records-0000002",
        "records-0000004",
        "records-0000006",
    ]
    round_, state, records, warnings = place.latest()
    assert (round_, int(state["state"]), [int(r["record"][0]) for r in records], warnings) == (6, 6, [2, 4, 6], [])


@pytest.mark.parametrize("damage", [spoil, lambda path: path.write_bytes(path.read_bytes()[:100]), Path.unlink])
@pytest.mark.parametrize("name", ["checkpoint-0000006", "records-0000006"])
def test_damage_leads_back_to_the_checkpoint_before(
    damage: Callable[[Path], object], name: str, tmp_path: Path
) -> None:
    place = saved(tmp_path)
    damage(place.checkpoints / name)
    round_, state, records, warnings = place.latest()
    assert (round_, int(state["state"]), len(records)) == (4, 4, 2)
    if (damage, name) != (Path.unlink, "checkpoint-0000006"):
        said = "checkpoint at round 6 is damaged or of another run (checksum); going back to the one at round 4"
        assert warnings == [said]
    assert not (place.checkpoints / "records-0000006").exists()  # it will be written again


@pytest.mark.parametrize("damage", [spoil, Path.unlink])
def test_a_lost_early_segment_means_the_beginning(damage: Callable[[Path], object], tmp_path: Path) -> None:
    """A gap in the records must never be closed silently."""
    place = saved(tmp_path)
    damage(place.checkpoints / "records-0000002")
    round_, state, records, warnings = place.latest()
    assert (round_, state, records, len(warnings)) == (0, {}, [], 2)
    assert "starting from the beginning" in warnings[-1]
    assert list(place.checkpoints.iterdir()) == []


class StopAt(Reporter):
    def __init__(self, label: str, round_: int):
        self.label, self.round = label, round_
        self.notes: list[str] = []

    def tick(self, tick: Tick) -> None:
        if (tick.label, tick.round) == (self.label, self.round):
            raise Interrupted("stop")

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("spoilt", [1, 2, "records"])
def test_a_run_with_damaged_checkpoints_ends_with_the_same_bytes_and_says_so(
    spoilt: int | str, tiny: Tiny, tmp_path: Path, reference: Path, same_results: Same
) -> None:
    with pytest.raises(Interrupted):
        runner.start(tiny(), tmp_path / "run", StopAt("cares-adaptive", 5))
    checkpoints = tmp_path / "run/schemes/cares-adaptive/checkpoints"
    newest = sorted(checkpoints.glob("checkpoint-*"))
    for path in newest[-spoilt:] if isinstance(spoilt, int) else [checkpoints / "records-0000004"]:
        spoil(path)
    listener = StopAt("nobody", 0)
    runner.resume(tmp_path / "run", listener)
    same_results(tmp_path / "run", reference)
    assert listener.notes
    assert all("(checksum)" in note and note.startswith("cares-adaptive: ") for note in listener.notes)


def narrower(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value.astype(np.float16) if value.dtype == np.float32 else value for name, value in arrays.items()}


def without(name: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    return lambda arrays: {key: value for key, value in arrays.items() if key != name}


def shorter(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value[:, :-1] for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("checkpoint", narrower),
        ("checkpoint", without("leaf0000")),
        ("checkpoint", without("segments")),
        ("checkpoint", lambda arrays: {**arrays, "segments": np.array(["x"])}),
        ("checkpoint", lambda arrays: {}),
        ("records", lambda arrays: {**arrays, "plan.more": arrays["live"]}),
        ("records", without("eval.loss")),
        ("records", without("plan.rx_scale")),
        ("records", shorter),
        ("records", lambda arrays: {name: value.ravel() for name, value in arrays.items()}),
        ("records", lambda arrays: {}),
    ],
)
def test_what_is_sealed_but_not_what_this_scheme_writes_is_damaged(
    kind: str, change: Callable[..., dict[str, np.ndarray]], tiny: Tiny, tmp_path: Path, reference: Path,
    same_results: Same,
) -> None:  # fmt: skip
    with pytest.raises(Interrupted):
        runner.start(tiny(), tmp_path / "run", StopAt("constant", 5))
    place = RunFolder.open(tmp_path / "run").scheme("constant")
    newest = max(place.saved())
    arrays = place.unseal(kind, newest)
    assert arrays
    place.seal(kind, newest, change(arrays))
    listener = StopAt("nobody", 0)
    runner.resume(tmp_path / "run", listener)
    same_results(tmp_path / "run", reference)
    assert any(f"checkpoint at round {newest} is damaged" in note for note in listener.notes)


def rename(run: Path) -> None:
    """An earlier checkpoint, with its records, under the name of the newest."""
    place = RunFolder.open(run).scheme("cares-adaptive").checkpoints
    for kind in ("checkpoint", "records"):
        old, new = sorted(place.glob(f"{kind}-*"))[-2:]
        new.write_bytes(old.read_bytes())


@pytest.mark.parametrize("overrides", [[], ["server.step_size=0.7"], ["scheme.1.label=other"]])
def test_a_checkpoint_of_another_round_label_or_config_is_not_taken(
    overrides: list[str], tiny: Tiny, tmp_path: Path, reference: Path, same_results: Same
) -> None:
    for name, changed in (("run", []), ("other", overrides)):
        label = "other" if changed == ["scheme.1.label=other"] else "cares-adaptive"
        with pytest.raises(Interrupted):
            runner.start(tiny(*changed), tmp_path / name, StopAt(label, 5))
    if overrides:
        source = next((tmp_path / "other/schemes").glob("*/checkpoints"))
        target = tmp_path / "run/schemes/cares-adaptive/checkpoints"
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        rename(tmp_path / "run")
    listener = StopAt("nobody", 0)
    runner.resume(tmp_path / "run", listener)
    same_results(tmp_path / "run", reference)
    assert any("of another run" in note for note in listener.notes)


# --- the disk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "it is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_disk_that_fails_in_the_middle_is_one_line_and_loses_nothing(
    code: int,
    said: str,
    call: str,
    tiny: Tiny,
    tmp_path: Path,
    reference: Path,
    same_results: Same,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NPROC", "1")  # one scheme after the other, so that the tenth call is always the same one
    real, countdown = getattr(os, call), [9]

    def failing(*args: object, **kwargs: object) -> object:
        ours = call != "open" or ".part" in str(args[0])
        countdown[0] -= ours
        if ours and countdown[0] < 0:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(StorageError) as refusal:
            runner.start(tiny(), tmp_path / "run")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert list((tmp_path / "run/schemes/constant/checkpoints").glob("checkpoint-*"))
    assert not list((tmp_path / "run").rglob(".*")), "a failed write must not leave its part behind"
    runner.resume(tmp_path / "run")
    same_results(tmp_path / "run", reference)


def test_a_folder_that_cannot_be_made_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        runner.start(tiny(), tmp_path / "file" / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to mount")
def test_a_disk_that_is_really_full(tiny: Tiny, tmp_path: Path, reference: Path, same_results: Same) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            runner.start(tiny(), disk / "run")
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        runner.resume(disk / "run")
        same_results(disk / "run", reference)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- the folder ------------------------------------------------------------------------------------------------------


def test_a_run_is_never_overwritten(reference: Path, tiny: Tiny) -> None:
    with pytest.raises(InputError, match="holds a run already"):
        runner.start(tiny(), reference)


def test_a_run_and_a_loop_do_not_share_a_folder(reference: Path, tiny: Tiny, tmp_path: Path) -> None:
    """A loop of Flower wrote its page over the run's."""
    keys: dict[str, Any] = {"site": 3, "num_params": 2, "noise_std": 0.3, "rounds": 2, "eps": 50.0}
    with pytest.raises(InputError, match="holds a run of an experiment; give the loop another folder"):
        otafl.Air("constant", folder=reference, **keys)
    otafl.Air("constant", folder=tmp_path / "loop", **keys).close()
    with pytest.raises(InputError, match=r"holds a loop of otafl\.Air; give another folder"):
        runner.start(tiny(), tmp_path / "loop")


def test_resuming_a_finished_run_changes_nothing(reference: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in reference.rglob("*") if path.is_file()}
    runner.resume(reference)
    assert before == {path: path.stat().st_mtime_ns for path in reference.rglob("*") if path.is_file()}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "3", "\x00"])
def test_a_damaged_manifest_is_said(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(OtaflError, match=r"manifest\.json|config\.toml") as refusal:
        runner.resume(tmp_path)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match=r"manifest\.json"):
        _ = RunFolder(tmp_path, "", {}).manifest


def test_a_changed_config_is_not_resumed(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        runner.start(tiny(), tmp_path / "run", StopAt("constant", 2))
    config = tmp_path / "run/config.toml"
    config.write_text(config.read_text().replace("rounds = 5", "rounds = 6"))
    with pytest.raises(InputError, match="was changed since the run began"):
        runner.resume(tmp_path / "run")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_that_the_config_names_are_a_part_of_the_run(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    """Rounds that ran under one noise would be charged by the other."""
    site, devices, spent = (tmp_path / name for name in ("site.toml", "devices.csv", "ledger.bin"))
    site.write_text('devices_file = "devices.csv"\n[radio]\nbandwidth_hz = 1e6\nnoise_dbm = -90\n')
    devices.write_text("name,gain_db,power_dbm,samples\n" + "".join(f"{n},-80,10,10\n" for n in "abcd"))
    spent.write_bytes((reference / "schemes/constant/ledger-0.bin").read_bytes())
    named = ("radio={}", f"devices='{site}'", f"privacy.already_spent='{spent}'")
    experiment = tiny(*named, "privacy.eps=1e6", "seeds=1", "scheme=[{name='constant', rx_scale=1e-7}]")
    folder = runner.start(experiment, tmp_path / "run")
    assert runner.run_in(folder, experiment) == folder
    for file in (site, devices, spent):
        before = file.read_bytes()
        file.write_bytes(before + b"\n")
        for verb in (runner.resume, lambda run: runner.run_in(run, experiment), lambda run: audit(run, 4)):
            with pytest.raises(InputError, match=f"{file.name} has changed since the run began"):
                verb(folder)
        outcome = verified(Point({}, folder, experiment))  # of a sweep
        assert outcome is not None and "has changed since the run began" in outcome.said
        file.write_bytes(before)
    shutil.rmtree(folder / "schemes")
    runner.resume(folder)


@pytest.fixture(scope="module")
def samples() -> dict[str, np.ndarray]:
    digits = load("digits")
    return {"x_train": digits.x_train[:80], "y_train": digits.y_train[:80], "x_test": digits.x_test[:40],
            "y_test": digits.y_test[:40]}  # fmt: skip


def test_results_on_another_file_of_data_are_not_taken_for_those_on_this_one(
    tiny: Tiny, tmp_path: Path, samples: dict[str, np.ndarray]
) -> None:
    np.savez(tmp_path / "own.npz", **samples)
    experiment = tiny(f"task.data={{name='npz', path='{tmp_path}/own.npz'}}", "scheme=[{name='fedavg'}]", "rounds=1")
    folder = runner.start(experiment, tmp_path / "run")
    assert runner.run_in(folder, experiment) == folder
    np.savez(tmp_path / "own.npz", **{**samples, "y_train": samples["y_train"][::-1]})
    with pytest.raises(InputError, match="its data set has changed since the run began"):
        runner.run_in(folder, experiment)
    outcome = verified(Point({}, folder, experiment))  # of a sweep
    assert outcome is not None and "its data set has changed" in outcome.said


@pytest.mark.parametrize("other", ["data set", "model"])
def test_a_comparison_goes_on_with_the_data_and_the_model_that_it_was_given_before(
    tmp_path: Path, samples: dict[str, np.ndarray], other: str
) -> None:
    def compared(**changed: Any) -> otafl.Run:
        x, y = samples["x_train"].reshape(80, 64) / 16, samples["y_train"]
        given = {"y": y, "start": 0.0, **changed}
        task = otafl.task(x, given["y"], held_out=0.5, clients=4)
        net = otafl.model(lambda key: {"w": np.full((64, 10), given["start"], np.float32)}, lambda p, x: x @ p["w"])
        schemes = [otafl.constant(rx_scale=0.3)]
        return otafl.compare(task=task, model=net, schemes=schemes, channel="cares", eps=500.0, rounds=1, seeds=1,
                             out=tmp_path, progress=False)[500.0]  # fmt: skip

    first = compared()
    assert compared().folder == first.folder
    with pytest.raises(InputError, match=f"its {other} has changed since the run began"):
        compared(**({"y": samples["y_train"][::-1].copy()} if other == "data set" else {"start": 0.5}))


def test_a_scheme_that_was_written_anew_is_not_given_the_results_of_the_former(tiny: Tiny, tmp_path: Path) -> None:
    """Neither by a comparison's runs, nor by a resumed run; what it computes decides, not how its text is laid out."""

    def written(share: float) -> Experiment:
        @otafl.scheme("mine")
        def mine(deployment: Any) -> dict[str, Any]:
            # a comment is no change
            return {"tx": share * np.sqrt(deployment.energy), "rx_scale": 1.0}

        return tiny("scheme=[{name='mine'}]", "rounds=1", "privacy.eps=1e6")

    folder = runner.start(written(1.0), tmp_path / "run")
    assert runner.run_in(folder, written(1.0)) == folder
    other = written(0.01)
    for again in (lambda: runner.run_in(folder, other), lambda: runner.resume(folder)):
        with pytest.raises(InputError, match="scheme mine has changed since the run began; put it back, or run anew"):
            again()


def test_no_run_no_resume(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run folder"):
        runner.resume(tmp_path)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_pandas_and_polars_read_what_was_written(tmp_path: Path) -> None:
    columns = {"seed": np.array([0, 1]), "loss": np.array([0.5, np.inf]), "sent": np.array([True, False])}
    (tmp_path / "t.parquet").write_bytes(parquet(columns))
    for read in (pd.read_parquet, pl.read_parquet):
        frame = read(tmp_path / "t.parquet")
        assert list(frame.columns) == list(columns)
        for name, values in columns.items():
            np.testing.assert_array_equal(frame[name].to_numpy(), values)
    assert equal(read_table(tmp_path / "t.parquet"), columns)


def test_tables_have_the_bytes_that_arrow_itself_writes(tmp_path: Path) -> None:
    rng, columns = np.random.default_rng(0), {}
    for kind in (np.int8, np.int32, np.int64, np.uint16, np.float32, np.float64, bool):
        columns[np.dtype(kind).name] = (100 * rng.standard_normal((19, 3))).astype(kind)[:, 1]
    own = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), own, compression="zstd")
    assert parquet(columns) == own.getvalue()
    assert equal(read_table(own), columns)


def test_tables_are_written_and_read_without_pandas() -> None:
    code = (
        "import io, sys, numpy as np; from otafl.runs.folder.store import parquet, read_table; "
        "columns = {'sent': np.array([True, False]), 'loss': np.array([0.5, np.inf])}; "
        "print(read_table(io.BytesIO(parquet(columns))), 'pandas' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip().endswith("False")


def test_gaps_and_words_of_somebody_elses_table_are_read_as_arrow_gives_them(tmp_path: Path) -> None:
    pd.DataFrame({"gap": [1.0, None], "word": ["a", "b"]}).to_parquet(tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(found["gap"], [1.0, np.nan])
    assert found["word"].tolist() == ["a", "b"]


def test_tables_and_model_of_a_run_open_with_common_tools(reference: Path) -> None:
    place = reference / "schemes/cares-adaptive"
    devices = pd.read_parquet(place / "devices.parquet")
    rounds = pl.read_parquet(place / "rounds.parquet")
    assert len(devices) == 4 * len(rounds) == 4 * 2 * 5
    model = np.load(place / "model.npz")
    assert sorted(array.size for array in (model[name] for name in model.files)) == [2 * 10, 2 * 640]
    summary = json.loads((place / "summary.json").read_text())
    assert summary["final_accuracy"] == [
        frame["accuracy"].iloc[-1] for _, frame in pd.read_parquet(place / "evaluations.parquet").groupby("seed")
    ]


def test_npz_is_the_same_for_the_same_arrays() -> None:
    assert npz(ARRAYS) == npz({name: value.copy() for name, value in ARRAYS.items()})


def test_a_comparison_in_place_of_a_run_is_told_with_its_runs(tmp_path: Path) -> None:
    for eps in (2, 8):
        (tmp_path / f"eps-{eps}" / "run").mkdir(parents=True)
        (tmp_path / f"eps-{eps}" / "run" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"it holds eps-2/run, eps-8/run$"):
        RunFolder.open(tmp_path)
    with pytest.raises(InputError, match=r"report.html: is not a run folder .*; it is a part of .*eps-2/run$"):
        RunFolder.open(tmp_path / "eps-2" / "run" / "report.html")


def test_a_sweep_in_place_of_a_run_is_told_with_its_points(tmp_path: Path) -> None:
    for n in range(9):
        (tmp_path / "points" / f"rounds-{n}").mkdir(parents=True)
        (tmp_path / "points" / f"rounds-{n}" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"it holds points/rounds-0, .*points/rounds-4, \.\.\. \(9 in all\)$"):
        RunFolder.open(tmp_path)


def test_a_loop_in_place_of_a_run_is_told_with_what_reports_on_it(tmp_path: Path) -> None:
    with otafl.Air("constant", site=5, num_params=2, eps=20.0, rounds=3, noise_std=1.0, folder=tmp_path / "loop"):
        pass
    with pytest.raises(InputError, match=r"not a run folder .*; of its loop of otafl.Air tells (.*)") as refusal:
        RunFolder.open(tmp_path / "loop")
    told = str(refusal.value).partition(" tells ")[2]
    assert "# Privacy card" in eval(told, {"otafl": otafl})


def test_a_full_disk_under_many_runs_does_not_say_that_none_is_left(tmp_path: Path) -> None:
    """It is said of a sweep's own folder, too, whose points go on from their checkpoints."""
    said = []
    for begun in (False, True):
        if begun:
            (tmp_path / "points" / "a").mkdir(parents=True)
            (tmp_path / "points" / "a" / "manifest.json").write_text("{}")
        with pytest.raises(StorageError) as refusal, storage(tmp_path):
            raise OSError(errno.ENOSPC, "full")
        said.append(str(refusal.value))
    assert "no run is left" in said[0]
    assert "the disk is full" in said[1] and "the same command goes on from there" in said[1]


def test_a_folder_that_cannot_take_the_results_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "audit.json").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    ready(tmp_path / "new" / "folder", "audit.json")
    assert not (tmp_path / "new").exists()
    for folder, said in (
        (tmp_path, "audit.json: is a folder, and a file is to be written there; give another folder"),
        (tmp_path / "file" / "inside", "file: is no folder; give another"),
        (tmp_path / "nowhere", "nowhere: is no folder; give another"),
    ):
        with pytest.raises(InputError, match=said):
            ready(folder, "audit.json", "audit.html")


def test_a_folder_without_permission_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # whoever tests may be allowed everything
    with pytest.raises(StorageError, match=f"{tmp_path}: cannot be written"):
        ready(tmp_path / "new", "audit.json")


@pytest.mark.parametrize(
    ("problem", "said"),
    [(KeyError("seed"), "no 'seed'"), (ValueError("a\nb"), "a"), (TypeError(), "it says nothing that is read")],
)
def test_what_is_damaged_is_told_without_the_words_of_python(problem: Exception, said: str, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=rf"x\.json: is damaged \({said}\); mend it$"),
        reading(tmp_path / "x.json", "mend it"),
    ):
        raise problem
