"""CDPB (Kim, Seo, Choi): every client balances data and noise by its own channel.

policy           the scheme; settings chooses its load for a site, rho_schedule follows a law that changes
model            the mean field: who takes part, how much noise arrives, the error of a round
participants     beyond the mean field: the law of K_t, draws of whole rounds
accounting       what a round costs in privacy
detection        is participation hidden?
convergence      Theorem 2, repaired
joint, solver    the pair (rho, tau); portion: the best coin flips of CDPB-mixed
paper            the published route, with a report of what it violates
certificate      why no pair meets both limits
design           the mathematics under one name
rival_policies   gbar-based, h_min-based, independent sampling, noise-free
planner          `otafl plan cdpb`: planner_inputs, from_experiment
figures          data of the analytic figures; claims_map: each claim at each setting of the open constants
reproduce        Figures 2 and 3; reproduce_strategies: 6, 7 and 9; reproduce_training: 4, 5, 8 and MNIST;
                 reproduce_designs: reasons given for 4 and 5; reproduce_map: the map of claims
"""

from functools import partial

from otafl.systems.system import Scheme, System

LEVELS = (
    "its own privacy levels, and its sum of others' noise, count one antenna; the ledger counts all "
    "antennas and ends the run earlier"
)

one_antenna = partial(Scheme, antennas="fixed", array_note=LEVELS)

SYSTEM = System(
    name="cdpb",
    summary="clients balance power between data and noise by their own channel",
    package=__name__,
    schemes={
        "cdpb": one_antenna(
            "CDPB: clients balance power by their own channel; idle, noisy or mixed",
            "policy:cdpb",
            settings="settings:settings",
        ),
        "cdpb-gbar": one_antenna(
            "CDPB baseline: receive scaling for the convergence target alone", "rival_policies:gbar_based", "GbarConfig"
        ),
        "cdpb-hmin": one_antenna(
            "CDPB baseline: the weakest client sets the scaling, left-over power is noise",
            "rival_policies:hmin_based",
            "HminConfig",
        ),
        "cdpb-is": one_antenna(
            "CDPB baseline: independent sampling on top of the threshold",
            "rival_policies:independent_sampling",
            "SamplingConfig",
        ),
        "cdpb-noise-free": one_antenna(
            "CDPB baseline: idle without artificial noise", "rival_policies:noise_free", "NoiseFreeConfig"
        ),
    },
    planner="planner:PLANNER",
)
