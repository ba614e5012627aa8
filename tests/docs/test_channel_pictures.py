"""Pictures of the documentation are drawn by the code they are about, the same bytes every time."""

from pathlib import Path

import channel_pictures
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["memory", "path-loss", "stale"])
def test_a_picture_is_an_svg_and_repeats(name):
    made = channel_pictures.PICTURES[name]()
    assert made.startswith("<svg") and made.rstrip().endswith("</svg>")
    assert made == channel_pictures.PICTURES[name]()


def test_every_picture_is_on_the_page():
    page = (ROOT / "docs" / "channels.md").read_text(encoding="utf-8")
    for name in (*channel_pictures.PICTURES, "munich"):
        assert f"images/made/channels-{name}.svg" in page


def test_the_map_names_devices_without_a_path():
    made = channel_pictures.munich(ROOT / "examples" / "munich" / "places.csv")
    assert made.count("no path") == 2
