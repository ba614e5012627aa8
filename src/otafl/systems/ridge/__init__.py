"""Ridge inversion: the power control that learns most per joule under a privacy budget, by own channel knowledge.

policy           the scheme; settings: no data, no trial
inversion        closed forms of regularised inversion under Rayleigh fading
purse            what a round costs a client's privacy, and how loud it may be
certificate      efficiency, energies and who is heard, before the first round
phases           which inversion rule learns most, in closed form
"""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="ridge",
    summary="regularised inversion: most learning signal for a privacy and an energy budget",
    package=__name__,
    schemes={
        "ridge": Scheme(
            "regularised channel inversion: most learning signal for privacy and energy, own CSI",
            "policy:ridge",
            settings="settings:settings",
            antennas="fixed",
            array_note="its own privacy levels count one antenna; the ledger counts all and ends the run earlier",
        ),
    },
)
