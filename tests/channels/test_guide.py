"""The guide's snippets run, and its example file is the shipped one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "deployments.md").read_text(encoding="utf-8")


def test_snippets_run_in_order(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    snippets = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(snippets) == 4
    names: dict[str, object] = {}
    for snippet in snippets:
        exec(compile(snippet, "docs/deployments.md", "exec"), names)
    assert "gate: mean power gain" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["deployment.csv", "deployment.toml"])
def test_shown_lines_are_those_of_the_example(name):
    shown = {line.strip() for line in GUIDE.splitlines() if line.startswith("    ")}
    example = [line for line in (ROOT / "examples" / name).read_text(encoding="utf-8").splitlines() if line]
    wanted = example[:3] if name.endswith("csv") else [line for line in example if not line.startswith("#")]
    for line in wanted:
        key = line.split("#")[0].strip()
        assert any(text.startswith(key) for text in shown), line
