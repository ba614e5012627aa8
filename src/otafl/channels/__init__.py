"""Channels: placement, path loss, fading, drift, pilots and CSI errors, and the files that describe a deployment.

`draw(channel, num_clients, rounds, seed)` turns a `Channel` into a `Trace` before the run. Host, NumPy, float64.
"""

from otafl.channels.antennas import BEAMS, receive
from otafl.channels.channel import (
    CHANNELS,
    PUBLISHED,
    Channel,
    Placement,
    draw,
    draw_seeds,
    place,
    rescale_log,
    with_gains,
)
from otafl.channels.csi import CsiError
from otafl.channels.deployment import (
    Devices,
    IgnoredWarning,
    Site,
    has_radio,
    load_devices,
    load_site,
    save_devices,
    to_deployment,
)
from otafl.channels.drift import Drift
from otafl.channels.fading import FADING_LAWS, Fading, constant, rayleigh, real_gaussian, rician
from otafl.channels.geometry import Geometry
from otafl.channels.pathloss import PATH_LOSS_LAWS, PathLoss, from_db, loss_db, to_db
from otafl.channels.pilots import Pilots, limits
from otafl.channels.power import dbm_to_w, energy_from_power, noise_var_from_power, w_to_dbm
from otafl.channels.radio import Radio, TrustWarning
from otafl.channels.rows import UnitWarning

__all__ = [
    "BEAMS",
    "CHANNELS",
    "FADING_LAWS",
    "PATH_LOSS_LAWS",
    "PUBLISHED",
    "Channel",
    "CsiError",
    "Devices",
    "Drift",
    "Fading",
    "Geometry",
    "IgnoredWarning",
    "PathLoss",
    "Pilots",
    "Placement",
    "Radio",
    "Site",
    "TrustWarning",
    "UnitWarning",
    "constant",
    "dbm_to_w",
    "draw",
    "draw_seeds",
    "energy_from_power",
    "from_db",
    "has_radio",
    "limits",
    "load_devices",
    "load_site",
    "loss_db",
    "noise_var_from_power",
    "place",
    "rayleigh",
    "real_gaussian",
    "receive",
    "rescale_log",
    "rician",
    "save_devices",
    "to_db",
    "to_deployment",
    "w_to_dbm",
    "with_gains",
]
