"""Arrows point down: which package may import which. Read from the source, not from a run."""

import ast
import re
import sys
from pathlib import Path

import otafl

ROOT = Path(otafl.__file__).parent
LAYERS = [  # from the top; a package imports what stands below it, or itself
    {"cli", "commands", "__main__", "verbs", "__init__"},
    {"connect", "reproductions"},
    {"reports"},
    {"runs"},
    {"systems"},
    {"bounds", "crypto", "privacy", "clients", "channels", "tasks"},
    {"core"},
]
# Leaves know each other only like this: a bound counts privacy, a client has a model, both ends of an arrow named.
BESIDE = {("bounds", "privacy"), ("clients", "tasks"), ("__main__", "cli"), ("cli", "commands"), ("cli", "verbs"),
          ("__init__", "verbs")}  # fmt: skip
SHARED = ("baselines", "ideal", "system", "planning", "screen", "simulated", "apart", "remembered")  # by all systems


def package_of(path: Path) -> str:
    """The top package of a module. A system's reproduction uses runs and reports: it stands with `reproductions`."""
    first, *rest = path.relative_to(ROOT).with_suffix("").parts
    reproduction = first == "systems" and rest and rest[-1].startswith(("reproduce", "host_training"))
    return "reproductions" if reproduction else first


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "otafl":
            parts = (node.module or "").split(".")[1:]
            found |= {(parts or [alias.name])[0] for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("otafl.")}
    return found


def depth(package: str) -> int:
    """0 for names of the front door itself: `from otafl import Air`."""
    return next((n for n, layer in enumerate(LAYERS) if package in layer), 0)


def test_every_package_has_its_place():
    named = set().union(*LAYERS)
    assert {package_of(path) for path in ROOT.rglob("*.py")} <= named


def test_arrows_point_down():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        source = package_of(path)
        for target in imports(path) - {source, "__version__"}:
            if depth(target) < depth(source) or (depth(target) == depth(source) and (source, target) not in BESIDE):
                wrong.append(f"{path.relative_to(ROOT)}: {source} -> {target}")
    assert not wrong, "\n".join(wrong)


def test_the_heart_needs_little():
    """Beyond numpy, jax, optax and scipy: pydantic where files are read, and its names of ranges."""
    wanted = {"numpy", "jax", "optax", "scipy", "otafl"} | sys.stdlib_module_names
    more = {}
    for path in (*ROOT.glob("core/*.py"), *ROOT.glob("clients/*.py"), ROOT / "tasks/models.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        names = {one.name for node in body if isinstance(node, ast.Import) for one in node.names}
        names |= {node.module or "" for node in body if isinstance(node, ast.ImportFrom)}
        more[path.stem] = {name.partition(".")[0] for name in names} - wanted
    assert {name: found for name, found in more.items() if found} == {
        "files": {"pydantic"}, "mistakes": {"pydantic"}, "models": {"annotated_types"},
    }  # fmt: skip


def test_runs_know_no_single_system():
    """What a scheme needs beyond its policy it declares by its `Scheme`: a new system touches no other file."""
    folders = {path.parent.name for path in (ROOT / "systems").glob("*/__init__.py")}
    wrong = []
    for path in sorted((ROOT / "runs").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = (node.module or "").split(".")[:3] if isinstance(node, ast.ImportFrom) else []
            if named[:2] == ["otafl", "systems"] and folders & set(named[2:]):
                wrong.append(f"{path.relative_to(ROOT)} -> {named[2]}")
    assert not wrong, "\n".join(wrong)


def test_systems_do_not_know_each_other_beyond_the_shared_ones():
    wrong = []
    for path in sorted((ROOT / "systems").glob("*/*.py")):
        own = path.parent.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("otafl.systems."):
                other = (node.module or "").split(".")[2]
                if other not in {own, *SHARED}:
                    wrong.append(f"{path.relative_to(ROOT)} -> {other}")
    assert not wrong, "\n".join(wrong)


def test_large_folders_open_with_a_map_of_their_modules():
    wrong = []
    for page in sorted(ROOT.rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(page.read_text(encoding="utf-8"))) or ""
        modules = {path.stem for path in page.parent.glob("*.py")} - {"__init__"}
        if len(modules) > 4:  # fewer are seen at a glance
            wrong += [f"{page.parent.name}: {name}" for name in sorted(modules) if not re.search(rf"\b{name}\b", told)]
    assert not wrong, "\n".join(wrong)
