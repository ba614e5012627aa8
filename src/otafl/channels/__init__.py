"""Channels: placement, path loss, fading, drift, pilots and CSI errors, and the files that describe a deployment.

`draw(channel, num_clients, rounds, seed)` turns a `Channel` into a `Trace` before the run. Host, NumPy, float64.

channel          a description, and its draw; published: those that are ready by name
geometry, pathloss   where devices are, what reaches them; tr38901, line_of_sight, large_scale: sites of 3GPP
fading, memory   small-scale laws; those that remember; drift: slow change of the mean
csi, pilots, stale   what devices know of it: with an error, by statistics, from some rounds ago
antennas         beams of a server that has several
deployment       a file of radios; rows: one of its records; radio: its block of that name
trace_file       gains from elsewhere; trace_arrays, mat_file read them; measured: played instead of drawn
power            limits and noise levels in the units of the round
"""

from otafl.channels.antennas import BEAMS, receive
from otafl.channels.channel import (
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
from otafl.channels.large_scale import LargeScale, large_scale, los_prob, roll, shadowing_std_db
from otafl.channels.line_of_sight import inf_los_prob, rma_los_prob, uma_los_prob, umi_los_prob
from otafl.channels.measured import Played, Recording, open_recording
from otafl.channels.memory import ar1, doppler_hz, jakes, jakes_correlation
from otafl.channels.pathloss import PATH_LOSS_LAWS, PathLoss, from_db, loss_db, to_db
from otafl.channels.pilots import Pilots, limits
from otafl.channels.power import dbm_to_w, energy_from_power, noise_var_from_power, w_to_dbm
from otafl.channels.published import CHANNELS, PUBLISHED
from otafl.channels.radio import Radio, TrustWarning
from otafl.channels.rows import IgnoredWarning, UnitWarning
from otafl.channels.stale import Stale, stale_gain_error
from otafl.channels.tr38901 import inf_db, rma_db, uma_db, umi_db
from otafl.channels.trace_file import PrecisionWarning, TraceFile, read_trace, write_trace

__all__ = [
    "BEAMS", "CHANNELS", "FADING_LAWS", "PATH_LOSS_LAWS", "PUBLISHED", "Channel", "CsiError", "Devices", "Drift",
    "Fading", "Geometry", "IgnoredWarning", "LargeScale", "PathLoss", "Pilots", "Placement", "Played",
    "PrecisionWarning", "Radio", "Recording", "Site", "Stale", "TraceFile", "TrustWarning", "UnitWarning", "ar1",
    "constant", "dbm_to_w", "doppler_hz", "draw", "draw_seeds", "energy_from_power", "from_db", "has_radio", "inf_db",
    "inf_los_prob", "jakes", "jakes_correlation", "large_scale", "limits", "load_devices", "load_site", "los_prob",
    "loss_db", "noise_var_from_power", "open_recording", "place", "rayleigh", "read_trace", "real_gaussian", "receive",
    "rescale_log", "rician", "rma_db", "rma_los_prob", "roll", "save_devices", "shadowing_std_db", "stale_gain_error",
    "to_db", "to_deployment", "uma_db", "uma_los_prob", "umi_db", "umi_los_prob", "w_to_dbm", "with_gains",
    "write_trace",
]  # fmt: skip
