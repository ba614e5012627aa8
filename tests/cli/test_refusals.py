"""The command line refuses in one line, which says what would do, and by its exit code."""

from pathlib import Path

import pytest

from command_line import Call
from otafl.core.errors import PrivacyViolation


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (2, ["run", "small.toml", "--set", "rounds=0"]),
        (2, ["run", "small.toml", "--set", "rouns=1"]),
        (2, ["run", "small.toml", "--set", "nonsense"]),
        (2, ["run", "small.toml", "--set", "scheme.7.name=constant"]),
        (2, ["run", "small.toml", "--set", "rounds.x.y=1"]),
        (2, ["run", "none.toml"]),
        (2, ["plan", "none\notafl: none.toml"]),
        (2, ["plan", "x" * 300]),
        (2, ["sweep", "small.toml"]),
        (2, ["sweep", "small.toml", "-m", "rounds"]),
        (2, ["sweep", "small.toml", "-m", "rouns=1,2"]),
        (2, ["sweep", "small.toml", "-m", "rounds=1,2", "-m", "rounds=3"]),
        (2, ["sweep", "small.toml", "-m", "rounds=1,2", "--executor", "nowhere"]),
        (2, ["sweep", "small.toml", "-m", "rounds=1,2", "--executor", "local:0"]),
        (2, ["sweep", "small.toml", "-m", "rounds=1,2", "--executor", f"local:{'9' * 5000}"]),
        (2, ["reproduce", "--all", "--at-most", "nan"]),
        (2, ["reproduce", "--all", "--at-most", "-1"]),
        (2, ["list", "9" * 5000]),
        (2, ["advise", "9" * 5000, "--eps", "8", "--num-params", "650"]),
        (2, ["reproduce", "demo", "--executor", "local"]),
        (2, ["run", "demoo"]),
        (2, ["run"]),
        (2, ["run", "--resume", "."]),
        (2, ["run", "small.toml", "--resume", "."]),
        (2, ["run", "small.toml", "--set", "scheme.²=3"]),
        (2, ["run", "small.toml", "--set", f"scheme.{'9' * 5000}=3"]),
        (2, ["run", "small.toml", "--set", f"scheme.0.label={'x' * 300}"]),
        (2, ["run", "small.toml", "--set", "task.model={name='resnet', width=1000000000000}"]),
        (2, ["run", "small.toml", "--set", "task.model={name='resnet', depth=6000000002}"]),
        (2, ["run", "small.toml", "--set", "task.model={name='mlp', hidden=[1000000, 1000000]}"]),
        (2, ["run", "small.toml", "--set", "clients.clip_norm=1e300"]),
        (2, ["run", "small.toml", "--frobnicate"]),
        (2, ["frobnicate"]),
        (2, ["plan", "nobody"]),
        (2, ["plan", "cares"]),
        (2, ["report", "nowhere"]),
        (2, ["reproduce", "nothing"]),
        (2, ["run", "small.toml", "--set", "task.data=mnist"]),
        (3, ["run", "small.toml", "--set", "scheme.0={name='cares-static',max_dropped=1e-9}"]),
        (3, ["run", "small.toml", "--set", "scheme.0={name='cares-adaptive',max_asymmetry=1e-9}"]),
        (4, ["run", "small.toml", "--set", "privacy.eps=0.001"]),
        (1, ["run", "small.toml", "--out", "/dev/null/run"]),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code(
    code: int, arguments: list[str], otafl: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTAFL_DATA", "/nowhere")
    monkeypatch.setenv("OTAFL_CACHE", "/nowhere")
    got, out, err = otafl(*arguments)
    said = [line for line in err.splitlines() if line]
    assert (got, out) == (code, ""), err
    assert len(said) == 1
    assert said[0].startswith("otafl: ")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "small.toml", "-m", "rounds=1,2", "--executor", "nowhere"], "executor='nowhere' must be one of "),
        (["advise", "9", "--eps", "8", "--num-params", "9", "--radio", "noise"], "--radio 'noise' must have the form"),
    ],
)
def test_a_mistake_in_an_option_is_none_of_the_file(arguments: list[str], said: str, otafl: Call) -> None:
    code, _, err = otafl(*arguments)
    assert code == 2 and err.startswith(f"otafl: {said}")


@pytest.mark.parametrize("verb", ["run", "plan", "audit"])
def test_what_is_refused_after_reading_names_the_file_too(verb: str, otafl: Call) -> None:
    code, _, err = otafl(verb, "small.toml", "--set", "task.data.train_size=5000")
    assert code == 2 and err.startswith("otafl: small.toml: train_size=5000 must lie in")


def test_a_deployment_file_in_place_of_an_experiment_is_told_what_takes_it(otafl: Call) -> None:
    Path("site.toml").write_text('devices_file = "site.csv"\n')
    code, _, err = otafl("plan", "site.toml")
    assert code == 2 and 'otafl advise takes it, and an experiment names it by devices = "site.toml"' in err


def test_a_list_of_devices_in_place_of_an_experiment_is_told_what_takes_it(otafl: Call) -> None:
    Path("site.csv").write_text("distance_m,power_dbm,samples\n40,14,200\n")
    code, _, err = otafl("plan", "site.csv")
    assert code == 2 and "otafl advise takes it" in err
    code, _, err = otafl("advise", "site.csv", "--eps", "8", "--num-params", "650", "--samples", "10")
    assert code == 2 and "samples=10 goes with a number of devices" in err


def test_a_key_in_the_wrong_table_is_told_its_own(otafl: Call) -> None:
    assert (
        "privacy.adjacency: unknown key; it is a key of clients"
        in otafl("run", "small.toml", "--set", "privacy.adjacency=replace")[2]
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("eps=8", "eps: unknown key; it is a key of privacy and of scheme"),
        ("lr=8", "lr: unknown key; did you mean 'step_size' of server?"),
        ("epsilon=8", "epsilon: unknown key; did you mean 'eps' of privacy or of scheme?"),
        ("epochs=8", "epochs: unknown key; did you mean 'rounds'?"),
        ("task.rounds=8", "task.rounds: unknown key; it stands above the first [table] of the file"),
        ("scheme={name='constant'}", "scheme must be a list: [[scheme]] begins each of its tables"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_the_right_one(change: str, said: str, otafl: Call) -> None:
    assert otafl("run", "small.toml", "--set", change)[2] == f"otafl: small.toml: {said}\n"


def test_a_file_without_its_ending_is_guessed(otafl: Call) -> None:
    assert otafl("run", "small")[2] == "otafl: small: no such file and no such preset; did you mean small.toml?\n"


def test_a_file_from_a_windows_editor_is_read(otafl: Call) -> None:
    text = Path("small.toml").read_text(encoding="utf-8").replace("\n", "\r\n")
    Path("windows.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert otafl("run", "windows.toml", "--show") == otafl("run", "small.toml", "--show")


def test_an_experiment_that_has_the_name_of_ours_stays(otafl: Call) -> None:
    Path("small.toml").rename("config.toml")
    before = Path("config.toml").read_bytes()
    code, _, err = otafl("run", "config.toml", "--out", ".")
    assert code == 2 and err.startswith("otafl: config.toml: is there already, and a run would replace it")
    assert Path("config.toml").read_bytes() == before


def test_a_site_beside_its_advice_stays(otafl: Call) -> None:
    Path("site.csv").write_text("gain_db,power_dbm,samples\n-80,14,200\n-90,14,200\n")
    Path("site.toml").write_text("devices_file = 'site.csv'\n[radio]\nbandwidth_hz = 1e6\nnoise_dbm = -110\n")
    before = Path("site.toml").read_bytes()
    otafl("advise", "site.toml", "--num-params", "650", "--eps", "1e5", "--out", ".")
    assert Path("advice.toml").exists() and Path("site.toml").read_bytes() == before
    assert otafl("plan", "advice.toml")[0] == 0


def test_a_command_that_is_used_wrongly_says_where_its_help_is(otafl: Call) -> None:
    assert otafl("sweep", "small.toml")[2].endswith("sweep --help)\n")


def test_resume_takes_no_other_folder(otafl: Call) -> None:
    code, _, err = otafl("run", "--resume", "a", "--out", "b")
    assert code == 2 and "no --out" in err


def test_a_broken_promise_has_its_own_code() -> None:
    assert PrivacyViolation.exit_code == 5


def test_a_second_value_after_set_says_how_it_is_given(otafl: Call) -> None:
    code, _, said = otafl("run", "small.toml", "--set", "rounds=2", "seeds=1")
    assert code == 2 and "extra argument(s) (seeds=1); --set takes one KEY=VALUE and may be repeated" in said


def test_a_system_that_is_not_in_the_experiment_is_refused_in_one_line(otafl: Call) -> None:
    code, _, said = otafl("plan", "cares", "small.toml")
    assert code == 2 and said.startswith("otafl: small.toml: no scheme of cares in this experiment; add a [[scheme]]")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        (["compare", "small.toml", "--set", "privacy.eps=9e3"], "compare.json"),
        (["compare", "small.toml", "--set", "privacy.eps=9e3"], "compare.md"),
        (["reproduce", "demo-phases", "--quick"], "results.md"),
        (["audit", "small.toml"], "audit.json"),
    ],
)
def test_a_folder_where_results_are_to_be_written_is_refused_before_the_work(
    words: list[str], taken: str, otafl: Call, tmp_path: Path
) -> None:
    (tmp_path / "taken" / taken).mkdir(parents=True)
    code, _, said = otafl(*words, "--out", str(tmp_path / "taken"))
    assert code == 2 and f"{taken}: is a folder" in said
    assert [path.name for path in (tmp_path / "taken").iterdir()] == [taken]
