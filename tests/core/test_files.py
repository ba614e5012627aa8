"""Reading files that users wrote: every mistake is one line that names the key as it stands in the file."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from otafl.core import files
from otafl.core.errors import InputError
from otafl.core.files import FileModel, naming, parse, plain, read_toml, sweep, to_json, write_atomic


@dataclass(frozen=True)
class Fading:
    decay: float = 1.0
    Gamma: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


class Circle(FileModel):
    kind: Literal["circle"] = "circle"
    radius: float = 1.0
    G: int = 3


class Square(FileModel):
    kind: Literal["square"] = "square"
    side: float = 1.0


class Example(FileModel):
    K: Annotated[int, Field(ge=1)] = 1
    W: float = 1.0
    D0: float = 2.0
    P: list[float] = [1.0]  # noqa: RUF012
    Inner: Fading | None = None
    shape: Annotated[Circle | Square, Field(discriminator="kind")] = Circle()
    shapes: list[Annotated[Circle | Square, Field(discriminator="kind")]] = []  # noqa: RUF012
    size: int | list[int] = 1
    mode: Literal["fast", "slow"] | Annotated[int, Field(ge=1)] = "fast"
    flag: bool = False


NO_NUMBER = "must be a number"
NO_INTEGER = "must be a whole number"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"K": 0}, "f: K=0 must be >= 1"),
        ({"W": "1"}, 'f: W must be a number, not "1"'),
        ({"K": True}, "f: K must be a number, not true"),
        ({"P": [1.0, "2"]}, 'f: P[1] must be a number, not "2"'),
        ({7: 1}, "f: the key 7 must be text"),
        ({"Inner": {10**5000: 1}}, "f: Inner: the key (a number of 16610 bits) must be text"),
        ({"flag": "yes"}, 'f: flag must be true or false, not "yes"'),
        ({"K": 1e20}, f"f: K=1e+20 {NO_INTEGER}"),
        ({"D0": "x"}, f"f: D0='x' {NO_NUMBER}"),
        ({"D1": 1}, "f: D1: unknown key; did you mean 'D0'?"),
        ({"Inner": {"decy": 1}}, "f: Inner.decy: unknown key; did you mean 'decay'?"),
        ({"Inner": {"Gamma": "x"}}, f"f: Inner.Gamma='x' {NO_NUMBER}"),
        ({"shape": {"kind": "circle", "radios": 1}}, "f: shape.radios: unknown key; did you mean 'radius'?"),
        ({"shape": {"kind": "square", "radius": 1}}, "f: shape.radius: unknown key"),
        ({"shape": {"kind": "circle", "G": "x"}}, f"f: shape.G='x' {NO_INTEGER}"),
        ({"shape": {"kind": "hexagon"}}, "f: shape.kind='hexagon' must be one of circle, square"),
        ({"shape": {"radius": 1}}, "f: shape.kind is required: one of circle, square"),
        (
            {"shapes": [{"kind": "circle"}, {"kind": "square", "sid": 1}]},
            "f: shapes.1.sid: unknown key; did you mean 'side'?",
        ),
        ({"size": [1, "x"]}, f"f: size.1='x' {NO_INTEGER}"),
        ({"mode": 0}, "f: mode=0 must be >= 1"),
        ({"mode": 0, "K": 0}, "f: mode=0 must be >= 1 (and 1 more)"),
        ({"mode": "fats"}, "f: mode='fats' must be one of fast, slow; did you mean 'fast'?"),
        ({"Inner": 3}, "f: Inner=3 must be a table"),
        ({"Inner": [1]}, "f: Inner must be a table"),
        ({"shape": "circle"}, "f: shape='circle' must be a table: { kind = 'circle' }"),
        ({"shapes": {"kind": "circle"}}, "f: shapes must be a list: [[shapes]] begins each of its tables"),
        ({"a\nb": 1}, "f: 'a\\nb': unknown key"),
        ({"W": math.nan}, "f: W=nan must be a finite number"),
        ({"W": math.inf}, "f: W=inf must be a finite number"),
        ({"K": 2**63}, "f: K=9223372036854775808 must fit into 64 bits"),
        ({"P": [10**300]}, "f: P.0=1000000000... must fit into 64 bits"),
        ({"W": "y" * 500}, f"f: W='{'y' * 76}... {NO_NUMBER}"),
    ],
)
def test_a_mistake_is_one_line_with_the_key_of_the_file(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse(Example, data, "f")
    assert str(refusal.value) == said


class Link(FileModel):
    SYMBOLS = {"Lambda": "gains", "T": "rounds"}  # noqa: RUF012
    gains: list[float]
    rounds: int = 1


def test_a_symbol_is_read_as_its_key() -> None:
    assert parse(Link, {"Lambda": [0.5], "T": 7}, "f") == parse(Link, {"gains": [0.5], "rounds": 7}, "f")
    schema = Link.model_json_schema()
    assert schema["properties"]["T"] == {"default": 1, "type": "integer", "description": "another name of rounds"}
    assert "gains" not in schema.get("required", [])  # Lambda alone is a complete file


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"gains": [1.0], "Lambda": [1.0]}, "f: Lambda and gains are two names of one thing; give one of them"),
        ({"Lambda": [1.0], "T": 0.5}, "f: T=0.5 must be a whole number"),
        ({"Lambda": [1.0], "T": True}, "f: T must be a number, not true"),
        ({"Lamda": [1.0], "gains": [1.0]}, "f: Lamda: unknown key; did you mean 'Lambda'?"),
        ({}, "f: gains: missing"),
    ],
)
def test_a_mistake_under_a_symbol_names_it(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(Link, data, "f")
    assert str(caught.value).startswith(said)


def test_a_refusal_of_a_later_check_names_keys_as_the_file_has_them() -> None:
    read = parse(Link, {"Lambda": [1.0], "T": 7}, "f")
    assert read.in_its_words("rounds=7 must be <= 5, got ['gains']: too many rounds") == (
        "T=7 must be <= 5, got ['Lambda']: too many rounds"
    )
    assert parse(Link, {"gains": [1.0], "rounds": 7}, "f").in_its_words("rounds=7") == "rounds=7"


def test_numbers_that_are_numbers_are_taken() -> None:
    read = parse(Example, {"W": 3, "P": [1, 2.5], "flag": True, "mode": 4, "size": [1, 2]}, "f")
    assert (read.W, read.P, read.flag, read.mode, read.size) == (3.0, [1.0, 2.5], True, 4, [1, 2])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = ", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a = 1\na = 2", "not valid TOML"),
        (b"a = " + b"9" * 5000, "not valid TOML"),
        (b"a = " + b"[" * 5000, "not valid TOML"),
        (b"a = 1979-99-99", "not valid TOML"),
    ],
)
def test_what_is_not_toml_is_refused_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as refusal:
        read_toml(path)
    assert str(refusal.value).isprintable()


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is a folder"):
        read_toml(tmp_path)


@pytest.mark.parametrize("said", ["smoothness=0.1 must be <= 1/12", "rate=1/3: must be less", "b.csv: no such file"])
def test_a_refusal_names_the_file_unless_it_names_another(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.toml"
    with pytest.raises(InputError) as refusal, naming(file):
        raise InputError(said)
    assert str(refusal.value) == f"{file}: {said}"
    with pytest.raises(InputError) as refusal, naming(file):
        raise InputError(f"{tmp_path / 'b.csv'}: {said}")
    assert str(refusal.value) == f"{tmp_path / 'b.csv'}: {said}"
    monkeypatch.chdir(tmp_path.parent)
    with pytest.raises(InputError) as refusal, naming(file):
        raise InputError(f"{tmp_path.name}: holds a run already")
    assert str(refusal.value) == f"{tmp_path.name}: holds a run already"


# --- JSON ------------------------------------------------------------------------------------------------------------


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(VALUES)
def test_everything_becomes_strict_json(value: Any) -> None:
    def expected(item: Any) -> Any:
        if isinstance(item, float) and not math.isfinite(item):
            return None if math.isnan(item) else f"{'-' * (item < 0)}inf"
        if isinstance(item, list):
            return [expected(one) for one in item]
        return {key: expected(one) for key, one in item.items()} if isinstance(item, dict) else item

    read = json.loads(to_json(value), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read == expected(value)


def test_arrays_and_records_become_lists_and_tables() -> None:
    assert plain({"a": np.array([1.0, np.nan]), "b": np.int64(3), "c": Square(), "d": (1, 2j), "e": Path("x")}) == {
        "a": [1.0, None],
        "b": 3,
        "c": {"kind": "square", "side": 1.0},
        "d": [1, {"re": 0.0, "im": 2.0}],
        "e": "x",
    }


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_path_that_is_no_utf_8_is_written_as_the_disk_has_it(tmp_path: Path) -> None:
    write_atomic(tmp_path / "x", os.fsdecode(b"M\xe4rz"))
    assert (tmp_path / "x").read_bytes() == b"M\xe4rz"


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_atomic(path, "old")

    def fail(handle: int) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=f"full: '{path}'"):
            write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_are_for_those_to_read_whom_the_umask_lets(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "x", "ledger")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == mode


def test_sweeping_takes_only_what_killed_writers_left(tmp_path: Path) -> None:
    for name in ("x", ".x.abc.part", ".hidden", "y.part"):
        (tmp_path / name).write_text("")
    sweep(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".hidden", "x", "y.part"]


class Numbers(FileModel):
    noise_dbm: float = 0.0
    distances_m: list[float] = []  # noqa: RUF012
    clip_norm: float | None = Field(1.0, allow_inf_nan=True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"noise_dbm": 401}, "f: noise_dbm=401 must lie in [-400, 400] dB"),
        ({"noise_dbm": 1 << 20_000}, "f: noise_dbm=(a number of 20001 bits) must fit into 64 bits"),
        ({"noise_dbm": -1e308}, "f: noise_dbm=-1e+308 must lie in [-400, 400] dB"),
        ({"distances_m": [1.0, 2e9]}, "f: distances_m.1=2000000000.0 must be at most 1e+09 m"),
        ({"distances_m": [1e-50]}, "f: distances_m.0=1e-50 must be 0 or of a size within [1e-40, 1e+40]"),
        ({"clip_norm": 1e300}, "f: clip_norm=1e+300 must be 0 or of a size within [1e-40, 1e+40]"),
        ({"clip_norm": -1e-160}, "f: clip_norm=-1e-160 must be 0 or of a size within [1e-40, 1e+40]"),
    ],
)
def test_numbers_beyond_physics_are_refused_before_they_overflow(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse(Numbers, data, "f")
    assert str(refusal.value) == said


def test_no_limit_is_a_number_too() -> None:
    assert parse(Numbers, {"clip_norm": math.inf, "noise_dbm": -400, "distances_m": [0.0]}, "f").clip_norm == math.inf


def test_a_zero_byte_in_text_is_told_with_its_key() -> None:
    """It ends the name of a file, and opening it was a traceback."""
    with pytest.raises(InputError, match=r"f: name='a\\x00b' must have no zero byte"):
        parse(Example, {"name": "a\0b"}, "f")


def test_tables_in_tables_without_end_are_one_line() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(InputError, match="f: tables stand in tables"):
        parse(Example, deep, "f")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no file without end here")
def test_a_file_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(files, "LARGEST_TEXT", 2**20)
    with pytest.raises(InputError, match=r"^/dev/zero: has more than .* which is no file of text$"):
        read_toml(Path("/dev/zero"))
