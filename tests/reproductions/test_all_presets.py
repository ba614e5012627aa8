"""`otafl reproduce --all`: it goes on after a failure, skips what is done, and can be interrupted and resumed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from otafl.core.errors import InputError, Interrupted
from otafl.core.files import to_json
from otafl.reproductions import all_presets, pages, pictures, preset_run, verdicts
from otafl.reproductions.findings import Verdict
from otafl.reproductions.reproduction import Reproduction, trained_in
from otafl.runs import presets
from otafl.runs.board import Board
from otafl.runs.comparing.tune import settings_of
from otafl.runs.folder.sealed import with_seal
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere
from processes import ENVIRONMENT, start_until_checkpoint
from sweeps import Here

Calls = list[str]
SMALL = """
rounds = 1000
seeds = 1
evaluate_every = 100
channel = "cares"
[preset]
summary = "long enough to be stopped in"
[task]
clients = 4
model = { name = "logistic" }
[engine]
checkpoint_seconds = 0.0
record_devices = false
[[scheme]]
name = "fedavg"
"""


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Calls]:
    """Three presets, of which some misbehave; returns the names that were run."""
    for name in ("good", "bad", "last"):
        (tmp_path / f"{name}.toml").write_text("[preset]\nsummary = 'x'\n")
    monkeypatch.setattr(presets, "packaged", lambda: {path.stem: path for path in sorted(tmp_path.glob("*.toml"))})

    def run(**faults: BaseException) -> Calls:
        calls: Calls = []

        def fake(name: str, *rest: object) -> None:
            calls.append(name)
            if name in faults:
                raise faults[name]

        monkeypatch.setattr(preset_run, "reproduce", fake)
        return calls

    return run


def again(folder: Path) -> dict[str, str]:
    return all_presets.reproduce_all(folder, True, Reporter, Console(quiet=True))


def test_goes_on_after_a_refusal_and_after_a_fault_of_ours(three: Callable[..., Calls], tmp_path: Path):
    calls = three(bad=InputError("no such luck"), good=ZeroDivisionError("oh"))
    outcome = again(tmp_path / "out")
    assert calls == ["bad", "good", "last"]
    assert outcome["bad"] == "no such luck" and outcome["last"] == "done" and "ZeroDivisionError: oh" in outcome["good"]
    for page in ("index.md", "index.html"):
        assert "no such luck" in (tmp_path / "out" / page).read_text()
    assert "Traceback" in (tmp_path / "out" / "good" / "error.txt").read_text()


def test_the_quickest_come_first(three: Callable[..., Calls], tmp_path: Path):
    (tmp_path / "bad.toml").write_text("[preset]\nsummary = 'x'\nminutes = 90.0\n")
    calls = three()
    again(tmp_path / "out")
    assert calls == ["good", "last", "bad"]


def test_what_shows_anothers_run_comes_after_it_and_takes_as_long(three: Callable[..., Calls], tmp_path: Path):
    """Alone it would train the other one first: hours, before presets of seconds."""
    (tmp_path / "good.toml").write_text("[preset]\nsummary = 'x'\nminutes = 90.0\n")
    (tmp_path / "bad.toml").write_text("[preset]\nsummary = 'x'\nexperiment = 'good'\n")
    calls = three()
    again(tmp_path / "out")
    assert calls == ["last", "good", "bad"]
    calls, there = three(), Elsewhere(Here(), Board())
    all_presets.reproduce_all(tmp_path / "there", True, Reporter, Console(quiet=True), there)
    assert calls == ["last", "good", "bad"], "side by side two of them would train one folder"


def test_long_ones_are_left_out_by_name(
    three: Callable[..., Calls], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "good.toml").write_text("[preset]\nsummary = 'x'\nminutes = 90.0\n")
    (tmp_path / "bad.toml").write_text("[preset]\nsummary = 'x'\nexperiment = 'good'\n")
    calls = three()
    told = all_presets.reproduce_all(tmp_path / "out", False, Reporter, Console(), at_most=60)
    assert calls == ["last"] and told == {"last": "done"}
    assert "left out, more than 60 minutes each: good, bad" in capsys.readouterr().out


def test_executor_does_the_same(three: Callable[..., Calls], tmp_path: Path):
    calls = three(bad=InputError("no such luck"), good=ZeroDivisionError("oh"))
    there = Elsewhere(Here(), Board())
    outcome = all_presets.reproduce_all(tmp_path / "out", True, Reporter, Console(quiet=True), there)
    assert calls == ["bad", "good", "last"]
    assert outcome["bad"] == "no such luck" and outcome["last"] == "done" and "ZeroDivisionError: oh" in outcome["good"]
    assert "Traceback" in (tmp_path / "out" / "good" / "error.txt").read_text()
    assert json.loads((tmp_path / "out" / "outcomes.json").read_text())["last"]["outcome"] == "done"
    calls = three()
    all_presets.reproduce_all(tmp_path / "out", True, Reporter, Console(quiet=True), there)
    assert calls == ["bad", "good"]


def test_what_is_done_is_skipped_and_what_failed_is_tried_again(three: Callable[..., Calls], tmp_path: Path):
    three(bad=InputError("no such luck"))
    again(tmp_path / "out")
    calls = three()
    assert again(tmp_path / "out") == {"bad": "done", "good": "done", "last": "done"} and calls == ["bad"]
    (tmp_path / "last.toml").write_text("[preset]\nsummary = 'other'\n")
    calls = three()
    again(tmp_path / "out")
    assert calls == ["last"], "a preset that has changed is not done"


@pytest.mark.parametrize("name", ["results.md", "results.json"])
def test_results_that_were_changed_are_made_again(name: str, three: Callable[..., Calls], tmp_path: Path):
    three()
    again(tmp_path / "out")
    (tmp_path / "out" / "good").mkdir()
    for change in (b"{}", b"{ }", None):
        results = tmp_path / "out" / "good" / name
        results.unlink() if change is None else results.write_bytes(change)
        calls = three()
        again(tmp_path / "out")
        assert calls == ["good"], change
    calls = three()
    again(tmp_path / "out")
    assert not calls


@pytest.mark.parametrize("stop", [Interrupted("a checkpoint"), KeyboardInterrupt()])
def test_an_interruption_keeps_what_is_done(stop: BaseException, three: Callable[..., Calls], tmp_path: Path):
    three(good=stop)
    with pytest.raises(Interrupted, match="in good; the same command goes on"):
        again(tmp_path / "out")
    calls = three()
    again(tmp_path / "out")
    assert calls == ["good", "last"]


@pytest.mark.slow  # its halves are fast: signals in tests/runs/test_interrupts.py, what is kept above
def test_control_c_during_training_and_going_on(tmp_path: Path):
    """One real preset in a process of its own: SIGINT ends it with 130, the same command finishes it."""
    script = (
        "import sys; from pathlib import Path; from otafl import cli; from otafl.runs import presets\n"
        "files = sorted(Path(sys.argv.pop(1)).glob('*.toml'))\n"
        "presets.packaged = lambda: {file.stem: file for file in files}\ncli.main()"
    )
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "small.toml").write_text(SMALL)
    out = tmp_path / "out"
    command = [sys.executable, "-c", script, str(tmp_path / "presets"), "reproduce", "--all", "--out", str(out)]
    process = start_until_checkpoint(command, out)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted in small; the same command goes on from there" in err and "Traceback" not in err
    finished = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert json.loads((out / "outcomes.json").read_text())["small"]["outcome"] == "done"


def test_index_shows_this_folder_beside_the_record(tmp_path: Path):
    claims = [{"claim": "a < b", "verdict": "does not hold", "evidence": "b | a"}]
    (tmp_path / "cares-table1").mkdir()
    (tmp_path / "cares-table1" / "results.json").write_text(json.dumps({"verdicts": claims}))
    verdicts.write_index(tmp_path, {"cares-table1": "done"}, False)
    (line,) = [line for line in (tmp_path / "index.md").read_text().splitlines() if "CARES, Table 1]" in line]
    assert "| not reproduced | " in line and "0 of 1 claims hold, 1 not; b \\| a" in line
    page = (tmp_path / "index.html").read_text()
    assert "b | a" in page and "not run yet" in page
    verdicts.write_index(tmp_path, {"cares-table1": "done"}, True)
    assert "smoke version: 0 of 1" in (tmp_path / "index.md").read_text(), "a smoke version has no verdict"


@pytest.mark.parametrize(
    "nonsense", [b"", b"[]", b"\xff", b"[" * 10**5, b'{"verdicts": 5}', b'{"verdicts": [{"claim": "a"}]}']
)
def test_results_of_nonsense_are_one_line(nonsense: bytes, tmp_path: Path):
    results = tmp_path / "cares-table1" / "results.json"
    results.parent.mkdir()
    results.write_bytes(nonsense)
    for read in (
        lambda: verdicts.write_index(tmp_path, {}, False),
        lambda: verdicts.closing("x", results.parent, True),
    ):
        with pytest.raises(InputError, match=r"^\S*results\.json: is damaged \([^\n]+\); remove it, and call again$"):
            read()


def test_smoke_versions_do_not_get_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(verdicts, "RECORD", tmp_path / "record")
    verdicts.RECORD.mkdir()
    panel = pictures.Panel("p", "x", "y", points=[pictures.point("a", [0.1, 0.3], said=0.2)])
    for name in ("cdpb-fig2", "cdpb-fig4"):
        claim = Verdict("c", "holds", "e", "Section V", "a > b")
        preset, console = Preset(summary="s", source=name), Console(quiet=True)
        job = Reproduction(tmp_path, preset, tmp_path / name, [], False, Reporter(), console)
        job.publish([], [claim], ["n"], [panel])
    told = json.loads((tmp_path / "cdpb-fig4" / "results.json").read_text())
    (tmp_path / "cdpb-fig4" / "results.json").write_text(json.dumps({**told, "quick": True}))
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- begin {name} -->\n<!-- end {name} -->\n" for name in ("record", "cdpb-fig2")))
    pages.main(page, tmp_path)
    assert list(verdicts.recorded()) == ["cdpb-fig2"], "the other one is a smoke version"
    assert verdicts.recorded()["cdpb-fig2"]["folder"] == f"{tmp_path.name}/cdpb-fig2"
    line = next(line for line in page.read_text().splitlines() if "CDPB, Figure 2]" in line)
    assert "**reproduced** (1 of 1 claims holds)" in line
    assert "| c | Section V | a > b | holds | e |" in page.read_text() and "results-cdpb-fig2.svg" in page.read_text()
    assert "paper, as printed" in (tmp_path / "cdpb-fig2" / "results.svg").read_text()
    (stored,) = pictures.from_json(verdicts.recorded()["cdpb-fig2"]["panels"])
    assert stored.points[0].said == 0.2 and round(stored.points[0].mean, 9) == 0.2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("joules=3", "preset.settings.joules=3 must be a list, as the preset has it"),
        ("joules=[1e-5, 'x']", "preset.settings.joules.1='x' must be a number, as the preset has it"),
        ("eps=[nan]", "preset.settings.eps.0=nan must be a number, as the preset has it"),
        ("eps=[0.0]", "preset.settings.eps.0=0.0 must be > 0"),
        ("num_params=9.5", "preset.settings.num_params=9.5 must be a whole number, as the preset has it"),
        (f"num_params=1{'0' * 30}", "settings.num_params=1000000000... must fit into 64 bits"),
        ("num_params=-" + "9" * 4000, "must be > 0"),
        ("joules=[1e99, 1.0]", "settings.joules.0=1e+99 must be 0 or of a size within [1e-40, 1e+40]"),
        ("num_param=9", "preset.settings.num_param: unknown key; did you mean 'num_params'?"),
        ("agreement=1.5", "agreement=1.5 must lie in (0, 1]"),
        ("joules=[]", "preset.settings.joules must list one number at least"),
        ("joules=[1.0]", "cannot be made with --set 'preset.settings.joules=[1.0]' (list index out of range)"),
    ],
)
def test_settings_that_an_analysis_cannot_take_are_one_line(setting: str, said: str, tmp_path: Path):
    with pytest.raises(InputError) as refused:
        preset_run.reproduce(
            "demo-phases", tmp_path, [f"preset.settings.{setting}"], True, Reporter(), Console(quiet=True)
        )
    assert str(refused.value).endswith(said) and "\n" not in str(refused.value)


def test_a_fault_of_an_analysis_that_nobody_changed_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("otafl.reproductions.our_own.phase_diagram", lambda job: [][0])
    with pytest.raises(IndexError):
        preset_run.reproduce("demo-phases", tmp_path, [], True, Reporter(), Console(quiet=True))


def test_every_settings_of_a_smoke_version_are_of_the_presets_kind():
    for name, path in presets.packaged().items():
        preset = presets.read_preset(path)
        assert settings_of(path, preset.overrides(True)).keys() >= preset.settings.keys(), name


def test_a_folder_with_a_presets_name_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert presets.find("demo") == presets.packaged()["demo"]


def test_a_reproduction_ends_with_the_papers_words_a_verdict_and_its_files(tmp_path: Path):
    from otafl.reproductions.verdicts import closing

    claims = [{"claim": "a", "verdict": "holds", "evidence": ""}, {"claim": "b", "verdict": "no", "evidence": ""}]
    (tmp_path / "results.json").write_text(json.dumps({"verdicts": claims}))
    for name in ("fig2.png", "fig2.pdf", "results.md"):
        (tmp_path / name).touch()
    says, verdict, plots, results = closing("cdpb-fig2", tmp_path, quick=False)
    assert says.startswith("CDPB, Figure 2, the paper says: the bound is convex")
    assert verdict.startswith("Verdict: partly (1 of 2 claims holds); on record: partly (")
    assert plots == f"Plots: {tmp_path / 'fig2.png'}" and results == f"Results: {tmp_path / 'results.md'}"
    assert "means nothing" in closing("cdpb-fig2", tmp_path, quick=True)[1]
    assert closing("demo", tmp_path / "none", quick=False) == []


def test_what_was_trained_is_told_with_its_machine(tmp_path: Path):
    for name, rounds, seconds in (("a", 30, 1.4), ("b", 12, 2.2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "timing.json").write_text(to_json(with_seal({"rounds": rounds, "seconds": seconds})))
    machine = {"jax devices": "cpu (cpu)", "cores": "2"}
    (tmp_path / "manifest.json").write_text(to_json(with_seal({"machine": machine})))
    assert trained_in(tmp_path) == {"rounds": 42, "seconds": 4, "on": ["cpu (cpu), 2 cores"]}
    for nonsense in ("x", "{}", to_json(with_seal({"rounds": 3})), to_json(with_seal({"rounds": "x", "seconds": 1}))):
        (tmp_path / "b" / "timing.json").write_text(nonsense)
        with pytest.raises(InputError, match=r"^\S*b/timing\.json: [^\n]+$"):
            trained_in(tmp_path)
