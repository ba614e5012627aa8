"""CDPB (Kim, Seo, Choi): every client balances data and noise by its own channel."""

from otafl.systems.system import Scheme, System

LEVELS = (
    "its own privacy levels, and its sum of others' noise, count one antenna; the ledger counts all "
    "antennas and ends the run earlier"
)

SYSTEM = System(
    name="cdpb",
    summary="clients balance power between data and noise by their own channel",
    package=__name__,
    schemes={
        "cdpb": Scheme(
            "CDPB: clients balance power by their own channel; idle, noisy or mixed",
            "policy:cdpb",
            settings="settings:settings",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "cdpb-gbar": Scheme(
            "CDPB baseline: receive scaling for the convergence target alone",
            "rival_policies:gbar_based",
            "GbarConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "cdpb-hmin": Scheme(
            "CDPB baseline: the weakest client sets the scaling, left-over power is noise",
            "rival_policies:hmin_based",
            "HminConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "cdpb-is": Scheme(
            "CDPB baseline: independent sampling on top of the threshold",
            "rival_policies:independent_sampling",
            "SamplingConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "cdpb-noise-free": Scheme(
            "CDPB baseline: idle without artificial noise",
            "rival_policies:noise_free",
            "NoiseFreeConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
    },
    planner="planner:PLANNER",
)
