"""How the API reference reads docstrings: they are plain text with formulas, so Markdown must leave them alone.

Doctests become code blocks; brackets, stars, underscores and angle brackets outside `code` are escaped.
"""

import re

import griffe


def as_markdown(text: str) -> str:
    """One docstring. Lines indented by four spaces stay what they are in Markdown too: code."""
    out: list[str] = []
    doctest = False
    for line in text.split("\n"):
        if doctest and not line.strip():
            out.append("```")
            doctest = False
        elif not doctest and line.startswith(">>>"):
            out += ["", "```pycon"]
            doctest = True
        out.append(line if doctest or line.startswith("    ") else escaped(line))
    return "\n".join([*out, "```"] if doctest else out)


def escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([\[\]*_<>])", r"\\\1", part) for part in parts)


class PlainDocstrings(griffe.Extension):
    """Applied once to every object with a docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
