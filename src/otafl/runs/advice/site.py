"""A site as somebody has it: a CSV of devices, a deployment file, or just a number. Host, float64.

What is missing is assumed, and every assumption is named. `write` gives back a deployment file in exact units, which
planning and `otafl run` read.
"""

import math
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from otafl.channels import Devices, dbm_to_w, load_devices, load_site, save_devices
from otafl.channels.radio import NOISE, Radio, TrustWarning, read_radio
from otafl.channels.rows import Record, UnitWarning
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import write_atomic

RADIO: dict[str, Any] = {
    "bandwidth_hz": 1e6,
    "noise_dbm_per_hz": -174.0,
    "path_loss": {"kind": "log_distance", "reference_db": 40.0, "slope_db": 35.0},
}
WORDS = {
    "bandwidth_hz": "1 MHz",
    "noise_dbm_per_hz": "thermal noise, -174 dBm/Hz, all of it trusted",
    "path_loss": "path loss of 40 + 35 log10(metres) dB",
}
EQUAL_GAIN, EQUAL_POWER_DBM, EQUAL_SAMPLES = 1e-11, 10.0, 100  # devices of which only the number is known
MOST_DEVICES = 100_000


class AdviceSite(NamedTuple):
    """Devices, receiver, and what nobody said about them."""

    name: str
    devices: Devices
    radio: Radio
    assumed: tuple[str, ...]
    measured: Path | None = None  # the deployment file, where its gains are a trace: only their means are here
    rows: int = 0  # of that trace, which can be played once each; without end where it is a cycle
    antennas: int = 1  # that it was measured at

    @property
    def num_devices(self) -> int:
        return len(self.devices.names)

    def write(self, folder: Path) -> Path:
        """advice-site.toml with advice-devices.csv beside it: linear, exact; under names that no site of a user has."""
        save_devices(folder / "advice-devices.csv", self.devices)
        radio = {
            "bandwidth_hz": self.radio.bandwidth_hz,
            "noise_w": self.radio.noise_w,
            "trusted_noise_w": self.radio.trusted_noise_w,
        }
        path = folder / "advice-site.toml"
        write_atomic(path, tomli_w.dumps({"devices_file": "advice-devices.csv", "radio": radio}))
        return path

    @contextmanager
    def as_file(self) -> Iterator[Path]:
        """`write` for as long as something is planned; what is odd about the site was said when it was first read."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            for kind in (UnitWarning, TrustWarning):
                warnings.simplefilter("ignore", kind)
            yield self.write(Path(folder))

    def copied(self, count: int) -> "AdviceSite":
        """The same kinds of devices, `count` of them, in turn."""
        which = np.arange(count) % self.num_devices
        d = self.devices
        distance = None if d.distance_m is None else d.distance_m[which]
        names = tuple(f"device-{number}" for number in range(1, count + 1))
        more = Devices(names, distance, d.mean_power_gain[which], d.power_w[which], d.samples[which])
        return self._replace(devices=more)

    def louder(self, db: float) -> "AdviceSite":
        """The same site with so much more transmit power."""
        power = self.devices.power_w * 10 ** (db / 10)
        return self._replace(devices=self.devices._replace(power_w=power))


def read_site(site: Any, radio: dict[str, Any] | None = None, samples: int | None = None) -> AdviceSite:
    """From a path (CSV, TOML) or a number of equal devices; `radio` says what a CSV or a number does not."""
    given = dict(radio or {})
    if isinstance(site, int | np.integer) and not isinstance(site, bool):
        return _equal(int(site), given, samples)
    if not isinstance(site, str | Path):
        raise InputError(f"site={validate.shown(site)} must be a file (CSV, TOML) or a number of devices")
    text = str(site).strip()
    if re.fullmatch(r"-?[0-9]{1,20}", text):
        return _equal(int(text), given, samples)
    path = validate.path("site", text)
    if samples is not None:
        raise InputError(f"samples={samples} goes with a number of devices; {path} has its own samples")
    if path.suffix.lower() == ".toml":
        if given:
            raise InputError(f"{path} has its own [radio]; change it there instead of giving {', '.join(given)}")
        found = load_site(path)
        bare, trace = AdviceSite(path.stem, found.devices, found.radio, ()), found.devices.trace
        if trace is None:
            return bare
        rows = sys.maxsize if trace.source.repeat == "cycle" else len(trace.gain)
        return bare._replace(measured=path.absolute(), rows=rows, antennas=trace.antennas)
    receiver, assumed = _receiver(given)
    devices = load_devices(path, receiver.path_loss)
    if devices.distance_m is None:
        assumed = tuple(word for word in assumed if word != WORDS["path_loss"])
    return AdviceSite(path.stem, devices, receiver, assumed)


def _equal(count: int, given: dict[str, Any], samples: int | None) -> AdviceSite:
    validate.whole("number of devices", count, 1, MOST_DEVICES)
    receiver, assumed = _receiver(given)
    records = EQUAL_SAMPLES if samples is None else samples
    validate.whole("samples", records, 1)
    ones = np.ones(count)
    names = tuple(f"device-{number}" for number in range(1, count + 1))
    power = float(dbm_to_w(EQUAL_POWER_DBM)) * ones
    devices = Devices(names, None, EQUAL_GAIN * ones, power, np.full(count, records, np.int64))
    words = [word for word in assumed if word != WORDS["path_loss"]]
    words.append(f"equal devices with {EQUAL_POWER_DBM:g} dBm and {-10 * math.log10(EQUAL_GAIN):g} dB path loss")
    if samples is None:
        words.append(f"{records} samples each")
    return AdviceSite(f"{count} devices", devices, receiver, tuple(words))


def _receiver(given: dict[str, Any]) -> tuple[Radio, tuple[str, ...]]:
    """What was said about the receiver, completed; and the words for what was not."""
    noise = any(key in given for key in NOISE)
    missing = [key for key in RADIO if key not in given and not (key == "noise_dbm_per_hz" and noise)]
    values = {**{key: RADIO[key] for key in missing}, **given}
    return read_radio(Record("--radio", "[radio]", values)), tuple(WORDS[key] for key in missing)
