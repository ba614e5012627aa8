"""Which devices a run uses: all of them where there are several, as many as asked for, and the same results."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.runs.device_mapping import choose_mesh
from otafl.runs.evaluation import blocks
from otafl.runs.folder.store import RunFolder


def test_more_devices_than_there_are_is_refused() -> None:
    count = jax.local_device_count()
    with pytest.raises(InputError, match=f"engine.devices={count + 1} is more than the {count} devices"):
        choose_mesh(count + 1, seeds=4, clients=10)


def test_one_device_needs_no_mesh() -> None:
    assert choose_mesh(1, seeds=4, clients=10) is None


@pytest.mark.parametrize(("samples", "size", "expected"), [(100, 500, (1, 100)), (100, 48, (3, 48)), (97, 16, (7, 16)),
                                                           (100, 25, (4, 25))])  # fmt: skip
def test_held_out_samples_come_in_even_blocks_of_whole_vectors(samples, size, expected) -> None:
    x, y = np.arange(samples, dtype=np.float32), np.arange(samples) % 7
    held = blocks(x, y, size)
    assert held.x.shape == expected
    used = np.asarray(held.group).ravel() >= 0
    np.testing.assert_array_equal(np.asarray(held.x).ravel()[used], x)
    np.testing.assert_array_equal(np.asarray(held.y).ravel()[used], y)


@pytest.mark.slow
def test_a_run_on_eight_devices_has_the_models_of_one_and_its_ledgers_to_the_byte(
    tiny_file: Path, tmp_path: Path
) -> None:
    more = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    flags = {"XLA_FLAGS": more, "JAX_PLATFORMS": "cpu"}
    settings = {"one": ["engine.devices=1"], "all": [], "streamed": ["engine.stream=true"]}
    for name, overrides in settings.items():
        command = [sys.executable, "-m", "otafl.cli", "run", str(tiny_file), "--out", str(tmp_path / name)]
        command += [part for one in ["task.clients=5", *overrides] for part in ("--set", one)]
        subprocess.run(command, env={**os.environ, **flags}, check=True, capture_output=True, timeout=900)
    for label in ("constant", "cares-adaptive"):
        one, every, streamed = (RunFolder.open(tmp_path / name).scheme(label) for name in settings)
        assert one.content("ledger-0.bin") == every.content("ledger-0.bin")
        assert every.content("model.npz") == streamed.content("model.npz")
        with np.load(one.whole("model.npz")) as left, np.load(every.whole("model.npz")) as right:
            for leaf in left.files:
                np.testing.assert_allclose(right[leaf], left[leaf], atol=1e-6)
