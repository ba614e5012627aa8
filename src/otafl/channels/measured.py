"""Measured gains: a file with one row per round and one column per device, played instead of drawn fading."""

from pathlib import Path

import numpy as np

from otafl.channels.csi import CsiError, estimates
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError
from otafl.core.plan import Trace
from otafl.core.streams import Host


def read_gains(path: Path) -> Complexes:
    """(T, K) from an NPZ file with the array "gain", or a CSV file of numbers such as 1e-6 or 1e-6+2e-6j."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                if "gain" not in stored:
                    raise InputError(f"{path}: no array named 'gain', found {sorted(stored)}")
                gain = np.asarray(stored["gain"], complex)
        else:
            gain = np.loadtxt(path, dtype=complex, delimiter=",", ndmin=2, comments="#", encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read as gains ({str(error).splitlines()[0]})") from None
    if gain.ndim != 2 or gain.size == 0:
        raise InputError(f"{path}: gains have shape {gain.shape} but must have shape (rounds, devices)")
    return gain


def mean_power(path: Path, gain: Complexes, devices: int) -> Floats:
    """(K,) mean of abs(gain)^2 over the file; refuses what no device has."""
    if gain.shape[1] != devices:
        raise InputError(f"{path}: has {gain.shape[1]} columns but {devices} devices are listed")
    bad = ~(np.isfinite(gain) & (gain != 0))
    if np.any(bad):
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{path}: row {row + 1}, column {column + 1}: a gain must be finite and not 0")
    power: Floats = np.mean(np.abs(gain) ** 2, axis=0)
    return power


def play(drawn: Trace, gain: Complexes, number: int, seed: int, csi: CsiError | None) -> Trace:
    """The trace of the seed that stands at place `number`: its own rows of the file, in order, none used twice."""
    rounds = len(drawn.gain)
    first, last = number * rounds, (number + 1) * rounds
    if last > len(gain):
        raise InputError(
            f"{number + 1} seeds x {rounds} rounds need {last} measured rows, the file has {len(gain)}; lower one"
        )
    own = np.asarray(gain[first:last])
    known = own if csi is None else estimates(csi, own, np.random.default_rng([seed, Host.CSI]))
    rms = np.broadcast_to(np.sqrt(np.mean(np.abs(gain) ** 2, axis=0)), own.shape).copy()
    return Trace(own, known, rms, rms, rms, rms, drawn.coin)
