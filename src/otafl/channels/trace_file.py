"""Trace files: gains that were measured or computed elsewhere, in NPZ, MAT (up to version 7), NPY or CSV. Host, NumPy.

    gain                 complex (T, K), (T, K, M) or (T, K, B); or gain_re and gain_im
    axes                 "TK", "TKM" or "TKB"; required for three axes: antennas and blocks cannot be told apart
    estimate, rms_gain   what devices measure; sqrt(E|gain|^2), (K,) or like gain
    names, energy        one per device; J of the whole vector
    block_sizes          (B,) real numbers per block
    noise_var            J per real dimension and antenna
    unit, phase          of a real `gain`: "amplitude", "power" or "db"; "zero" or "uniform"

What is written is read back bit for bit. Nothing is transposed, clamped or filled in: a zero stays a zero.
"""

import difflib
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.channels.mat_file import read_mat
from otafl.channels.rows import IgnoredWarning, UnitWarning
from otafl.channels.trace_arrays import (
    PHASES,
    UNITS,
    Phase,
    Stored,
    Unit,
    blocks_of,
    double,
    gains_of,
    like,
    names_of,
    number_of,
    per_device,
    rms_of,
    shaped,
)
from otafl.core import validate
from otafl.core.archives import arrays_of
from otafl.core.arrays import Bools, Complexes, Floats, Integers
from otafl.core.errors import InputError, first_line

IMAGINARY = re.compile(r"(?<=[\d.])i(?=\s*(,|$))")  # as MATLAB writes it
AXES = ("TK", "TKM", "TKB")
KEYS = (
    "gain", "gain_re", "gain_im", "axes", "estimate", "rms_gain", "names", "block_sizes", "energy", "noise_var",
    "unit", "phase",
)  # fmt: skip


class PrecisionWarning(UserWarning):
    """Numbers came in less than double precision: they are used as they are, with the digits they have."""


class TraceFile(NamedTuple):
    """A trace as it stands in its file: T rounds, K devices, M antennas or B blocks."""

    gain: Complexes  # (T, K), (T, K, M) or (T, K, B)
    axes: str = "TK"
    estimate: Complexes | None = None  # like gain
    rms_gain: Floats | None = None  # like gain, constant over rounds where the file has one per device
    names: tuple[str, ...] | None = None  # (K,)
    block_sizes: Integers | None = None  # (B,)
    energy: Floats | None = None  # (K,) J
    noise_var: float | None = None
    notes: tuple[str, ...] = ()  # what was done to the numbers on reading

    @property
    def devices(self) -> tuple[str, ...]:
        """Names, or device-1, device-2, ..."""
        return self.names or tuple(f"device-{number}" for number in range(1, self.gain.shape[1] + 1))

    @property
    def without_path(self) -> Bools:
        """(K,) devices whose gains are all zero."""
        others = tuple(axis for axis in range(self.gain.ndim) if axis != 1)
        return np.asarray(np.all(self.gain == 0, axis=others))


def read_trace(
    path: str | Path,
    clients: int | None = None,
    antennas: int | None = None,
    unit: Unit | None = None,
    phase: Phase | None = None,
    seed: int = 0,
) -> TraceFile:
    """Read and check a trace file.

    clients, antennas: what is declared elsewhere; a mismatch is refused, never transposed. `antennas=1` takes back the
    last axis that MATLAB drops. unit, phase: of real gains, where the file does not say; `seed` of uniform phases.
    """
    path = Path(path)
    found = _stored(path)
    _look_at_keys(path, found)
    axes = _word(path, found, "axes", AXES) or ""
    gain, notes = gains_of(path, found, _said(path, found, "unit", unit), _said(path, found, "phase", phase), seed)
    gain, axes = shaped(path, gain, axes, clients, antennas)
    estimate = found.get("estimate")
    trace = TraceFile(
        gain,
        axes,
        None if estimate is None else like(path, "estimate", double(path, "estimate", estimate, notes), gain),
        rms_of(path, found, gain, notes),
        names_of(path, found, gain.shape[1]),
        blocks_of(path, found, gain, axes),
        per_device(path, found, "energy", gain.shape[1]),
        number_of(path, found, "noise_var"),
        tuple(notes),
    )
    for note in notes:
        warnings.warn(f"{path}: {note}", PrecisionWarning, stacklevel=2)
    if np.any(loud := np.abs(gain) > 1):
        place = ", ".join(str(i + 1) for i in validate.first_place(loud))
        text = f"{path}: abs(gain) > 1 at ({place}) means amplification; dB or power?"
        warnings.warn(text, UnitWarning, stacklevel=2)
    return trace


def write_trace(path: str | Path, trace: TraceFile) -> None:
    """Write NPZ or MAT, by the name's ending; `read_trace` gives the same bits back."""
    path = Path(path)
    content: dict[str, Any] = {
        "gain": np.asarray(trace.gain, np.complex128),
        "axes": trace.axes,
        **{
            name: getattr(trace, name)
            for name in ("estimate", "rms_gain", "block_sizes", "energy", "noise_var")
            if getattr(trace, name) is not None
        },
    }
    if path.suffix.lower() == ".mat":
        from scipy.io import savemat

        if trace.names is not None:
            content["names"] = np.array(trace.names, object)  # a cell array
        savemat(path, content, appendmat=False, oned_as="row", do_compression=True)
    elif path.suffix.lower() == ".npz":
        if trace.names is not None:
            content["names"] = np.array(trace.names)
        with path.open("wb") as file:
            np.savez_compressed(file, **content)
    else:
        raise InputError(f"{path}: a trace is written as .npz or .mat")


def _stored(path: Path) -> dict[str, Any]:
    """The arrays of a file by name."""
    try:
        if path.suffix.lower() == ".npz":
            found = arrays_of(path)
            for text in (value for value in found.values() if value.dtype.kind == "U"):
                text.tolist()  # letters that no alphabet has fail here, not where they are shown
            return found
        if path.suffix.lower() == ".mat":
            return read_mat(path)
        if path.suffix.lower() == ".npy":
            return {"gain": np.load(path, allow_pickle=False)}
        from otafl.core.files import read_text

        return _of_text(path, read_text(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except InputError:
        raise
    except Exception as error:  # zip, zlib, MATLAB: each reader fails in its own way on a damaged file
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise InputError(f"{path}: holds Python objects, which are not read; save plain arrays") from None
        raise InputError(f"{path}: cannot be read as gains ({first_line(error)})") from None


def _of_text(path: Path, text: str) -> dict[str, Any]:
    """One row per round, one column per device, under their names or not; real where no cell has a j or MATLAB's i."""
    numbered = [(number, line.partition("#")[0]) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in numbered if line.strip()]
    names = [cell.strip() for cell in lines[0][1].split(",")] if lines else []
    named = bool(names) and not any(_is_number(cell) for cell in names)
    rows = [IMAGINARY.sub("j", line) for _, line in lines[named:]]
    kind = complex if any("j" in row.lower() for row in rows) else float
    try:
        gain = np.loadtxt(rows, kind, delimiter=",", ndmin=2, comments=None) if rows else np.empty((0, len(names)))
    except ValueError:
        raise _mistake(path, lines[named:]) from None
    return {"gain": gain, **({"names": np.array(names)} if named else {})}


def _mistake(path: Path, lines: list[tuple[int, str]]) -> InputError:
    """The first cell of a text that is no number, or the first row of another length."""
    width = len(lines[0][1].split(","))
    for number, line in lines:
        cells = line.split(",")
        if mark := next((one for one in ";\t" if one in line), None):
            return InputError(f"{path}: its cells are separated by {mark!r}; write commas, and points in numbers")
        bad = next((cell.strip() for cell in cells if not _is_number(cell)), None)
        if bad is not None:
            return InputError(f"{path}: line {number}: {validate.shown(bad)} must be a number: 1e-5, 1e-5-2e-6j")
        if len(cells) != width:
            return InputError(f"{path}: line {number} has {len(cells)} cells, the first row {width}")
    return InputError(f"{path}: cannot be read as gains")


def _is_number(cell: str) -> bool:
    try:
        complex(IMAGINARY.sub("j", cell).strip())
    except ValueError:
        return False
    return True


def _look_at_keys(path: Path, found: Stored) -> None:
    ignored = []
    for name in found:
        if name in KEYS:
            continue
        if near := difflib.get_close_matches(name.lower(), KEYS, n=1, cutoff=0.75):
            raise InputError(f"{path}: unknown array {name!r}; did you mean {near[0]!r}?")
        ignored.append(name)
    if ignored:
        warnings.warn(f"{path}: not used: {validate.listed(map(repr, sorted(ignored)))}", IgnoredWarning, stacklevel=3)


def _word(path: Path, found: Stored, key: str, allowed: tuple[str, ...]) -> str | None:
    if key not in found:
        return None
    value = np.asarray(found[key])
    word = str(value.ravel()[0]) if value.size == 1 and value.dtype.kind in "US" else repr(value.tolist())
    if word not in allowed:
        raise InputError(f"{path}: {key}={word} must be one of {', '.join(allowed)}")
    return word


def _said(path: Path, found: Stored, key: str, given: str | None) -> str | None:
    """A word of the file, or of whoever reads it; two that differ are refused."""
    allowed = UNITS if key == "unit" else PHASES
    if given is not None:
        validate.one_of(f"{path}: {key}", given, allowed)
    stored = _word(path, found, key, allowed)
    if None not in (stored, given) and stored != given:
        raise InputError(f"{path}: says {key}={stored!r} but {key}={given!r} was given")
    return stored or given
