"""`otafl reproduce --all`: every preset in its own folder, one index over all of them; called again, it goes on.

`outcomes.json` in the folder says what became of each preset. One that is done is skipped as long as its file, the
version of otafl and the results that it left are the same; one that failed is tried again.
"""

import hashlib
import io
import json
import math
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from otafl import __version__
from otafl.core.errors import InputError, Interrupted, OtaflError
from otafl.core.files import to_json, write_atomic
from otafl.reproductions import preset_run
from otafl.reproductions.verdicts import write_index
from otafl.runs import presets
from otafl.runs.executors import DONE, Outcome, attempt, each
from otafl.runs.folder.sealed import reading
from otafl.runs.interrupts import graceful_stop
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.remote import Elsewhere
from otafl.systems.screen import say


def reproduce_all(
    folder: Path, quick: bool, reporters: Callable[[], Reporter], console: Console, elsewhere: Elsewhere | None = None,
    at_most: float = math.inf,
) -> dict[str, str]:  # fmt: skip
    """Run what is not done yet, the quickest first; one preset that fails does not stop the others.

    Writes index.md and index.html after every preset; returns "done" or the reason for every preset. elsewhere: where
    presets run side by side. at_most: minutes of a preset on two cores; longer ones are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known, minutes = _in_order(presets.presets())
    told = {name: entry for name, entry in _read(folder).items() if name in known}
    before = [name for name in known if told.get(name, {}).get("outcome") == DONE]
    before = [name for name in before if told[name]["stamp"] == _stamp(folder, name, quick)]
    for name in before:
        say(console, f"{name}: done before")
    left = [name for name in known if name not in before]
    long = [name for name in left if minutes[name] > at_most]
    if long:
        say(console, f"left out, more than {at_most:g} minutes each: {', '.join(long)}")
    left = [name for name in left if name not in long]
    if elsewhere is not None:
        for part in ([name for name in left if not known[name].experiment],
                     [name for name in left if known[name].experiment]):  # fmt: skip
            _side_by_side(part, folder, quick, told, console, elsewhere)
        left = []
    for name in left:
        console.rule(escape(f"{name}: {known[name].summary}"))
        start = time.perf_counter()
        try:
            said = _one(name, folder / name, quick, reporters(), console)
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(f"interrupted in {name}; the same command goes on from there") from None
        _record(folder, told, name, said, time.perf_counter() - start, quick)
    write_index(folder, outcomes(told), quick)
    return outcomes(told)


def _in_order(all_of_them: dict[str, Preset]) -> tuple[dict[str, Preset], dict[str, float]]:
    """The quickest first, with their minutes. One that shows another's run may have to train it, and comes after it."""
    minutes = {name: all_of_them[one.experiment or name].minutes for name, one in all_of_them.items()}
    order = sorted(all_of_them, key=lambda name: (minutes[name], all_of_them[name].experiment is not None))
    return {name: all_of_them[name] for name in order}, minutes


def _side_by_side(
    left: list[str], folder: Path, quick: bool, told: dict[str, Any], console: Console, elsewhere: Elsewhere
) -> None:
    """Every preset in a worker; what it printed is printed when it ends."""
    tasks = {name: (name, str((folder / name).absolute()), quick) for name in left}
    with graceful_stop() as stop:
        ending = each(elsewhere.executor, reproduce_one, tasks, stop, elsewhere.live.note)
        for number, (name, outcome) in enumerate(ending):
            if outcome.done:
                say(console, outcome.value, soft_wrap=True)
            elif outcome.fault:
                (folder / name).mkdir(parents=True, exist_ok=True)
                write_atomic(folder / name / "error.txt", outcome.fault)
            elsewhere.live.told(name, outcome, number + 1, len(left))
            _record(folder, told, name, outcome.said, outcome.seconds, quick)


def _record(folder: Path, told: dict[str, Any], name: str, said: str, seconds: float, quick: bool) -> None:
    told[name] = {"outcome": said, "stamp": _stamp(folder, name, quick), "seconds": round(seconds, 1)}
    write_atomic(folder / "outcomes.json", to_json(told))
    write_index(folder, outcomes(told), quick)


def reproduce_one(asked: tuple[str, str, bool]) -> Outcome:
    """One preset into its folder; in a worker. Its value is what it printed."""
    name, folder, quick = asked

    def work() -> str:
        if not Path(folder).parent.is_dir():
            raise InputError(f"{Path(folder).parent}: cannot be seen here; use a folder that all machines share")
        said = io.StringIO()
        preset_run.reproduce(name, Path(folder), [], quick, Reporter(), Console(file=said, width=120))
        return said.getvalue()

    return attempt(work)


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {name: entry["outcome"] for name, entry in told.items()}


def _one(name: str, folder: Path, quick: bool, reporter: Reporter, console: Console) -> str:
    """One preset; a refusal is its outcome, a fault of ours as well, with its traceback beside the results."""
    try:
        preset_run.reproduce(name, folder, [], quick, reporter, console)
        return DONE
    except Interrupted:
        raise
    except OtaflError as refusal:
        said = str(refusal)
    except Exception as fault:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "error.txt", traceback.format_exc())
        said = f"{type(fault).__name__}: {fault} (see {name}/error.txt)"
    say(console, f"{name}: {said}")
    return said


def _stamp(folder: Path, name: str, quick: bool) -> str:
    """What must be unchanged for a preset to be done."""
    found = hashlib.sha256(presets.packaged()[name].read_bytes() + f"{quick} {__version__}".encode())
    for results in (folder / name / "results.md", folder / name / "results.json"):
        found.update(results.read_bytes() if results.is_file() else b"")
    return found.hexdigest()


def _read(folder: Path) -> dict[str, Any]:
    file = folder / "outcomes.json"
    if not file.exists():
        return {}
    with reading(file, "remove it, and every preset is looked at again"):
        told = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): {key: entry[key] for key in ("outcome", "stamp", "seconds")} for name, entry in told.items()}
