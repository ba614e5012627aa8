"""The arrays of a trace file, one by one: values, units, precision, shapes. Every mistake is one line. Host, NumPy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Complexes, Floats, Integers
from otafl.core.errors import InputError
from otafl.core.streams import Host

Stored = Mapping[str, Any]
Unit = Literal["amplitude", "power", "db"]
Phase = Literal["zero", "uniform"]

UNITS = ("amplitude", "power", "db")
PHASES = ("zero", "uniform")


class RealGains(InputError):
    """Real gains of which nobody says what they are."""


def gains_of(path: Path, found: Stored, unit: str | None, phase: str | None, seed: int) -> tuple[Complexes, list[str]]:
    """Complex gains, and what was done to them."""
    notes: list[str] = []
    parts = [name for name in ("gain_re", "gain_im") if name in found]
    if ("gain" in found) == bool(parts) or len(parts) == 1:
        held = validate.listed(sorted(found)) or "nothing"
        raise InputError(f"{path}: give 'gain', or 'gain_re' and 'gain_im'; found {held}")
    if parts:
        halves = [real(path, name, found[name], notes) for name in parts]
        if halves[0].shape != halves[1].shape:
            raise InputError(f"{path}: gain_re has shape {halves[0].shape} but gain_im {halves[1].shape}")
        gain = np.empty(halves[0].shape, np.complex128)
        gain.real, gain.imag = halves
    elif np.asarray(found["gain"]).dtype.kind == "c":
        gain = double(path, "gain", found["gain"], notes)
    else:
        value = real(path, "gain", found["gain"], notes)
        if unit is None or phase is None:
            raise RealGains(
                f"{path}: gain is real: say unit = {' | '.join(UNITS)} and phase = {' | '.join(PHASES)}, "
                "in the file or beside its name"
            )
        return from_real(path, value, unit, phase, seed), notes
    if unit is not None or phase is not None:
        raise InputError(f"{path}: unit and phase are for real gains; these are complex amplitudes")
    finite(path, "gain", gain)
    return gain, notes


def from_real(path: Path, value: Floats, unit: str, phase: str, seed: int) -> Complexes:
    finite(path, "gain", np.where(np.isneginf(value), 0.0, value) if unit == "db" else value)
    if unit != "db" and np.any(value < 0):
        raise InputError(f"{path}: gain has negative entries; unit={unit!r} must be >= 0 (dB belong in unit='db')")
    amplitude = value
    if unit != "amplitude":
        amplitude = np.sqrt(value) if unit == "power" else 10 ** (value / 20)
    if phase == "zero":
        return amplitude.astype(np.complex128)
    turns = np.random.default_rng([seed, Host.TRACE_PHASE]).random(amplitude.shape)
    return np.asarray(amplitude * np.exp(2j * np.pi * turns))


def double(path: Path, key: str, value: Any, notes: list[str]) -> Complexes:
    """Numbers as complex128; said where they had fewer digits."""
    wide = np.asarray(_numbers(path, key, value, notes), np.complex128)
    if key != "gain":
        finite(path, key, wide)
    return wide


def real(path: Path, key: str, value: Any, notes: list[str]) -> Floats:
    if np.asarray(value).dtype.kind == "c":
        raise InputError(f"{path}: {key} must be real")
    return np.asarray(_numbers(path, key, value, notes), np.float64)


def _numbers(path: Path, key: str, value: Any, notes: list[str]) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "iufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        raise InputError(f"{path}: {key} has dtype {array.dtype} but must be numbers in double precision or less")
    if array.dtype in (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.complex64)):
        notes.append(f"{key} came in single precision ({array.dtype}); used as double")
    return array


def finite(path: Path, key: str, value: Any) -> None:
    if np.any(bad := ~np.isfinite(value)):
        index = validate.first_place(bad)
        place = ", ".join(str(i + 1) for i in index)
        raise InputError(f"{path}: {key} at ({place}) is {np.asarray(value)[index]}; it must be finite")


def shaped(path: Path, gain: Complexes, axes: str, clients: int | None, antennas: int | None) -> tuple[Complexes, str]:
    """Complexes with the axes that are declared; MATLAB drops a last axis of one antenna."""
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


def like(path: Path, key: str, value: Any, gain: Complexes) -> Any:
    if value.ndim == gain.ndim - 1 and gain.shape[-1] == 1:
        value = value[..., None]
    if value.shape != gain.shape:
        raise InputError(f"{path}: {key} has shape {value.shape} but gain {gain.shape}")
    return value


def rms_of(path: Path, found: Stored, gain: Complexes, notes: list[str]) -> Floats | None:
    if "rms_gain" not in found:
        return None
    value = real(path, "rms_gain", found["rms_gain"], notes)
    if value.shape != gain.shape and value.size == gain.shape[1] and value.shape[-1:] == gain.shape[1:2]:
        each = value.reshape(-1).reshape(1, -1, *(1,) * (gain.ndim - 2))
        value = np.broadcast_to(each, gain.shape).copy()
    value = like(path, "rms_gain", value, gain)
    finite(path, "rms_gain", value)
    if np.any((value <= 0) & (gain != 0)):
        raise InputError(f"{path}: rms_gain must be > 0 wherever a gain is not 0")
    return np.asarray(value)


def names_of(path: Path, found: Stored, count: int) -> tuple[str, ...] | None:
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


def blocks_of(path: Path, found: Stored, gain: Complexes, axes: str) -> Integers | None:
    if "block_sizes" not in found:
        return None
    if axes != "TKB":
        raise InputError(f"{path}: block_sizes belong to axes = TKB")
    sizes = np.asarray(found["block_sizes"]).ravel()
    if sizes.size != gain.shape[2]:
        raise InputError(f"{path}: {sizes.size} block_sizes for {gain.shape[2]} blocks")
    validate.whole(f"{path}: block_sizes", sizes)
    return sizes.astype(np.int64)


def per_device(path: Path, found: Stored, key: str, count: int) -> Floats | None:
    if key not in found:
        return None
    value = real(path, key, found[key], []).ravel()
    validate.shape(f"{path}: {key}", value, (count,))
    validate.positive(f"{path}: {key}", value)
    return value


def number_of(path: Path, found: Stored, key: str) -> float | None:
    if key not in found:
        return None
    value = real(path, key, found[key], [])
    if value.size != 1:
        raise InputError(f"{path}: {key} must be one number, not of shape {value.shape}")
    validate.not_negative(f"{path}: {key}", value)
    return float(value.ravel()[0])
