"""The deployment file: a list of radios with distance or gain, power and data size, and the receiver they talk to.

CSV holds devices only, one row each. TOML holds `[radio]` and either `[[device]]` tables or `devices_file`, a CSV
file beside it. Columns of a CSV that nothing here uses are named in an `IgnoredWarning`. dB and dBm end here: what is
loaded is linear and SI. Host, NumPy, float64.
"""

import csv
import dataclasses
import difflib
import io
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.channels.large_scale import Chance, large_scale, roll
from otafl.channels.measured import Played, Recording, open_recording
from otafl.channels.pathloss import PathLoss, from_db, loss_db
from otafl.channels.power import dbm_to_w, energy_from_power, noise_var_from_power
from otafl.channels.radio import Radio, read_radio
from otafl.channels.rows import IgnoredWarning, Record, UnitWarning, unknown
from otafl.core import validate
from otafl.core.arrays import Floats, Integers
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, cut

GAIN = ("distance_m", "gain_db", "mean_gain")
POWER = ("power_dbm", "power_w")
HEIGHT = "device_height_m"
COLUMNS = ("name", *GAIN, *POWER, "samples", HEIGHT)
ALIKE = {  # names of other people's columns, and what becomes a gain of them
    "rssi|rsrp": "of a level received in dBm, gain_db = level - power_dbm",
    "(path)?_?loss|pl_": "of a path loss in dB, gain_db = -loss",
    "[xyz](_|$)|lat|lon|lng": "of positions, distance_m is the distance to the receiver",
}


class Devices(NamedTuple):
    """The radios that take part, in the order of the file."""

    names: tuple[str, ...]
    distance_m: Floats | None  # (K,) None where any device came with a gain instead
    mean_power_gain: Floats  # (K,) E|h|^2
    power_w: Floats  # (K,) per complex sample
    samples: Integers  # (K,)
    trace: Played | None = None  # measured gains, where the file names them; E|h|^2 is then their mean
    k_factor_db: Floats | None = None  # (K,) of a 38.901 path loss; -inf without line of sight


class Site(NamedTuple):
    """A whole deployment file."""

    devices: Devices
    radio: Radio


def load_devices(path: str | Path, path_loss: PathLoss | None = None) -> Devices:
    """Read the devices of a CSV or TOML file; `path_loss` turns distances into gains where the file names no law."""
    if Path(path).suffix.lower() == ".toml":
        return _read_toml(Path(path), path_loss)[0]
    return _devices(_csv_records(Path(path)), path_loss, str(path))


def load_site(path: str | Path, radio: Radio | None = None) -> Site:
    """Read a TOML deployment file with its `[radio]`, or devices alone beside a `radio` from elsewhere."""
    toml = Path(path).suffix.lower() == ".toml"
    if not toml and radio is None:
        raise InputError(f"{path}: has no [radio] block; a whole deployment is a .toml file")
    law = radio.path_loss if radio else None
    devices, own = _read_toml(Path(path), law) if toml else (load_devices(path, law), None)
    if own is not None and radio is not None:
        raise InputError(f"{path}: has a [radio] of its own; give the radio in one place")
    if own is None and radio is None:
        raise InputError(f"{path}: [radio] is missing, it is required here")
    return Site(devices, own or radio)  # type: ignore[arg-type]


def files_of(path: str | Path) -> list[Path]:
    """A deployment file, and the files beside it that it names."""
    from otafl.core.files import read_toml

    path = Path(path)
    data = read_toml(path) if path.suffix.lower() == ".toml" else {}
    gains = data.get("gains_file")
    named = (data.get("devices_file"), gains.get("file") if isinstance(gains, dict) else gains)
    return [path, *(path.parent / name for name in named if isinstance(name, str))]


def has_radio(path: str | Path) -> bool:
    """Whether a TOML deployment file says what the receiver is."""
    from otafl.core.files import read_toml

    return "radio" in read_toml(Path(path))


def save_devices(path: str | Path, devices: Devices) -> None:
    """Write devices as CSV in exact linear units. Distances are not written: the gains they led to are."""
    from otafl.core.files import as_csv, write_atomic  # pydantic is behind it, and a channel alone does not need that

    rows = zip(devices.names, devices.mean_power_gain, devices.power_w, devices.samples, strict=True)
    exact = ((name, float(gain), float(power), int(n)) for name, gain, power, n in rows)
    write_atomic(Path(path), as_csv(("name", "mean_gain", "power_w", "samples"), exact))


def to_deployment(site: Site, dim: int, gain_error: float = 0.0, phase_error: float | None = None) -> Deployment:
    """What the radios may do in one round of `dim` real numbers, one per complex sample; weights by data size."""
    symbol_time_s = site.radio.symbol_time_s
    return Deployment(
        energy=energy_from_power(site.devices.power_w, dim, symbol_time_s),
        noise_var=noise_var_from_power(site.radio.noise_w, symbol_time_s),
        trusted_noise_var=noise_var_from_power(site.radio.trusted_noise_w, symbol_time_s),
        weights=site.devices.samples / site.devices.samples.sum(),
        dim=dim,
        gain_error=gain_error,
        phase_error=phase_error,
    )


def _read_toml(path: Path, path_loss: PathLoss | None) -> tuple[Devices, Radio | None]:
    from otafl.core.files import read_toml

    data, source = read_toml(path), str(path)
    Record(source, "file", data).refuse_unknown(("radio", "device", "devices_file", "gains_file"))
    if ("device" in data) == ("devices_file" in data):
        raise InputError(f"{path}: give either [[device]] tables or devices_file")
    radio = None
    if "radio" in data:
        if not isinstance(data["radio"], dict):
            raise InputError(f"{path}: radio must be a table")
        radio = read_radio(Record(source, "[radio]", data["radio"]))
    if radio is not None and radio.path_loss is not None:
        path_loss = radio.path_loss
    measured = _recording(source, data["gains_file"], path.parent) if "gains_file" in data else None
    if "devices_file" in data:
        beside = path.parent / Record(source, "file", data).text("devices_file")
        return _devices(_csv_records(beside), path_loss, str(beside), measured), radio
    tables = data["device"]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{path}: device must be a list of [[device]] tables")
    records = (Record(source, f"device {number}", table) for number, table in enumerate(tables, 1))
    return _devices(records, path_loss, source, measured), radio


def _recording(source: str, given: Any, folder: Path) -> Recording:
    """`gains_file`: a name, or a table with a `file` and how it is played."""
    table = {"file": given} if isinstance(given, str) else given
    if not isinstance(table, dict) or "file" not in table:
        raise InputError(f"{source}: gains_file must be a file name or a table with a file")
    record = Record(source, "gains_file", table)
    record.refuse_unknown([field.name for field in dataclasses.fields(Recording)])
    words = {key: record.text(key) for key in table}
    try:
        return Recording(folder / words.pop("file"), **words)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{source}: gains_file: {error}") from None


def _csv_records(path: Path) -> Iterable[Record]:
    from otafl.core.files import read_text

    try:
        text = read_text(path)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        _check_header(path, header)
        for cells in reader:
            place = f"row {reader.line_num}"
            if len(cells) > len(header):
                raise InputError(f"{path}: {place} has {len(cells)} cells but the header has {len(header)}")
            known = ((key, cell.strip()) for key, cell in zip(header, cells, strict=False) if key in COLUMNS)
            values = {key: cell for key, cell in known if cell}
            if values:
                yield Record(str(path), place, values, cells=True)
    except csv.Error as error:
        raise InputError(f"{path}: row {reader.line_num}: not valid CSV: {error}") from None


def _check_header(path: Path, header: list[str]) -> None:
    """A column that nearly has a known name is a mistake; any other is somebody else's, and is named."""
    if mark := validate.other_separator(header):
        raise InputError(f"{path}: its cells are separated by {mark!r}; write commas, and points in numbers")
    ignored = []
    for column in header:
        if header.count(column) > 1:
            raise InputError(f"{path}: row 1, column {column!r} appears twice")
        if column not in COLUMNS:
            if difflib.get_close_matches(column.lower(), COLUMNS, n=1, cutoff=0.75):
                raise InputError(f"{path}: row 1, {unknown(column, COLUMNS, 'column')}")
            ignored.append(column)
    if not any(column in COLUMNS for column in header):
        raise InputError(f"{path}: row 1 has none of the columns {', '.join(COLUMNS)}")
    if ignored:
        missing = () if set(GAIN) & set(header) else ALIKE.items()
        hints = (hint for names, hint in missing if any(re.match(names, column.lower()) for column in ignored))
        said = "; ".join([validate.listed(map(repr, ignored)), *hints])
        warnings.warn(f"{path}: not used: {said}", IgnoredWarning, stacklevel=2)


def _devices(
    records: Iterable[Record], path_loss: PathLoss | None, source: str, measured: Recording | None = None
) -> Devices:
    records = list(records)
    if not records:
        raise InputError(f"{source}: no devices; at least one is required")
    names, trace, rice = _names(records), None, None
    if measured is None:
        chance = roll(len(records), path_loss.seed or 0) if path_loss is not None and path_loss.drawn else None
        heard = [_gain(record, path_loss, chance and cut(chance, k)) for k, record in enumerate(records)]
        distance, gain, factors = np.array(heard).T
        rice = None if chance is None else factors
    else:
        trace = _played(records, names, measured)
        records = [record for record, kept in zip(records, trace.listed) if kept]
        names, gain, distance = trace.names, trace.mean_power, np.full(len(records), np.nan)
    power = np.array([_power(record) for record in records])
    samples = np.array([record.count("samples") for record in records])
    _warn_units(records, gain, power, source if measured is None else str(measured.file))
    if any(HEIGHT in record.values for record in records) and not _has_heights(path_loss):
        law = f"path_loss {path_loss.kind!r}" if path_loss else "no path loss"
        warnings.warn(f"{source}: not used: {HEIGHT!r} ({law} has no heights)", IgnoredWarning, stacklevel=2)
    return Devices(names, None if np.any(np.isnan(distance)) else distance, gain, power, samples, trace, rice)


def _has_heights(path_loss: PathLoss | None) -> bool:
    return path_loss is not None and (path_loss.kind == "cost231_hata" or path_loss.drawn)


def _played(records: list[Record], names: tuple[str, ...], measured: Recording) -> Played:
    """The trace of the listed devices; what it says of them must fit what the list says."""
    for record in records:
        if (key := record.choose(GAIN, required=False)) is not None:
            raise record.mistake(key, f"{measured.file.name} has measured gains; give the one or the other")
    trace = open_recording(measured, len(records), listed=names)
    taking_part = tuple(name for name, kept in zip(names, trace.listed) if kept)
    if trace.named and trace.names != taking_part:
        raise InputError(f"{measured.file}: names differ from the listed devices; list {validate.listed(trace.names)}")
    if trace.energy is not None or trace.noise_var is not None:
        raise InputError(f"{measured.file}: energy and noise_var stand in a deployment file's own columns and [radio]")
    return trace._replace(names=taking_part)


def _names(records: list[Record]) -> tuple[str, ...]:
    """Given names, or device-1, device-2, ...; never one twice."""
    places: dict[str, str] = {}
    for number, record in enumerate(records, 1):
        record.refuse_unknown(COLUMNS)
        name = record.text("name") if "name" in record.values else f"device-{number}"
        if name in places:
            raise InputError(f"{record.source}: {record.place}, name={name!r}: already used in {places[name]}")
        places[name] = record.place
    return tuple(places)


def _gain(record: Record, path_loss: PathLoss | None, chance: Chance | None) -> tuple[float, float, float]:
    """Distance (NaN where a gain was given), mean power gain, and the K factor in dB of a 38.901 device."""
    key = record.choose(GAIN)
    if key == "gain_db":
        return np.nan, float(from_db(record.decibels(key, "; leave out a device without a path"))), -np.inf
    if key == "mean_gain":
        return np.nan, record.positive(key, "; a value in dB belongs in gain_db"), -np.inf
    distance = record.positive("distance_m")
    if path_loss is not None and _has_heights(path_loss) and HEIGHT in record.values:
        path_loss = dataclasses.replace(path_loss, device_height_m=record.positive(HEIGHT))
    if path_loss is None:
        raise record.mistake("distance_m", "needs a path-loss law ([radio] path_loss in a TOML file), or give gain_db")
    rice = -np.inf
    try:
        if chance is None:
            loss = float(loss_db(path_loss, distance))
        else:
            site = large_scale(path_loss, distance, chance)
            loss, rice = float(site.loss_db + site.shadowing_db), float(site.k_factor_db)
    except InputError as error:
        said = str(error).replace(f"distance_m={distance!r} gives", "gives")
        raise record.mistake("distance_m", said) from None
    return distance, float(from_db(-loss)), rice


def _power(record: Record) -> float:
    if record.choose(POWER) == "power_dbm":
        return float(dbm_to_w(record.decibels("power_dbm")))
    return record.positive("power_w", "; a value in dBm belongs in power_dbm")


def _warn_units(records: list[Record], gain: Floats, power: Floats, source: str) -> None:
    """One warning per kind of doubt, naming the first device it concerns; a trace says itself where it amplifies."""
    listed = np.array([any(key in record.values for key in GAIN) for record in records])
    nearly_zero_db = np.array(["gain_db" in record.values and 0 < 1 - g < 2e-3 for record, g in zip(records, gain)])
    below_a_metre = np.array([float(record.values.get("distance_m", 1)) < 1 for record in records])
    doubts = (
        (below_a_metre, GAIN, "is less than a metre; metres or kilometres?"),
        ((gain > 1) & listed & ~below_a_metre, GAIN, "means amplification; a loss of x dB is gain_db = -x"),
        (nearly_zero_db, GAIN, "is almost no loss; a linear value belongs in mean_gain"),
        (power > 1e3, POWER, "is above 1 kW; dBm or W?"),
    )
    for doubtful, keys, text in doubts:
        if np.any(doubtful):
            record = records[int(np.argmax(doubtful))]
            also = f" (and {doubtful.sum() - 1} more)" if doubtful.sum() > 1 else ""
            key = next(key for key in keys if key in record.values)
            warnings.warn(record.about(key, text) + also, UnitWarning, stacklevel=2)
    if not 1e-20 <= np.median(gain) <= 1:
        text = f"median mean power gain {np.median(gain):.3g} is outside 1e-20 ... 1; is it dB or an amplitude?"
        warnings.warn(f"{source}: {text}", UnitWarning, stacklevel=2)
