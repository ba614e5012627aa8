"""Devices of a TR 38.901 site: who has line of sight, shadowing that follows, Rice factors. Host, NumPy, float64.

State, h_E, shadowing and K factor have a random stream each: switching one off changes no other, and more devices
extend fewer. LOS and NLOS are never mixed in dB by probability: that would be another model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.channels import tr38901
from otafl.channels.line_of_sight import (
    RICE_DB,
    inf_los_prob,
    rma_los_prob,
    uma_environment_height_m,
    uma_los_prob,
    umi_los_prob,
)
from otafl.channels.pathloss import CLUTTER, PathLoss, of_state
from otafl.core.arrays import Bools, Floats
from otafl.core.errors import InputError
from otafl.core.streams import Host

DEVICE_HEIGHT_M = 1.5


class Chance(NamedTuple):
    """All that is random about the devices, before any law; leaves (K,) or one device's."""

    sight: Any  # uniform
    ground: Any  # uniform, (K, 2)
    shadow: Any  # standard normal
    rice: Any  # standard normal


class LargeScale(NamedTuple):
    """How well each device is heard, all (K,)."""

    los: Bools
    loss_db: Floats  # median of its state
    shadowing_db: Floats  # added to the loss
    k_factor_db: Floats  # -inf without line of sight: Rayleigh
    environment_height_m: Floats  # h_E; 1 m outside UMa


def roll(num_clients: int, seed: int) -> Chance:
    """The chance of a site, one stream per kind."""
    rng = {which: np.random.default_rng([seed, which]) for which in Host}
    return Chance(
        sight=rng[Host.LINE_OF_SIGHT].random(num_clients),
        ground=rng[Host.ENVIRONMENT].random((num_clients, 2)),
        shadow=rng[Host.SHADOWING].standard_normal(num_clients),
        rice=rng[Host.RICE].standard_normal(num_clients),
    )


def los_prob(law: PathLoss, distance_m: ArrayLike, device_height_m: ArrayLike = DEVICE_HEIGHT_M) -> Floats:
    """Probability of line of sight under a 38.901 law, whatever its `state` says.

    >>> law = PathLoss("38.901-umi", carrier_ghz=3.5)
    >>> round(float(los_prob(law, 50.0)), 6)
    0.519585
    """
    if law.kind == "38.901-umi":
        return umi_los_prob(distance_m)
    if law.kind == "38.901-uma":
        return uma_los_prob(distance_m, device_height_m)
    if law.kind == "38.901-rma":
        return rma_los_prob(distance_m)
    clutter = {name: value for name, value in law.numbers.items() if name in CLUTTER}
    return inf_los_prob(distance_m, law.scenario, law.base_height_m, device_height_m, **clutter)  # type: ignore[arg-type]


def shadowing_std_db(
    law: PathLoss, distance_m: ArrayLike, los: ArrayLike, device_height_m: ArrayLike = DEVICE_HEIGHT_M
) -> Floats:
    """Standard deviation of the shadowing of each device's state, dB."""
    if law.kind == "38.901-umi":
        return tr38901.umi_shadowing_db(los)
    if law.kind == "38.901-uma":
        return tr38901.uma_shadowing_db(los)
    if law.kind == "38.901-rma":
        base = 35.0 if law.base_height_m is None else law.base_height_m
        return tr38901.rma_shadowing_db(los, distance_m, law.carrier_ghz or 0.0, base, device_height_m)
    return tr38901.inf_shadowing_db(los, law.scenario)  # type: ignore[arg-type]


def large_scale(
    law: PathLoss, distance_m: ArrayLike, chance: Chance, device_height_m: ArrayLike | None = None
) -> LargeScale:
    """Devices of a 38.901 law at these horizontal distances (K,); `device_height_m` replaces the law's.

    >>> law = PathLoss("38.901-umi", carrier_ghz=3.5, state="los", median=True)
    >>> large_scale(law, [100.0, 500.0], roll(2, seed=0)).loss_db.round(4)
    array([ 85.3142, 107.1138])
    """
    if not law.drawn:
        raise InputError(f"path_loss kind={law.kind!r} draws nothing; large_scale is for the 38.901 laws")
    d2 = np.asarray(distance_m, float)
    own = law.device_height_m or DEVICE_HEIGHT_M
    height = np.broadcast_to(np.asarray(own if device_height_m is None else device_height_m, float), d2.shape)
    if law.state is None:
        los = np.asarray(chance.sight < los_prob(law, d2, height))
    else:
        los = np.full(d2.shape, law.state == "los")
    numbers: dict[str, Any] = {"los": los, "device_height_m": height}
    ground = np.ones(d2.shape)
    if law.kind == "38.901-uma":
        ground = uma_environment_height_m(d2, height, chance.ground)
        numbers["environment_height_m"] = ground
    loss = of_state(law, d2, **numbers)
    std = 0.0 if law.median else shadowing_std_db(law, d2, los, height)
    mean, spread = RICE_DB[law.kind.removeprefix("38.901-")]
    rice = np.where(los, mean + spread * np.asarray(chance.rice), -np.inf)
    return LargeScale(los, loss, std * np.asarray(chance.shadow), rice, ground)
