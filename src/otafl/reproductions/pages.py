"""Results pages: text by hand, tables from result folders.

    python -m otafl.reproductions.pages docs/results/cdpb.md RUNS

puts RUNS/NAME/results.md between the markers `<!-- begin NAME -->` and `<!-- end NAME -->` of the page, for every NAME
that has been reproduced there; the other places stay as they are.
"""

import re
import sys
from pathlib import Path

from otafl.core.files import write_atomic

PLACE = re.compile(r"<!-- begin (?P<name>[\w.-]+) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)


def fill(page: str, results: dict[str, str]) -> str:
    """The page with the results that there are.

    >>> fill("<!-- begin a -->\\nold\\n<!-- end a -->", {"a": "new\\n"})
    '<!-- begin a -->\\n\\nnew\\n\\n<!-- end a -->'
    """

    def put(place: re.Match[str]) -> str:
        name = place["name"]
        if name not in results:
            return place[0]
        return f"<!-- begin {name} -->\n\n{results[name].strip()}\n\n<!-- end {name} -->"

    return PLACE.sub(put, page)


def main(page: Path, runs: Path) -> list[str]:
    """Fill one page from a folder of reproductions; returns the names that were filled."""
    found = {file.parent.name: file.read_text(encoding="utf-8") for file in sorted(runs.glob("*/results.md"))}
    before = page.read_text(encoding="utf-8")
    write_atomic(page, fill(before, found))
    return [place["name"] for place in PLACE.finditer(before) if place["name"] in found]


if __name__ == "__main__":
    print("filled:", ", ".join(main(Path(sys.argv[1]), Path(sys.argv[2]))) or "nothing")
