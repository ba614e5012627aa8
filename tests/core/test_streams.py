"""No two kinds of chance share numbers."""

import re
from itertools import combinations
from pathlib import Path

import jax
import numpy as np

import otafl
from otafl.core.streams import Host, Round, Seed


def test_every_stream_has_a_number_of_its_own():
    numbers = [*Host, *Seed, *Round]
    assert len({int(number) for number in numbers}) == len(Host.__members__) + len(Seed.__members__) + len(
        Round.__members__
    )


def test_keys_of_a_run_are_pairwise_apart():
    """Seed-level streams, rounds, and within a round clients, air and directions."""
    seed = jax.random.key(3)
    rounds = [jax.random.fold_in(seed, number) for number in (0, 1, 2, 10**6)]
    keys = [*rounds, *(jax.random.fold_in(seed, stream) for stream in Seed)]
    for one in rounds:
        keys += [*jax.random.split(one), *(jax.random.fold_in(one, stream) for stream in Round)]
    feedback = jax.random.fold_in(seed, Seed.FEEDBACK)
    keys += [jax.random.fold_in(feedback, number) for number in (0, 1, 2, 10**6)]
    words = [tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys]
    assert all(a != b for a, b in combinations(words, 2))


def test_no_stream_is_written_down_elsewhere():
    """A literal in `default_rng([seed, ...])` or a fold_in of a large number would bypass the registry."""
    source = Path(otafl.__file__).parent
    bypass = re.compile(r"default_rng\(\[[^\]]*,\s*(0x\w+|\d\d+)\s*\]|fold_in\([^)]*2\s*\*\*\s*3\d|_STREAM\b")
    found = [
        path.name for path in source.rglob("*.py") if path.name != "streams.py" and bypass.search(path.read_text())
    ]
    assert found == []
