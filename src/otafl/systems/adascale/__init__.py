"""AdaScale (Moradi Kalarde, Liang, Dong, Ahmed, Cheng): online receive scaling for the least Renyi leakage."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="adascale",
    summary="receive scaling of every round for the least Renyi leakage",
    package=__name__,
    schemes={
        "adascale": Scheme(
            "AdaScale: least Renyi leakage under a cap on excess noise, online, by a virtual queue",
            "policy:adascale",
            settings="settings:settings",
        ),
        "adascale-optimal": Scheme(
            "AdaScale's offline optimum by water-filling (hindsight)",
            "rival_policies:optimal",
            "OptimalConfig",
            hindsight=True,
        ),
        "adascale-equal": Scheme(
            "EqualAlloc: the same excess noise in every round", "rival_policies:equal", "EqualConfig"
        ),
        "adascale-estim": Scheme(
            "EstimFuture: re-plans with estimated future channels", "rival_policies:estim_future", "EstimConfig"
        ),
        "adascale-constant": Scheme(
            "constant receive scaling capped by the power limit", "rival_policies:constant_scaling", "ConstantConfig"
        ),
        "adascale-stat-level": Scheme(
            "StatLevel: constant noise level from channel statistics",
            "rival_policies:stat_level",
            "StatLevelConfig",
            settings="settings:stat_level",
        ),
        "adascale-stat-water": Scheme(
            "StatWater: the level re-solved for the budget left", "rival_policies:stat_water", "StatWaterConfig"
        ),
        "adascale-liu-simeone": Scheme(
            "Liu-Simeone-style power control (reconstruction)", "rival_policies:liu_simeone", "LiuSimeoneConfig"
        ),
        "adascale-lyapunov": Scheme(
            "Lyapunov-style power control (reconstruction)", "rival_policies:lyapunov", "LyapunovConfig"
        ),
    },
    planner="planner:PLANNER",
)
