"""What a folder of reproductions puts on a results page."""

from pathlib import Path

from matplotlib.figure import Figure

from otafl.reproductions import pictures
from otafl.reproductions.pages import comparisons


def test_comparisons_bring_their_tables_and_smoke_versions_none(tmp_path: Path) -> None:
    for name, text in {"million": "| a |", "crowd-mnist": "| b |\n\nA smoke version: ...", "unknown": "| c |"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.md").write_text(text)
    (tmp_path / "cdpb-fig3").mkdir()
    for name in ("results.md", "results.json"):  # judged: the record has it
        (tmp_path / "cdpb-fig3" / name).write_text("{}")
    assert comparisons(tmp_path) == {"million": "| a |"}


def test_points_without_a_printed_value_stand_over_their_names_and_none_at_the_edge():
    axes = Figure().subplots()
    pictures._points(axes, [pictures.Point("a", 1.0, 0.5, 1.5), pictures.Point("b", 2.0, 1.5, 2.5)])
    at = [container.lines[0].get_xdata()[0] for container in axes.containers]
    assert at == list(axes.get_xticks()) and axes.get_xlim() == (-0.5, 1.5)
