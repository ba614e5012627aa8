"""What `otafl plan adascale` reads: the system in the paper's symbols, and its channels from one of five sources."""

from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from otafl.channels import load_devices, load_site
from otafl.channels.measured import read_gains
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.systems.adascale.convergence import Convergence
from otafl.systems.adascale.setting import Channels, Setting, dbm_to_watt, draw, path_loss_db
from otafl.systems.planning import warned

Method = Literal[
    "adascale", "adascale-warm", "optimal", "estim-future", "estim-future-literal", "equal-alloc", "stat-level",
    "stat-water", "liu-simeone", "liu-simeone-decay", "lyapunov",
]  # fmt: skip
USUAL: tuple[Method, ...] = ("optimal", "adascale", "adascale-warm", "estim-future", "equal-alloc", "stat-level")


class Inputs(FileModel):
    """Schema of FILE, in the paper's symbols; powers in W or dBm, by the ending of the key, in W without one."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        **{"P_max": "P_max_w", "noise_power": "noise_power_w", "sigma_n2": "noise_power_w", "C": "G"},
        **{"privacy_noise_power": "privacy_noise_power_w", "lambda": "learning_rate"},
        **{"num_params": "d", "clip_norm": "G", "rounds": "T", "clients": "M", "samples": "n"},  # of experiment files
    }

    method: Method = "adascale"
    compare: list[Method] = Field(default_factory=lambda: list(USUAL))
    nu: float | None = None  # cap on the mean excess noise energy; or gamma
    gamma: float | None = None  # target of the convergence bound (Theorem 1), from which nu follows
    loss_gap: float | None = None  # f(w_0) - f*; with L and learning_rate: the bound is reported
    L: float | None = None
    learning_rate: float | None = None
    A1: float = 0.0
    A2: float = 0.0
    C1: float = 0.0
    C2: float = 0.0
    alpha: int = 3
    delta: float = 1e-5
    tuning: Literal["calibrated", "hindsight", "given"] = "calibrated"
    V: float | None = None
    max_floor: float | None = None  # rounds with a larger floor (deep fades) are skipped; adascale, adascale-warm
    device_rdp: float | None = None  # each device's own cap on RDP at device_order; it refuses a round that passes it
    device_order: int | None = None  # alpha if not given
    hard_budget: bool = False  # mean(y) <= nu on every path; dangerous, see the guide
    M: int | None = None  # from the file where devices or gains are given
    T: int | None = None
    d: int
    n: int | list[int] | None = None  # from the devices file
    B: float | list[float] | None = None  # two of n, B, q, the third being B = q n
    q: float | list[float] | None = None
    G: float
    P_max_w: float | list[float] | None = None
    P_max_dbm: float | list[float] | None = None
    noise_power_w: float | None = None
    noise_power_dbm: float | None = None
    privacy_noise_power_w: float | None = None
    privacy_noise_power_dbm: float | None = None
    bandwidth_hz: float | None = None  # of the devices file, or 1e5
    seed: int = 0
    distances_m: list[float] | None = None
    path_loss_db: list[float] | None = None
    PL: list[float] | None = None  # linear path losses
    h: list[list[float]] | None = None  # abs(h), one row per round
    rms: list[float] | None = None  # sqrt(E abs(h)^2) of these channels as known beforehand; their own if not given
    devices: str | None = None  # CSV or TOML: path gains, powers, data sizes
    gains: str | None = None  # CSV or NPZ ("gain"): complex amplitudes or magnitudes, one row per round
    pld: bool = True

    @model_validator(mode="before")
    @classmethod
    def _a_given_V_is_given(cls, data: Any) -> Any:
        named = isinstance(data, dict) and data.get("V") is not None and "tuning" not in data
        return {**data, "tuning": "given"} if named else data

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        sources = [key for key in SOURCES if getattr(self, key) is not None]
        if len(sources) > 1:
            raise InputError(f"at most one of {', '.join(SOURCES)} may be given, got {sources}")
        if self.rms is not None and self.h is None and self.gains is None:
            raise InputError("rms belongs to h or gains; other sources say it themselves")
        for key in ("P_max", "noise_power", "privacy_noise_power"):
            if getattr(self, f"{key}_w") is not None and getattr(self, f"{key}_dbm") is not None:
                raise InputError(f"{key}_w and {key}_dbm exclude each other")
        if (self.tuning == "given") != (self.V is not None):
            raise InputError(f"V={self.V!r} must be given with tuning='given', and only there")
        if self.gains is None and self.h is None and self.T is None:
            raise InputError("T: missing, this key is required unless h or gains are given")
        if (self.nu is None) == (self.gamma is None):
            raise InputError("exactly one of nu and gamma must be given")
        stated = [key for key in ("loss_gap", "L", "learning_rate") if getattr(self, key) is not None]
        if len(stated) < 3 and (stated or self.gamma is not None):
            raise InputError(
                f"the convergence bound needs loss_gap, L and learning_rate (lambda), got {stated or 'none'}"
            )
        for key in ("V", "bandwidth_hz", "distances_m", "PL"):
            if getattr(self, key) is not None:
                validate.positive(key, getattr(self, key))
        for key in ("nu", "A1", "A2", "C1", "C2"):
            if getattr(self, key) is not None:
                validate.not_negative(key, getattr(self, key))
        self._check_extensions()
        validate.in_open("delta", self.delta, 0, 1)
        validate.whole("seed", self.seed, 0)
        return self

    def _check_extensions(self) -> None:
        for key in ("max_floor", "device_rdp", "hard_budget"):
            if getattr(self, key) and self.method not in ("adascale", "adascale-warm"):
                raise InputError(f"{key} belongs to method='adascale' or 'adascale-warm', not to {self.method!r}")
        if self.max_floor is not None:
            validate.positive("max_floor", self.max_floor)
        if self.device_order is not None and self.device_rdp is None:
            raise InputError(f"device_order={self.device_order} needs device_rdp, the budget it belongs to")


USUAL_BANDWIDTH_HZ = 1e5
MAX_ROUNDS = 10_000
MAX_CELLS = 5e6  # gains, M T
MAX_KINDS = 1e6  # epsilons, T for every kind of device
SOURCES = ("distances_m", "path_loss_db", "PL", "h", "devices", "gains")


def convergence(inputs: Inputs) -> Convergence | None:
    """The constants of Theorem 1, where the file states them."""
    if inputs.loss_gap is None or inputs.L is None or inputs.learning_rate is None:
        return None
    constants = inputs.A1, inputs.A2, inputs.C1, inputs.C2
    return Convergence(inputs.loss_gap, inputs.L, inputs.learning_rate, *constants)


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
    gain = _given_gains(inputs, folder)
    rounds, devices = (inputs.T, inputs.M) if gain is None else gain.shape
    for key in ("distances_m", "path_loss_db", "PL"):
        if (listed := getattr(inputs, key)) is not None:
            devices = len(listed) if devices is None else devices
            validate.shape(key, listed, (devices,))
    if devices is None:
        raise InputError("M: missing, this key is required unless the devices are listed")
    for key, found in (("M", devices), ("T", rounds)):
        if getattr(inputs, key) not in (None, found):
            raise InputError(f"{key}={getattr(inputs, key)} but the channels given have {found}")
    setting = _setting(inputs, int(devices), rounds, inputs.n, power, noise, trusted)
    if gain is not None:
        if inputs.rms is None:
            return Site(setting, Channels(gain, np.sqrt(np.mean(np.abs(gain) ** 2, 0))), _doubts(gain, inputs))
        validate.positive("rms", inputs.rms)
        validate.shape("rms", inputs.rms, (setting.M,))
        return Site(setting, Channels(gain, np.asarray(inputs.rms, float)), _doubts(gain, inputs))
    channels = draw(setting, inputs.seed, _path_losses(inputs))
    return Site(setting, channels, _doubts(channels.gain, inputs))


def _path_losses(inputs: Inputs) -> Any:
    """In dB, (M,); None where distances are to be drawn."""
    if inputs.distances_m is not None:
        return path_loss_db(inputs.distances_m)
    if inputs.PL is not None:
        return 10 * np.log10(inputs.PL)
    return inputs.path_loss_db


def _batches(M: int, n: Any, B: Any, q: Any) -> tuple[Any, Any]:
    """(n, B) from two of n, B and q = B / n, or from all three where they agree."""
    if q is None:
        for key, value in (("n", n), ("B", B)):
            if value is None:
                raise InputError(f"{key}: missing; two of n, B and q are required")
        return n, B
    validate.in_left_open("q", q, 0, 1)
    rate = np.asarray(q, float)
    if rate.ndim:
        validate.shape("q", rate, (M,))
    if n is None and B is None:
        raise InputError("n, B: missing; two of n, B and q are required")
    if n is None:
        return np.asarray(B, float) / rate, B
    batch = rate * np.asarray(n, float)
    if B is not None and not np.allclose(B, batch, rtol=1e-9):
        raise InputError(f"B={B} must be q n={batch.tolist()}; give two of n, B and q")
    return n, batch if B is None else B


def _setting(inputs: Inputs, M: int, T: Any, n: Any, power: Any, noise: Any, trusted: Any) -> Setting:
    n, B = _batches(M, n, inputs.B, inputs.q)
    for key, value in (("P_max_w (or P_max_dbm)", power), ("noise_power_w (or noise_power_dbm)", noise)):
        if value is None:
            raise InputError(f"{key}: missing, this key is required")
    _check_sizes(M, T, n, B)
    bandwidth_hz = USUAL_BANDWIDTH_HZ if inputs.bandwidth_hz is None else inputs.bandwidth_hz
    return Setting(M, T, inputs.d, n, B, inputs.G, power, noise, trusted, bandwidth_hz)


def _check_sizes(M: Any, T: Any, n: Any, B: Any) -> None:
    """What would not end within a minute, or not fit, is refused before anything is drawn."""
    validate.whole("M", M)
    validate.whole("T", T, 1, MAX_ROUNDS)
    validate.at_most(f"M x T = {M} x {T}", M * T, MAX_CELLS, "lower M or T")
    pairs = np.stack(np.broadcast_arrays(np.asarray(n, float), np.asarray(B, float)), -1).reshape(-1, 2)
    kinds = len(np.unique(pairs, axis=0))
    validate.at_most(f"kinds of device (n, B) x T = {kinds} x {T}", kinds * T, MAX_KINDS, "round n and B, or lower T")


def _from_devices(inputs: Inputs, path: Path, power: Any, noise: Any, trusted: Any) -> Site:
    """Gains, powers and sizes from a devices file; noise too where a TOML file has [radio]."""
    if power is not None or inputs.n is not None:
        raise InputError("P_max and n follow from the devices file; give one of the two")
    with warned() as said:
        if path.suffix.lower() == ".toml" and noise is None:
            site = load_site(path)
            found, noise = site.devices, site.radio.noise_w
            trusted = site.radio.trusted_noise_w if trusted is None else trusted
            if inputs.bandwidth_hz not in (None, site.radio.bandwidth_hz):
                both = f"bandwidth_hz={inputs.bandwidth_hz:g} but {path.name} says {site.radio.bandwidth_hz:g}"
                raise InputError(f"{both}; give it in one place")
            inputs = inputs.model_copy(update={"bandwidth_hz": site.radio.bandwidth_hz})
        else:
            found = load_devices(path)
    if inputs.M not in (None, len(found.names)):
        raise InputError(f"M={inputs.M} but {path.name} lists {len(found.names)} devices")
    sizes, powers = found.samples.tolist(), found.power_w.tolist()
    setting = _setting(inputs, len(found.names), inputs.T, sizes, powers, noise, trusted)
    channels = draw(setting, inputs.seed, -10 * np.log10(found.mean_power_gain))
    return Site(setting, channels, said + _doubts(channels.gain, inputs))


def _given_gains(inputs: Inputs, folder: Path) -> np.ndarray | None:
    """Channels (T, M) that the file states itself or names."""
    if inputs.h is None:
        return None if inputs.gains is None else read_gains(folder / inputs.gains)
    if not inputs.h or len({len(row) for row in inputs.h}) != 1 or not inputs.h[0]:
        raise InputError("h must be a list of rounds, each a list of abs(h), one per device")
    validate.positive("h", inputs.h)
    return np.asarray(inputs.h, complex)


def _doubts(gain: np.ndarray, inputs: Inputs) -> list[str]:
    """What looks like a wrong unit, and what the statistics rest on."""
    found = []
    middle = float(np.median(np.abs(gain) ** 2))
    if not 1e-20 <= middle <= 1:
        found.append(f"median abs(h)^2 = {middle:.3g} is outside 1e-20..1: were powers or dB given as amplitudes?")
    losses = _path_losses(inputs)
    if losses is not None and np.min(losses) < 0:
        found.append(f"a path loss of {np.min(losses):.3g} dB amplifies (PL < 1): were dB and linear confused?")
    given = inputs.gains is not None or inputs.h is not None
    if given and inputs.rms is None and inputs.tuning == "calibrated":
        found.append("channel statistics are taken from the given gains themselves: calibration is not fully causal")
    return found
