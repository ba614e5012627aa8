"""Experiment files with mistakes in them: each reads, plans, or is refused in one line. Nothing ends in a traceback."""

import random
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from otafl.core.errors import InputError, OtaflError
from otafl.runs import runner
from otafl.runs.folder.store import RunFolder
from otafl.runs.progress import Reporter
from otafl.runs.schema import load, resolved
from otafl.runs.workbench import Workbench

ROOT = Path(__file__).parents[2]
EXTREME = (
    0,
    -1,
    1,
    2,
    0.0,
    -0.0,
    1e-300,
    1e300,
    -1e9,
    10**6,
    10**12,
    2**32,
    2**63,
    2**64,
    10**30,
    0.5,
    float("inf"),
    float("nan"),
)
WORDS = (
    "",
    "auto",
    "vmap",
    "none",
    "norm",
    "10 dBm",
    "5 m",
    "digits",
    "cares",
    "mlp",
    "\n",
    "ü",
    "x" * 300,
    "../..",
    "\x7f",
)
OTHER: tuple[Any, ...] = (True, False, [], {}, [1], [[]], ["a", 1], {"name": "mlp"}, {"kind": "iid"}, {"a": {"b": 1}})
KEYS = (
    "rounds",
    "seeds",
    "eps",
    "name",
    "kind",
    "clients",
    "noise_std",
    "power_dbm",
    "hidden",
    "arms",
    "label",
    "pca",
    "csi",
    "x",
)

RICH = """
rounds = 4
seeds = [3, 4]
evaluate_every = 3

[channel]
shadowing_db = 3.0
geometry = { kind = "ring", low_m = 1.0, high_m = 3.0 }
path_loss = { kind = "exponent", exponent = 2.0 }
fading = { kind = "rician", k_factor_db = 3.0, coherence_rounds = 2 }
drift = { every = 2, amplitude = 0.1 }
csi = { gain_error = 0.1 }
placement_seed = 1

[task]
data = { name = "digits", train_size = 60, pca = { components = 5, whiten = true }, validation_fraction = 0.1 }
clients = 3
partition = { kind = "dirichlet", alpha = 5.0 }
model = { name = "mlp", hidden = [4], l2 = 0.01 }
report_on = "validation"

[radio]
power_dbm = 10.0
noise_dbm = -20.0

[clients]
kind = "local-sgd"

[privacy]
eps = 3e4
accountant = "rdp"

[[scheme]]
name = "fedavg-dp"

[[scheme]]
name = "weakest"
clients = { kind = "per-sample", clip_norm = 0.5, batch = 4 }

[[scheme]]
name = "opc"

[[scheme]]
name = "lcpc"
clients = { kind = "zero-order" }
server = { step_size = 0.2 }
"""


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a parsed file."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from nodes(value[key])


def change_bytes(text: str, rng: random.Random) -> bytes:
    content = bytearray(text.encode())
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(content))
        action = rng.randrange(3)
        if action == 0:
            content[place] = rng.randrange(256)
        elif action == 1:
            del content[place : place + rng.randrange(1, 6)]
        else:
            content[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4)))
    return bytes(content)


def change_lines(text: str, rng: random.Random) -> bytes:
    lines = text.splitlines()
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(4)
    if action == 0:
        del lines[a]
    elif action == 1:
        lines.insert(b, lines[a])
    elif action == 2:
        lines[a], lines[b] = lines[b], lines[a]
    else:
        lines[a] = lines[a][: rng.randrange(len(lines[a]) + 1)]
    return "\n".join(lines).encode()


def change_values(text: str, rng: random.Random) -> bytes:
    """Other types, extreme numbers, wrong units, unknown keys, swapped tables."""
    data = tomllib.loads(text)
    for _ in range(rng.randrange(1, 3)):
        places = list(nodes(data))
        table, key = rng.choice(places)
        other, other_key = rng.choice(places)
        action = rng.randrange(6)
        if action == 0:
            table[key] = rng.choice(EXTREME)
        elif action == 1:
            table[key] = rng.choice(WORDS + OTHER)
        elif action == 2:
            table[key] = str(table[key])
        elif action == 3 and isinstance(table, dict):
            table[rng.choice(KEYS) + rng.choice(("", "s", "_db"))] = table.pop(key)
        elif action == 4:
            try:
                tomli_w.dumps(data | {"copy": other[other_key]})
                table[key] = tomllib.loads(tomli_w.dumps({"copy": other[other_key]}))["copy"]
            except (TypeError, KeyError):
                continue
        elif isinstance(table[key], int | float):
            table[key] = table[key] * rng.choice((1000, -1, 1e-3, 0.5))
    return tomli_w.dumps(data).encode("utf-8", "surrogateescape")


def mutations(texts: list[str], count: int, seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        change = rng.choice((change_bytes, change_lines, change_values, change_values, change_values))
        yield change(rng.choice(texts), rng)


def one_line(refusal: OtaflError, fate: str) -> str:
    assert str(refusal).isprintable(), repr(str(refusal))
    return fate


def check(content: bytes, path: Path, plan: bool) -> str:
    """Read one file, and plan it if it reads; what became of it."""
    path.write_bytes(content)
    try:
        experiment = load(path)
    except InputError as refusal:
        return one_line(refusal, "refused")
    shown = path.with_name("shown.toml")
    shown.write_text(resolved(experiment))
    assert load(shown) == experiment.model_copy(update={"preset": None}), "the shown config must read back"
    size = experiment.task.clients * len(experiment.seed_list)
    if not plan or size > 400 or size * experiment.rounds > 10**5:  # would plan, but not in a moment
        return "read"
    try:
        place = RunFolder(path.parent / "run", "", {})
        runner._prepare(experiment, runner._task(experiment, Workbench()), place, Reporter())
    except OtaflError as refusal:
        return one_line(refusal, "not planned")
    return "planned"


def survive(texts: list[str], count: int, seed: int, folder: Path, plan: bool = True) -> dict[str, int]:
    fates: dict[str, int] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number, content in enumerate(mutations(texts, count, seed)):
            try:
                fate = check(content, folder / "mutated.toml", plan)
            except BaseException:
                (ROOT / ".cache").mkdir(exist_ok=True)
                (ROOT / ".cache" / "mutated.toml").write_bytes(content)
                print(f"mutation {number} of seed {seed} is kept as .cache/mutated.toml")
                raise
            fates[fate] = fates.get(fate, 0) + 1
    return fates


@pytest.fixture
def texts(tiny_text: str) -> list[str]:
    return [tiny_text, RICH]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_what_is_mutated_reads_and_plans(texts: list[str], tmp_path: Path) -> None:
    for text in texts:
        experiment = load(written(tmp_path / "plain.toml", text))
        place = RunFolder(tmp_path / "run", "", {})
        runner._prepare(experiment, runner._task(experiment, Workbench()), place, Reporter())


@pytest.mark.parametrize("count", [150, pytest.param(500, marks=pytest.mark.slow)])
def test_mutated_files(count: int, texts: list[str], tmp_path: Path) -> None:
    fates = survive(texts, count, 0, tmp_path)
    assert sum(fates.values()) == count
    assert min(fates.get(fate, 0) for fate in ("refused", "planned")) > count / 25, fates


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_10000_mutated_files(seed: int, texts: list[str], tmp_path: Path) -> None:
    survive(texts, 500, seed, tmp_path)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rounds=10000000000", "must be <= "),
        ("seeds=10001", "must be <= "),
        ("task.clients=1000000000", "must be <= "),
        ("seeds=[-1]", "must be >= 0"),
        ("server.step_size=1e39", "must be <= "),
        ("task.data.validation_fraction=2.0", r"task\.data\.validation_fraction=2\.0"),
        ("scheme.0.server={step_size=1e39}", "must be <= "),
        ("scheme=[" + "{name='constant'}," * 501 + "]", "at most 500"),
        ("seeds=[4294967296]", "must be <"),
        ("seeds=[]", "at least 1"),
        ("seeds=[1,1]", "must not repeat"),
        ("seeds={ first = 1 }", "must be { first, count }"),
        ("seeds={ first = 1, count = 10_001 }", "at most 10,000 seeds"),
        ("seeds={ first = 1, count = 0 }", "at least 1"),
    ],
)
def test_absurd_sizes_are_refused_when_read(override: str, said: str, tiny: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=said):
        tiny(override)


def test_seeds_that_follow_each_other_are_the_list_of_them(tiny: Callable[..., Any]) -> None:
    assert tiny("seeds={ first = 7, count = 3 }") == tiny("seeds=[7, 8, 9]")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["rounds=10000000", "seeds=10000"], "of memory, this machine has"),
        (["task.model={name='mlp',hidden=[1000000,1000000]}"], "parameters"),
        (["task.model={name='mlp',hidden=[1000000000000]}"], "hidden|parameters"),
    ],
)
def test_what_does_not_fit_into_memory_is_refused(
    overrides: list[str], said: str, tiny: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        runner.start(tiny(*overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()
