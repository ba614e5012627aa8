"""Compiled programs, kept between runs in JAX's own cache."""

import re
import warnings
from pathlib import Path
from typing import Any

import jax

from otafl.tasks.datasets import cache_folder


def use_compilation_cache() -> None:
    """Compiled programs are kept between runs, unless the user has set a cache of their own."""
    folder, used = cache_folder() / "jax", getattr(jax.config, "jax_compilation_cache_dir", None)
    if used is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    if used in (None, str(folder)) and not hasattr(warnings.showwarning, "torn"):
        _replace_torn_entries(folder)


def _replace_torn_entries(folder: Path) -> None:
    """JAX warns of an entry that a kill or a full disk has torn, and never writes where one is: take it out of its way.

    It warns before it compiles, by the program's name, with which the names of its entries begin.
    """
    shown = warnings.showwarning

    def show(message: Any, *where: Any, **more: Any) -> None:
        torn = re.match(r"Error reading persistent compilation cache entry for '([\w-]+)'", str(message))
        try:
            for entry in folder.glob(f"{torn[1]}-*-cache") if torn else ():
                entry.unlink(missing_ok=True)
        except OSError:
            torn = None
        if not torn:
            shown(message, *where, **more)

    show.torn = folder  # type: ignore[attr-defined]  # `catch_warnings` takes it off again at its end
    warnings.showwarning = show
