"""A file that unpacks to more than the machine has is refused in one line, whoever reads it."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

import otafl
from otafl.channels import read_trace
from otafl.core import archives
from otafl.core.errors import InputError
from otafl.privacy import Budget, Ledger, export
from otafl.tasks import formats

ROUNDS = 2**20
SMALL = 8 * ROUNDS - 1  # bytes: a double of every round does not fit


def npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def test_what_is_no_array_in_an_archive_is_none(tmp_path: Path) -> None:
    path = tmp_path / "gains.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gain.npy", b"")
        archive.writestr("readme.txt", b"see above")
    assert archives.arrays_of(path) == {}
    with pytest.raises(InputError, match=r"gains\.npz: give 'gain', or 'gain_re' and 'gain_im'; found nothing"):
        read_trace(path)
    np.savez(path, **{f"k{n}": np.zeros(1) for n in range(300)})
    with pytest.raises(InputError, match=r"found k0, k1, .*\(300 in all\)$"):
        read_trace(path)


def trace(path: Path) -> None:
    path.with_suffix(".npz").write_bytes(npz(gain=np.zeros((ROUNDS, 1))))
    read_trace(path.with_suffix(".npz"))


def matlab(path: Path) -> None:
    savemat(path, {"gain": np.zeros((ROUNDS, 1), np.uint8)}, do_compression=True, appendmat=False)
    read_trace(path.rename(path.with_suffix(".mat")))


def own_arrays(path: Path) -> None:
    path.with_suffix(".npz").write_bytes(npz(x=np.zeros((ROUNDS, 1)), y=np.zeros(ROUNDS, np.int8)))
    otafl.task(path.with_suffix(".npz"), y="y", held_out=0.5, clients=2)


def own_table(path: Path) -> None:
    pd.DataFrame({"x": np.zeros(ROUNDS), "y": np.zeros(ROUNDS, np.int8)}).to_parquet(path.with_suffix(".parquet"))
    otafl.task(path.with_suffix(".parquet"), y="y", held_out=0.5, clients=2)


def images(path: Path) -> None:
    path.write_bytes(npz(**dict.fromkeys(formats.KEYS, np.zeros((ROUNDS, 8), np.uint8))))
    formats.read_npz(path)


def ledger(path: Path) -> None:
    line, _, _ = Ledger(Budget(1.0, 1e-5), 1).to_bytes().partition(b"\n")
    head = {name: value for name, value in json.loads(line).items() if name != "sha256"}
    payload = npz(sums_terms=np.zeros((ROUNDS, 1)))
    head["sha256"] = export._checksum(head, payload)
    Ledger.from_bytes(json.dumps(head, sort_keys=True).encode() + b"\n" + payload)


@pytest.mark.parametrize("read", [trace, matlab, own_arrays, own_table, images, ledger])
def test_what_unpacks_to_more_than_memory_is_refused(
    read: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "memory_bytes", lambda: SMALL)
    with pytest.raises(InputError, match=r"^[^\n]*(unpacks to 0\.\d+ GiB|MemoryError)[^\n]*$"):
        read(tmp_path / "file")
