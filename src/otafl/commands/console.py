"""Where the command line speaks, and the options that several verbs share."""

import sys
from typing import Annotated

import typer
from rich.console import Console

out = Console(width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True)

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
Wide = Annotated[bool, typer.Option("--wide", help="All columns, also where they do not fit the screen.")]


def working(on: object, json_log: bool) -> None:
    """Something to look at while libraries load and schemes are planned."""
    if err.is_terminal and not json_log:
        err.print(f"{on}: loading and planning ...", style="dim", markup=False, highlight=False)
