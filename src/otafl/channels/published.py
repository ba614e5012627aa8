"""Channels that are ready by name: those of the published systems, and two with memory."""

from otafl.channels.channel import Channel
from otafl.channels.fading import Fading
from otafl.channels.geometry import Geometry
from otafl.channels.pathloss import PathLoss

PUBLISHED: dict[str, Channel] = {
    "cares": Channel(
        geometry=Geometry("interval", low_m=1.0, high_m=3.0),
        path_loss=PathLoss("exponent", exponent=2.0),
        shadowing_db=4.0,
        scale_range=(0.2, 1.0),
    ),
    "adascale": Channel(
        geometry=Geometry("interval", low_m=10.0, high_m=200.0),
        path_loss=PathLoss("adascale"),
        draw_order="single",
    ),
    "cdpb": Channel(mean_power_gain=1.0),
    "biasvar": Channel(
        geometry=Geometry("disc", high_m=1750.0, clamp_m=10.0),
        path_loss=PathLoss("biasvar"),
        placement_seed=0,
    ),
    "eezofl": Channel(fading=Fading("real_gaussian", mean=1.0, std=1.0)),
    "ar1": Channel(fading=Fading("ar1", rho=0.9)),
    "jakes": Channel(fading=Fading("jakes", rho=0.9)),
}

CHANNELS: dict[str, str] = {
    "cares": "Rayleigh; 1-3 m, exponent 2, 4 dB shadowing, Rayleigh scales spread over [0.2, 1]",
    "adascale": "Rayleigh; 10-200 m, 33.44 + 35.22 log10(r) dB, redrawn per seed in the published draw order",
    "cdpb": "Rayleigh; mean power gain 1 for every device",
    "biasvar": "Rayleigh; disc of 1750 m, 50 + 22 log10(r) dB, one fixed placement",
    "eezofl": "real normal gains with mean 1 and std 1",
    "ar1": "Rayleigh with memory; correlation 0.9 from round to round, 0.9^n after n",
    "jakes": "Rayleigh with memory; correlation J0, 0.9 from round to round, negative after 4",
}
