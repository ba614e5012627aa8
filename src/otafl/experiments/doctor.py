"""What is installed and what was found: the first thing to look at when something is odd."""

import importlib.metadata
import os
import platform
import shutil
from typing import Any

PACKAGES = ("otafl", "jax", "jaxlib", "optax", "numpy", "scipy", "dp-accounting", "pydantic", "pyarrow", "scikit-learn", "matplotlib")
EXTRAS = {"cvxpy": "successive convex approximation", "flwr": "Flower integration", "python-flint": "tests of the ring"}


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
    return {"python": platform.python_version(), "system": platform.platform(), "cores": str(os.cpu_count()), "jax devices": devices}


def examine() -> dict[str, dict[str, Any]]:
    """Everything `otafl doctor` prints."""
    from otafl.tasks.datasets import DATASETS, locate

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    data = {}
    for name in DATASETS:
        place = locate(name)
        data[name] = str(place) if place else "not found; `otafl run` says what to do"
    extras = {name: f"{version} ({EXTRAS[name]})" for name, version in versions(tuple(EXTRAS)).items()}
    return {
        "packages": versions(),
        "extras": extras,
        "machine": machine(),
        "data": data,
        "browser": {"chromium": chromium or "not found; only the report's browser tests need it"},
    }
