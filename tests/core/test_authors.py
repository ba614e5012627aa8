"""The hash of somebody else's code: the same for what computes the same, another one for every change that counts."""

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import jax
import numpy as np
import pytest

from otafl import systems
from otafl.core.authors import code_digest
from otafl.runs import own_scheme

BEFORE = """
import functools, jax, numpy as np
LEVEL, TABLE = 0.5, {"a": (1, 2), "b": (3, (4, 5))}
class Base:
    floor = 0.1
    def low(self):
        return self.floor
class Gain(Base):
    kinds = {"x", "y", "z"}
    def __init__(self, level):
        self.level = level
    def __call__(self, x):
        return self.level * x + self.shift
    @property
    def shift(self):
        return self.least() + 7
    @staticmethod
    def least():
        return 5
def doubled(function):
    @functools.wraps(function)
    def inner(x):
        return 2 * function(x)
    return inner
@doubled
def twice(x):
    return x + 11
@functools.lru_cache
def kept_once(x):
    return x + 13
class Scaled:
    def __init__(self, function):
        functools.update_wrapper(self, function)
    def __call__(self, x):
        return 19 * self.__wrapped__(x)
@Scaled
def scaled(x):
    return x + 23
@jax.custom_jvp
def bent(x):
    return x
@bent.defjvp
def rule(x, slope):
    return x[0], 29 * slope[0]
GAIN, ADDED = Gain(1.5), functools.partial(pow, 2, mod=17)
ARRAY = np.arange(3.0)
def helper(x):
    return x * LEVEL
def more(x):
    return GAIN(x) + twice(x) + ADDED(x) + kept_once(x) + scaled(x) + bent(x)
def made(*, share=0.25):
    kept = share
    def inner(x):
        return helper(x) + kept + ARRAY.sum() + TABLE["a"][1] + (x in {"u", "v"}) + more(x)
    return inner
"""


def digest_of(source: str) -> str:
    space: dict[str, Any] = {"__name__": "mine"}
    exec(compile(source, "mine.py", "exec"), space)
    assert isinstance(space["made"], FunctionType)
    return code_digest(space["made"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x * LEVEL", "x / LEVEL"),
        ("LEVEL, TABLE = 0.5", "LEVEL, TABLE = 0.6"),
        ("arange(3.0)", "arange(4.0)"),
        ('"a": (1, 2)', '"a": (1, 3)'),
        ("share=0.25", "share=0.5"),
        ("kept = share", "kept = -share"),
        ('{"u", "v"}', '{"u", "w"}'),
        ("(3, (4, 5))", "(3, 4, (5,))"),
        ("floor = 0.1", "floor = 0.2"),
        ('{"x", "y", "z"}', '{"x", "y"}'),
        ("Gain(1.5)", "Gain(1.75)"),
        ("self.level * x", "self.level / x"),
        ("+ 7", "+ 8"),
        ("return 5", "return 6"),
        ("2 * function", "3 * function"),
        ("x + 11", "x + 12"),
        ("x + 13", "x + 14"),
        ("19 * self", "20 * self"),
        ("x + 23", "x + 24"),
        ("29 * slope", "30 * slope"),
        ("partial(pow, 2, mod=17)", "partial(pow, 3, mod=17)"),
        ("partial(pow, 2, mod=17)", "partial(pow, 2, mod=19)"),
    ],
)
def test_a_change_of_code_or_of_what_it_reads_is_seen(old: str, new: str) -> None:
    assert old in BEFORE
    assert digest_of(BEFORE) == digest_of(BEFORE) != digest_of(BEFORE.replace(old, new))


def test_comments_lines_and_what_is_not_read_are_no_change() -> None:
    moved = BEFORE.replace("def helper", "# here\n\nsum = UNUSED = 3\ndef helper")
    assert digest_of(moved) == digest_of(BEFORE)


def test_what_a_function_holds_on_to_and_what_is_wrapped_are_seen() -> None:
    def held(level: float) -> Callable[[float], float]:
        return lambda x: x * level

    assert code_digest(held(1.0)) == code_digest(held(1.0)) != code_digest(held(2.0))
    assert code_digest(jax.jit(held(1.0))) == code_digest(held(1.0))
    assert code_digest(held(np.ones(2))) != code_digest(held(np.zeros(2)))  # type: ignore[arg-type]


def test_functions_that_call_each_other_come_to_an_end() -> None:
    source = "def made(n):\n    return other(n)\ndef other(n):\n    return made(n - 1) if n else 0\n"
    assert digest_of(source) != digest_of(source.replace("n - 1", "n - 2"))


def test_a_module_beside_the_scheme_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for level in (1, 2):
        (tmp_path / f"beside{level}.py").write_text(
            f"def level():\n    return {level}\ndef unread():\n    return {level}\n"
        )
        sys.modules["beside"] = importlib.import_module(f"beside{level}")
        monkeypatch.setitem(sys.modules, "beside", sys.modules["beside"])
        found.append(
            [digest_of(f"import beside\ndef made():\n    return beside.{name}") for name in ("level()", "other")]
        )
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1]


def test_another_process_says_the_same() -> None:
    source = f"from otafl.core.authors import code_digest\nspace = {{'__name__': 'mine'}}\nexec({BEFORE!r}, space)\n"
    said = {
        subprocess.run(
            [sys.executable, "-c", source + "print(code_digest(space['made']))"],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, check=True, capture_output=True, text=True,
        ).stdout.strip()
        for seed in (1, 2)
    }  # fmt: skip
    assert said == {digest_of(BEFORE)}


def test_what_a_scheme_says_beside_its_function_is_seen() -> None:
    def share(obs: Any, *, level: float = 0.5) -> dict[str, Any]:
        return {"tx": level / obs.estimate, "rx_scale": level}

    digests = []
    for gate in ("bound", "open", "bound"):
        own_scheme.scheme("told-beside", gate=gate)(share)
        digests.append(code_digest(systems.scheme("told-beside").factory))
    systems.remove(systems.OWN)
    assert digests[0] == digests[2] != digests[1]


class Endless:
    def __getattr__(self, name: str) -> Any:
        return self


class Refusing:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    __reduce_ex__ = None  # type: ignore[assignment]


class Chain:
    def __init__(self, length: int) -> None:
        self.rest = self
        for _ in range(length):
            made = Chain.__new__(Chain)
            made.rest, self.rest = self.rest, made


@pytest.mark.parametrize("make", [Endless, Refusing, lambda: Chain(5000), threading.Lock, lambda: {1, "a"}, object])
def test_whatever_a_scheme_holds_it_has_a_hash(make: Callable[[], Any]) -> None:
    held = make()

    def reads() -> Any:
        return held

    assert code_digest(reads) == code_digest(reads)
