"""The documentation as data: pages, their code blocks, links and commands."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(
    r"^(?:<!-- test: (?P<order>skip \([^)]+\)|exit \d+) -->\n)?"
    r"```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """One fenced block. order: what the comment before it asks of the tests, "" mostly."""

    language: str
    code: str
    title: str | None
    order: str
    line: int

    @property
    def skipped(self) -> bool:
        return self.order.startswith("skip")

    @property
    def exit_code(self) -> int:
        return int(self.order.split()[1]) if self.order.startswith("exit") else 0


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["code"], m["title"], m["order"] or "", text[: m.start("code")].count("\n") + 1)
        for m in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """A page without its fenced blocks and without `code`: where links are links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def links(page: Path) -> list[str]:
    """Targets of links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def commands(page: Path) -> list[list[str]]:
    """Everything on a page that is typed after `otafl `: in blocks of either kind and in `code`, comments cut off."""
    text = page.read_text(encoding="utf-8")
    fenced = "\n".join(block.code for block in blocks(page) if block.language in ("bash", "console"))
    typed = re.findall(r"^otafl (.*)$", fenced, re.MULTILINE) + re.findall(r"^ {4}otafl (.*)$", text, re.MULTILINE)
    lines = [line.split(" #")[0] for line in typed]
    spans = re.findall(r"`otafl ([^`\n]+)`", text)
    return [line.split() for line in [*lines, *spans]]
