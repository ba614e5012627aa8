"""Channels: placement, path loss, fading, drift, pilots and CSI errors, and the files that describe a deployment.

`draw(channel, num_clients, rounds, seed)` turns a `Channel` into a `Trace` before the run. Host, NumPy, float64.
"""

from otafl.channels.channel import (
    CHANNELS,
    PUBLISHED,
    Channel,
    Placement,
    Stream,
    draw,
    draw_seeds,
    place,
    rescale_log,
    with_gains,
)
from otafl.channels.csi import CsiError
from otafl.channels.drift import Drift
from otafl.channels.fading import FADING_LAWS, Fading, constant, rayleigh, real_gaussian, rician
from otafl.channels.geometry import Geometry
from otafl.channels.pathloss import PATH_LOSS_LAWS, PathLoss, from_db, loss_db, to_db
from otafl.channels.pilots import Pilots, limits

__all__ = [
    "CHANNELS",
    "FADING_LAWS",
    "PATH_LOSS_LAWS",
    "PUBLISHED",
    "Channel",
    "CsiError",
    "Drift",
    "Fading",
    "Geometry",
    "PathLoss",
    "Pilots",
    "Placement",
    "Stream",
    "constant",
    "draw",
    "draw_seeds",
    "from_db",
    "limits",
    "loss_db",
    "place",
    "rayleigh",
    "real_gaussian",
    "rescale_log",
    "rician",
    "to_db",
    "with_gains",
]
