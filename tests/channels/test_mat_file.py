"""MAT files: what SciPy reads, and no end of the process by a damaged one."""

import contextlib
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from otafl.channels import read_trace
from otafl.channels.mat_file import read_mat
from otafl.core.errors import InputError

RNG = np.random.default_rng(0)
WORKSPACE: dict[str, Any] = {
    "whole": np.arange(24, dtype=np.int16).reshape(2, 3, 4),
    "gain": np.array([[-0.0 + 1j, complex(0.0, -0.0)], [np.inf - 1j, 3.0]]),
    "single": RNG.standard_normal((3, 2)).astype(np.complex64),
    "few": np.arange(6.0).reshape(1, 6),
    "none": np.zeros((0, 3)),
    **{kind: np.array([[0, 1], [2, 127]], kind) for kind in ("u1", "i1", "u2", "i4", "u4", "i8", "u8", "f4")},
    "word": "TKM",
    "rows": np.array(["gate", "yard"]),
    "names": np.array(["Tür", "b", "cell"], object),
    "nested": np.array([["a", np.arange(2.0)], [np.array(["c"], object), 1j]], object),
}


def saved(path: Path, **arrays: Any) -> Path:
    savemat(path, arrays)
    return path


def same(one: Any, other: Any) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and all(map(same, one.ravel(), other.ravel()))
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", WORKSPACE)
def test_variables_are_those_that_scipy_reads(tmp_path: Path, name: str, compressed: bool) -> None:
    savemat(tmp_path / "x.mat", {"before": 1, name: WORKSPACE[name], "behind": "b"}, do_compression=compressed)
    found, expected = read_mat(tmp_path / "x.mat"), loadmat(tmp_path / "x.mat")
    assert list(found) == ["before", name, "behind"]
    assert same(found[name], expected[name])


def test_version_4_and_what_is_no_array(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"gain": np.ones((2, 2))}, format="4")
    assert read_mat(tmp_path / "x.mat")["gain"].tolist() == [[1, 1], [1, 1]]
    assert read_mat(saved(tmp_path / "y.mat", s={"field": 1}, n=2))["s"] is None


def test_the_other_byte_order(tmp_path: Path) -> None:
    def element(kind: int, content: bytes) -> bytes:
        return struct.pack(">II", kind, len(content)) + content.ljust(-(-len(content) // 8) * 8, b"\0")

    parts = [(6, struct.pack(">II", 6, 0)), (5, struct.pack(">II", 1, 2)), (1, b"gain"), (9, struct.pack(">dd", 1, 2))]
    matrix = b"".join(element(*part) for part in parts)
    (tmp_path / "x.mat").write_bytes(b"MATLAB".ljust(124) + b"\x01\x00MI" + element(14, matrix))
    assert read_mat(tmp_path / "x.mat")["gain"].tolist() == [[1.0, 2.0]]


@pytest.mark.filterwarnings("ignore")
def test_every_byte_may_be_wrong(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.mat", gain=np.ones((1, 3)) * 1j, names=WORKSPACE["names"])
    whole = path.read_bytes()
    for at in range(124, len(whole)):
        for byte in (0, 14, 127, 255):
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            with contextlib.suppress(InputError):
                read_trace(path)


def test_sizes_that_are_not_there_are_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "x.mat", gain=np.ones((2, 2))).read_bytes()
    negative = whole.replace(struct.pack("<ii", 2, 2), struct.pack("<ii", -1, 2))
    bomb = zlib.compress(struct.pack("<II", 14, 2**31) + bytes(10**6))
    inflating = whole[:128] + struct.pack("<II", 15, len(bomb)) + bomb
    for content in (negative, inflating, whole[:-8]):
        (tmp_path / "x.mat").write_bytes(content)
        with pytest.raises(ValueError, match=r"cut short|for a shape of"):
            read_mat(tmp_path / "x.mat")
