"""AdaScale (Moradi Kalarde, Liang, Dong, Ahmed, Cheng): online receive scaling for the least Renyi leakage."""

from otafl.systems.system import Scheme, System

LEVELS = (
    "its own privacy levels count one antenna (amplitude, not amplitude / cos of the angle to the "
    "beam); the ledger counts all antennas and ends the run earlier"
)

SYSTEM = System(
    name="adascale",
    summary="receive scaling of every round for the least Renyi leakage",
    package=__name__,
    schemes={
        "adascale": Scheme(
            "AdaScale: least Renyi leakage under a cap on excess noise, online, by a virtual queue",
            "policy:adascale",
            settings="settings:settings",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-optimal": Scheme(
            "AdaScale's offline optimum by water-filling (hindsight)",
            "rival_policies:optimal",
            "OptimalConfig",
            hindsight=True,
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-equal": Scheme(
            "EqualAlloc: the same excess noise in every round",
            "rival_policies:equal",
            "EqualConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-estim": Scheme(
            "EstimFuture: re-plans with estimated future channels",
            "rival_policies:estim_future",
            "EstimConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-constant": Scheme(
            "constant receive scaling capped by the power limit",
            "rival_policies:constant_scaling",
            "ConstantConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-stat-level": Scheme(
            "StatLevel: constant noise level from channel statistics",
            "rival_policies:stat_level",
            "StatLevelConfig",
            settings="settings:stat_level",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-stat-water": Scheme(
            "StatWater: the level re-solved for the budget left",
            "rival_policies:stat_water",
            "StatWaterConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-liu-simeone": Scheme(
            "Liu-Simeone-style power control (reconstruction)",
            "rival_policies:liu_simeone",
            "LiuSimeoneConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
        "adascale-lyapunov": Scheme(
            "Lyapunov-style power control (reconstruction)",
            "rival_policies:lyapunov",
            "LyapunovConfig",
            antennas="fixed",
            array_note=LEVELS,
        ),
    },
    planner="planner:PLANNER",
)
