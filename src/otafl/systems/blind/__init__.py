"""Blind combining (Amiri, Duman, Gunduz, Kulkarni, Poor, arXiv 2010.10030): antennas replace channel knowledge."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="blind",
    summary="devices know nothing of their channels; the server's antennas average them out",
    package=__name__,
    advised=False,
    schemes={
        "blind": Scheme(
            "blind maximum-ratio combining: one power for all, the server adds its antennas along the channels' sum",
            "policy:blind",
            array_note="no certificate: its weights are random, with the moments of (A5)",
        ),
    },
)
