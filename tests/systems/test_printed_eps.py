"""What `otafl plan SYSTEM` prints of an epsilon holds: four digits, never below the value."""

import re
import tomllib
from pathlib import Path

import pytest

from otafl.core.files import parse
from otafl.systems.planning import load
from screens import printed

SEVEN = 7.0001  # to the nearest of four digits: 7


def told(report, inside=False):
    """The report with SEVEN for every epsilon."""
    if isinstance(report, dict):
        return {key: told(value, key == "pld" or re.match("eps(_|$)", key)) for key, value in report.items()}
    if isinstance(report, list):
        return [told(value, inside) for value in report]
    return SEVEN if inside and isinstance(report, float) else report


@pytest.mark.parametrize("system", ["adascale", "biasvar", "cares", "cdpb", "seif"])
def test_no_epsilon_is_rounded_down(system):
    planner = load(system)
    report = planner.plan(parse(planner.inputs, tomllib.loads(planner.example), "FILE"), Path())
    shown = printed(planner.show, told(report), 200)
    assert "7.001" in shown
    assert not re.findall(r"(?<![\d.-])7(?![\d.])", shown)
