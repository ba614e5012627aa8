"""Every block of docs/flower.md, run in order as a reader would: files are written, commands are typed into a shell."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pages import ROOT, blocks

pytestmark = [pytest.mark.flower, pytest.mark.slow]

PAGE = ROOT / "docs" / "flower.md"


@pytest.fixture
def desk(tmp_path):
    for block in blocks(PAGE):
        if block.title:
            place = tmp_path / block.title
            place.parent.mkdir(exist_ok=True)
            place.write_text(block.code, encoding="utf-8")
    (tmp_path / "digits_ota" / "__init__.py").touch()
    return tmp_path


def on_free_ports(script: str) -> str:
    """The page's ports, which somebody may use here, replaced."""
    from test_flower_processes import federation

    link, *nodes = federation.free_ports(5)
    array = f"ports=({' '.join(map(str, nodes))})\n"
    return array + script.replace("9301", str(link)).replace("931$k", "${ports[$k]}")


def test_page_runs(desk):
    (script,) = [block.code for block in blocks(PAGE) if block.language == "bash" and "flwr run" in block.code]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with open(desk / "out.log", "wb") as log:
        shell = subprocess.Popen(
            ["bash", "-c", on_free_ports(script)], cwd=desk, env=environment, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = shell.wait(420)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    said = (desk / "out.log").read_text(errors="replace")
    assert code == 0 and "Guarantee: ε" in said, said[-3000:]
    reached = re.findall(r"'accuracy': '([^']+)'", said)
    assert float(reached[-1]) > 0.5, "the digits were not learned"


def test_page_names_what_a_folder_holds(desk):
    """The table of files is complete: checked against a run on a grid in this process."""
    from test_flower_strategy import run

    run(desk / "run")
    listed = set(re.findall(r"`([\w.]+\.(?:md|json|bin|npz|html))`", PAGE.read_text(encoding="utf-8")))
    assert {file.name for file in (desk / "run").iterdir()} - {"lock"} <= listed
