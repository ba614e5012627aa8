"""What commands do and print, and their help."""

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from command_line import SMALL, Call
from otafl import __version__, cli, systems
from otafl.runs.presets import find, packaged


def test_a_run_from_start_to_report(otafl: Call) -> None:
    code, out, err = otafl("run", "small.toml", "--json-log")
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["start", "chunk", "chunk"]
    assert Path("runs/small/report.html").stat().st_size > 1000

    code, out, err = otafl("run", "--resume", "runs/small")
    assert (code, err) == (0, "")
    assert "constant" in out and "ε at δ=1e-05" in out

    code, out, err = otafl("run", "small.toml", "--out", "runs/small")
    assert (code, out) == (2, "")
    assert "holds a run already" in err

    ledger = "runs/small/schemes/constant/ledger-0.bin"
    code, out, err = otafl("run", "small.toml", "--set", f"privacy.already_spent={ledger}", "--set", "privacy.eps=70")
    assert (code, out) == (4, ""), err


def test_no_text_steers_the_terminal(otafl: Call) -> None:
    code, out, err = otafl("run", "\x1b[31m\x1b]0;owned\x07none\u202e.toml")
    assert code == 2 and "none" in err and not {"\x1b", "\x07", "\u202e"} & set(out + err)
    for key in ("title", "outside"):
        value = '"a\\u001b[31m"' if key == "title" else '["a\\nb"]'
        code, _, err = otafl("run", "small.toml", "--set", f"{key}={value}")
        assert code == 2 and f"{key} " in err and "must be one line of printable characters" in err


def test_brackets_in_labels_and_titles_are_printed_as_they_are(otafl: Call) -> None:
    labels, title = ["x [/y]", "constant [bound]", "[red]x", "a\\\\[b]"], "t [red]x [/y] a\\\\[b]"
    tables = [f"{{name='{name}', label='{label}'}}" for name, label in zip(["constant", "fedavg"] * 2, labels)]
    schemes = f"scheme=[{', '.join(tables)}]"
    code, out, err = otafl("run", "small.toml", "--set", schemes, "--set", f"title='{title}'", "--out", "o [/x]")
    assert (code, err) == (0, "")
    assert title in out and all(f"│ {label} " in out for label in labels) and "o [/x]/report.html" in out
    code, out, err = otafl("report", "o [/x]")
    assert (code, err) == (0, "") and "wrote o [/x]/report.html" in out
    code, out, err = otafl("compare", "small.toml", "--set", schemes, "--out", "c [/x]")
    assert (code, err) == (0, "") and all(f" {label} " in out for label in labels) and "c [/x]/compare.html" in out
    code, out, err = otafl("report", "c [/x]")  # the folder of a comparison stands for its run
    assert (code, err) == (0, "") and "wrote c [/x]/run/report.html" in out


def test_the_first_steps(otafl: Call) -> None:
    code, out, err = otafl()
    assert (code, err) == (0, "") and "Usage" in out
    assert otafl("--version") == (0, f"otafl {__version__}\n", "")
    _, everything, _ = otafl("list", "--json")
    code, some, err = otafl("list", "models", "--json")
    assert (code, err) == (0, "") and json.loads(some) == {"models": json.loads(everything)["models"]}
    code, some, err = otafl("list", "cares", "--json")
    assert set(json.loads(some)["schemes"]) == {"cares-static", "cares-adaptive"} & set(json.loads(some)["schemes"])
    assert otafl("list", "model", "--json")[1] == otafl("list", "models", "--json")[1]
    code, out, err = otafl("list", "nosuchthing")
    assert code == 2 and "nothing is called 'nosuchthing'; the kinds are schemes, " in err
    for near, name in (("schemez", "schemes"), ("cares-statik", "cares-static")):
        assert otafl("list", near)[2] == f"otafl: nothing is called '{near}'; did you mean '{name}'?\n"


def test_of_a_reproduction_too_json_lines_are_all_that_is_printed(otafl: Call) -> None:
    code, out, err = otafl("reproduce", "demo-phases", "--quick", "--json-log", "--out", "phases")
    assert (code, err) == (0, "") and Path("phases/results.md").exists()
    assert all(json.loads(line) for line in out.splitlines())


def test_a_comparison_with_one_seed_and_trials(otafl: Call) -> None:
    two = "scheme=[{name='constant', label='a'}, {name='constant', label='b', rx_scale=0.3, rounds=12}]"
    code, out, err = otafl(
        "compare", "small.toml", "--set", two, "--set", "task.data=digits", "--trials", "2", "--out", "c"
    )
    assert (code, err) == (0, "")
    assert "nan" not in out and "one seed, no interval" in out and "-0.0%" not in out
    assert "2 trials per scheme on private validation data, outside the guarantee" in out


def test_list_names_everything_with_a_summary(otafl: Call) -> None:
    everything = json.loads(otafl("list", "--json")[1])
    assert set(everything["schemes"]) == set(systems.SCHEMES)
    assert set(everything["presets"]) == set(packaged())
    assert all(summary for entries in everything.values() for summary in entries.values())
    text = otafl("list")[1]
    assert all(name in text for entries in everything.values() for name in entries)


def test_doctor_says_what_is_installed_and_where_data_are(
    otafl: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist/mnist.npz").write_bytes(b"not looked into")
    monkeypatch.setenv("OTAFL_DATA", str(tmp_path))
    found = json.loads(otafl("doctor", "--json")[1])
    assert re.fullmatch(r"\d+\.\d+.*", found["packages"]["jax"])
    assert found["data"]["digits"] == "comes with scikit-learn"
    assert found["data"]["mnist"].startswith(str(tmp_path / "mnist/mnist.npz"))
    assert found["data"]["cifar100"].startswith("not found")
    assert "jax devices" in found["machine"]
    assert "scikit-learn" in otafl("doctor")[1]


VERBS = ("run", "sweep", "compare", "advise", "list", "plan", "audit", "reproduce", "report", "doctor")


@pytest.mark.parametrize("verb", VERBS)
def test_help_ends_with_an_example_that_the_command_understands(otafl: Call, verb: str) -> None:
    code, said, _ = otafl(verb, "--help")
    (example,) = re.findall(r"Example: otafl (.*?)\Z", said, re.DOTALL)
    words = example.split(", or ")[0].split()
    assert code == 0 and words[0] == verb
    command = get_command(cli.app).commands[verb]
    command.make_context(verb, words[1:])  # parses, with every option known and nothing missing; runs nothing


def test_the_help_of_all_names_every_verb(otafl: Call) -> None:
    assert set(get_command(cli.app).commands) == set(VERBS)


def test_a_preset_of_a_comparison_says_that_its_settings_are_chosen_there(otafl: Call) -> None:
    """`plan demo` found no round for a scheme that `compare demo` ranks."""
    Path("chosen.toml").write_text(SMALL + "[preset]\nsettings = { trials = 0 }\n")
    remark = "settings are those of the file; otafl compare chooses others, by plans"
    assert remark in " ".join(otafl("plan", "chosen.toml")[1].split())
    assert f"chosen.toml: {remark}\n" in otafl("run", "chosen.toml")[2]
    assert remark not in " ".join(otafl("plan", "small.toml")[1].split())


def test_help_does_not_speak_of_types(otafl: Call) -> None:
    for verb in ("run", "plan", "report"):
        code, said, _ = otafl(verb, "--help")
        assert code == 0 and "--help" in said
        assert not any(f"<{kind}" in said for kind in ("bool", "path", "str", "list"))


def test_results_of_a_preset_in_a_file_lie_under_its_name_and_not_beside_it(otafl: Call, tmp_path: Path) -> None:
    """Under `runs`, an absolute path was the preset's file itself."""
    mine = tmp_path / "mine" / "phases.toml"
    mine.parent.mkdir()
    mine.write_text(find("demo-phases").read_text())
    code, _, said = otafl("reproduce", str(mine), "--quick")
    assert code == 0, said
    assert (tmp_path / "runs" / "phases" / "results.md").exists()
