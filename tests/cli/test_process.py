"""The command line as a process: its streams, its environment, the shell around it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from processes import ENVIRONMENT


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


def test_a_shell_can_complete_verbs_and_options(tmp_path: Path) -> None:
    script = tmp_path / "otafl"  # the name that the shell completes
    script.write_text("from otafl.cli import process\nprocess()\n")
    for line, place, found in (("otafl re", "1", {"report", "reproduce"}), ("otafl run --re", "2", {"--resume"})):
        asked = {"_OTAFL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
        done = subprocess.run(
            [sys.executable, str(script)], env={**os.environ, **asked}, capture_output=True, text=True, check=True
        )
        assert set(done.stdout.split()) == found


def test_a_backend_that_matplotlib_has_no_more_breaks_no_command() -> None:
    program = "from otafl import cli; cli.main = lambda: __import__('matplotlib'); cli.process()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**ENVIRONMENT, "MPLBACKEND": "Qt4Agg"})  # fmt: skip
    assert done.returncode == 0, done.stderr
