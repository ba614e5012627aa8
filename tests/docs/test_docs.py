"""The documentation tells the truth: its code runs, its links lead somewhere, what it names exists."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hooks import MADE
from pages import PAGES, ROOT, Block, blocks, commands, links, name_of
from typer.main import get_command

from otafl import cli, systems
from otafl.core.files import parse
from otafl.runs.presets import presets
from otafl.runs.schema import Experiment
from otafl.systems import planning

RUN = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]
COMMANDS = get_command(cli.app).commands


# --- code ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder with the examples in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    known = set(systems.SYSTEMS) - {systems.OWN}
    yield tmp_path
    if new := set(systems.SYSTEMS) - known:
        for name in new:
            systems.remove(name)
        for follow in systems.WATCHERS:
            follow()


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_blocks_run_in_order(page, desk, monkeypatch, capsys):
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page):
        if block.skipped:
            continue
        if block.language == "toml" and block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.code, name_of(page), "exec"), module.__dict__)
        elif block.language == "bash":
            for line in block.code.splitlines():
                run_line(line, block, monkeypatch, capsys)


def run_line(line: str, block: Block, monkeypatch, capsys) -> None:
    """A line of shell: an otafl command, perhaps into a file, or a look at a file."""
    words, target = shlex.split(line, comments=True), None
    if not words:
        return
    if len(words) > 2 and words[-2] == ">":
        target, words = words[-1], words[:-2]
    if words[0] == "cat":
        assert all(Path(name).is_file() for name in words[1:]), line
        return
    assert words[0] == "otafl", f"{line}: the tests cannot run this; say <!-- test: skip (reason) --> before the block"
    monkeypatch.setattr(sys, "argv", words)
    capsys.readouterr()
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert code == block.exit_code, f"{line}: exit code {code}\n{said.err}"
    if target:
        Path(target).write_text(said.out, encoding="utf-8")


LONG = {"antennas.py"}  # attacks seven receivers
EXAMPLES = sorted(file.name for file in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in EXAMPLES]
)
def test_examples_run(name, desk, monkeypatch, capsys):
    for library in ("torch", "flax", "equinox", "sionna"):
        if library in name:
            pytest.importorskip(library)
    for script, *arguments in [["scaling_sweep.py", "swept"], [name, "swept"]] if name == "recount.py" else [[name]]:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 3


def test_every_skip_has_a_reason_and_belongs_to_a_block():
    for page in PAGES:
        marks = len(re.findall(r"^<!-- test:", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert marks == sum(block.order != "" for block in blocks(page)), name_of(page)


def test_added_scheme_fits_on_a_page():
    """The promise of the README: one file, and a short one."""
    (whole,) = (block for block in blocks(ROOT / "docs" / "add-a-scheme.md") if block.title == "power_share.py")
    assert len(whole.code.splitlines()) <= 60


def test_installed_scheme_is_found_by_the_command_line(tmp_path):
    """The entry point of the page's pyproject.toml, as pip would install it."""
    found = {block.title: block.code for block in blocks(ROOT / "docs" / "add-a-scheme.md") if block.title}
    (tmp_path / "power_share.py").write_text(found["power_share.py"], encoding="utf-8")
    entry = found["pyproject.toml"].split('[project.entry-points."otafl.systems"]\n')[1].replace('"', "")
    info = tmp_path / "power_share-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: power-share\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[otafl.systems]\n{entry}")
    (tmp_path / "share.toml").write_text(found["share.toml"], encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    shown = subprocess.run(
        [sys.executable, "-m", "otafl.cli", "run", "share.toml", "--show"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert 'name = "power-share"' in shown.stdout


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page):
    for target in links(page):
        if not re.match(r"[a-z]+:|#", target):
            drawn = "images/made/" in target and Path(target).stem in MADE  # by the build
            assert drawn or (page.parent / target.partition("#")[0]).exists(), f"{name_of(page)}: {target}"


@pytest.fixture(scope="module")
def subjects():
    """By verb: the names that may follow it."""
    return {"plan": {*planning.available(), *presets()}, "run": set(presets()), "reproduce": set(presets())}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page, subjects):
    made = {block.title for block in blocks(page) if block.title}
    for words in commands(page):
        for verb in words[0].split("|"):
            if not re.fullmatch(r"[a-z]+", verb):
                continue
            assert verb in COMMANDS, f"{name_of(page)}: otafl {verb}"
            known = {flag for option in COMMANDS[verb].params for flag in option.opts} | {"--help"}
            flags = {word.strip("[]").split("=")[0] for word in words if word.strip("[]").startswith("--")}
            assert flags <= known, f"{name_of(page)}: otafl {' '.join(words)}"
            subject = words[1] if len(words) > 1 else ""
            if re.fullmatch(r"[a-z][a-z0-9-]*", subject) and subject not in made:
                assert subject in subjects.get(verb, {subject}), f"{name_of(page)}: otafl {verb} {subject}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_experiments_shown_are_valid(page, desk):
    """Every TOML block with schemes is an experiment: names, keys and values are those of the schema."""
    import tomllib

    own = [block.code for block in blocks(page) if block.language == "python" and "SYSTEM = System(" in block.code]
    for code in own:
        made = {"__name__": "page"}
        exec(code, made)
        systems.add(made["SYSTEM"])
    for block in blocks(page):
        if block.language == "toml" and "[[scheme]]" in block.code and not block.skipped:
            parse(Experiment, tomllib.loads(block.code), f"{name_of(page)}:{block.line}")


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "from-0.1.md"], ids=name_of)
def test_modules_named_exist(page):
    named = set(re.findall(r"`(otafl(?:\.[a-z_]+)+)`", page.read_text(encoding="utf-8")))
    for dotted in named - {"otafl.systems"}:  # the entry-point group
        place = ROOT / "src" / Path(*dotted.split("."))
        inside = place.parent.with_suffix(".py"), place.parent / "__init__.py"
        attribute = any(file.is_file() and re.search(rf"\b{place.name}\b", file.read_text()) for file in inside)
        assert place.is_dir() or place.with_suffix(".py").is_file() or attribute, f"{name_of(page)}: {dotted}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_of_the_repository_that_are_named_exist(page):
    named = re.findall(
        r"(?<![\w/.-])(?:tests|examples|benchmarks|tools|src)/[\w./-]+\.\w+", page.read_text(encoding="utf-8")
    )
    assert not [file for file in named if not (ROOT / file).exists()]


# --- the site ------------------------------------------------------------------------------------------------------


def nav_files() -> list[str]:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", nav, re.MULTILINE)


def test_nav_and_pages_are_the_same_set():
    listed = nav_files()
    assert len(listed) == len(set(listed))
    docs = ROOT / "docs"
    assert set(listed) == {page.relative_to(docs).as_posix() for page in PAGES if docs in page.parents}


def test_api_pages_name_modules_that_exist():
    import pkgutil

    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for dotted in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            pkgutil.resolve_name(dotted)


@pytest.mark.slow
def test_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    outside = re.findall(r'(?:src|<link[^>]*href)="https?://[^"]+"', home)
    assert not outside, "the site must work without a network"
