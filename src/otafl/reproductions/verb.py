"""`otafl reproduce` as a function: `otafl.reproduce("cares-table1")`."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from otafl.core import validate
from otafl.reproductions.preset_run import reproduce as reproduce_preset
from otafl.runs.progress import of_a_call


class Reproduced(str):
    """Ours beside the paper's as Markdown, shown as such in a notebook; `folder` has plots, tables and runs."""

    folder: Path

    _repr_markdown_ = str.__str__


def reproduce(
    preset: str, *, quick: bool = False, out: str | Path | None = None, overrides: Sequence[str] = (),
    progress: bool = True,
) -> Reproduced:  # fmt: skip
    """Reproduce a published table or figure; goes on where it was interrupted.

    Parameters
    ----------
    preset : str
        a name of `otafl list presets`
    quick : bool
        a smoke version: few rounds, few seeds, no numbers to quote
    out : path, optional
        the result folder; default runs/<preset>
    overrides : list of str
        "key=value" each
    progress : bool
        a live line on a terminal

    Returns
    -------
    Reproduced
        the results file as text; its `folder` has the rest

    Examples
    --------
    >>> import otafl, tempfile
    >>> told = otafl.reproduce("demo-phases", quick=True, out=tempfile.mkdtemp())
    >>> (told.folder / "results.md").exists()
    True
    """
    folder = validate.path("out", out) if out is not None else Path("runs") / validate.path("preset", preset).stem
    reproduce_preset(preset, folder, list(overrides), quick, of_a_call(progress), Console(file=io.StringIO()))
    told = Reproduced((folder / "results.md").read_text(encoding="utf-8"))
    told.folder = folder
    return told
