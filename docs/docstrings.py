"""How the API reference reads docstrings: they are plain text with formulas, so Markdown must leave them alone.

Doctests become code blocks; brackets, stars, underscores and angle brackets outside `code` are escaped. Fields of
tuples, dataclasses and file models are shown as they stand in the source, because the comment behind a field is its
documentation.
"""

import re

import griffe


def as_markdown(text: str) -> str:
    """One docstring. Lines indented by four spaces stay what they are in Markdown too: code."""
    out: list[str] = []
    doctest = False
    for line in re.sub(r"^(\w+)\n-{3,}$", r"**\1**\n", text, flags=re.M).split("\n"):  # no headings
        if doctest and not line.strip():
            out.append("```")
            doctest = False
        elif not doctest and line.startswith(">>>"):
            out += ["", "```pycon"]
            doctest = True
        out.append(line if doctest or line.startswith(("    ", "**")) else escaped(line))
    return "\n".join([*out, "```"] if doctest else out)


def escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([\[\]*_<>])", r"\\\1", part) for part in parts)


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
