"""Simple power control that belongs to no paper alone: constant receive scaling, full inversion."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="baselines",
    summary="simple power control that belongs to no paper alone",
    package=__name__,
    schemes={
        "constant": Scheme(
            "one receive scaling for all rounds, truncated channel inversion",
            "constant:constant",
            settings="settings:constant",
        ),
        "weakest": Scheme(
            "full channel inversion: the weakest device sets the receive scaling",
            "weakest:weakest",
            settings="settings:weakest",
        ),
    },
)
