"""Non-coherent rivals: nobody knows a channel, and the server measures energies. One non-coherent uplink serves both.

fsk_mv, energy_difference   the two schemes
energies         laws, decisions and charges
uplink           two bins per coordinate, simulated phase by phase
settings         how much of their energy they may spend
"""

from otafl.systems.system import Scheme, System

ONE = "its charge is that of one antenna's two bins"

SYSTEM = System(
    name="noncoherent",
    summary="non-coherent rivals: energies in two bins, no channel knowledge",
    package=__name__,
    advised=False,
    schemes={
        "fsk-mv": Scheme(
            "signs as energy in one of two bins, the louder bin decides",
            "fsk_mv:fsk_mv",
            settings="settings:fsk_mv",
            weighs=False,
            antennas="one",
            array_note=ONE,
        ),
        "energy-difference": Scheme(
            "numbers as energies of two bins, the server takes the difference (REED)",
            "energy_difference:energy_difference",
            settings="settings:energy_difference",
            antennas="one",
            array_note=ONE,
        ),
    },
)
