"""Who sees the base station in TR 38.901: probability of line of sight, h_E of UMa, Rice factors. Host, float64.

`distance_m` is the horizontal distance d2. All arguments broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.channels.tr38901 import FACTORIES, Factory, factory_base_m
from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

RICE_DB = {"umi": (9.0, 5.0), "uma": (9.0, 3.5), "rma": (7.0, 4.0), "inf": (7.0, 8.0)}  # mean, std of line of sight
_URBAN_NEAR_M, _RURAL_NEAR_M = 18.0, 10.0


class Clutter(NamedTuple):
    """What stands in a factory hall."""

    density: float  # r: share of the floor that is covered
    size_m: float  # d_clutter
    height_m: float  # h_c


SPARSE, DENSE = Clutter(0.2, 10.0, 2.0), Clutter(0.6, 2.0, 6.0)  # calibration values of the report


def _urban(distance_m: ArrayLike, decay_m: float) -> Floats:
    d2 = np.asarray(distance_m, float)
    validate.positive("distance_m", d2)
    share = _URBAN_NEAR_M / np.maximum(d2, _URBAN_NEAR_M)
    return np.asarray(share + np.exp(-d2 / decay_m) * (1 - share))


def umi_los_prob(distance_m: ArrayLike) -> Floats:
    """1 within 18 m, then 18/d2 + exp(-d2/36)(1 - 18/d2).

    >>> round(float(umi_los_prob(50.0)), 6)
    0.519585
    """
    return _urban(distance_m, 36.0)


def _uma_height_term(distance_m: ArrayLike, device_height_m: ArrayLike) -> Floats:
    """((h_UT - 13)/10)^1.5 * 1.25 (d2/100)^3 exp(-d2/150): C(d2, h_UT) of the report, 0 below 13 m and within 18 m."""
    d2 = np.asarray(distance_m, float)
    raised = np.maximum(np.asarray(device_height_m, float) - 13, 0) / 10
    return np.where(d2 > _URBAN_NEAR_M, raised**1.5 * 1.25 * (d2 / 100) ** 3 * np.exp(-d2 / 150), 0.0)


def uma_los_prob(distance_m: ArrayLike, device_height_m: ArrayLike = 1.5) -> Floats:
    """As UMi with 63 m for 36 m, and more for devices above 13 m; never above 1.

    >>> round(float(uma_los_prob(200.0)), 6), round(float(uma_los_prob(200.0, 22.5)), 6)
    (0.128048, 0.440582)
    """
    raised = 1 + _uma_height_term(distance_m, device_height_m)
    return np.minimum(_urban(distance_m, 63.0) * raised, 1.0)  # 1.006 just above 18 m


def rma_los_prob(distance_m: ArrayLike) -> Floats:
    """1 within 10 m, then exp(-(d2 - 10)/1000).

    >>> round(float(rma_los_prob(500.0)), 6)
    0.612626
    """
    validate.positive("distance_m", distance_m)
    return np.exp(-np.maximum(np.asarray(distance_m, float) - _RURAL_NEAR_M, 0) / 1000)


def clutter_of(
    scenario: Factory, density: float | None = None, size_m: float | None = None, height_m: float | None = None
) -> Clutter:
    """The clutter of a factory: the calibration values, or what is given instead."""
    usual = SPARSE if scenario in ("SL", "SH") else DENSE
    given = {"density": density, "size_m": size_m, "height_m": height_m}
    return usual._replace(**{name: value for name, value in given.items() if value is not None})


def inf_los_prob(
    distance_m: ArrayLike,
    scenario: Factory,
    base_height_m: float | None = None,
    device_height_m: ArrayLike = 1.5,
    clutter_density: float | None = None,
    clutter_size_m: float | None = None,
    clutter_height_m: float | None = None,
) -> Floats:
    """exp(-d2/k), k = -d_clutter / ln(1 - r), times (h_BS - h_UT)/(h_c - h_UT) for SH and DH; 1 for HH.

    >>> round(float(inf_los_prob(30.0, "SL")), 6), round(float(inf_los_prob(30.0, "SH")), 6)
    (0.512, 0.949809)
    """
    validate.one_of("scenario", scenario, FACTORIES)
    validate.positive("distance_m", distance_m)
    d2 = np.asarray(distance_m, float)
    if scenario == "HH":
        return np.ones(np.broadcast_shapes(d2.shape, np.shape(device_height_m)))
    clutter = clutter_of(scenario, clutter_density, clutter_size_m, clutter_height_m)
    validate.in_open("clutter_density", clutter.density, 0, 1)
    validate.positive("clutter_size_m", clutter.size_m)
    reach = -clutter.size_m / np.log(1 - clutter.density)
    if scenario in ("SL", "DL"):
        return np.broadcast_to(np.exp(-d2 / reach), np.broadcast_shapes(d2.shape, np.shape(device_height_m))).copy()
    base = factory_base_m(scenario) if base_height_m is None else base_height_m
    device = np.asarray(device_height_m, float)
    if np.any((device >= clutter.height_m) | (base <= device)):
        raise InputError(
            f"device_height_m={float(np.max(device))!r} must be below clutter_height_m={clutter.height_m!r} and below "
            f"base_height_m={base!r} in scenario={scenario!r}; HH is for devices above the clutter"
        )
    return np.asarray(np.exp(-d2 / (reach * (base - device) / (clutter.height_m - device))))


def uma_ground_prob(distance_m: ArrayLike, device_height_m: ArrayLike) -> Floats:
    """1/(1 + C): probability that h_E of UMa is 1 m."""
    return np.asarray(1 / (1 + _uma_height_term(distance_m, device_height_m)))


def uma_environment_height_m(distance_m: ArrayLike, device_height_m: ArrayLike, uniform: ArrayLike) -> Floats:
    """h_E of UMa for uniforms (..., 2): 1 m with probability 1/(1 + C), else one of 12, 15, ... up to h_UT - 1.5 m.

    The list is empty for devices below 13.5 m: h_E is then 1 m.
    """
    chance = np.asarray(uniform, float)
    device = np.broadcast_to(np.asarray(device_height_m, float), chance.shape[:-1])
    heights = np.floor((device - 1.5 - 12) / 3) + 1
    raised = (chance[..., 0] >= uma_ground_prob(distance_m, device)) & (heights >= 1)
    return np.where(raised, 12 + 3 * np.floor(chance[..., 1] * heights), 1.0)
