"""Path loss and shadowing: from distances in metres to mean power gains. Host, NumPy, float64.

A loss in dB is positive where the signal gets weaker; the mean power gain E|h|^2 is 10^(-loss_db / 10).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.channels import tr38901
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

Kind = Literal[
    "log_distance", "exponent", "cost231_hata", "biasvar", "adascale",
    "38.901-umi", "38.901-uma", "38.901-rma", "38.901-inf",
]  # fmt: skip

PATH_LOSS_LAWS: dict[str, str] = {
    "log_distance": "reference_db + slope_db * log10(distance in m)",
    "exponent": "power falls as (distance / reference_m)^-exponent, reference_db lost at reference_m",
    "cost231_hata": "COST-231 Hata: 1.5-2 GHz, 1-20 km, base 30-200 m, device 1-10 m",
    "biasvar": "50 + 22 log10(distance in m), the bias-variance deployment",
    "adascale": "33.44 + 35.22 log10(distance in m), the AdaScale deployment",
    "38.901-umi": "TR 38.901 urban micro: 0.5-100 GHz, 10-5000 m; line of sight and shadowing drawn per device",
    "38.901-uma": "TR 38.901 urban macro: 0.5-100 GHz, 10-5000 m; line of sight and shadowing drawn per device",
    "38.901-rma": "TR 38.901 rural macro: 0.5-30 GHz, 10-10000 m; line of sight and shadowing drawn per device",
    "38.901-inf": "TR 38.901 indoor factory: scenario SL, DL, SH, DH or HH, 1-600 m; states and shadowing drawn",
}

_FIELDS: dict[str, set[str]] = {
    "log_distance": {"reference_db", "slope_db"},
    "exponent": {"exponent"},
    "cost231_hata": {"carrier_mhz", "base_height_m", "device_height_m"},
    "biasvar": set(),
    "adascale": set(),
    "38.901-umi": {"carrier_ghz"},
    "38.901-uma": {"carrier_ghz"},
    "38.901-rma": {"carrier_ghz"},
    "38.901-inf": {"carrier_ghz", "scenario"},
}  # what a law needs; _OPTIONS: what it may have besides
_STATED = {"base_height_m", "device_height_m", "extrapolate", "state", "median", "seed"}
_OPTIONS = {
    "exponent": {"reference_db", "reference_m"},
    "cost231_hata": {"metropolitan", "extrapolate"},
    "38.901-umi": _STATED,
    "38.901-uma": _STATED,
    "38.901-rma": _STATED | {"street_width_m", "building_height_m"},
    "38.901-inf": _STATED | {"clutter_density", "clutter_size_m", "clutter_height_m"},
}


@dataclass(frozen=True)
class PathLoss:
    """One law of `PATH_LOSS_LAWS` with its numbers; a number that the law does not use is refused.

    The 38.901 laws draw who has line of sight, and shadowing whose std follows (`large_scale`). `state` fixes the
    first for all devices, `median` leaves out the second.
    """

    kind: Kind
    reference_db: float | None = None
    slope_db: float | None = None
    exponent: float | None = None
    reference_m: float | None = None
    carrier_mhz: float | None = None
    base_height_m: float | None = None
    device_height_m: float | None = None
    metropolitan: bool = False  # COST-231 Hata: 3 dB more
    extrapolate: bool = False  # COST-231 Hata, 38.901: allow values outside the stated range
    carrier_ghz: float | None = None  # this and all below: 38.901
    scenario: Literal["SL", "DL", "SH", "DH", "HH"] | None = None  # of a factory
    state: Literal["los", "nlos"] | None = None  # None: drawn per device
    median: bool = False  # no shadowing
    street_width_m: float | None = None
    building_height_m: float | None = None
    clutter_density: float | None = None
    clutter_size_m: float | None = None
    clutter_height_m: float | None = None
    seed: int | None = None  # of a deployment file's draws; default 0

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.one_of("kind", self.kind, PATH_LOSS_LAWS)
        allowed = _FIELDS[self.kind] | _OPTIONS.get(self.kind, set())
        for name, value in vars(self).items():
            given = name != "kind" and value is not None and value is not False
            if given and name not in allowed:
                raise InputError(f"{name}={value!r} has no meaning for path_loss kind={self.kind!r}")
            if name in _FIELDS[self.kind] and value is None:
                raise InputError(f"{name} is missing; path_loss kind={self.kind!r} needs it")
            if given:
                _check(name, value)
        if self.kind == "38.901-inf" and self.scenario == "HH" and self.state == "nlos":
            raise InputError("state='nlos' has no meaning for scenario='HH', which always has line of sight")

    @property
    def drawn(self) -> bool:
        """Whether the loss of a device is drawn: see `large_scale`."""
        return self.kind.startswith("38.901-")

    @property
    def numbers(self) -> dict[str, Any]:
        """What the law's own function takes besides distances."""
        own = _FIELDS[self.kind] | _OPTIONS.get(self.kind, set())
        given = {name: getattr(self, name) for name in own - {"state", "median", "seed"}}
        return {name: value for name, value in given.items() if value is not None and value is not False}


def _check(name: str, value: Any) -> None:
    if name == "reference_db":
        validate.finite(name, value)
    elif name == "scenario":
        validate.one_of(name, value, tr38901.FACTORIES)
    elif name == "state":
        validate.one_of(name, value, ("los", "nlos"))
    elif name == "clutter_density":
        validate.in_open(name, value, 0, 1)
    elif name == "seed":
        validate.whole(name, value, 0)
    else:
        validate.positive(name, value)


def log_distance_db(distance_m: ArrayLike, reference_db: float, slope_db: float) -> Floats:
    """reference_db + slope_db log10(distance_m)."""
    return reference_db + slope_db * np.log10(np.asarray(distance_m, float))


def exponent_db(distance_m: ArrayLike, exponent: float, reference_db: float = 0.0, reference_m: float = 1.0) -> Floats:
    """Power falls as distance^-exponent; `reference_db` is lost at `reference_m`."""
    return reference_db + 10 * exponent * np.log10(np.asarray(distance_m, float) / reference_m)


def cost231_hata_db(
    distance_m: ArrayLike,
    carrier_mhz: float,
    base_height_m: float,
    device_height_m: float,
    metropolitan: bool = False,
    extrapolate: bool = False,
) -> Floats:
    """COST-231 Hata loss, refused outside its stated range unless `extrapolate`.

    >>> round(float(cost231_hata_db(1000.0, carrier_mhz=1800, base_height_m=30, device_height_m=1.5)), 2)
    136.2
    """
    distance_km = np.asarray(distance_m, float) / 1000
    tr38901.within(
        "COST-231 Hata",
        extrapolate,
        carrier_mhz=(carrier_mhz, 1500, 2000),
        base_height_m=(base_height_m, 30, 200),
        device_height_m=(device_height_m, 1, 10),
        distance_m=(distance_m, 1000, 20000),
    )
    log_carrier, log_base = np.log10(carrier_mhz), np.log10(base_height_m)
    device_db = (1.1 * log_carrier - 0.7) * device_height_m - (1.56 * log_carrier - 0.8)
    at_1km_db = 46.3 + 33.9 * log_carrier - 13.82 * log_base - device_db + 3.0 * metropolitan
    return np.asarray(at_1km_db + (44.9 - 6.55 * log_base) * np.log10(distance_km))


def biasvar_db(distance_m: ArrayLike) -> Floats:
    """The bias-variance deployment: 121.35 dB at 1750 m."""
    return log_distance_db(distance_m, 50.0, 22.0)


def adascale_db(distance_m: ArrayLike) -> Floats:
    """The AdaScale deployment: 2.44e10 at 100 m."""
    return log_distance_db(distance_m, 33.44, 35.22)


CLUTTER = ("clutter_density", "clutter_size_m", "clutter_height_m")  # for line of sight, not for the loss


def loss_db(law: PathLoss, distance_m: ArrayLike) -> Floats:
    """Loss in dB, shape of `distance_m`, all of it > 0 m; the median of a 38.901 law whose state is fixed."""
    if law.drawn and law.state is None and law.scenario != "HH":
        raise InputError(f"path_loss kind={law.kind!r} draws line of sight per device; set state to 'los' or 'nlos'")
    return of_state(law, distance_m, los=law.state != "nlos")


def of_state(law: PathLoss, distance_m: ArrayLike, **state: Any) -> Floats:
    """Loss in dB without shadowing; `state` (los, device_height_m, environment_height_m) is for 38.901 laws alone."""
    validate.positive("distance_m", distance_m)
    numbers = {name: value for name, value in law.numbers.items() if name not in CLUTTER}
    laws: dict[str, Callable[..., Floats]] = {
        "38.901-umi": tr38901.umi_db,
        "38.901-uma": tr38901.uma_db,
        "38.901-rma": tr38901.rma_db,
        "38.901-inf": tr38901.inf_db,
        "log_distance": log_distance_db,
        "exponent": exponent_db,
        "cost231_hata": cost231_hata_db,
        "biasvar": biasvar_db,
        "adascale": adascale_db,
    }
    loss = laws[law.kind](distance_m, **{**numbers, **(state if law.drawn else {})})
    if np.any(beyond := ~(np.abs(loss) <= validate.MAX_DB)):
        first = validate.first_place(beyond)
        place = f"[{', '.join(map(str, first))}]" if first else ""
        raise InputError(
            f"distance_m{place}={float(np.asarray(distance_m, float)[first])!r} gives a path loss of "
            f"{float(loss[first]):.3g} dB, outside [-{validate.MAX_DB:.0f}, {validate.MAX_DB:.0f}]"
        )
    return loss


def from_db(value_db: ArrayLike) -> Floats:
    """Decibels to a ratio of powers.

    >>> float(from_db(-30.0))
    0.001
    """
    return np.asarray(10.0 ** (np.asarray(value_db, float) / 10))


def to_db(ratio: ArrayLike) -> Floats:
    """A ratio of powers to decibels."""
    return np.asarray(10 * np.log10(np.asarray(ratio, float)))


def shadowing_db(rng: np.random.Generator, num_clients: int, std_db: float) -> Floats:
    """Log-normal shadowing (K,): normal in dB, mean 0, to be added to the loss."""
    return std_db * rng.standard_normal(num_clients)
