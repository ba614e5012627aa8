"""Rounds over several devices: the same as on one, up to the order of the sum."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import small
from otafl.core.sharding import filled, mesh_of, silent
from sharded_rounds import links

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("seeds", "clients"),
    [(2, "split"), pytest.param(1, "split", marks=pytest.mark.slow), pytest.param(4, "whole", marks=pytest.mark.slow)],
)
def test_rounds_on_eight_devices_are_those_of_one(seeds: int, clients: str) -> None:
    more = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    flags = {"XLA_FLAGS": more, "JAX_PLATFORMS": "cpu"}
    path = {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "sharded_rounds.py"), str(seeds), clients],
        cwd=ROOT, env={**os.environ, **flags, **path}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert told["devices"] == 8 and told["same senders"] and told["difference"] < 1e-6


@pytest.mark.parametrize(
    ("devices", "seeds", "clients", "shape"),
    [(8, 10, 100, (2, 4)), (8, 16, 100, (8, 1)), (8, 1, 100, (1, 8)), (8, 1, 3, (1, 3)), (8, 6, 1, (2, 1)),
     (1, 5, 9, None), (8, 3, 1, None)],
)  # fmt: skip
def test_seeds_come_first_and_clients_take_what_is_left(
    devices: int, seeds: int, clients: int, shape: tuple[int, int] | None
) -> None:
    mesh = mesh_of([object() for _ in range(devices)], seeds, clients)
    assert (None if mesh is None else mesh.devices.shape) == shape


def test_clients_that_fill_up_the_devices_never_send() -> None:
    seeds, rows = small.seeds([0, 1]), links(2)
    wide = filled(seeds, 3)
    assert wide.sizes.shape == (2, 7) and np.all(np.asarray(wide.sizes)[:, 4:] == np.asarray(seeds.sizes)[:, :1])
    quiet = silent(rows, 5).link
    assert np.all(quiet.weight[..., 11:] == 0) and np.all(quiet.max_norm[..., 11:] == -1)
    np.testing.assert_array_equal(quiet.weight[..., :11], rows.link.weight)
