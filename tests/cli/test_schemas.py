"""Schemas accept what the parsers do."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from command_line import SMALL, Call
from otafl.runs.presets import packaged
from otafl.runs.schema import Experiment, load
from otafl.systems import planning

PRESETS = list(packaged().values())


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """JSON Schema as far as pydantic writes it; an unknown keyword is an error, so nothing is waved through."""
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    ignored = {"title", "description", "default", "discriminator", "$defs", "format", "examples"}
    for word, rule in schema.items():
        if word in ignored or word in ("additionalProperties", "items", "prefixItems"):
            continue
        ok: bool
        if word == "$ref":
            ok = accepts(root["$defs"][rule.removeprefix("#/$defs/")], value, root)
        elif word == "type":
            ok = isinstance(value, kinds[rule]) and (rule == "boolean" or not isinstance(value, bool))
        elif word in ("anyOf", "oneOf"):
            matches = sum(accepts(one, value, root) for one in rule)
            ok = matches == 1 if word == "oneOf" else matches > 0
        elif word == "const":
            ok = value == rule
        elif word == "enum":
            ok = value in rule
        elif word == "properties":
            ok = not isinstance(value, dict) or all(
                accepts(rule[key], item, root) for key, item in value.items() if key in rule
            )
        elif word == "required":
            ok = not isinstance(value, dict) or set(rule) <= set(value)
        elif word in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
            holds = (
                {
                    "minimum": value >= rule,
                    "exclusiveMinimum": value > rule,
                    "maximum": value <= rule,
                    "exclusiveMaximum": value < rule,
                }
                if isinstance(value, int | float)
                else {word: True}
            )
            ok = holds[word]
        elif word == "maxLength":
            ok = not isinstance(value, str) or len(value) <= rule
        elif word in ("minItems", "maxItems"):
            ok = not isinstance(value, list) or (len(value) >= rule if word == "minItems" else len(value) <= rule)
        else:
            raise AssertionError(f"keyword {word!r} is not known here")
        if not ok:
            return False
    if isinstance(value, list):
        fixed = schema.get("prefixItems", [])
        if not all(accepts(rule, item, root) for rule, item in zip(fixed, value)):
            return False
        return (
            all(accepts(schema["items"], item, root) for item in value[len(fixed) :])
            if isinstance(schema.get("items"), dict)
            else True
        )
    if isinstance(value, dict) and "properties" in schema and schema.get("additionalProperties") is False:
        return set(value) <= set(schema["properties"])
    if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        return all(
            accepts(schema["additionalProperties"], item, root)
            for key, item in value.items()
            if key not in schema.get("properties", {})
        )
    return True


def test_the_schema_accepts_every_preset_and_refuses_mistakes(otafl: Call) -> None:
    code, out, _ = otafl("run", "--schema")
    assert code == 0
    schema = json.loads(out)
    small = tomllib.loads(SMALL)
    experiments = [data for data in (tomllib.loads(path.read_text()) for path in PRESETS) if "scheme" in data]
    assert experiments
    for data in [small, *experiments]:
        assert accepts(schema, data, schema)
    for wrong in (
        {"rounds": 0},
        {"rounds": "3"},
        {"rouns": 3},
        {"seeds": []},
        {"channel": "mars"},
        {"scheme": []},
        {"scheme": [{"name": "x"}]},
        {"task": {"data": "mars"}},
        {"radio": {"noise_std": -1}},
        {"channel": {"fadin": 1}},
    ):
        assert not accepts(schema, {**small, **wrong}, schema), wrong


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return Experiment.model_json_schema()


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_schema_and_parser_agree_on_presets(path: Path, schema: dict[str, Any]) -> None:
    data = tomllib.loads(path.read_text())
    if "scheme" in data:
        load(path)
        assert accepts(schema, data, schema)


@pytest.mark.parametrize("name", sorted(planning.available()))
def test_planning_files_have_a_schema_that_their_example_meets(name: str, otafl: Call) -> None:
    schema = json.loads(otafl("plan", name, "--schema")[1])
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    example = tomllib.loads(otafl("plan", name, "--example")[1])
    assert set(example) <= set(schema["properties"])


@pytest.mark.parametrize("name", ["adascale", "biasvar", "cares", "cdpb", "liu-simeone", "seif"])
def test_a_plan_that_prints_a_privacy_cost_says_what_an_attacker_finds(name: str, otafl: Call) -> None:
    Path("job.toml").write_text(otafl("plan", name, "--example")[1])
    code, said, _ = otafl("plan", name, "job.toml")
    words = " ".join(said.split())
    (found,) = re.findall(r"at 1 % false alarms an attacker finds at most ([\d.]+) % of the true cases", words)
    assert code == 0 and 1 < float(found) <= 100
