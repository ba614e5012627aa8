"""What `otafl plan adascale` reads: the system in the paper's symbols, and its channels from one of five sources."""

import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from otafl import validate
from otafl.designs.adascale.setting import Channels, Setting, dbm_to_watt, draw, path_loss_db
from otafl.errors import InputError
from otafl.files import FileModel

Method = Literal[
    "adascale", "adascale-warm", "optimal", "estim-future", "estim-future-literal", "equal-alloc", "stat-level",
    "stat-water", "liu-simeone", "liu-simeone-decay", "lyapunov",
]  # fmt: skip
USUAL: tuple[Method, ...] = ("optimal", "adascale", "adascale-warm", "estim-future", "equal-alloc", "stat-level")


class Inputs(FileModel):
    """Schema of FILE, in the paper's symbols; powers in W or dBm, by the ending of the key."""

    method: Method = "adascale"
    compare: list[Method] = Field(default_factory=lambda: list(USUAL))
    nu: float  # cap on the mean excess noise energy
    alpha: int = 3
    delta: float = 1e-5
    tuning: Literal["calibrated", "hindsight", "given"] = "calibrated"
    V: float | None = None
    M: int | None = None  # from the file where devices or gains are given
    T: int | None = None
    d: int
    n: int | list[int] | None = None  # from the devices file
    B: float | list[float]
    G: float
    P_max_w: float | list[float] | None = None
    P_max_dbm: float | list[float] | None = None
    noise_power_w: float | None = None
    noise_power_dbm: float | None = None
    privacy_noise_power_w: float | None = None
    privacy_noise_power_dbm: float | None = None
    bandwidth_hz: float = 1e5
    seed: int = 0
    distances_m: list[float] | None = None
    path_loss_db: list[float] | None = None
    devices: str | None = None  # CSV or TOML: path gains, powers, data sizes
    gains: str | None = None  # CSV or NPZ ("gain"): complex amplitudes or magnitudes, one row per round
    pld: bool = True

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        sources = [key for key in ("distances_m", "path_loss_db", "devices", "gains") if getattr(self, key) is not None]
        if len(sources) > 1:
            raise InputError(f"at most one of distances_m, path_loss_db, devices, gains may be given, got {sources}")
        for key in ("P_max", "noise_power", "privacy_noise_power"):
            if getattr(self, f"{key}_w") is not None and getattr(self, f"{key}_dbm") is not None:
                raise InputError(f"{key}_w and {key}_dbm exclude each other")
        if (self.tuning == "given") != (self.V is not None):
            raise InputError(f"V={self.V!r} must be given with tuning='given', and only there")
        if self.gains is None and self.T is None:
            raise InputError("T: missing, this key is required unless gains are given")
        validate.not_negative("nu", self.nu)
        validate.in_open("delta", self.delta, 0, 1)
        validate.whole("seed", self.seed, 0)
        return self


class Site(NamedTuple):
    setting: Setting
    channels: Channels
    warnings: list[str]


def _watts(inputs: Inputs, key: str) -> Any:
    watt, dbm = getattr(inputs, f"{key}_w"), getattr(inputs, f"{key}_dbm")
    if dbm is None:
        return watt
    return [dbm_to_watt(value) for value in dbm] if isinstance(dbm, list) else dbm_to_watt(dbm)


def read_site(inputs: Inputs, folder: Path) -> Site:
    """The setting and its channels, from whichever source the file names."""
    power, noise, trusted = (_watts(inputs, key) for key in ("P_max", "noise_power", "privacy_noise_power"))
    if inputs.devices is not None:
        return _from_devices(inputs, folder / inputs.devices, power, noise, trusted)
    gain = None if inputs.gains is None else _read_gains(folder / inputs.gains)
    rounds, devices = (inputs.T, inputs.M) if gain is None else gain.shape
    listed = inputs.distances_m or inputs.path_loss_db
    if listed is not None:
        devices = len(listed) if devices is None else devices
    if devices is None:
        raise InputError("M: missing, this key is required unless the devices are listed")
    for key, found in (("M", devices), ("T", rounds)):
        if getattr(inputs, key) not in (None, found):
            raise InputError(f"{key}={getattr(inputs, key)} but the file of gains has {found}")
    setting = _setting(inputs, int(devices), rounds, inputs.n, power, noise, trusted)
    if gain is not None:
        return Site(setting, Channels(gain, np.sqrt(np.mean(np.abs(gain) ** 2, 0))), _doubts(gain, inputs))
    loss = inputs.path_loss_db if inputs.distances_m is None else path_loss_db(inputs.distances_m)
    channels = draw(setting, inputs.seed, loss)
    return Site(setting, channels, _doubts(channels.gain, inputs))


def _setting(inputs: Inputs, M: int, T: Any, n: Any, power: Any, noise: Any, trusted: Any) -> Setting:
    for key, value in (("n", n), ("P_max_w (or P_max_dbm)", power), ("noise_power_w (or noise_power_dbm)", noise)):
        if value is None:
            raise InputError(f"{key}: missing, this key is required")
    return Setting(M, T, inputs.d, n, inputs.B, inputs.G, power, noise, trusted, inputs.bandwidth_hz)


def _from_devices(inputs: Inputs, path: Path, power: Any, noise: Any, trusted: Any) -> Site:
    """Gains, powers and sizes from a devices file; noise too where a TOML file has [radio]."""
    from otafl.channels.deployment import load_devices, load_site

    if power is not None or inputs.n is not None:
        raise InputError("P_max and n follow from the devices file; give one of the two")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if path.suffix.lower() == ".toml" and noise is None:
            site = load_site(path)
            found, noise, trusted = site.devices, site.radio.noise_w, trusted or site.radio.trusted_noise_w
        else:
            found = load_devices(path)
    if inputs.M not in (None, len(found.names)):
        raise InputError(f"M={inputs.M} but {path.name} lists {len(found.names)} devices")
    sizes, powers = found.samples.tolist(), found.power_w.tolist()
    setting = _setting(inputs, len(found.names), inputs.T, sizes, powers, noise, trusted)
    channels = draw(setting, inputs.seed, -10 * np.log10(found.mean_power_gain))
    return Site(setting, channels, [str(w.message) for w in caught] + _doubts(channels.gain, inputs))


def _read_gains(path: Path) -> np.ndarray:
    """(T, M) complex from an NPZ file with the array "gain", or a CSV file of numbers such as 1e-6 or 1e-6+2e-6j."""
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


def _doubts(gain: np.ndarray, inputs: Inputs) -> list[str]:
    """What looks like a wrong unit, and what the statistics rest on."""
    found = []
    middle = float(np.median(np.abs(gain) ** 2))
    if not 1e-20 <= middle <= 1:
        found.append(f"median abs(h)^2 = {middle:.3g} is outside 1e-20..1: were powers or dB given as amplitudes?")
    if inputs.gains is not None and inputs.tuning == "calibrated":
        found.append("channel statistics are taken from the given gains themselves: calibration is not fully causal")
    return found
