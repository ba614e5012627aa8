"""Planning files with mistakes: planned or refused in one line, soon, never a traceback; what is printed is JSON."""

import json
import signal
import tomllib
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from otafl.cli import app
from otafl.core.errors import OtaflError
from otafl.systems import planning

EXAMPLES = {path.name: path for path in Path(planning.__file__).parent.glob("*/examples/*")}
SECONDS = 60
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 0.5, 1 - 1e-16, float("nan"), float("inf"), -float("inf"), 10**5, 10**6, 10**12, 2**62, 2**63),
    *(10**30, 1e308, -1e308, 1e-308, 1e160, 1e-160, 1e39, -1e39, 1e-39, 1e20, 1e-20, 1e9, 1e-9, 399.0, -399.0),
)
OTHER: tuple[Any, ...] = ("x", "", "auto", True, False, [], [1.0], [0.0, 1.0], [[1.0]], {}, {"a": 1})
SMALL: dict[str, dict[str, Any]] = {"adascale": {"T": 20, "pld": False, "compare": ["optimal"]}}
EXTRA: dict[str, dict[str, Any]] = {  # keys that the example leaves out
    "adascale.toml": {
        "max_floor": 2.0,
        "device_rdp": 0.15,
        "hard_budget": True,
        "device_order": 3,
        "bandwidth_hz": 1e5,
    },
    "cares.toml": {"rounds": 50, "rx_scale": 0.3, "smoothness": 0.5, "grad_var": 1.0, "num_arms": 25, "num_pilots": 9},
    "cdpb.toml": {"a": 8.0, "M": 1.0, "L": 1, "D0": 1.0, "u": 0.5, "tau": 50, "seed": 1, "portion": 0.5},
    "biasvar.toml": {"sigma2": 0.1, "noise_factor": 0.5, "trusted_noise": 0.5, "frontier_points": 9, "rho": 0.3},
    "eezofl.toml": {"sigma_phi": 3.2, "h_floor": 0.1, "snr_db_max": 60.0, "custom_ring": {"n": 64, "primes": [257]}},
}
PLANNERS = ("adascale", "biasvar", "cares", "cdpb", "eezofl", "liu-simeone", "orthogonal", "seif")


class Slow(BaseException):
    """Not an Exception, so that nobody on the way catches it."""


def _stop(*_: Any) -> None:
    raise Slow


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a table that can be overwritten: whole lists, and their first entries."""
    if path:
        yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list) and node:
        yield from leaves(node[0], (*path, 0))


def changed(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with one value replaced; Ellipsis removes it."""
    copy = deepcopy(data)
    node: Any = copy
    for part in path[:-1]:
        node = node[part]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copy


def base_of(name: str) -> dict[str, Any]:
    """An example file, small enough to be planned often."""
    scheme = name.split(".")[0].split("_")[0]
    return tomllib.loads(EXAMPLES[name].read_text()) | SMALL.get(scheme, {})


@st.composite
def mistakes(draw: Any, name: str) -> dict[str, Any]:
    """One to three entries of an example replaced: by anything, or a number by one some orders of magnitude away."""
    data = base_of(name)
    for _ in range(draw(st.integers(1, 3))):
        keys = [(key,) for key in EXTRA.get(name, {})]
        path = draw(st.sampled_from([*leaves(data), *keys]))
        old: Any = data
        for part in path:
            old = old.get(part) if isinstance(old, dict) else old[part]
        value: Any = draw(st.sampled_from((*NUMBERS, *OTHER)))
        if isinstance(old, float) and draw(st.booleans()):
            value = old * 10.0 ** draw(st.integers(-20, 20))
        elif isinstance(old, int) and draw(st.booleans()):
            value = int(old * 10.0 ** draw(st.integers(-3, 15)))
        data = changed(data, path, value)
    return data


def mutations(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every single mistake in an example file, and each key that it leaves out with every value."""
    base = base_of(name)
    yield "unknown", base | {"no_such_key": 1}
    for path in leaves(base):
        for value in (..., *NUMBERS, *OTHER):
            yield f"{'.'.join(map(str, path))}={value!r}", changed(base, path, value)
    for key, usual in EXTRA.get(name, {}).items():
        for value in (usual, *NUMBERS, *OTHER):
            yield f"+{key}={value!r}", base | {key: value}


def outcome(scheme: str, data: dict[str, Any], folder: Path, as_json: bool) -> str:
    """What went wrong, or nothing."""
    file = folder / "mutated.toml"
    file.write_text(tomli_w.dumps(data))
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            answer = CliRunner().invoke(app, ["plan", scheme, str(file), *(["--json"] if as_json else [])])
    except Slow:
        return f"slower than {SECONDS} s"
    finally:
        signal.alarm(0)
    problem = answer.exception
    if problem is None:
        return not_json(answer.stdout) if as_json else ""
    if not isinstance(problem, OtaflError):
        return f"traceback: {type(problem).__name__}: {problem}"
    if problem.exit_code not in (2, 3, 4):
        return f"exit code {problem.exit_code}: {problem}"
    if "\n" in str(problem):
        return f"more than one line: {problem}"
    if problem.exit_code == 2 and not str(problem).startswith(str(folder)):
        return f"no file: {problem}"
    return ""


def not_json(text: str) -> str:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as problem:
        return f"no JSON: {problem}"
    return ""


def prepared(folder: Path) -> Path:
    """The files that examples name; all planners imported, which takes seconds and is no hang."""
    for scheme in planning.available():
        planning.load(scheme)
    for beside in (path for name, path in EXAMPLES.items() if name.endswith(".csv")):
        (folder / beside.name).write_text(beside.read_text())
    return folder


@pytest.mark.parametrize("scheme", PLANNERS)
def test_a_few_mistakes_in_a_planning_file_are_one_line(scheme: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)

    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(mistakes(f"{scheme}.toml"), st.booleans())
    def planned_or_refused(data: dict[str, Any], as_json: bool) -> None:
        assert outcome(scheme, data, folder, as_json) == ""

    planned_or_refused()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name in EXAMPLES if name.endswith(".toml")))
def test_every_mistake_in_every_example_is_one_line(name: str, tmp_path: Path) -> None:
    folder = prepared(tmp_path)
    scheme = next(planner for planner in PLANNERS if name.startswith(planner))
    found = {what: outcome(scheme, data, folder, n % 2 == 0) for n, (what, data) in enumerate(mutations(name))}
    assert {what: said for what, said in found.items() if said} == {}


@pytest.mark.parametrize(
    ("system", "overrides"),
    [
        ("biasvar", ("kappa=inf",)),
        ("adascale", ("B=1e-15",)),
        ("adascale", ("delta=1e-20",)),
        ("adascale", ("d=1e9", "G=1e-39")),
        ("adascale", ("n=1e15", "noise_power_dbm=1e-10")),
    ],
)
def test_numbers_without_end_are_told_on_the_screen_or_refused(system: str, overrides: tuple[str, ...]) -> None:
    """JSON has infinities as text, which no number format takes; PLD has numbers that it cannot count."""
    given = [part for text in overrides for part in ("--set", text)]
    small = ["--set", "T=20"] if system == "adascale" else []
    file = next(path for name, path in EXAMPLES.items() if name.startswith(system) and path.suffix == ".toml")
    ended = CliRunner().invoke(app, ["plan", system, str(file), *given, *small])
    assert ended.exception is None or isinstance(ended.exception, OtaflError), ended.exception
