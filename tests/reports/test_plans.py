"""The table of `otafl plan FILE`: fits the screen, cuts no number, and the command ends as it should."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from otafl import cli
from otafl.reports import plans
from otafl.runs.planning.table import plan
from otafl.runs.schema import load

FILE = """
rounds = 30
seeds = 2
channel = "cares"
task = { num_params = 650, clients = 40, samples = 12 }
privacy = { eps = 4.0 }
[[scheme]]
name = "fedavg"
[[scheme]]
name = "fedavg-dp"
label = "FedAvg + DP with a label that no screen of eighty columns has room for"
[[scheme]]
name = "constant"
rx_scale = 0.05
[[scheme]]
name = "constant"
label = "too loud"
rx_scale = 5.0
[[scheme]]
name = "weakest"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(FILE)
    return tmp_path / "plan.toml"


def test_the_sentence_is_about_what_a_server_can_run(file: Path) -> None:
    alone = FILE.partition("[[scheme]]")[0] + "[[scheme]]\nname = 'liu-simeone'\n"
    file.write_text(alone)
    assert ": liu-simeone in hindsight reaches Q" in plans.sentence(plan(load(file)))
    file.write_text(alone + "[[scheme]]\nname = 'constant'\nrx_scale = 0.001\n")
    found = plan(load(file))
    assert found.rows[0].merit.quality > found.rows[1].merit.quality
    assert ": constant reaches Q" in plans.sentence(found)


def test_bounds_are_never_rounded_down() -> None:
    """True positives of 19.002 % at most were told as 19.0 %."""
    row = SimpleNamespace(tpr_at_1pct=0.1900244, eps=[7.9991, 7.9992], mu=[1.44854])
    assert [plans.COLUMNS[name](row) for name in ("TPR@1 %", "ε", "μ")] == ["19.01%", "8", "1.449"]


def printed(file: Path, width: int, wide: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    plans.show(plan(load(file)), console, wide)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_is_cut(file: Path, width: int) -> None:
    text = printed(file, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    whole = printed(file, 400)
    cells, every = (
        next(line for line in shown.splitlines() if line.startswith(" constant ")).split() for shown in (text, whole)
    )
    assert cells == every[: len(cells)]


def test_eighty_columns_have_what_matters(file: Path) -> None:
    text = printed(file, 80)
    for head in ("scheme", "rounds", "ε", "Q", "e", "silent", "J/device", "TPR@1"):
        assert head in next(line for line in text.splitlines() if line.startswith(" scheme ")).split()
    assert "too loud: 0 rounds affordable; least ε: " in text
    wide = printed(file, 80, wide=True)
    for head in plans.COLUMNS:
        assert head in wide or head == "seconds"  # nobody said a bandwidth


def call(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["otafl", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_the_command(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", str(file), "--json", "--agreement", "0.5", "--out", str(file.parent / "out"),
                monkeypatch=monkeypatch) == 0  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((file.parent / "out" / "plan.json").read_text())
    assert [row["feasible"] for row in found["schemes"]] == [True, True, True, False, False]
    assert found["terms"]["agreement_basis"] == "given"
    assert found["schemes"][2]["merit"]["quality"] > 0
    assert "| FedAvg + DP" in (file.parent / "out" / "plan.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan", "FILE", "--set", "privacy.eps=1e-6"], 0, ""),  # fedavg needs no budget
        (["plan", "FILE", "--agreement", "2"], 2, "agreement=2.0 must lie in (0, 1]"),
        (["plan", "cares", "FILE", "--wide"], 2, "--agreement and --wide go with an experiment file"),
        (["plan", "nothing"], 2, "nothing"),
        (["run", "FILE"], 2, "task.num_params=650 declares a size alone"),
    ],
)
def test_exit_codes(
    arguments: list[str], code: int, said: str, file: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = [str(file) if word == "FILE" else word for word in arguments]
    assert call(*given, monkeypatch=monkeypatch) == code
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == (1 if code else 0)


def test_nothing_affordable_is_shown_and_then_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(FILE[: FILE.index("[[scheme]]")] + '[[scheme]]\nname = "constant"\nrx_scale = 5.0\n')
    assert call("plan", str(file), monkeypatch=monkeypatch) == 4
    seen = capsys.readouterr()
    assert "least ε" in seen.out
    assert "no scheme can afford a round within eps=4" in seen.err


def test_a_scheme_whose_budget_ends_early_is_not_named_the_best(file: Path) -> None:
    """Q of few rounds promises what nobody can train: loud rounds, one of them affordable, are no way to be useful."""
    file.write_text(FILE.replace("rx_scale = 5.0", "rx_scale = 0.2"))
    found = plan(load(file))
    short = next(row for row in found.rows if row.label == "too loud")
    assert short.rounds and max(short.rounds) < 30 and short.merit and not short.calibrated
    assert "too loud" not in plans.sentence(found)
    assert any("too loud" in note and "do not rank" in note for note in found.notes)


def test_a_label_becomes_neither_a_link_nor_code(tmp_path: Path) -> None:
    """A single backtick made code of everything up to the next one."""
    named = FILE.replace('"too loud"', '"it`s [free](http://x.example)"')
    (tmp_path / "plan.toml").write_text(named)
    shown = MarkdownIt("commonmark").enable("table").render(plans.markdown(plan(load(tmp_path / "plan.toml"))))
    assert "it`s [free](http://x.example)" in shown and "<a " not in shown and "<code>" not in shown


def test_a_label_becomes_neither_html_nor_a_cell_of_its_own(tmp_path: Path) -> None:
    named = FILE.replace('"too loud"', '"<script>alert(1)</script> a|b"')
    (tmp_path / "plan.toml").write_text(named)
    text = plans.markdown(plan(load(tmp_path / "plan.toml")))
    assert "<script" not in text and "</script" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("| &lt;script>alert(1)&lt;/script> a\\|b |")]
    assert line.replace("\\|", "").count("|") == text.splitlines()[2].count("|")
