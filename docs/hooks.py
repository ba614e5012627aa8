"""What the build of the site adds: pictures drawn from the data that travel with the package, and nothing from the net.

A page says `![...](../images/made/NAME.svg)`; what NAME is, says the table below.
"""

import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import channel_pictures
import gallery

from otafl.reproductions import pictures, verdicts


def frontier() -> str:
    from otafl.reports.frontier import STORED, picture
    from otafl.reports.page import stored

    return picture(stored(STORED))


def munich() -> str:
    return channel_pictures.munich(Path(__file__).parents[1] / "examples" / "munich" / "places.csv")


def results(told: dict[str, Any]) -> str:
    """Ours beside what the paper prints, from the record."""
    return pictures.picture(pictures.from_json(told["panels"]))


MADE: dict[str, Callable[[], str]] = {
    **{f"results-{name}": partial(results, told) for name, told in verdicts.recorded().items() if told.get("panels")},
    "frontier": frontier,
    "channels-munich": munich,
    **gallery.PICTURES,
    **{f"channels-{name}": picture for name, picture in channel_pictures.PICTURES.items()},
}


def on_files(files: Any, config: Any) -> Any:
    """The build's hook: one generated file per picture."""
    from mkdocs.structure.files import File

    for name, draw in MADE.items():
        files.append(File.generated(config, f"images/made/{name}.svg", content=draw()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The functions of all schemes, made when they are asked for, so that no reader of sources finds them."""
    here = page.file.src_uri == "api/schemes.md"
    return markdown.replace("<!-- every scheme -->", every_scheme()) if here else markdown


def every_scheme() -> str:
    """Signature, meaning, settings and an example of each, as Markdown."""
    from docstrings import as_markdown

    import otafl
    from otafl.runs.schemes import factory_names

    parts = []
    for name in factory_names():
        made = getattr(otafl, name)
        settings = [f"{one.name}={one.default!r}" if one.default is not one.empty else one.name
                    for one in inspect.signature(made).parameters.values()]  # fmt: skip
        call = textwrap.fill(f"otafl.{name}({', '.join(settings)})", 88, subsequent_indent="    ")
        parts += [f"## `otafl.{name}`", f"```py\n{call}\n```", as_markdown(made.__doc__)]
    return "\n\n".join(parts)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """A site read from a folder has no page for addresses that are not there."""
    return "" if template_name == "404.html" else output_content


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme would fetch what its search needs in a folder; the site has its own copy. A dialog has a name."""
    to_root = "../" * page.url.count("/")
    output = output.replace('role="dialog">', 'role="dialog" aria-label="Search">')
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{to_root}vendor/iframe-worker/shim.js")
