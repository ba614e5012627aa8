"""AdaScale (Moradi Kalarde, Liang, Dong, Ahmed, Cheng): online receive scaling for the least Renyi leakage.

policy           the scheme; settings chooses nu for a site, refusals has devices refuse by their own odometer
leakage          R(N), the leakage of a round as a function of its noise energy, and its slopes; roots finds zeros
online           the per-round problem, the virtual queue, Algorithm 1; sweeps: over whole traces at once
odometer         what devices keep track of themselves, and refuse
offline          the optimum in hindsight: water-filling, and the general dual form
convergence      Theorem 1: the bound of a run, and the cap nu for a target gamma
certificates     what is certain about a finished run
rivals           EqualAlloc, EstimFuture, constant scaling, StatLevel, StatWater, reconstructions of [20] and [23];
                 rival_policies: the same as schemes
tuning           V (and the parameters of the reconstructions) such that the cap is spent
stationary       the stationary water level of Rayleigh channels
variables        from radios and messages to noise energies and back
setting          the published settings, and channels drawn as published
methods          all methods on the same channels: the leakage of Figures 1 and 2
design           the mathematics under one name
planner          `otafl plan adascale`: planner_inputs, from_experiment, planner_silence, planner_pictures
reproduce        Figures 1 and 2 trained; reproduce_leakage: without training
"""

from functools import partial

from otafl.systems.system import Scheme, System

LEVELS = (
    "its own privacy levels count one antenna (amplitude, not amplitude / cos of the angle to the "
    "beam); the ledger counts all antennas and ends the run earlier"
)

one_antenna = partial(Scheme, antennas="fixed", array_note=LEVELS)

SYSTEM = System(
    name="adascale",
    summary="receive scaling of every round for the least Renyi leakage",
    package=__name__,
    schemes={
        "adascale": one_antenna(
            "AdaScale: least Renyi leakage under a cap on excess noise, online, by a virtual queue",
            "policy:adascale",
            settings="settings:settings",
        ),
        "adascale-optimal": one_antenna(
            "AdaScale's offline optimum by water-filling (hindsight)",
            "rival_policies:optimal",
            "OptimalConfig",
            hindsight=True,
        ),
        "adascale-equal": one_antenna(
            "EqualAlloc: the same excess noise in every round", "rival_policies:equal", "EqualConfig"
        ),
        "adascale-estim": one_antenna(
            "EstimFuture: re-plans with estimated future channels", "rival_policies:estim_future", "EstimConfig"
        ),
        "adascale-constant": one_antenna(
            "constant receive scaling capped by the power limit", "rival_policies:constant_scaling", "ConstantConfig"
        ),
        "adascale-stat-level": one_antenna(
            "StatLevel: constant noise level from channel statistics",
            "rival_policies:stat_level",
            "StatLevelConfig",
            settings="settings:stat_level",
        ),
        "adascale-stat-water": one_antenna(
            "StatWater: the level re-solved for the budget left", "rival_policies:stat_water", "StatWaterConfig"
        ),
        "adascale-liu-simeone": one_antenna(
            "Liu-Simeone-style power control (reconstruction)", "rival_policies:liu_simeone", "LiuSimeoneConfig"
        ),
        "adascale-lyapunov": one_antenna(
            "Lyapunov-style power control (reconstruction)", "rival_policies:lyapunov", "LyapunovConfig"
        ),
    },
    planner="planner:PLANNER",
)
