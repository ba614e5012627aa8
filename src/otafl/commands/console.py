"""Where the command line speaks, and the options that several verbs share."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters but for tabs and line ends, and those that turn the direction of what follows.
STEERING = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))


class Screen(Console):
    """A terminal that no text out of a file, a folder or a file name can steer."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text.translate(dict.fromkeys(STEERING, "\ufffd"))
            yield segment if segment.control else segment._replace(text=safe)

    def say(self, text: str) -> None:
        """A line as it is: no markup, no colours, and no break inside the path of a file."""
        self.print(text, markup=False, highlight=False, soft_wrap=True)


out = Screen(width=None if sys.stdout and sys.stdout.isatty() else 120)
err = Screen(stderr=True)

Override = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. --set rounds=50 --set scheme.0.rx_scale=0.4"),
]
On = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="WHERE", help="local[:N] processes of this machine, or ray[:ADDRESS], a cluster."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
JsonLog = Annotated[bool, typer.Option("--json-log", help="Progress as JSON lines on stdout.")]
Wide = Annotated[bool, typer.Option("--wide", help="All columns, also where they do not fit the screen.")]


def working(on: object, json_log: bool) -> None:
    """Something to look at while libraries load and schemes are planned."""
    if err.is_terminal and not json_log:
        err.print(f"{on}: loading and planning ...", style="dim", markup=False, highlight=False)
