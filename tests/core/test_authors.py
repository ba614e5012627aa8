"""The hash of somebody else's code: the same for what computes the same, another one for every change that counts."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import numpy as np
import pytest

from otafl.core.authors import code_digest

BEFORE = """
import functools, numpy as np
LEVEL, TABLE = 0.5, {"a": (1, 2)}
ARRAY = np.arange(3.0)
def helper(x):
    return x * LEVEL
def made(*, share=0.25):
    kept = share
    def inner(x):
        return helper(x) + kept + ARRAY.sum() + TABLE["a"][1] + (x in {"u", "v"})
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
    ],
)
def test_a_change_of_code_or_of_what_it_reads_is_seen(old: str, new: str) -> None:
    assert old in BEFORE
    assert digest_of(BEFORE) == digest_of(BEFORE) != digest_of(BEFORE.replace(old, new))


def test_comments_lines_and_what_is_not_read_are_no_change() -> None:
    moved = BEFORE.replace("def helper", "# here\n\nUNUSED = 3\ndef helper")
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
