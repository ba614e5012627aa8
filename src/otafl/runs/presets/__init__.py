"""Presets: one TOML per published table or figure, each an ordinary experiment file with a `[preset]` table on top.

`otafl run NAME` runs its experiment; `otafl reproduce NAME` also sets ours beside the paper's.
"""

import difflib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field
from rich.console import Console

import otafl.systems
from otafl.core.errors import InputError
from otafl.runs.progress import Reporter
from otafl.core.files import FileModel, parse, read_toml, to_json, write_atomic

class Preset(FileModel):
    """What a preset says about itself. Targets are the paper's numbers, as targets and nowhere else."""

    summary: str
    source: str = ""  # "CARES, Table 1"
    analysis: str | None = None  # "module:function" that makes the figure or table; default: run and print the table
    experiment: str | None = None  # preset whose experiment this one shows
    settings: dict[str, Any] = Field(default_factory=dict)  # for the analysis
    targets: dict[str, Any] = Field(default_factory=dict)
    quick: dict[str, Any] = Field(default_factory=dict)  # overrides of the smoke version, as in --set


def folders() -> list[Path]:
    """Where presets lie: those of no single system here, the others with their system."""
    return [Path(__file__).parent, *sorted(Path(otafl.systems.__file__).parent.glob("*/presets"))]


def packaged() -> dict[str, Path]:
    """Files of all presets by name."""
    files = [path for folder in folders() for path in folder.glob("*.toml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def presets() -> dict[str, Preset]:
    """All presets by name."""
    return {name: read_preset(path) for name, path in packaged().items()}


def read_preset(path: Path) -> Preset:
    data = read_toml(path)
    if "preset" not in data:
        raise InputError(f"{path}: is not a preset (no [preset] table)")
    return parse(Preset, data["preset"], path)


def find(name: str | Path) -> Path:
    """An experiment file by path, or a preset by name."""
    path = Path(name)
    if path.is_file():
        return path
    known = packaged()
    if str(name) in known:  # also where a folder of results has the preset's name
        return known[str(name)]
    if path.exists():
        return path
    near = difflib.get_close_matches(path.stem, known, n=1)
    hint = f"; did you mean the preset '{near[0]}'?" if near else "; `otafl list` shows the presets"
    raise InputError(f"{name}: no such file and no such preset{hint}")


def reproduce(name: str, folder: Path, overrides: list[str], quick: bool, reporter: Reporter, console: Console) -> None:
    """Run a preset and print ours beside the paper's."""
    path = find(name)
    preset = read_preset(path)
    overrides = [f"{key}={_toml(value)}" for key, value in (preset.quick.items() if quick else ())] + overrides
    if preset.analysis is None:
        from otafl.reproductions.preset_run import run_and_compare as function
    else:
        module, _, attribute = preset.analysis.partition(":")
        function = getattr(import_module(module), attribute)
    function(path, preset, folder, overrides, quick, reporter, console)
    results = folder / "results.json"
    if quick and results.exists():  # whoever reads it later must know
        write_atomic(results, to_json({**json.loads(results.read_text(encoding="utf-8")), "quick": True}))


def _toml(value: Any) -> str:
    """A value as it stands on the right of `key=` in an override.

    >>> _toml({"name": "mnist", "size": [1, 2]})
    '{ name = "mnist", size = [1, 2] }'
    """
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)
