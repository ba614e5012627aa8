"""A finished run with a damaged file: report, comparison and resume show the same numbers or refuse in one line."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.files import to_json
from otafl.reports import write_report
from otafl.reports.data import collect
from otafl.reports.tables import comparison, summaries
from otafl.runs import runner
from otafl.runs.folder.sealed import digest, with_seal
from otafl.runs.folder.store import RunFolder
from otafl.runs.progress import Reporter
from otafl.runs.runner import run_in
from otafl.runs.schema import load

Damage = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def overwrite(path: Path, rng: random.Random) -> None:
    """Zeros in the middle, as after a crash of the machine."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 64] = bytes(len(content[start : start + 64])) or b"\xff"
    path.write_bytes(bytes(content) if bytes(content) != path.read_bytes() else b"")


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def as_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def edit(path: Path, rng: random.Random) -> None:
    """A figure changed by hand: the first digit that is not zero becomes another."""
    content = bytearray(path.read_bytes())
    places = [n for n, byte in enumerate(content) if byte in b"123456789"]
    place = rng.choice(places)
    content[place] = rng.choice([byte for byte in b"123456789" if byte != content[place]])
    path.write_bytes(content)


DAMAGES: list[Damage] = [flip, flip, flip, truncate, overwrite, delete, as_folder, edit]


def seen(run: Path) -> dict[str, object]:
    """All that a report and a comparison show."""
    data, found = collect([run]), summaries(run)
    for entry in [*data["schemes"], *found]:
        entry.pop("seconds", None)
    return {"page": data, "found": found}


def files(run: Path) -> list[Path]:
    return sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())


def refused(call: Callable[[], object], expected: object = None) -> bool:
    """Whether it refused, with one line that says what to do; otherwise it must have given what is expected."""
    said = ""
    try:
        given = call()
    except InputError as refusal:
        said = str(refusal)
    assert "\n" not in said and "cannot be written" not in said
    assert not said or ";" in said, said
    assert said or expected is None or given == expected
    return bool(said)


@pytest.mark.parametrize("seed", range(2))
def test_no_damage_changes_a_number_or_ends_in_a_traceback(reference: Path, tmp_path: Path, seed: int) -> None:
    """Every file with every kind of damage: a few hundred of them."""
    run, rng, whole = tmp_path / "run", random.Random(seed), seen_after_copy(reference, tmp_path)
    count = 0
    for name in files(reference):
        for damage in DAMAGES:
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(reference, run)
            damage(run / name, rng)
            assert refused(lambda: seen(run), whole), f"{damage.__name__} of {name} was not noticed"
            count += 1
    assert count > 150


def seen_after_copy(reference: Path, folder: Path) -> dict[str, object]:
    shutil.copytree(reference, folder / "run")
    whole = seen(folder / "run")
    shutil.rmtree(folder / "run")
    return whole


def test_resume_refuses_what_is_damaged_and_mends_what_it_can(
    reference: Path, tmp_path: Path, same_results: Callable[[Path, Path], None]
) -> None:
    run, rng, mended = tmp_path / "run", random.Random(3), 0
    experiment = load(reference / "config.toml")
    for name in files(reference):
        for damage in rng.sample(DAMAGES, 3):
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(reference, run)
            damage(run / name, rng)
            if not refused(lambda: runner.resume(run, Reporter())):
                same_results(run, reference)
                mended += 1
            if (run / "manifest.json").is_file():
                refused(lambda: run_in(run, experiment, Reporter()))
    assert mended < 10


def test_a_scheme_is_computed_again_as_the_refusal_says(
    reference: Path, tmp_path: Path, same_results: Callable[[Path, Path], None]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    (run / "schemes/constant/summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"constant/summary\.json: is damaged.*remove (.*) and compute .* --resume"):
        runner.resume(run)
    shutil.rmtree(run / "schemes/constant")
    runner.resume(run)
    same_results(run, reference)


@pytest.mark.parametrize("other", ["label", "run"])
def test_results_of_another_scheme_or_run_are_refused(
    reference: Path, tmp_path: Path, other: str, tiny: Callable[..., object]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    shutil.rmtree(run / "schemes/constant")
    source = reference / "schemes/cares-adaptive"
    if other == "run":
        source = runner.start(tiny("server.step_size=0.7"), tmp_path / "other") / "schemes/constant"  # type: ignore[arg-type]
    shutil.copytree(source, run / "schemes/constant")
    with pytest.raises(InputError, match=r"constant/done\.json: belongs to another scheme or another run"):
        seen(run)


def test_results_and_checkpoints_of_the_same_config_with_other_data_are_refused(tmp_path: Path) -> None:
    here, there = (RunFolder(tmp_path / sha, "config", {"name": "arrays", "sha256": sha}).scheme("x") for sha in "ab")
    here.prepare()
    here.finish({"summary.json": "{}"}, 1, {"seconds": 0.0})
    here.prepare()
    here.seal("checkpoint", 1, {"leaf": np.zeros(1)})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    here.verify()
    assert here.unseal("checkpoint", 1) is not None and there.unseal("checkpoint", 1) is None
    with pytest.raises(InputError, match=r"done\.json: belongs to another scheme or another run"):
        there.verify()


@pytest.mark.parametrize("name", ["manifest.json", "schemes/constant/done.json"])
def test_a_folder_of_a_version_without_seals_is_refused_with_what_to_do(
    reference: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    content = json.loads((run / name).read_text())
    del content["seal"]
    (run / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"has no seal, .* run the experiment again"):
        seen(run)


@pytest.mark.parametrize("forged", [{}, {"files": 3}, {"files": {"summary.json": None}}])
def test_a_seal_around_nonsense_is_no_traceback(reference: Path, tmp_path: Path, forged: dict[str, object]) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    place = RunFolder.open(run).scheme("constant")
    own = {"label": place.label, "run_sha256": place.run, "rounds": 5}
    (place.path / "done.json").write_text(to_json(with_seal({**own, **forged})))
    assert refused(lambda: seen(run))
    assert refused(lambda: runner.resume(run))


@pytest.mark.parametrize("place", ["schemes", "schemes/constant", "schemes/constant/checkpoints"])
def test_a_link_does_not_lead_a_run_to_other_files(reference: Path, tmp_path: Path, place: str) -> None:
    """Whoever goes on with a folder of somebody else's must not lose what that folder points to."""
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(reference, run)
    shutil.copytree(reference / "schemes", other)
    (other / "precious").write_text("mine")
    if (run / place).exists():
        shutil.rmtree(run / place)
    (run / place).symlink_to(other)
    assert refused(lambda: runner.resume(run))
    assert (other / "precious").read_text() == "mine"


@pytest.mark.parametrize("forged", [{"final_eps": [[]]}, {"seeds": 3}, {"delta": {}}, {"target_eps": ["x"]}])
def test_nonsense_in_a_summary_that_was_sealed_again_is_no_traceback(
    reference: Path, tmp_path: Path, forged: dict[str, object]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    place = RunFolder.open(run).scheme("constant")
    summary = to_json({**place.json("summary"), **forged})
    (place.path / "summary.json").write_text(summary)
    own = {"label": place.label, "run_sha256": place.run, "rounds": 5}
    files = {**place.hashes(), "summary.json": digest(summary.encode())}
    (place.path / "done.json").write_text(to_json(with_seal({**own, "files": files})))
    assert refused(lambda: write_report([run], plots=False))
    assert refused(lambda: comparison(run))


TORN = """
import jax
from pathlib import Path
from otafl.runs.compilation import use_compilation_cache

use_compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x + 1)(1)
entries = list(Path(jax.config.jax_compilation_cache_dir).glob("*-cache"))
before = [entry.stat().st_size for entry in entries]
for entry in entries:
    entry.write_bytes(entry.read_bytes()[:50])
jax.clear_caches()
jax.jit(lambda x: x + 1)(1)
assert min(entry.stat().st_size for entry in entries) > 50 and entries, before
"""


def test_a_torn_entry_of_the_compilation_cache_is_written_anew(tmp_path: Path) -> None:
    """JAX itself would warn of it, and compile again, at every run."""
    told = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment = {**told, "OTAFL_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", TORN], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
