"""MAT files up to version 7: full arrays of numbers, text, and cells of them. Host, NumPy.

Read here, not by SciPy: its compiled reader trusts the types and sizes in a file, and a damaged one ends the process.
(Files of version 4 have another layout, and SciPy's reader of them is plain Python.)
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.archives import check_room
from otafl.core.errors import InputError

MATRIX, COMPRESSED, HEADER = 14, 15, 128
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL, CHARS, COMPLEX = 1, 4, 0x0800


def read_mat(path: Path) -> dict[str, Any]:
    """The variables of a file by name; None for what is neither numbers nor text nor cells."""
    content = memoryview(path.read_bytes())
    if 0 in content[:4]:
        from scipy.io import loadmat

        found = loadmat(path, appendmat=False).items()
    elif len(content) < HEADER:
        raise ValueError("no MAT file")
    elif 2 in content[124:126]:  # its version: 0x0100, or 0x0200 for HDF5
        raise InputError(f"{path}: is MATLAB version 7.3 (HDF5), which is not read; save with -v7")
    else:
        found = dict(_variables(content[HEADER:], "<" if bytes(content[126:HEADER]) == b"IM" else ">")).items()
    return {name: value for name, value in found if name and not name.startswith("__")}


def _variables(content: memoryview, order: str) -> Iterator[tuple[str, Any]]:
    for kind, body in _elements(content, order, pad=1):
        if kind == COMPRESSED:
            inflate = zlib.decompressobj()
            kind, size = struct.unpack(order + "II", inflate.decompress(body, 8))
            check_room(8 * size)  # bytes may be doubles that were stored short
            body = memoryview(inflate.decompress(inflate.unconsumed_tail, size + 1))
            if len(body) < size:
                raise ValueError("it is cut short")
        if kind == MATRIX:
            yield _matrix(body, order)


def _matrix(body: memoryview, order: str) -> tuple[str, Any]:
    """Name and value."""
    if not body:
        return "", np.zeros((0, 0))
    (_, flags), (_, extents), (_, name), *parts = _elements(body, order)
    kind, shape = struct.unpack(order + "II", flags)[0], np.frombuffer(extents, order + "u4").tolist()
    value: Any = None
    if kind & 0xFF in CLASSES:
        numbers = [np.frombuffer(part, order + STORED[stored]) for stored, part in parts]
        with np.errstate(all="raise"):
            value = numbers[0].astype(CLASSES[kind & 0xFF])
        if kind & COMPLEX:
            value = value.astype(np.result_type(value, np.complex64))
            value.imag = numbers[1]
    elif kind & 0xFF == CHARS:
        ((stored, letters),) = parts
        coding = TEXT[stored] + ("" if stored in (1, 2, 16) else "-le" if order == "<" else "-be")
        value = np.array(list(str(letters, coding)), "U1")
    elif kind & 0xFF == CELL:
        cells = [_matrix(part, order)[1] for stored, part in parts if stored == MATRIX]
        value = np.empty(len(cells), object)
        value[:] = cells
    if value is not None:
        if value.size != math.prod(shape):
            raise ValueError(f"{value.size} values for a shape of {shape}")
        value = value.reshape(shape, order="F")
    if kind & 0xFF == CHARS:
        value = np.array(["".join(row) for row in value.reshape(-1, shape[-1])] if value.size else [], str)
    return str(name, "latin-1"), value


def _elements(body: memoryview, order: str, pad: int = 8) -> Iterator[tuple[int, memoryview]]:
    """(type, content) of elements that follow each other; up to four bytes stand inside their tag."""
    at = 0
    while at < len(body):
        kind, size = struct.unpack_from(order + "II", body, at)
        start, step = at + 8, 8 + size + -size % pad
        if small := kind >> 16:
            kind, size, start, step = kind & 0xFFFF, small, at + 4, 8
        if start + size > len(body) or small > 4:
            raise ValueError("it is cut short")
        yield kind, body[start : start + size]
        at += step
