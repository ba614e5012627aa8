"""Trace files: gains that were measured or computed elsewhere, in NPZ, MAT (up to version 7) or CSV. Host, NumPy.

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
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otafl.channels.records import IgnoredWarning, UnitWarning
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.streams import Host

Gains = NDArray[np.complex128]
Reals = NDArray[np.float64]
Unit = Literal["amplitude", "power", "db"]
Phase = Literal["zero", "uniform"]

UNITS = ("amplitude", "power", "db")
PHASES = ("zero", "uniform")
AXES = ("TK", "TKM", "TKB")
KEYS = (
    "gain", "gain_re", "gain_im", "axes", "estimate", "rms_gain", "names", "block_sizes", "energy", "noise_var",
    "unit", "phase",
)  # fmt: skip


class PrecisionWarning(UserWarning):
    """Numbers came in less than double precision: they are used as they are, with the digits they have."""


class TraceFile(NamedTuple):
    """A trace as it stands in its file: T rounds, K devices, M antennas or B blocks."""

    gain: Gains  # (T, K), (T, K, M) or (T, K, B)
    axes: str = "TK"
    estimate: Gains | None = None  # like gain
    rms_gain: Reals | None = None  # like gain, constant over rounds where the file has one per device
    names: tuple[str, ...] | None = None  # (K,)
    block_sizes: NDArray[np.int64] | None = None  # (B,)
    energy: Reals | None = None  # (K,) J
    noise_var: float | None = None
    notes: tuple[str, ...] = ()  # what was done to the numbers on reading

    @property
    def devices(self) -> tuple[str, ...]:
        """Names, or device-1, device-2, ..."""
        return self.names or tuple(f"device-{number}" for number in range(1, self.gain.shape[1] + 1))

    @property
    def without_path(self) -> NDArray[np.bool_]:
        """(K,) devices whose gains are all zero."""
        return np.all(self.gain == 0, axis=tuple(axis for axis in range(self.gain.ndim) if axis != 1))


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
    gain, notes = _gains(path, found, _said(path, found, "unit", unit), _said(path, found, "phase", phase), seed)
    gain, axes = _shaped(path, gain, axes, clients, antennas)
    estimate = found.get("estimate")
    trace = TraceFile(
        gain,
        axes,
        None if estimate is None else _like(path, "estimate", _double(path, "estimate", estimate, notes), gain),
        _rms(path, found, gain, notes),
        _names(path, found, gain.shape[1]),
        _blocks(path, found, gain, axes),
        _per_device(path, found, "energy", gain.shape[1]),
        _number(path, found, "noise_var"),
        tuple(notes),
    )
    for note in notes:
        warnings.warn(f"{path}: {note}", PrecisionWarning, stacklevel=2)
    if np.any(loud := np.abs(gain) > 1):
        place = ", ".join(str(int(i) + 1) for i in np.argwhere(loud)[0])
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


def check_blocks(trace: TraceFile, dim: int) -> None:
    """Refuse blocks that do not hold the whole vector."""
    if trace.block_sizes is not None and int(trace.block_sizes.sum()) != dim:
        raise InputError(f"block_sizes sum to {int(trace.block_sizes.sum())} but a message has {dim} numbers")


# --- reading -------------------------------------------------------------------------------------------------------


def _stored(path: Path) -> dict[str, Any]:
    """The arrays of a file by name."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored}
        if path.suffix.lower() == ".mat":
            from scipy.io import loadmat

            stored = loadmat(path, appendmat=False)
            return {name: value for name, value in stored.items() if not name.startswith("__")}
        text = np.loadtxt(path, dtype=complex, delimiter=",", ndmin=2, comments="#", encoding="utf-8")
        return {"gain": text}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except NotImplementedError:
        raise InputError(f"{path}: is MATLAB version 7.3 (HDF5), which is not read; save with -v7") from None
    except ValueError as error:
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise InputError(f"{path}: holds Python objects, which are not read; save plain arrays") from None
        raise InputError(f"{path}: cannot be read as gains ({str(error).splitlines()[0]})") from None
    except Exception as error:  # zip, zlib, MATLAB: each reader fails in its own way on a damaged file
        said = str(error).splitlines() or [type(error).__name__]
        raise InputError(f"{path}: cannot be read as gains ({said[0]})") from None


def _look_at_keys(path: Path, found: Mapping[str, Any]) -> None:
    ignored = []
    for name in found:
        if name in KEYS:
            continue
        if near := difflib.get_close_matches(name.lower(), KEYS, n=1, cutoff=0.75):
            raise InputError(f"{path}: unknown array {name!r}; did you mean {near[0]!r}?")
        ignored.append(name)
    if ignored:
        warnings.warn(f"{path}: not used: {', '.join(map(repr, sorted(ignored)))}", IgnoredWarning, stacklevel=3)


def _word(path: Path, found: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str | None:
    if key not in found:
        return None
    value = np.asarray(found[key])
    word = str(value.ravel()[0]) if value.size == 1 and value.dtype.kind in "US" else repr(value.tolist())
    if word not in allowed:
        raise InputError(f"{path}: {key}={word} must be one of {', '.join(allowed)}")
    return word


def _said(path: Path, found: Mapping[str, Any], key: str, given: str | None) -> str | None:
    """A word of the file, or of whoever reads it; two that differ are refused."""
    allowed = UNITS if key == "unit" else PHASES
    if given is not None:
        validate.one_of(key, given, allowed)
    stored = _word(path, found, key, allowed)
    if None not in (stored, given) and stored != given:
        raise InputError(f"{path}: says {key}={stored!r} but {key}={given!r} was given")
    return stored or given


def _gains(
    path: Path, found: Mapping[str, Any], unit: str | None, phase: str | None, seed: int
) -> tuple[Gains, list[str]]:
    """Complex gains, and what was done to them."""
    notes: list[str] = []
    parts = [name for name in ("gain_re", "gain_im") if name in found]
    if ("gain" in found) == bool(parts) or len(parts) == 1:
        held = ", ".join(sorted(found)) or "nothing"
        raise InputError(f"{path}: give 'gain', or 'gain_re' and 'gain_im'; found {held}")
    if parts:
        real, imaginary = (_real(path, name, found[name], notes) for name in parts)
        if real.shape != imaginary.shape:
            raise InputError(f"{path}: gain_re has shape {real.shape} but gain_im {imaginary.shape}")
        gain = np.empty(real.shape, np.complex128)
        gain.real, gain.imag = real, imaginary
    elif np.asarray(found["gain"]).dtype.kind == "c":
        gain = _double(path, "gain", found["gain"], notes)
    else:
        if unit is None or phase is None:
            raise InputError(
                f"{path}: gain is real: say unit = {' | '.join(UNITS)} and phase = {' | '.join(PHASES)}, "
                "in the file or beside its name"
            )
        return _from_real(path, _real(path, "gain", found["gain"], notes), unit, phase, seed), notes
    if unit is not None or phase is not None:
        raise InputError(f"{path}: unit and phase are for real gains; these are complex amplitudes")
    _finite(path, "gain", gain)
    return gain, notes


def _from_real(path: Path, value: Reals, unit: str, phase: str, seed: int) -> Gains:
    _finite(path, "gain", np.where(np.isneginf(value), 0.0, value) if unit == "db" else value)
    if unit != "db" and np.any(value < 0):
        raise InputError(f"{path}: gain has negative entries; unit={unit!r} must be >= 0 (dB belong in unit='db')")
    amplitude = {"amplitude": lambda: value, "power": lambda: np.sqrt(value), "db": lambda: 10 ** (value / 20)}[unit]()
    if phase == "zero":
        return amplitude.astype(np.complex128)
    turns = np.random.default_rng([seed, Host.TRACE_PHASE]).random(amplitude.shape)
    return np.asarray(amplitude * np.exp(2j * np.pi * turns))


def _double(path: Path, key: str, value: Any, notes: list[str]) -> Gains:
    """Numbers as complex128; said where they had fewer digits."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        raise InputError(f"{path}: {key} has dtype {array.dtype} but must be numbers in double precision or less")
    if array.dtype in (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.complex64)):
        notes.append(f"{key} came in single precision ({array.dtype}); used as double")
    wide = np.asarray(array, np.complex128)
    if key != "gain":
        _finite(path, key, wide)
    return wide


def _real(path: Path, key: str, value: Any, notes: list[str]) -> Reals:
    if np.asarray(value).dtype.kind == "c":
        raise InputError(f"{path}: {key} must be real")
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InputError(f"{path}: {key} has dtype {array.dtype} but must be numbers in double precision or less")
    if array.dtype in (np.dtype(np.float16), np.dtype(np.float32)):
        notes.append(f"{key} came in single precision ({array.dtype}); used as double")
    return np.asarray(array, np.float64)


def _finite(path: Path, key: str, value: Any) -> None:
    if np.any(bad := ~np.isfinite(value)):
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        place = ", ".join(str(i + 1) for i in index)
        raise InputError(f"{path}: {key} at ({place}) is {np.asarray(value)[index]}; it must be finite")


def _shaped(path: Path, gain: Gains, axes: str, clients: int | None, antennas: int | None) -> tuple[Gains, str]:
    """Gains with the axes that are declared; MATLAB drops a last axis of one antenna."""
    if axes == "TKM" and gain.ndim == 2 and antennas == 1:
        gain = gain[..., None]
    if not axes:
        if gain.ndim == 3:
            raise InputError(f"{path}: gain has shape {gain.shape}; say axes = TKM (antennas) or TKB (blocks)")
        axes = "TK"
    if gain.ndim != len(axes) or gain.size == 0:
        one = "; MATLAB drops a last axis of 1: declare antennas=1" if axes == "TKM" and gain.ndim == 2 else ""
        words = {"T": "rounds", "K": "devices", "M": "antennas", "B": "blocks"}
        wanted = ", ".join(words[axis] for axis in axes)
        raise InputError(f"{path}: gain has shape {gain.shape} but must have shape ({wanted}){one}")
    if clients is not None and gain.shape[1] != clients:
        raise InputError(
            f"{path}: gain has shape {gain.shape}, {gain.shape[1]} devices (the second axis), but {clients} are listed"
        )
    if antennas is not None and axes == "TKM" and gain.shape[2] != antennas:
        raise InputError(f"{path}: gain has {gain.shape[2]} antennas but antennas={antennas}")
    return gain, axes


def _like(path: Path, key: str, value: Any, gain: Gains) -> Any:
    if value.ndim == gain.ndim - 1 and gain.shape[-1] == 1:
        value = value[..., None]
    if value.shape != gain.shape:
        raise InputError(f"{path}: {key} has shape {value.shape} but gain {gain.shape}")
    return value


def _rms(path: Path, found: Mapping[str, Any], gain: Gains, notes: list[str]) -> Reals | None:
    if "rms_gain" not in found:
        return None
    value = _real(path, "rms_gain", found["rms_gain"], notes)
    if value.shape != gain.shape and value.size == gain.shape[1] and value.shape[-1:] == gain.shape[1:2]:
        each = value.reshape(-1).reshape(1, -1, *(1,) * (gain.ndim - 2))
        value = np.broadcast_to(each, gain.shape).copy()
    value = _like(path, "rms_gain", value, gain)
    _finite(path, "rms_gain", value)
    if np.any((value <= 0) & (gain != 0)):
        raise InputError(f"{path}: rms_gain must be > 0 wherever a gain is not 0")
    return np.asarray(value)


def _names(path: Path, found: Mapping[str, Any], count: int) -> tuple[str, ...] | None:
    if "names" not in found:
        return None
    words = []
    for item in np.asarray(found["names"]).ravel():
        while isinstance(item, np.ndarray) and item.size == 1:  # a cell
            item = item.ravel()[0]
        words.append(str(item).strip() if isinstance(item, str) else "")
    if len(words) != count or len(set(words)) != count or not all(word and word.isprintable() for word in words):
        raise InputError(f"{path}: names must be {count} different printable texts, one per device")
    return tuple(words)


def _blocks(path: Path, found: Mapping[str, Any], gain: Gains, axes: str) -> NDArray[np.int64] | None:
    if "block_sizes" not in found:
        return None
    if axes != "TKB":
        raise InputError(f"{path}: block_sizes belong to axes = TKB")
    sizes = np.asarray(found["block_sizes"]).ravel()
    if sizes.size != gain.shape[2]:
        raise InputError(f"{path}: {sizes.size} block_sizes for {gain.shape[2]} blocks")
    validate.whole(f"{path}: block_sizes", sizes)
    return sizes.astype(np.int64)


def _per_device(path: Path, found: Mapping[str, Any], key: str, count: int) -> Reals | None:
    if key not in found:
        return None
    value = _real(path, key, found[key], []).ravel()
    validate.shape(f"{path}: {key}", value, (count,))
    validate.positive(f"{path}: {key}", value)
    return value


def _number(path: Path, found: Mapping[str, Any], key: str) -> float | None:
    if key not in found:
        return None
    value = _real(path, key, found[key], [])
    if value.size != 1:
        raise InputError(f"{path}: {key} must be one number, not of shape {value.shape}")
    validate.not_negative(f"{path}: {key}", value)
    return float(value.ravel()[0])
