"""Path loss of 3GPP TR 38.901: UMi, UMa, RMa and indoor factories (InF), median in dB. Host, NumPy, float64.

d2 is the horizontal distance (`distance_m` everywhere), d3^2 = d2^2 + (base height - device height)^2. Without line of
sight the loss is never below the one with it. Beyond a break point the line of sight loses 40 dB per decade; break
points compare with d2 and use c = 3.0e8 m/s, as printed. Shadowing of `*_shadowing_db` is normal in dB with mean 0,
so the mean linear gain lies above the median. All arguments broadcast; `los` is True or False per device.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

Factory = Literal["SL", "DL", "SH", "DH", "HH"]

LIGHT_M_S = 3.0e8  # as printed in the report
FACTORIES: dict[str, str] = {
    "SL": "sparse clutter, low base station",
    "DL": "dense clutter, low base station",
    "SH": "sparse clutter, high base station",
    "DH": "dense clutter, high base station",
    "HH": "device and base station above the clutter: always line of sight",
}
LOW_BASE_M, HIGH_BASE_M = 1.5, 8.0  # of factories
_FACTORY_NLOS = {"SL": (33.0, 25.5), "DL": (18.6, 35.7), "SH": (32.4, 23.0), "DH": (33.63, 21.9)}
_FACTORY_SHADOWING = {"SL": 5.7, "DL": 7.2, "SH": 5.9, "DH": 4.0, "HH": 4.3}


def within(law: str, extrapolate: bool, **ranges: tuple[Any, float, float]) -> None:
    """Refuse a value outside the range that the report states for it, unless `extrapolate`."""
    for name, (value, low, high) in ranges.items():
        validate.positive(name, value)
        if extrapolate:
            continue
        try:
            validate.in_closed(name, value, low, high)
        except InputError as error:
            raise InputError(f"{error}, where {law} holds; set extrapolate=true to use it anyway") from None


def distance_3d(distance_m: ArrayLike, base_height_m: ArrayLike, device_height_m: ArrayLike) -> Floats:
    """d3 in metres.

    >>> float(distance_3d(30.0, 41.5, 1.5))
    50.0
    """
    rise = np.asarray(base_height_m, float) - np.asarray(device_height_m, float)
    return np.hypot(np.asarray(distance_m, float), rise)


def _sighted(los: ArrayLike, with_sight: Floats, without: Floats) -> Floats:
    """The loss of each device's state; no line of sight never helps."""
    return np.where(np.asarray(los, bool), with_sight, np.maximum(with_sight, without))


def urban_break_point_m(
    carrier_ghz: float, base_height_m: ArrayLike, device_height_m: ArrayLike, environment_height_m: ArrayLike = 1.0
) -> Floats:
    """d_BP' = 4 (h_BS - h_E)(h_UT - h_E) fc / c of UMi and UMa."""
    ground = np.asarray(environment_height_m, float)
    effective = (np.asarray(base_height_m, float) - ground) * (np.asarray(device_height_m, float) - ground)
    return np.asarray(4 * effective * carrier_ghz * 1e9 / LIGHT_M_S)


def _urban_sight(
    distance_m: ArrayLike, far: Floats, carrier: float, turn: Floats, base_height_m: float, device_height_m: ArrayLike,
    law: tuple[float, float, float],
) -> Floats:  # fmt: skip
    """Line of sight of UMi and UMa: a slope up to the break point, 40 dB per decade beyond. law: level, slope, bend."""
    level, slope, bend = law
    rise = base_height_m - np.asarray(device_height_m, float)
    near_db = level + slope * np.log10(far) + 20 * carrier
    far_db = level + 40 * np.log10(far) + 20 * carrier - bend * np.log10(turn**2 + rise**2)
    return np.where(np.asarray(distance_m, float) <= turn, near_db, far_db)


def umi_db(
    distance_m: ArrayLike,
    carrier_ghz: float,
    los: ArrayLike,
    base_height_m: float = 10.0,
    device_height_m: ArrayLike = 1.5,
    extrapolate: bool = False,
) -> Floats:
    """Urban micro, street canyon.

    >>> round(float(umi_db(100.0, 3.5, los=True)), 4), round(float(umi_db(200.0, 3.5, los=False)), 4)
    (85.3142, 115.2288)
    """
    _urban_ranges("UMi", 10.0, distance_m, carrier_ghz, base_height_m, device_height_m, extrapolate)
    far, carrier = distance_3d(distance_m, base_height_m, device_height_m), np.log10(carrier_ghz)
    turn = urban_break_point_m(carrier_ghz, base_height_m, device_height_m)
    sight = _urban_sight(distance_m, far, carrier, turn, base_height_m, device_height_m, (32.4, 21.0, 9.5))
    hidden = 22.4 + 35.3 * np.log10(far) + 21.3 * carrier - 0.3 * (np.asarray(device_height_m, float) - 1.5)
    return _sighted(los, sight, hidden)


def uma_db(
    distance_m: ArrayLike,
    carrier_ghz: float,
    los: ArrayLike,
    base_height_m: float = 25.0,
    device_height_m: ArrayLike = 1.5,
    environment_height_m: ArrayLike = 1.0,
    extrapolate: bool = False,
) -> Floats:
    """Urban macro. `environment_height_m` is h_E, see `line_of_sight.uma_environment_height_m`.

    >>> round(float(uma_db(1000.0, 3.5, los=True)), 4), round(float(uma_db(500.0, 3.5, los=False)), 4)
    (109.4119, 129.9158)
    """
    _urban_ranges("UMa", 25.0, distance_m, carrier_ghz, base_height_m, device_height_m, extrapolate)
    far, carrier = distance_3d(distance_m, base_height_m, device_height_m), np.log10(carrier_ghz)
    turn = urban_break_point_m(carrier_ghz, base_height_m, device_height_m, environment_height_m)
    sight = _urban_sight(distance_m, far, carrier, turn, base_height_m, device_height_m, (28.0, 22.0, 9.0))
    hidden = 13.54 + 39.08 * np.log10(far) + 20 * carrier - 0.6 * (np.asarray(device_height_m, float) - 1.5)
    return _sighted(los, sight, hidden)


def _urban_ranges(
    law: str, height_m: float, distance: Any, carrier: float, base: float, device: Any, extrapolate: bool
) -> None:
    within(
        f"38.901 {law}",
        extrapolate,
        carrier_ghz=(carrier, 0.5, 100),
        base_height_m=(base, height_m, height_m),
        device_height_m=(device, 1.5, 22.5),
        distance_m=(distance, 10, 5000),
    )


def rma_break_point_m(carrier_ghz: float, base_height_m: ArrayLike, device_height_m: ArrayLike) -> Floats:
    """d_BP = 2 pi h_BS h_UT fc / c of RMa."""
    heights = np.asarray(base_height_m, float) * np.asarray(device_height_m, float)
    return np.asarray(2 * np.pi * heights * carrier_ghz * 1e9 / LIGHT_M_S)


def rma_db(
    distance_m: ArrayLike,
    carrier_ghz: float,
    los: ArrayLike,
    base_height_m: float = 35.0,
    device_height_m: ArrayLike = 1.5,
    street_width_m: float = 20.0,
    building_height_m: float = 5.0,
    extrapolate: bool = False,
) -> Floats:
    """Rural macro.

    >>> round(float(rma_db(3000.0, 0.7, los=True)), 4), round(float(rma_db(2000.0, 0.7, los=False)), 4)
    (112.4578, 128.0677)
    """
    within(
        "RMa",
        extrapolate,
        carrier_ghz=(carrier_ghz, 0.5, 30),
        base_height_m=(base_height_m, 10, 150),
        device_height_m=(device_height_m, 1, 10),
        street_width_m=(street_width_m, 5, 50),
        building_height_m=(building_height_m, 5, 50),
        distance_m=(distance_m, 10, 10000),
    )
    hidden_too_far = ~np.asarray(los, bool) & (np.asarray(distance_m, float) > 5000)
    if np.any(hidden_too_far) and not extrapolate:
        worst = float(np.max(np.where(hidden_too_far, distance_m, 0.0)))
        raise InputError(
            f"distance_m={worst!r} must lie in [10, 5000] without line of sight, where 38.901 RMa holds; "
            "set extrapolate=true to use it anyway"
        )
    d2, far = np.asarray(distance_m, float), distance_3d(distance_m, base_height_m, device_height_m)
    device = np.asarray(device_height_m, float)
    turn = rma_break_point_m(carrier_ghz, base_height_m, device)

    def near_db(metres: Floats) -> Floats:
        """P(d) of the report."""
        bent = building_height_m**1.72
        free = 20 * np.log10(40 * np.pi * metres * carrier_ghz / 3)
        per_decade, per_metre = min(0.03 * bent, 10.0), 0.002 * np.log10(building_height_m)
        return np.asarray(free + per_decade * np.log10(metres) - min(0.044 * bent, 14.77) + per_metre * metres)

    sight = np.where(d2 <= turn, near_db(far), near_db(turn) + 40 * np.log10(far / turn))
    log_base = np.log10(base_height_m)
    hidden = (
        161.04
        - 7.1 * np.log10(street_width_m)
        + 7.5 * np.log10(building_height_m)
        - (24.37 - 3.7 * (building_height_m / base_height_m) ** 2) * log_base
        + (43.42 - 3.1 * log_base) * (np.log10(far) - 3)
        + 20 * np.log10(carrier_ghz)
        - (3.2 * np.log10(11.75 * device) ** 2 - 4.97)
    )
    return _sighted(los, sight, hidden)


def factory_base_m(scenario: str) -> float:
    """Height of the base station where none is given: 1.5 m for SL and DL, 8 m for SH, DH and HH."""
    validate.one_of("scenario", scenario, FACTORIES)
    return LOW_BASE_M if scenario in ("SL", "DL") else HIGH_BASE_M


def inf_db(
    distance_m: ArrayLike,
    carrier_ghz: float,
    los: ArrayLike,
    scenario: Factory,
    base_height_m: float | None = None,
    device_height_m: ArrayLike = 1.5,
    extrapolate: bool = False,
) -> Floats:
    """Indoor factory, one of `FACTORIES`.

    >>> round(float(inf_db(40.0, 3.5, True, "SL")), 4), round(float(inf_db(40.0, 3.5, False, "DL")), 4)
    (76.6216, 86.6749)
    """
    base = factory_base_m(scenario) if base_height_m is None else base_height_m
    far = distance_3d(distance_m, base, device_height_m)
    within(
        f"InF-{scenario}",
        extrapolate,
        carrier_ghz=(carrier_ghz, 0.5, 100),
        base_height_m=(base, 1e-3, 1e3),
        device_height_m=(device_height_m, 1e-3, 1e3),
    )
    validate.positive("distance_m", distance_m)
    within(f"38.901 InF-{scenario}", extrapolate, distance_3d_m=(far, 1, 600))
    carrier = np.log10(carrier_ghz)
    sight = 31.84 + 21.5 * np.log10(far) + 19 * carrier
    if scenario == "HH":
        if not np.all(los):
            raise InputError("scenario='HH' always has line of sight: los must be True")
        return np.asarray(sight)
    named = [scenario] if scenario != "DL" else ["SL", "DL"]
    laws = [_FACTORY_NLOS[name] for name in named]
    hidden = np.max([start + slope * np.log10(far) + 20 * carrier for start, slope in laws], axis=0)
    return _sighted(los, sight, hidden)


def umi_shadowing_db(los: ArrayLike) -> Floats:
    """Standard deviation of the shadowing, dB."""
    return np.where(np.asarray(los, bool), 4.0, 7.82)


def uma_shadowing_db(los: ArrayLike) -> Floats:
    """Standard deviation of the shadowing, dB."""
    return np.where(np.asarray(los, bool), 4.0, 6.0)


def rma_shadowing_db(
    los: ArrayLike,
    distance_m: ArrayLike,
    carrier_ghz: float,
    base_height_m: float = 35.0,
    device_height_m: ArrayLike = 1.5,
) -> Floats:
    """Standard deviation of the shadowing, dB: it grows beyond the break point."""
    beyond = np.asarray(distance_m, float) > rma_break_point_m(carrier_ghz, base_height_m, device_height_m)
    return np.where(np.asarray(los, bool), np.where(beyond, 6.0, 4.0), 8.0)


def inf_shadowing_db(los: ArrayLike, scenario: Factory) -> Floats:
    """Standard deviation of the shadowing, dB."""
    validate.one_of("scenario", scenario, FACTORIES)
    return np.where(np.asarray(los, bool), 4.3, _FACTORY_SHADOWING[scenario])
