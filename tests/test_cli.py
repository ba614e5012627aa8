"""The command line: exit codes, one-line refusals, machine-readable output."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from otafl import __version__, cli, systems
from otafl.core.errors import PrivacyViolation
from otafl.runs.presets import find, packaged
from otafl.runs.schema import Experiment, load, resolved
from otafl.systems import planning
from processes import ENVIRONMENT

SMALL = """
rounds = 3
seeds = 1
evaluate_every = 2
channel = "cares"
clients = { kind = "gradient", batch = 4 }
engine = { checkpoint_seconds = 0 }
privacy = { eps = 200.0 }

[task]
data = { name = "digits", train_size = 40 }
clients = 2
partition = { kind = "iid" }
model = { name = "logistic" }

[[scheme]]
name = "constant"
"""
PRESETS = list(packaged().values())
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def otafl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """Call the command line in this process, in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["otafl", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return call


# --- exit codes ------------------------------------------------------------------------------------------------------


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


def test_resume_takes_no_other_folder(otafl: Call) -> None:
    code, _, err = otafl("run", "--resume", "a", "--out", "b")
    assert code == 2 and "no --out" in err


def test_a_broken_promise_has_its_own_code() -> None:
    assert PrivacyViolation.exit_code == 5


def test_a_broken_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m otafl.cli list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
    assert done.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_number_of_a_closed_stream(closed: str) -> None:
    asked = "import os, sys, otafl.cli as c; c.main = lambda: sys.exit(max(os.open(os.devnull, 0), 2)); c.process()"
    done = subprocess.run(f'{sys.executable} -c "{asked}" {closed}', shell=True, capture_output=True, text=True)
    assert (done.returncode > 2, done.stderr) == (True, "")


def test_a_worker_of_a_command_without_streams_has_its_own() -> None:
    asked = "import otafl.cli as c; from otafl.runs.workers import Local; c._open_what_was_closed(); e = Local(1)"
    command = f'{sys.executable} -c "{asked}; exit(e.submit(abs, -3).result())" <&- >&- 2>&-'
    assert subprocess.run(command, shell=True).returncode == 3


# --- config ----------------------------------------------------------------------------------------------------------


def test_what_is_shown_reads_back_to_the_same_experiment(otafl: Call, tmp_path: Path) -> None:
    for number, file in enumerate([tmp_path / "small.toml", *PRESETS]):
        try:
            before = load(file)
        except Exception:  # presets of pure analysis hold no experiment
            assert "scheme" not in tomllib.loads(file.read_text())
            continue
        code, out, _ = otafl("run", str(file), "--show")
        assert code == 0
        again = tmp_path / f"shown-{number}.toml"
        again.write_text(out)
        assert load(again) == before.model_copy(update={"preset": None})
        assert resolved(load(again)) == out


def test_overrides_reach_every_depth(otafl: Call) -> None:
    sets = (
        "rounds=7",
        "task.model={name='mlp',hidden=[5]}",
        "task.data=digits",
        "scheme.0.rx_scale=0.25",
        "privacy.delta=1e-6",
        "title=a b",
    )
    _, out, _ = otafl("run", "small.toml", "--show", *[part for one in sets for part in ("--set", one)])
    shown = tomllib.loads(out)
    assert (shown["rounds"], shown["task"]["model"]["hidden"], shown["scheme"][0]["rx_scale"]) == (7, [5], 0.25)
    assert (shown["privacy"]["delta"], shown["title"], shown["task"]["data"]["name"]) == (1e-6, "a b", "digits")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rouns=1", "rouns: unknown key; did you mean 'rounds'?"),
        ("channel={fading={knid='rician'}}", "channel.fading.knid: unknown key; did you mean 'kind'?"),
        ("channel={shadowing=1}", "channel.shadowing: unknown key; did you mean 'shadowing_db'?"),
        (
            "task.data={name='digits',pca={component=3}}",
            "task.data.pca.component: unknown key; did you mean 'components'?",
        ),
        ("task.model={name='mlp',hiden=[3]}", "task.model.hiden: unknown key; did you mean 'hidden'?"),
        ("scheme.0.rx_scal=1", "scheme.0.rx_scal: unknown key; did you mean 'rx_scale'?"),
        ("scheme.0.clients={kind='gradient',clip=1}", "scheme.0.clients.clip: unknown key; did you mean 'clip_norm'?"),
        ("scheme.0.server={step=1}", "scheme.0.server.step: unknown key; did you mean 'step_size'?"),
        ("task.model=[1]", "task.model must be a table"),
        ("scheme=['fedavg']", "scheme.0='fedavg' must be a table: { name = 'fedavg' }"),
        (
            "clients.kind='per-sample'",
            "constant: gate='bound' needs a finite norm bound, but these messages have none (Poisson batches); use "
            "clients.sampling='without-replacement', or a scheme with gate='open', e.g. weakest or ridge",
        ),
        ("clients={clip_norm=1}", "clients.kind is required: one of gradient, per-sample, "),
        ("clients.kind='gradiant'", "clients.kind='gradiant' must be one of "),
        ("scheme.0.name='carres'", "scheme.0.name='carres' must be one of "),
        ("task.data=minst", "task.data: data set 'minst' must be one of "),
        ("channel=carres", "channel: 'carres' must be a table or one of "),
        ("radio={power_dbm=10,noise_std=1}", "radio: give max_energy with noise_std"),
        (
            "scheme=[{name='constant',label='A b'},{name='weakest',label='a_b'}]",
            "scheme labels 'A b' and 'a_b' share a folder",
        ),
        ("scheme=[{name='constant'},{name='constant'}]", "scheme labels 'constant' and 'constant' share a folder"),
    ],
)
def test_a_mistake_is_told_by_its_key_with_the_nearest_known_one(override: str, said: str, otafl: Call) -> None:
    code, _, err = otafl("run", "small.toml", "--set", override)
    assert code == 2
    assert err.startswith(f"otafl: small.toml: {said}")


def test_a_misspelt_name_is_told_with_the_one_that_was_meant(otafl: Call) -> None:
    names = {"clients.kind": "gradient", "scheme.0.name": "weakest", "task.data": "digits", "channel": "cares"}
    for key, name in names.items():
        _, _, err = otafl("run", "small.toml", "--set", f"{key}='{name[:-2]}{name[-1]}'")
        assert err.endswith(f"; did you mean '{name}'?\n")


# --- schemas ---------------------------------------------------------------------------------------------------------


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """JSON Schema as far as pydantic writes it; an unknown keyword is an error, so nothing is waved through."""
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    ignored = {"title", "description", "default", "discriminator", "$defs", "format", "examples"}
    for word, rule in schema.items():
        if word in ignored or word in ("additionalProperties", "items", "prefixItems"):
            continue
        ok: bool
        if word == "$ref":
            ok = accepts(root["$defs"][rule.removeprefix("#/$defs/")], value, root)
        elif word == "type":
            ok = isinstance(value, kinds[rule]) and (rule == "boolean" or not isinstance(value, bool))
        elif word in ("anyOf", "oneOf"):
            matches = sum(accepts(one, value, root) for one in rule)
            ok = matches == 1 if word == "oneOf" else matches > 0
        elif word == "const":
            ok = value == rule
        elif word == "enum":
            ok = value in rule
        elif word == "properties":
            ok = not isinstance(value, dict) or all(
                accepts(rule[key], item, root) for key, item in value.items() if key in rule
            )
        elif word == "required":
            ok = not isinstance(value, dict) or set(rule) <= set(value)
        elif word in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            holds = (
                {
                    "minimum": value >= rule,
                    "exclusiveMinimum": value > rule,
                    "maximum": value <= rule,
                    "exclusiveMaximum": value < rule,
                }
                if isinstance(value, int | float)
                else {word: True}
            )
            ok = holds[word]
        elif word == "maxLength":
            ok = not isinstance(value, str) or len(value) <= rule
        elif word in ("minItems", "maxItems"):
            ok = not isinstance(value, list) or (len(value) >= rule if word == "minItems" else len(value) <= rule)
        else:
            raise AssertionError(f"keyword {word!r} is not known here")
        if not ok:
            return False
    if isinstance(value, list):
        fixed = schema.get("prefixItems", [])
        if not all(accepts(rule, item, root) for rule, item in zip(fixed, value)):
            return False
        return (
            all(accepts(schema["items"], item, root) for item in value[len(fixed) :])
            if isinstance(schema.get("items"), dict)
            else True
        )
    if isinstance(value, dict) and "properties" in schema and schema.get("additionalProperties") is False:
        return set(value) <= set(schema["properties"])
    if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        return all(
            accepts(schema["additionalProperties"], item, root)
            for key, item in value.items()
            if key not in schema.get("properties", {})
        )
    return True


def test_the_schema_accepts_every_preset_and_refuses_mistakes(otafl: Call) -> None:
    code, out, _ = otafl("run", "--schema")
    assert code == 0
    schema = json.loads(out)
    small = tomllib.loads(SMALL)
    experiments = [data for data in (tomllib.loads(path.read_text()) for path in PRESETS) if "scheme" in data]
    assert experiments
    for data in [small, *experiments]:
        assert accepts(schema, data, schema)
    for wrong in (
        {"rounds": 0},
        {"rounds": "3"},
        {"rouns": 3},
        {"seeds": []},
        {"channel": "mars"},
        {"scheme": []},
        {"scheme": [{"name": "x"}]},
        {"task": {"data": "mars"}},
        {"radio": {"noise_std": -1}},
        {"channel": {"fadin": 1}},
    ):
        assert not accepts(schema, {**small, **wrong}, schema), wrong


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return Experiment.model_json_schema()


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_schema_and_parser_agree_on_presets(path: Path, schema: dict[str, Any]) -> None:
    data = tomllib.loads(path.read_text())
    if "scheme" in data:
        load(path)
        assert accepts(schema, data, schema)


@pytest.mark.parametrize("name", sorted(planning.available()))
def test_planning_files_have_a_schema_that_their_example_meets(name: str, otafl: Call) -> None:
    schema = json.loads(otafl("plan", name, "--schema")[1])
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    example = tomllib.loads(otafl("plan", name, "--example")[1])
    assert set(example) <= set(schema["properties"])


@pytest.mark.parametrize("name", ["adascale", "biasvar", "cares", "cdpb", "liu-simeone", "seif"])
def test_a_plan_that_prints_a_privacy_cost_says_what_an_attacker_finds(name: str, otafl: Call) -> None:
    Path("job.toml").write_text(otafl("plan", name, "--example")[1])
    code, said, _ = otafl("plan", name, "job.toml")
    words = " ".join(said.split())
    (found,) = re.findall(r"at 1 % false alarms an attacker finds at most ([\d.]+) % of the true cases", words)
    assert code == 0 and 1 < float(found) <= 100


# --- lists -----------------------------------------------------------------------------------------------------------


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


def test_the_package_runs_as_a_module():
    found = subprocess.run(
        [sys.executable, "-m", "otafl", "plan", "cares", "--example"], capture_output=True, text=True
    )
    assert found.returncode == 0
    assert tomllib.loads(found.stdout)["eps_target"] == 500.0


def test_a_warning_is_one_line_said_once(tmp_path: Path) -> None:
    words = ["advise", "3", "--eps=8", "--num-params=10", "--rounds=2", "--radio", "noise_dbm_per_hz=0.5"]
    found = subprocess.run(
        [sys.executable, "-m", "otafl", *words], capture_output=True, text=True, cwd=tmp_path
    ).stderr.splitlines()
    said = [line for line in found if "mW" in line or "Warning" in line or ".py" in line]
    assert said == ["warning: --radio: [radio], noise_dbm_per_hz=0.5: is above 1 mW; dBm or W?"]


@pytest.mark.parametrize("device", ["rocm", "nonsense"])
def test_a_device_that_is_not_there_is_one_line(device: str) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": device}
    done = subprocess.run(
        [sys.executable, "-m", "otafl", "doctor"], env=environment, capture_output=True, text=True, check=False
    )
    said = f"otafl: JAX cannot compute here; unset JAX_PLATFORMS='{device}' or name a device that is there\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(("name", "value"), [("JAX_NUM_CPU_DEVICES", "abc"), ("JAX_ENABLE_X64", "nonsense")])
def test_what_the_environment_tells_jax_is_named_where_it_is_nonsense(name: str, value: str) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("JAX_")}
    done = subprocess.run([sys.executable, "-m", "otafl", "doctor"], env={**environment, name: value},
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith(f"; unset what the environment tells it: {name}\n") and value in done.stderr


def test_a_locale_without_an_epsilon_keeps_the_exit_code():
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run([sys.executable, "-m", "otafl", "run", "ε.toml"], capture_output=True, text=True, env=plain)
    assert found.returncode == 2 and found.stderr.startswith("otafl: ?.toml: no such file")


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


def test_a_shell_can_complete_verbs_and_options(tmp_path: Path) -> None:
    script = tmp_path / "otafl"  # the name that the shell completes
    script.write_text("from otafl.cli import process\nprocess()\n")
    for line, place, found in (("otafl re", "1", {"report", "reproduce"}), ("otafl run --re", "2", {"--resume"})):
        asked = {"_OTAFL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
        done = subprocess.run(
            [sys.executable, str(script)], env={**os.environ, **asked}, capture_output=True, text=True, check=True
        )
        assert set(done.stdout.split()) == found


def test_a_preset_of_a_comparison_says_that_its_settings_are_chosen_there(otafl: Call) -> None:
    """`plan demo` found no round for a scheme that `compare demo` ranks."""
    Path("chosen.toml").write_text(SMALL + "[preset]\nsettings = { trials = 0 }\n")
    remark = "settings are those of the file; otafl compare chooses others, by plans"
    assert remark in " ".join(otafl("plan", "chosen.toml")[1].split())
    assert f"chosen.toml: {remark}\n" in otafl("run", "chosen.toml")[2]
    assert remark not in " ".join(otafl("plan", "small.toml")[1].split())


def test_a_second_value_after_set_says_how_it_is_given(otafl: Call) -> None:
    code, _, said = otafl("run", "small.toml", "--set", "rounds=2", "seeds=1")
    assert code == 2 and "extra argument(s) (seeds=1); --set takes one KEY=VALUE and may be repeated" in said


def test_help_does_not_speak_of_types(otafl: Call) -> None:
    for verb in ("run", "plan", "report"):
        code, said, _ = otafl(verb, "--help")
        assert code == 0 and "--help" in said
        assert not any(f"<{kind}" in said for kind in ("bool", "path", "str", "list"))


def test_a_system_that_is_not_in_the_experiment_is_refused_in_one_line(otafl: Call) -> None:
    code, _, said = otafl("plan", "cares", "small.toml")
    assert code == 2 and said.startswith("otafl: small.toml: no scheme of cares in this experiment; add a [[scheme]]")
    assert said.count("\n") == 1


def test_a_backend_that_matplotlib_has_no_more_breaks_no_command() -> None:
    program = "from otafl import cli; cli.main = lambda: __import__('matplotlib'); cli.process()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**ENVIRONMENT, "MPLBACKEND": "Qt4Agg"})  # fmt: skip
    assert done.returncode == 0, done.stderr


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


def test_results_of_a_preset_in_a_file_lie_under_its_name_and_not_beside_it(otafl: Call, tmp_path: Path) -> None:
    """Under `runs`, an absolute path was the preset's file itself."""
    mine = tmp_path / "mine" / "phases.toml"
    mine.parent.mkdir()
    mine.write_text(find("demo-phases").read_text())
    code, _, said = otafl("reproduce", str(mine), "--quick")
    assert code == 0, said
    assert (tmp_path / "runs" / "phases" / "results.md").exists()
