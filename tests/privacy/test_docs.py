import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "privacy.md"


def test_code_of_the_guide_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), scope)
    printed = capsys.readouterr().out
    assert "# Privacy card" in printed
    assert "would pass the privacy budget" in printed
