"""What is installed and what was found: the first thing to look at when something is odd."""

import importlib.metadata
import os
import platform
import shutil
from typing import Any

PACKAGES = (
    "otafl", "jax", "jaxlib", "optax", "numpy", "scipy", "dp-accounting", "pydantic", "pyarrow", "scikit-learn",
    "matplotlib",
)  # fmt: skip
EXTRAS = {"cvxpy": "successive convex approximation", "python-flint": "tests of the ring"}


def versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, str]:
    import jax

    devices = ", ".join(f"{device.device_kind} ({device.platform})" for device in jax.devices())
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": str(os.cpu_count()),
        "jax devices": devices,
    }


def locate(name: str) -> str:
    """Where a data set would be read from. Looks at file names only: nothing is opened, checked or fetched."""
    from otafl.tasks.datasets import search_places
    from otafl.tasks.sources import DATASETS

    built_in = {"digits": "comes with scikit-learn", "npz": "your own file: task.data.path"}
    built_in |= {"arrays": "your own arrays: otafl.task"}
    if name in built_in:
        return built_in[name]
    source = DATASETS[name]
    for place in (folder for given in search_places(source) for folder in (given, given / name)):
        for filename, note in source.npz:
            if (place / filename).is_file():
                return f"{place / filename}" + (f" ({note})" if note else "")
        for release in source.releases:
            if release.archive and (place / release.archive).is_file():
                return str(place / release.archive)
            for folder in (place, *(place / below for below in release.folders)):
                if all((folder / filename).is_file() for filename in release.files):
                    return str(folder)
    return "not found; a run that needs it fetches it, or says what to do"


def examine() -> dict[str, dict[str, Any]]:
    """Everything `otafl doctor` prints."""
    from otafl.tasks.sources import DATASETS

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    data = {name: locate(name) for name in DATASETS}
    extras = {name: f"{version} ({EXTRAS[name]})" for name, version in versions(tuple(EXTRAS)).items()}
    return {
        "packages": versions(),
        "extras": extras,
        "machine": machine(),
        "data": data,
        "browser": {"chromium": chromium or "not found; only the report's browser tests need it"},
    }
