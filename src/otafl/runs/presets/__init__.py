"""Presets: one TOML per published table or figure, each an ordinary experiment file with a `[preset]` table on top.

`otafl run NAME` runs its experiment; `otafl reproduce NAME` also sets ours beside the paper's.
"""

import difflib
from pathlib import Path
from typing import Any

from pydantic import Field

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, as_toml, parse, read_toml
from otafl.systems import SYSTEMS


class Preset(FileModel):
    """What a preset says about itself. Targets are the paper's numbers, as targets and nowhere else."""

    summary: str
    source: str = ""  # "CARES, Table 1"
    analysis: str | None = None  # "module:function" that makes the figure or table; default: run and print the table
    experiment: str | None = None  # preset whose run this one shows
    minutes: float = 1.0  # on two cores, where it is more: by benchmarks/reproductions.py
    settings: dict[str, Any] = Field(default_factory=dict)  # for the analysis
    targets: dict[str, Any] = Field(default_factory=dict)
    quick: dict[str, Any] = Field(default_factory=dict)  # overrides of the smoke version, as in --set

    def overrides(self, quick: bool) -> list[str]:
        """`key=value` each: none, or those of the smoke version."""
        return [f"{key}={as_toml(value)}" for key, value in self.quick.items()] if quick else []


def packaged() -> dict[str, Path]:
    """Files of all presets by name: those of no single system lie here, the others with their system."""
    files = [*Path(__file__).parent.glob("*.toml"), *(path for one in SYSTEMS.values() for path in one.presets())]
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
    path = validate.path("file", name)
    if path.is_file():
        return path
    known = packaged()
    if str(name) in known:  # also where a folder of results has the preset's name
        return known[str(name)]
    if path.exists():
        return path
    near = [f"the preset '{one}'" for one in difflib.get_close_matches(path.stem, known, n=1)]
    near = [str(beside)] if (beside := path.with_suffix(".toml")).is_file() else near
    hint = f"; did you mean {near[0]}?" if near else "; `otafl list presets` shows them"
    raise InputError(f"{name}: no such file and no such preset{hint}")
