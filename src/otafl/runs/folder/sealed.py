"""Files that show whether they are as they were written: every read is checked against a SHA-256 before it is used.

A sealed JSON file carries `seal`, the hash of the rest of it. A sealed array file has its hash in front; the hash also
covers `place`, what the file is and where it belongs, so that a copied or renamed one is not taken for another.
"""

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.archives import arrays_of
from otafl.core.errors import InputError
from otafl.core.files import plain

MAGIC = b"otafl-2 "
SEAL = "seal"
NONSENSE = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)

Arrays = dict[str, np.ndarray]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_digest(path: Path, mend: str) -> str:
    """SHA-256 of a file, read in pieces."""
    with reading(path, mend), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def nonsense() -> tuple[type[Exception], ...]:
    """What reading something else than was written ends in; Arrow is loaded by whoever reads tables."""
    arrow = sys.modules.get("pyarrow")
    return NONSENSE if arrow is None else (*NONSENSE, arrow.ArrowException)


@contextmanager
def reading(path: Path, mend: str) -> Iterator[None]:
    """Whatever is wrong with a file that is being read becomes one line with its name, and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: is missing; {mend}") from None
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"{path}: cannot be read ({os.strerror(error.errno)}); {mend}") from None
        raise InputError(f"{path}: is damaged ({_line(error)}); {mend}") from None
    except InputError:
        raise
    except nonsense() as error:
        raise InputError(f"{path}: is damaged ({_line(error)}); {mend}") from None


def _line(error: BaseException) -> str:
    """The first line of an error of another library, short."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno} is no JSON"
    text = (str(error).splitlines() or ["it says nothing that is read"])[0][:120]
    return f"no {text}" if isinstance(error, KeyError) else text


# --- JSON ----------------------------------------------------------------------------------------------------------


def with_seal(content: dict[str, Any]) -> dict[str, Any]:
    """The same with the hash of its canonical form."""
    body = plain(content)
    return {**body, SEAL: digest(_canonical(body))}


def read_sealed(path: Path, mend: str) -> dict[str, Any]:
    """A sealed JSON file; InputError if it is missing, altered, or from a version that did not seal."""
    with reading(path, mend):
        line = path.read_bytes()
    return unsealed(line, path, mend)


def unsealed(line: bytes, path: Path, mend: str) -> dict[str, Any]:
    """The content of sealed JSON that was read from `path`."""
    with reading(path, mend):
        content = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("not a table")
    if SEAL not in content:
        raise InputError(f"{path}: has no seal, so it is damaged or of a version before 0.2; run the experiment again")
    seal = content.pop(SEAL)
    if seal != digest(_canonical(content)):
        raise InputError(f"{path}: is damaged (its seal does not fit its content); {mend}")
    return content


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


# --- arrays ----------------------------------------------------------------------------------------------------------


def npz(arrays: Arrays) -> bytes:
    """Arrays as NumPy's own file, the same bytes for the same arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def pack(arrays: Arrays, place: str) -> bytes:
    """Arrays as a sealed file: the SHA-256 of its place and its npz, then the npz."""
    body = npz(arrays)
    return _head(body, place) + b"\n" + body


def unpack(content: bytes, place: str) -> Arrays | None:
    """The arrays, or None if a single bit is not as it was written for this place."""
    head, _, body = content.partition(b"\n")
    if head != _head(body, place):
        return None
    try:
        return arrays_of(body)
    except Exception:  # sealed by hand around something else: zipfile, zlib and NumPy fail each in its own way
        return None


def _head(body: bytes, place: str) -> bytes:
    return MAGIC + digest(place.encode() + b"\0" + body).encode()
