"""What people install: an sdist that is whole, a wheel built from it, tried from another folder. No network."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def setuptools_is_old() -> bool:
    try:
        return int(version("setuptools").split(".")[0]) < 77  # which reads `license = "Apache-2.0"`
    except PackageNotFoundError:
        return True


pytestmark = pytest.mark.skipif(setuptools_is_old(), reason="setuptools >= 77 is not installed")


def backend(call: str, place: Path, to: Path) -> Path:
    """One hook of the build backend, as an installer calls it; returns the file that it made."""
    code = f"from setuptools import build_meta; print(build_meta.{call}({str(to)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True)
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from a copy, so that nothing that was built before gets into it."""
    place = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        whole = (ROOT / name).is_dir()
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
        (shutil.copytree if whole else shutil.copy)(ROOT / name, place / name, **({"ignore": skip} if whole else {}))
    return backend("build_sdist", place, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist, unpacked: it is pure Python."""
    place = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, place)
    wheel = backend("build_wheel", next(place.iterdir()), tmp_path_factory.mktemp("wheel"))
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def otafl(installed: Path, folder: Path, *words: str) -> str:
    """The command line of what was installed, from another folder."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "otafl", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_every_file_of_the_source_is_in_the_wheel(installed: Path) -> None:
    source, made = ROOT / "src/otafl", installed / "otafl"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(source) for path in files}
    found = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
    assert wanted - found == set(), "add them to [tool.setuptools.package-data]"
    assert found - wanted == set()


def test_everything_that_is_imported_is_a_dependency() -> None:
    """Tables of results are pandas', which only the tests had asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for own in ("sca", "flower", "ray") for name in project["optional-dependencies"][own]]
    declared = {re.split("[<>=]", name)[0].replace("-", "_") for name in (*project["dependencies"], *extras)}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            imported |= {name.partition(".")[0] for name in names}
    assert imported - set(sys.stdlib_module_names) - declared == {"otafl"}


def test_it_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    assert "cares-static" in otafl(installed, tmp_path, "list", "schemes")
    example = shutil.copy(installed / "otafl/systems/cares/examples/cares.toml", tmp_path)
    assert json.loads(otafl(installed, tmp_path, "plan", "cares", Path(example).name, "--json"))["feasible"]
    code = "import otafl; print(otafl.__file__)"
    place = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert place.stdout.startswith(str(installed))
