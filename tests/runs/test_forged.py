"""A run folder that was sealed again around nonsense: one line and exit code 2, and no page that promises too much."""

import io
import json
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from otafl import cli
from otafl.core.errors import InputError
from otafl.core.files import to_json
from otafl.privacy import Ledger
from otafl.privacy.card_text import markdown, meaning
from otafl.reports import write_report
from otafl.reports.run import Run
from otafl.runs.folder import recount, shapes
from otafl.runs.folder.sealed import digest, with_seal
from otafl.runs.folder.store import RunFolder, SchemeFolder

PLACE = Path("schemes/constant")
Call = Callable[..., tuple[int, str]]


@pytest.fixture
def run(reference: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reference, tmp_path / "run"))


@pytest.fixture
def otafl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process, with its page: exit code and what it says on stderr."""
    monkeypatch.setattr("otafl.reports.write_report", write_report)  # runs of these tests have no page else

    def call(*arguments: Any) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["otafl", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return call


def reseal(run: Path, name: str, content: bytes) -> None:
    """Another content of one file of a scheme, under a seal that fits."""
    done = json.loads((run / PLACE / "done.json").read_text())
    del done["seal"]
    (run / PLACE / name).write_bytes(content)
    done["files"][name] = digest(content)
    (run / PLACE / "done.json").write_text(to_json(with_seal(done)))


def edit(run: Path, name: str, *path: Any, value: Any) -> None:
    """One value of a JSON file of a scheme; the function `value` gets what stood there."""
    content = json.loads((run / PLACE / name).read_text())
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value(inner[path[-1]]) if callable(value) else value
    reseal(run, name, json.dumps(content).encode())


def refused(otafl: Call, run: Path, *commands: str, code: int = 2) -> str:
    """What is said, in one line without control characters, by `report` and the other commands; no page is left."""
    (run / "report.html").unlink(missing_ok=True)
    said = ""
    for command in commands or ("report",):
        found, said = otafl(*command.split(), run)
        line = [text for text in said.splitlines() if text.startswith("otafl: ")]
        assert found == code and len(line) == 1 and "Traceback" not in said, (command, found, said)
        assert all(one.isprintable() for one in line[0])
    assert not (run / "report.html").exists()
    return said


KEYS = [
    ("summary.json", "final_eps"), ("summary.json", "final_eps", 0), ("summary.json", "seeds"),
    ("summary.json", "delta"), ("summary.json", "unit"), ("summary.json", "label"), ("summary.json", "rounds", 0),
    ("summary.json", "final_accuracy"), ("summary.json", "private"), ("summary.json", "target_eps"),
    ("card.json", "guarantee"), ("card.json", "guarantee", "eps"), ("card.json", "spent", 0, "eps_worst"),
    ("card.json", "cap", "eps"), ("card.json", "delta"), ("card.json", "observers", 0, "eps"),
    ("card.json", "attack", "tpr_at_1pct"), ("card.json", "alarms"), ("card.json", "clients"),
]  # fmt: skip
NONSENSE = [-1, -1e308, [[]], {"a": 1}, "x", "nan", ["\x1b[2J\r"], 10**400, 1e-9]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: ".".join(map(str, key)))
def test_nonsense_is_refused_in_one_line(run: Path, otafl: Call, key: tuple[Any, ...]) -> None:
    whole = {path: path.read_bytes() for path in (run / PLACE).iterdir()}
    for value in NONSENSE:
        edit(run, *key, value=value)
        refused(otafl, run)
        for path, content in whole.items():
            path.write_bytes(content)


def test_what_steers_a_terminal_is_what_unicode_says() -> None:
    every = [chr(number) for number in range(sys.maxunicode + 1)]
    control = {one for one in every if unicodedata.category(one) == "Cc"}
    assert {one for one in every if shapes.CONTROL.search(f"a{one}b")} == control - {"\n", "\t"}


@pytest.mark.parametrize(("name", "key"), [("summary.json", "adjacency"), ("card.json", "spent"), ("card.json", "cap")])
def test_a_missing_key_is_named(run: Path, otafl: Call, name: str, key: str) -> None:
    content = json.loads((run / PLACE / name).read_text())
    del content[key]
    reseal(run, name, json.dumps(content).encode())
    assert key in refused(otafl, run, "report", "run --resume")


def half(value: Any) -> Any:
    return [half(one) for one in value] if isinstance(value, list) else value / 2


LOWER = [
    (("summary.json", "final_eps"), half), (("summary.json", "mu"), half), (("summary.json", "tpr_at_1pct"), half),
    (("summary.json", "delta"), half), (("summary.json", "loop"), "round"), (("summary.json", "unit"), "record"),
    (("card.json", "guarantee", "eps"), half), (("card.json", "attack", "advantage"), half),
    (("card.json", "spent", 0, "eps_worst"), half), (("card.json", "spent", 3, "eps_worst"), half),
    (("card.json", "spent", 0, "eps"), half), (("card.json", "observers", 1, "eps"), half),
    (("card.json", "identity", "noise_multiplier"), 1e3), (("card.json", "cap", "eps"), half),
    (("card.json", "meaning"), "Nothing can be learned."), (("card.json", "alarms"), ["all is well"]),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), LOWER, ids=lambda one: ".".join(map(str, one)) if type(one) is tuple else "")
def test_no_page_says_less_than_the_ledger(run: Path, otafl: Call, key: tuple[Any, ...], value: Any) -> None:
    edit(run, *key, value=value)
    refused(otafl, run, "report", "run --resume")
    with pytest.raises(InputError):
        repr(Run(run))
    with pytest.raises(InputError):
        Run(run).card("constant")


CARDS = [(key, value) for key, value in LOWER if key[0] == "card.json" and key[1] != "alarms"] + [
    (("card.json", "spent", 0, "eps_mean"), half), (("card.json", "guarantee", "is_cap"), True),
    (("card.json", "delta"), half), (("card.json", "adjacency"), "zero-out"), (("card.json", "rounds"), 1),
    (("card.json", "clients"), 7), (("card.json", "attack", "mu"), half),
    (("card.json", "spent", 0, "accounting"), "realised"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), CARDS, ids=lambda one: ".".join(map(str, one)) if type(one) is tuple else "")
def test_no_two_cards_that_agree_say_less_than_the_ledger(
    run: Path, otafl: Call, key: tuple[Any, ...], value: Any
) -> None:
    edit(run, *key, value=value)
    card = json.loads((run / PLACE / "card.json").read_text())
    if key[1] != "meaning":
        card["meaning"] = meaning(card["unit"], card["adjacency"], float(card["guarantee"]["eps"]))
    reseal(run, "card.json", json.dumps(card).encode())
    reseal(run, "card.md", markdown(card).encode())
    assert "two different cards" not in refused(otafl, run)


def test_a_scheme_that_leaves_a_seed_out_is_refused(run: Path, otafl: Call) -> None:
    """Perhaps the one that spent most: all else fits the seed that is left."""
    summary = json.loads((run / PLACE / "summary.json").read_text())
    count = len(summary["seeds"])
    assert count > 1
    left = {name: told[:1] if isinstance(told, list) and len(told) == count else told for name, told in summary.items()}
    reseal(run, "summary.json", json.dumps(left).encode())
    for name in ("rounds", "evaluations"):
        found, buffer = pq.read_table(run / PLACE / f"{name}.parquet"), io.BytesIO()
        pq.write_table(found.filter(pa.compute.equal(found["seed"], summary["seeds"][0])), buffer)
        reseal(run, f"{name}.parquet", buffer.getvalue())
    assert "its seeds are not those of the run" in refused(otafl, run)


def test_every_core_counts_a_scheme_and_all_of_them_are_counted(
    reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPROC", "2")
    opened, meet, counted = RunFolder.open(reference), threading.Barrier(2), []

    def check(place: SchemeFolder) -> None:
        if place.label in opened.labels()[:2]:
            meet.wait(60)  # two are counted at the same time
        counted.append(place.label)

    monkeypatch.setattr(recount, "check_privacy", check)
    assert [place.label for place in recount.believed(opened)] == opened.labels()
    assert sorted(counted) == sorted(opened.labels())


def test_a_card_is_held_against_the_seed_that_spent_most(reference: Path) -> None:
    card = json.loads((reference / PLACE / "card.json").read_text())
    ledgers = [Ledger.from_bytes((reference / PLACE / f"ledger-{seed}.bin").read_bytes()) for seed in (0, 1)]
    recount._card(card, ledgers, [ledger.worst() for ledger in ledgers])
    louder = [ledgers[0], replace(ledgers[1], parts=[part._replace(amp=2 * part.amp) for part in ledgers[1].parts])]
    with pytest.raises(ValueError, match="by its ledger"):
        recount._card(card, louder, [ledger.worst() for ledger in louder])


def test_an_eps_is_believed_to_a_rounding() -> None:
    recount._not_less("eps", 1 - 1e-7, 1.0)
    for said in (1 - 1e-5, float("nan")):
        with pytest.raises(ValueError, match="by its ledger"):
            recount._not_less("eps", said, 1.0)


def test_an_audit_is_loud_about_a_card_that_says_less_than_its_ledger(run: Path, otafl: Call) -> None:
    edit(run, "card.json", "guarantee", "eps", value=half)
    code, said = otafl("audit", run, "--runs", 4, "--scheme", "constant")
    assert code == 5 and "its card says" in said


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "other columns": lambda table: pa.table({"x": [1.0]}),
    "rows twice": lambda table: pa.concat_tables([table, table]),
    "text": lambda table: with_column(table, "seed", ["x"] * table.num_rows),
    "negative rounds": lambda table: with_column(table, "round", [-1] * table.num_rows),
    "lists": lambda table: with_column(table, "round", [[1]] * table.num_rows),
    "huge rounds": lambda table: with_column(table, "round", [2**62] * table.num_rows),
    "many rounds": lambda table: with_column(table, "round", [10**10 + n for n in range(table.num_rows)]),
}


@pytest.mark.parametrize("table", ["rounds", "evaluations"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_none_is_refused(run: Path, otafl: Call, table: str, change: str) -> None:
    found, buffer = pq.read_table(run / PLACE / f"{table}.parquet"), io.BytesIO()
    pq.write_table(CHANGES[change](found), buffer)
    reseal(run, f"{table}.parquet", buffer.getvalue())
    refused(otafl, run, "report", "run --resume")


@pytest.mark.parametrize("column", ["client", "round"])
def test_devices_beyond_the_run_are_no_demand_for_memory(run: Path, otafl: Call, column: str) -> None:
    found, buffer = pq.read_table(run / PLACE / "devices.parquet"), io.BytesIO()
    pq.write_table(with_column(found, column, [10**10] * found.num_rows), buffer)
    reseal(run, "devices.parquet", buffer.getvalue())
    refused(otafl, run)


def test_a_curve_of_eps_that_falls_is_refused(run: Path, otafl: Call) -> None:
    found, buffer = pq.read_table(run / PLACE / "evaluations.parquet"), io.BytesIO()
    eps = found["eps"].to_numpy().copy()
    pq.write_table(with_column(found, "eps", [*(eps[:1] + 1e3), *eps[1:]]), buffer)
    reseal(run, "evaluations.parquet", buffer.getvalue())
    assert "falls" in refused(otafl, run)


@pytest.mark.parametrize(
    "forged",
    [{"schemes": []}, {"schemes": 3}, {"schemes": ["constant"]}, {"seeds": [-1]}, {"seeds": [0, 0]}, {"seeds": [0]},
     {"data": {}}, {"title": "\x1b[2J"}, {"versions": [1]}],
)  # fmt: skip
def test_a_manifest_of_nonsense_is_one_line(run: Path, otafl: Call, forged: dict[str, Any]) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["seal"]
    (run / "manifest.json").write_text(to_json(with_seal({**manifest, **forged})))
    refused(otafl, run, "report", "run --resume", "audit --runs 4")


BAD = {
    "amp": np.nan, "artificial_var": -1.0, "receiver_var": np.nan, "rate": 2.0, "sensitivity": -1.0, "live": 1.0,
    "send_prob": np.nan, "leak_angle": np.nan,
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_ledger_of_nonsense_is_refused_and_passes_no_cap(run: Path, otafl: Call, name: str) -> None:
    path = run / PLACE / "ledger-0.bin"
    ledger = Ledger.load(path)
    shape = np.shape(getattr(ledger.parts[0], name))
    forged = replace(ledger, parts=[ledger.parts[0]._replace(**{name: np.full(shape, BAD[name])})])
    reseal(run, "ledger-0.bin", forged.to_bytes())
    with pytest.raises(InputError, match=name):
        Ledger.load(path)
    refused(otafl, run)


def test_a_model_of_other_arrays_is_refused(run: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, leaf0000=np.zeros((2, 3)))
    reseal(run, "model.npz", buffer.getvalue())
    with pytest.raises(InputError, match=r"model\.npz: is damaged .*another model"):
        Run(run).params("constant")
