"""What a folder of reproductions puts on a results page."""

from pathlib import Path

from otafl.reproductions.pages import comparisons


def test_comparisons_bring_their_tables_and_smoke_versions_none(tmp_path: Path) -> None:
    for name, text in {"million": "| a |", "crowd-mnist": "| b |\n\nA smoke version: ...", "unknown": "| c |"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.md").write_text(text)
    (tmp_path / "cdpb-fig3").mkdir()
    for name in ("results.md", "results.json"):  # judged: the record has it
        (tmp_path / "cdpb-fig3" / name).write_text("{}")
    assert comparisons(tmp_path) == {"million": "| a |"}
