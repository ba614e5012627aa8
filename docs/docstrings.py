"""How the API reference reads docstrings: they are plain text with formulas, so Markdown must leave them alone.

Doctests become code blocks; brackets, stars, underscores and angle brackets outside `code` are escaped. Fields of
tuples, dataclasses and file models are shown as they stand in the source, because the comment behind a field is its
documentation.
"""

import re

import griffe

LISTS = ("Parameters", "Returns")


def as_markdown(text: str) -> str:
    """One docstring. Lines indented by four spaces stay what they are in Markdown too: code.

    Below Parameters and Returns an entry is an item of a list, and its meaning a line in it.
    """
    out: list[str] = []
    doctest = entries = False
    lines = re.sub(r"^(\w+)\n-{3,}$", r"**\1**\n", text, flags=re.M).split("\n")  # no headings
    for line, following in zip(lines, [*lines[1:], ""]):
        if doctest and not line.strip():
            out.append("```")
            doctest = False
        elif not doctest and line.startswith(">>>"):
            out += ["", "```pycon"]
            doctest = True
        if re.fullmatch(r"\*\*\w+\*\*", line):
            entries = line.strip("*") in LISTS
        elif entries and line.startswith("    "):
            line = f"    {escaped(line.strip())}"
        elif entries and (" : " in line or following.startswith("    ")):
            name, _, kind = line.partition(" : ")
            line = f"- `{name}` {escaped(kind)}<br>"
        elif not doctest and not line.startswith("    "):
            line = escaped(line)
        out.append(line)
    return "\n".join([*out, "```"] if doctest else out)


def escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]*_>])", r"\\\1", part).replace("<", "&lt;") for part in parts
    )


def fields(source: str) -> str:
    """The annotated names in a class body, with their comments, as a code block; empty where there are none."""
    body = source
    found = [line.strip() for line in body.splitlines() if re.match(r" {4}[a-z]\w*: (?!ClassVar)", line)]
    return "\n".join(["", "", "```python", *found, "```"]) if found else ""


class PlainDocstrings(griffe.Extension):
    """Applied once to every object with a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is None:
            return
        obj.docstring.value = as_markdown(obj.docstring.value)
        if isinstance(obj, griffe.Class):
            body = obj.source.split('"""', 2)[-1]  # not what a docstring happens to say
            obj.docstring.value += fields(body)
