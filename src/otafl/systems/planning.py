"""`otafl plan`: a design without training. One module per scheme; each offers one `PLANNER`."""

import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import Console

from otafl.core.errors import InputError, OtaflError

NUMERICAL = (ArithmeticError, ValueError)  # overflow, division by zero and NumPy's LinAlgError among them
MODULES = ("adascale", "biasvar", "cares", "cdpb", "eezofl")


class Planner(NamedTuple):
    """A file in, a design out."""

    summary: str  # one line for `otafl list`
    inputs: type[BaseModel]  # schema of FILE, a `FileModel`
    example: str  # a complete FILE that plans as it stands
    plan: Callable[[Any, Path], dict[str, Any]]  # (inputs, folder of FILE) -> JSON-ready dict; may raise Infeasible
    show: Callable[[dict[str, Any], Console], None]  # the human output
    pictures: Callable[[dict[str, Any], Path], list[Path]]  # writes plots and exports into a folder, returns the files


def available() -> list[str]:
    """Names of the schemes that can be planned."""
    return list(MODULES)


def load(name: str) -> Planner:
    if name not in available():
        raise InputError(f"scheme={name!r} must be one of {', '.join(available())}")
    planner: Planner = import_module(f"otafl.systems.{name}.planner").PLANNER
    return planner


def design(scheme: str, inputs: Any, file: Path) -> dict[str, Any]:
    """Plan a file that was read: every refusal of bad input names the file.

    The last net is for numbers each of which is allowed and which together leave float64's range.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's remarks; what they led to is refused or reported
            return load(scheme).plan(inputs, file.parent)
    except InputError as error:
        text = str(error)
        raise (
            error if text.startswith((str(file), str(file.parent / ""))) else InputError(f"{file}: {text}")
        ) from None
    except OtaflError:
        raise
    except NUMERICAL as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{file}: {scheme} cannot be planned with these numbers ({said}): together they leave the range of double "
            "precision; check their units"
        ) from None
