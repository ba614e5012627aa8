"""`otafl list` and `otafl doctor`: what there is, here and on this machine."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from otafl.commands.console import AsJson, out
from otafl.core.errors import InputError


def list_(
    only: Annotated[
        str | None,
        typer.Argument(metavar="ONLY", help="A kind (schemes, presets, ...), or a word in names and summaries."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Everything that an experiment or a command may name: schemes, presets, planners, data, models, channels, ..."""
    from otafl import systems
    from otafl.channels import BEAMS, CHANNELS, FADING_LAWS, PATH_LOSS_LAWS
    from otafl.clients import KINDS
    from otafl.privacy import ACCOUNTANTS
    from otafl.runs.presets import presets
    from otafl.systems import planning
    from otafl.tasks.models import MODELS
    from otafl.tasks.partitions import PARTITIONS
    from otafl.tasks.sources import DATASETS

    everything: dict[str, dict[str, str]] = {
        "schemes": {name: entry.summary for name, entry in systems.SCHEMES.items()},
        "presets": {name: preset.summary for name, preset in presets().items()},
        "plan": planning.available(),
        "data": _summaries(DATASETS),
        "models": _summaries(MODELS),
        "channels": dict(CHANNELS),
        "fading": dict(FADING_LAWS),
        "path loss": dict(PATH_LOSS_LAWS),
        "beams": {name: f"channel.beam of channel.antennas > 1: {said}" for name, said in BEAMS.items()},
        "partitions": _summaries(PARTITIONS),
        "clients": {name: (options.__doc__ or "").split("\n")[0] for name, (options, _) in KINDS.items()},
        "accountants": {name: entry.summary for name, entry in ACCOUNTANTS.items()},
    }
    everything = _only(everything, only)
    if as_json:
        print(json.dumps(everything, indent=2))
        return
    for kind, entries in everything.items():
        _show(kind, entries, "cyan")


def _only(everything: dict[str, dict[str, str]], word: str | None) -> dict[str, dict[str, str]]:
    """One kind, or the entries of all kinds that have the word in their name or summary."""
    if word is None:
        return everything
    want = word.lower()
    for kind in (want, f"{want}s"):
        if kind in everything:
            return {kind: everything[kind]}
    found = {
        kind: {name: said for name, said in entries.items() if want in f"{name} {said}".lower()}
        for kind, entries in everything.items()
    }
    found = {kind: entries for kind, entries in found.items() if entries}
    if not found:
        from otafl.core import validate

        near = validate.meant(want, [*everything, *(name for entries in everything.values() for name in entries)])
        hint = near or f"; the kinds are {', '.join(everything)}"
        raise InputError(f"nothing is called {validate.shown(word)}{hint}")
    return found


def _summaries(registry: dict[str, Any]) -> dict[str, str]:
    return {
        name: entry if isinstance(entry, str) else getattr(entry, "summary", "") for name, entry in registry.items()
    }


def doctor(as_json: AsJson = False) -> None:
    """Versions, devices and data sets found: what to look at first when something is odd."""
    from otafl.runs.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for title, entries in found.items():
        _show(title, entries)


def _show(title: str, entries: Mapping[str, Any], style: str | None = None) -> None:
    """Names and what is said of each, under a title."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
    table.add_column(style=style)
    table.add_column()
    for name, said in entries.items():
        table.add_row(escape(name), escape(str(said)))
    out.print(table)
    out.print()
