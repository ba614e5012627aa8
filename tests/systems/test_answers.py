"""`otafl plan SYSTEM FILE --json` answers under the keys that it had in version 0.1.0: programs read them."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otafl.core.files import parse
from otafl.systems.planning import load

KEYS = json.loads((Path(__file__).parent / "answer_keys.json").read_text())


def leaves(answer: Any, path: str = "") -> Iterator[str]:
    """Names of what is not a table, with the tables that it stands in; of a list of tables those of the first."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        answer = answer[0]
    if not isinstance(answer, dict):
        yield path
        return
    for key, value in answer.items():
        yield from leaves(value, f"{path}.{key}" if path else key)


@pytest.mark.parametrize("system", KEYS)
def test_an_answer_keeps_its_keys(system: str) -> None:
    planner = load(system)
    example = parse(planner.inputs, tomllib.loads(planner.example), "FILE")
    assert set(KEYS[system]) <= set(leaves(planner.plan(example, Path())))
