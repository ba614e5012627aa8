"""Complexes of a trace file, played instead of drawn fading: who is in it, which rows a seed plays. Host, NumPy.

A device all of whose gains are zero has no path. It is named, and somebody has to say what is to become of it: nothing
is ever added to a zero.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from otafl.channels.csi import CsiError, estimates
from otafl.channels.trace_arrays import Phase, RealGains, Unit
from otafl.channels.trace_file import TraceFile, read_trace
from otafl.core import validate
from otafl.core.arrays import Bools, Complexes, Floats, Integers
from otafl.core.errors import InputError
from otafl.core.plan import ArrayTrace, Trace
from otafl.core.streams import Host


@dataclass(frozen=True)
class Recording:
    """A trace file and how it is played.

    unit, phase: of real gains. repeat "cycle": start again where the file ends; rounds are then not independent.
    without_path: what becomes of devices that have none: "refuse" names them, "drop" leaves them out of the experiment
    (the weights of the others are shares of what is left), "silent" keeps them, and their weight is lost.
    """

    file: Path
    unit: Unit | None = None
    phase: Phase | None = None
    repeat: Literal["never", "cycle"] = "never"
    without_path: Literal["refuse", "drop", "silent"] = "refuse"

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", Path(self.file))  # a notebook says it as text
        validate.one_of("repeat", self.repeat, ("never", "cycle"))
        validate.one_of("without_path", self.without_path, ("refuse", "drop", "silent"))


class Played(NamedTuple):
    """The devices of a trace that take part."""

    source: Recording
    gain: Complexes  # (rounds of the file, K), to the first antenna
    estimate: Complexes | None
    rms_gain: Floats | None  # (rounds of the file, K); None: only what the file itself shows
    names: tuple[str, ...]
    named: bool  # by the file, not by their numbers
    listed: Bools  # (K of the file,) who takes part
    dropped: tuple[str, ...]  # left out, without a path
    silent: tuple[str, ...]  # take part without a path
    energy: Floats | None  # (K,)
    noise_var: float | None
    notes: tuple[str, ...]
    array: Complexes | None = None  # (rounds of the file, K, M) where the file has antennas
    array_estimate: Complexes | None = None

    @property
    def antennas(self) -> int:
        return 1 if self.array is None else int(self.array.shape[2])

    @property
    def mean_power(self) -> Floats:
        """(K,) mean of abs(gain)^2 over the file."""
        return np.asarray(np.mean(np.abs(self.gain) ** 2, axis=0))

    @property
    def gain_error(self) -> float:
        """Largest abs(gain / estimate - 1) of the file; 0 where it has no estimates of its own."""
        if self.estimate is None:
            return 0.0
        true = self.gain if self.array is None else self.array
        known = self.estimate if self.array_estimate is None else self.array_estimate
        heard = known != 0
        return float(np.max(np.abs(true[heard] / known[heard] - 1), initial=0.0))


def open_recording(
    source: Recording, clients: int | None = None, antennas: int | None = None, listed: tuple[str, ...] = ()
) -> Played:
    """Read a trace for an experiment without blocks.

    clients: devices that are listed, `listed`: their names, where the file has none; antennas: the server's.
    """
    trace = read_trace(source.file, clients, antennas, source.unit, source.phase)
    if trace.axes == "TKB":
        raise InputError(f"{source.file}: axes = TKB: an experiment has no blocks yet; give axes = TK or TKM")
    found = trace.gain.shape[2] if trace.axes == "TKM" else 1
    if antennas is not None and found != antennas:
        raise InputError(f"{source.file}: has gains to {found} antenna(s) but channel.antennas={antennas}")
    played = _of(source, trace, trace.names or listed or trace.devices)
    if not played.gain_error < 1:
        raise InputError(
            f"{source.file}: estimates are off by up to {played.gain_error:.3g} of themselves; no gain_error below 1 "
            "covers that"
        )
    return played


def _of(source: Recording, trace: TraceFile, devices: tuple[str, ...]) -> Played:
    """Who takes part: all but the devices without a path that are to be dropped."""
    dead, keep = trace.without_path, source.without_path == "silent"
    names = tuple(name for name, gone in zip(devices, dead) if gone)
    if names and source.without_path == "refuse":
        raise InputError(
            f"{source.file}: no path to {validate.listed(names)}; move them, or say without_path = 'drop' or 'silent' "
            "beside the file's name"
        )
    if np.all(dead):
        raise InputError(f"{source.file}: no device has a path")
    listed = np.ones(dead.size, bool) if keep else ~dead
    gain, estimate, rms = (_part(leaf, listed) for leaf in (trace.gain, trace.estimate, trace.rms_gain))
    several = gain.shape[2] > 1
    return Played(
        source,
        gain[..., 0],
        None if estimate is None else estimate[..., 0],
        None if rms is None else rms[..., 0],
        tuple(name for name, kept in zip(devices, listed) if kept),
        trace.names is not None,
        listed,
        () if keep else names,
        names if keep else (),
        None if trace.energy is None else trace.energy[listed],
        trace.noise_var,
        trace.notes,
        gain if several else None,
        estimate if several else None,
    )


def _part(leaf: Any, listed: Bools) -> Any:
    """(rounds of the file, K, M) of those who take part."""
    return None if leaf is None else np.atleast_3d(leaf[:, listed])


def rows_of(played: Played, number: int, rounds: int) -> Integers:
    """Rows (rounds,) of the seed that stands at place `number`: its own, in order; none twice unless repeat="cycle"."""
    first, last = number * rounds, (number + 1) * rounds
    if last > len(played.gain) and played.source.repeat == "never":
        raise InputError(
            f"{number + 1} seeds x {rounds} rounds need {last} measured rows, the file has {len(played.gain)}; lower "
            "one, or set repeat = 'cycle'"
        )
    return np.arange(first, last) % len(played.gain)


def play(played: Played, coin: Floats, number: int, seed: int, csi: CsiError | None) -> Trace:
    """The trace of one seed; `coin` (T, K) are its drawn coins. Statistics that are only empirical have no limits."""
    rows = rows_of(played, number, len(coin))
    true = played.gain[..., None] if played.array is None else played.array
    known = played.array_estimate if played.array is not None else None
    if played.array is None and played.estimate is not None:
        known = played.estimate[..., None]
    true = true[rows]
    if known is not None:
        known = known[rows]
    else:
        known = true if csi is None else estimates(csi, true, np.random.default_rng([seed, Host.CSI]))
    if played.rms_gain is not None:
        rms = low = high = played.rms_gain[rows]
    else:
        rms = np.broadcast_to(np.sqrt(played.mean_power), coin.shape).copy()
        low = high = np.full(coin.shape, np.nan)
    first = Trace(true[..., 0], known[..., 0], rms, rms, low, high, coin)
    return first if played.array is None else ArrayTrace(*first, true, known)  # type: ignore[return-value]


def remarks(played: Played, rounds: int, seeds: int) -> list[str]:
    """What the card of a run has to say about its trace."""
    said = list(played.notes)
    if played.dropped:
        said.append(f"left out, without a path: {', '.join(played.dropped)}; weights are shares of the others")
    if played.silent:
        said.append(f"silent, without a path: {', '.join(played.silent)}; their weight is lost")
    if rounds * seeds > len(played.gain):
        said.append(f"the trace of {len(played.gain)} rounds is repeated: rounds are not independent")
    if played.rms_gain is None:
        said.append("channel statistics are empirical (root mean square over the trace): nothing is certified by them")
    return said


def read_gains(path: Path) -> Complexes:
    """(T, K) of a trace file all of whose devices have a path; real ones are magnitudes where the file does not say."""
    try:
        return open_recording(Recording(path)).gain
    except RealGains:
        return open_recording(Recording(path, "amplitude", "zero")).gain
