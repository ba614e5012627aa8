"""CDPB (Kim, Seo, Choi): every client balances data and noise by its own channel."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="cdpb",
    summary="clients balance power between data and noise by their own channel",
    package=__name__,
    schemes={
        "cdpb": Scheme(
            "CDPB: clients balance power by their own channel; idle, noisy or mixed",
            "policy:cdpb",
            settings="settings:settings",
        ),
        "cdpb-gbar": Scheme(
            "CDPB baseline: receive scaling for the convergence target alone", "rival_policies:gbar_based", "GbarConfig"
        ),
        "cdpb-hmin": Scheme(
            "CDPB baseline: the weakest client sets the scaling, left-over power is noise",
            "rival_policies:hmin_based",
            "HminConfig",
        ),
        "cdpb-is": Scheme(
            "CDPB baseline: independent sampling on top of the threshold",
            "rival_policies:independent_sampling",
            "SamplingConfig",
        ),
        "cdpb-noise-free": Scheme(
            "CDPB baseline: idle without artificial noise", "rival_policies:noise_free", "NoiseFreeConfig"
        ),
    },
    planner="planner:PLANNER",
)
